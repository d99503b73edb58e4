"""Tools for testing with custody-sync: a store that misbehaves, time that stands still, faults on demand.

Public for third parties too: `StoreContract` and `check_store` say whether an adapter of yours
keeps the promises that the coordinator relies on. Importing this needs no pytest.
The simulator, `custody_sync.testing.sim`, is imported by itself.
"""

from __future__ import annotations

from custody_sync.testing.clock import InlineExecutor, ManualClock, SteppingIds, manual_sleep, testing_runtime
from custody_sync.testing.contract import (
    RULES,
    ContractReport,
    ContractViolation,
    NotApplicable,
    RuleResult,
    StoreContract,
    StoreHooks,
    Trouble,
    Verdict,
    check_store,
)
from custody_sync.testing.faults import Crash, FaultPlan, RecordingHook
from custody_sync.testing.memory import MemoryStore
from custody_sync.testing.memory_hooks import MemoryHooks
from custody_sync.testing.misbehaviour import FOREVER, Faults

__all__ = [
    "FOREVER",
    "RULES",
    "ContractReport",
    "ContractViolation",
    "Crash",
    "FaultPlan",
    "Faults",
    "InlineExecutor",
    "ManualClock",
    "MemoryHooks",
    "MemoryStore",
    "NotApplicable",
    "RecordingHook",
    "RuleResult",
    "SteppingIds",
    "StoreContract",
    "StoreHooks",
    "Trouble",
    "Verdict",
    "check_store",
    "manual_sleep",
    "testing_runtime",
]
