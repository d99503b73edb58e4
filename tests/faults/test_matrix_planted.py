"""The matrix can fail: each of these bugs is found by the cases of one operation, in the words given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fix_matrix import Kind
from fix_matrix_run import Bench, open_bench
from fix_planted import (
    event_after_the_delete,
    salt_kept,
    settle_by_reading,
    skip_the_compensation,
    verified_on_an_error,
)

from custody_sync.errors import LedgerFull
from custody_sync.model import Event, EventKind
from custody_sync.recording import Recorder


def commit_failure_believed(patch: pytest.MonkeyPatch) -> None:
    """A commit that failed counts as one that was done."""
    append = Recorder.append

    async def hopeful(self: Recorder, draft: Any, placements: Any = ()) -> Event:
        try:
            return await append(self, draft, placements)
        except LedgerFull:
            now = self._ledger.now()
            return Event(
                seq=1,
                kind=EventKind.ASSERT,
                fact_id=draft.fact_id,
                event_id=draft.event_id,
                actor=draft.actor,
                tx_time=now,
                receipt_id=None,
                data={},
                sealed={},
                prev="0" * 64,
                hash="0" * 64,
            )

    patch.setattr(Recorder, "append", hopeful)


@dataclass(frozen=True, slots=True)
class Planted:
    """A bug, the operation whose cases find it, the kinds of fault to try, and what they say."""

    plant: Callable[[pytest.MonkeyPatch], None]
    operation: str
    kinds: tuple[Kind, ...]
    says: str


PLANTED = (
    Planted(skip_the_compensation, "write", (Kind.REFUSED,), "I5: something is left in ['own'"),
    Planted(settle_by_reading, "write", (Kind.LANDS_LATER,), "I2: held and not placed"),
    Planted(verified_on_an_error, "retract", (Kind.REQUEST_LOST,), "and the store never said so"),
    Planted(event_after_the_delete, "repair", (Kind.DIES,), "were deleted before anything was on record"),
    Planted(salt_kept, "forget", (Kind.DIES,), "a record cannot be read"),
    Planted(commit_failure_believed, "write", (Kind.FULL,), "is acknowledged and not in the ledger"),
)


async def find(bench: Bench, planted: Planted) -> str:
    """Run cases until one fails, and return what it says."""
    for fault in bench.faults():
        if fault.kind in planted.kinds:
            found = await bench.run_all([fault])
            if found:
                return found[0]
    return "nothing"


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.plant.__name__)
def test_the_matrix_finds_a_planted_bug(
    planted: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A judge that finds nothing in a broken product would prove nothing about a whole one."""
    with open_bench("sqlite", planted.operation, 2, tmp_path, str) as (bench, runner):
        planted.plant(monkeypatch)
        bench.mended.clear()
        found = runner.run(find(bench, planted))
    assert planted.says in found
