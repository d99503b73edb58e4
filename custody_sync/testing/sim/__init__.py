"""A deterministic simulator: the real coordinator, rules and repair in a world that a seed makes up.

Time, the order of callbacks, the disk and the network are virtual and drawn from the seed; stores
lag, lie, refuse, lose replies and go away; processes die at any await. A judge that knows the
ledger by its bytes alone checks I1 to I8 (docs/guarantees.md) whenever something happens. Then all
is healed, the repair age passes, and one `repair` has to leave what is believed and nothing else.

    python -m custody_sync.testing.sim --seeds 0:5000
    python -m custody_sync.testing.sim --interleave supersede:forget

A run that fails is made small and prints the one command that repeats it. Two operations on one fact
are not sampled but tried in every order within a bound; see `run_schedules`.
"""

from __future__ import annotations

from custody_sync.testing.sim.disk import Disk, DiskFault, SimStorage
from custody_sync.testing.sim.judge import Violation
from custody_sync.testing.sim.loop import Endless, Stuck, VirtualClock, VirtualLoop
from custody_sync.testing.sim.network import NetFault
from custody_sync.testing.sim.pairs import PAIRS, SETTINGS, Came, Pair, Run, Setting
from custody_sync.testing.sim.plan import Fault, Plan, Step
from custody_sync.testing.sim.running import Found, Tally, run_seeds
from custody_sync.testing.sim.schedules import Explored, everything, explore, repeat, run_schedules, share
from custody_sync.testing.sim.scheduling import Schedule
from custody_sync.testing.sim.shrink import shrink
from custody_sync.testing.sim.world import Outcome, simulate

__all__ = [
    "PAIRS",
    "SETTINGS",
    "Came",
    "Disk",
    "DiskFault",
    "Endless",
    "Explored",
    "Fault",
    "Found",
    "NetFault",
    "Outcome",
    "Pair",
    "Plan",
    "Run",
    "Schedule",
    "Setting",
    "SimStorage",
    "Step",
    "Stuck",
    "Tally",
    "Violation",
    "VirtualClock",
    "VirtualLoop",
    "everything",
    "explore",
    "repeat",
    "run_schedules",
    "run_seeds",
    "share",
    "shrink",
    "simulate",
]
