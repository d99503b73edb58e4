"""`make soak HOURS=1`: run the parts, write the report, and exit with 1 if anything failed."""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from soak.parts import PARTS, cores
from soak.processes import Child, Process, cpu_of_children, hear_interrupts
from soak.records import Part, Round
from soak.report import commit, document, machine, write
from soak.soaking import Soak

ROOT = Path(__file__).parents[2]
REPORTS = ROOT / "docs" / "soak"
OUTPUTS = ROOT / ".soak"
INTERRUPTED = 130
FIRST_SEED, LAST_SEED = 10**6, 4 * 10**9
"""What CI runs lies below the first, and what a random order may be given ends at the last."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak for as long as the arguments say; without hours, say what would be done."""
    told = read_arguments(arguments)
    parts = [part for part in PARTS if part.name in told.parts] if told.parts else list(PARTS)
    if told.hours is None:
        _say(outline(parts))
        return 0
    hear_interrupts()
    began, clock = datetime.now(UTC), time.monotonic()
    outputs = OUTPUTS / f"{began:%Y-%m-%d-%H%M%S}"
    outputs.mkdir(parents=True)
    _say(f"soaking for {told.hours:g} hours from seed {told.start}, until {_until(began, told.hours)}")
    soak = Soak(
        parts=parts,
        seconds=told.hours * 3600,
        start=told.start,
        width=cores(),
        begin=_beginning(outputs),
        now=time.monotonic,
        sleep=time.sleep,
        cpu=cpu_of_children,
        say=lambda line: _say(f"{datetime.now(UTC):%H:%M:%S} {line}"),
    )
    tried, finished = commit(ROOT), soak.run()
    about = {
        "commit": tried if tried == commit(ROOT) else f"{tried}, which was not the same in the end",
        "machine": machine(),
        "interrupted": not finished,
        "wall_seconds": round(time.monotonic() - clock),
        "left_out": [part.name for part in PARTS if part not in parts],
    }
    said = document(soak.tallies, began=began, hours=told.hours, start=told.start, about=about)
    _say(f"written: {write(said, told.reports).name}{_outputs_of(outputs)}")
    if said["failed"] or said["counted_nothing"]:
        return 1
    return 0 if finished else INTERRUPTED


def outline(parts: Sequence[Part]) -> str:
    """Return what a soak does and how long each part of it goes on, for who gave no hours."""
    whole = sum(part.share for part in parts)
    lines = ["make soak HOURS=n runs for n hours (a fraction will do), writes docs/soak/DATE.md, and is", ""]
    for part in parts:
        lines.append(f"  {part.share / whole:4.0%}  {part.name:18}{part.title}")
    lines += ["", "Whole runs of the tests may take longer while other parts keep their shares; time that is"]
    lines += ["left goes to the parts that can go on. What was cut short or not run is said to be so."]
    return "\n".join(lines)


def read_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what a command line says, or end with what is wrong with it."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--hours", type=_hours, help="how long; without it the parts are listed")
    parser.add_argument("--start", type=int, help="the seed to begin with; a new one by default")
    parser.add_argument("--reports", type=Path, default=REPORTS, help="where the report goes")
    names = [part.name for part in PARTS]
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(names)}; all by default")
    told = parser.parse_args(arguments)
    if unknown := [name for name in told.parts if name not in names]:
        parser.error(f"no part is called {unknown[0]!r}; there are {', '.join(names)}")
    if told.start is None:
        told.start = random.SystemRandom().randrange(FIRST_SEED, LAST_SEED)
    return told


def _hours(raw: str) -> float:
    if not 0 < (hours := float(raw)) < 24 * 365:
        raise ValueError(raw)
    return hours


def _until(began: datetime, hours: float) -> str:
    return f"{datetime.fromtimestamp(began.timestamp() + hours * 3600, UTC):%Y-%m-%d %H:%M} UTC"


def _beginning(outputs: Path) -> Callable[[Part, Round], Child]:
    """Return what starts rounds, each with a file of its own for what it prints."""
    numbers = itertools.count(1)
    return lambda part, ran: Process(ran, root=ROOT, log=outputs / f"{part.name}-{next(numbers)}.log")


def _outputs_of(outputs: Path) -> str:
    """Say where the output of what failed is, if there is any."""
    with suppress(OSError):
        outputs.rmdir()
        return ""
    return f"; what failed printed {outputs.relative_to(ROOT)}/"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
