"""Each operation, each place where something can go wrong, each way in which it can: one repair mends it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from fix_matrix import Fault
from fix_matrix_operations import OPERATIONS
from fix_matrix_run import Bench, open_bench
from fix_sizes import FULL, LAB

from custody_sync.faultpoints import FaultPoint

ALL = (1, 2, 3)
STORES = {
    "sqlite": ALL if LAB else (1, 2),
    "jsonl": (2,) if LAB else (1,),
    "postgres": (1,),
}
"""How many stores there are, by storage."""
LONG = ("repair", "reconcile")
"""A third store adds to these what takes as long as all other operations together: not by default."""
ENGINES = ("sqlite", "jsonl", "postgres")
OF_STORES = ENGINES if FULL else ("sqlite",)
"""On these storages calls to stores go wrong as well: what a store does is nothing to another storage."""
CASE, REPORT = "CUSTODY_SYNC_MATRIX_CASE", "CUSTODY_SYNC_MATRIX_REPORT"


def _numbers(engine: str, operation: str) -> tuple[int, ...]:
    """Return over how many stores an operation is tried."""
    if told := os.environ.get(CASE):
        return (int(told.partition("/")[0]),)
    if FULL:
        return ALL
    return STORES[engine][:2] if operation in LONG else STORES[engine]


def _chosen(engine: str, bench: Bench) -> list[Fault]:
    """Return all cases, or the one that somebody wants to see again."""
    told = os.environ.get(CASE)
    if not told:
        return [fault for fault in bench.faults() if engine in OF_STORES or not fault.is_of_a_store]
    return [Fault.parse(told.partition("/")[2])]


def _report(storage: str, bench: Bench, number: int, seconds: float) -> None:
    """Append what was counted to the file that CUSTODY_SYNC_MATRIX_REPORT names, a line each."""
    if path := os.environ.get(REPORT):
        line = {
            "storage": storage,
            "operation": bench.operation.name,
            "stores": number,
            "cases": dict(sorted(bench.counted.items())),
            "mended": len(bench.mended),
            "places": len(bench.places),
            "missed": len(bench.missed),
            "seconds": round(seconds, 2),
        }
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _may_be_missed(storage: str, operation: str, said: str) -> bool:
    """Tell whether a place may not be reached again: whose answer comes first is the server's to say."""
    return storage == "postgres" and (operation == "write_racing" or Fault.parse(said).at > 1)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("engine", "operation", "number"),
    [(engine, one, number) for engine in ENGINES for one in OPERATIONS for number in _numbers(engine, one)],
)
def test_one_repair_mends_whatever_goes_wrong_anywhere(
    engine: str, operation: str, number: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """I1 to I8 hold after any fault at any passage of any place, and one repair."""

    def uri() -> str:
        return str(request.getfixturevalue("postgres_uri"))

    began = time.process_time()
    with open_bench(engine, operation, number, tmp_path, uri) as (bench, runner):
        found = runner.run(bench.run_all(_chosen(engine, bench)))
    _report(engine, bench, number, time.process_time() - began)
    lost = [said for said in bench.missed if not _may_be_missed(engine, operation, said)]
    said = (*found, *(f"{case}: not reached" for case in lost))
    problems = [f"{CASE}={number}/{problem}" for problem in said]
    again = f"python -m pytest '{request.node.nodeid}' with the variable as it is given before each"
    assert not problems, f"{len(problems)} cases failed; {again}\n" + "\n".join(problems)


def test_every_fault_point_is_reached_by_an_operation(tmp_path: Path) -> None:
    """A point in the registry that no operation comes to is not tested, so it fails here."""
    reached: set[str] = set()
    for operation in OPERATIONS:
        with open_bench("sqlite", operation, 2, tmp_path, str) as (bench, _):
            reached |= set(bench.places)
    missing = {point.value for point in FaultPoint} - reached
    assert not missing, f"no operation of the matrix reaches {sorted(missing)}"
