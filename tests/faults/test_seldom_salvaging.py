"""What happens seldom while orphans are saved: each that is left is left for a reason that is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fix_custody import Desk, open_desk

from custody_sync import errors
from custody_sync.model import Fact
from custody_sync.recording import Recorder, Unrecorded
from custody_sync.testing import MemoryStore


async def salvage(desk: Desk, **more: Any) -> Any:
    """Sweep, and save what is an orphan."""
    return await desk.repair(salvage=True, **more)


async def said_of(desk: Desk) -> list[str]:
    """Salvage, and return why orphans were left."""
    result = await salvage(desk)
    assert not result.salvaged
    assert not result.complete
    return [left.partition("not salvaged: ")[2] for left in result.unrecorded]


async def test_an_orphan_whose_store_does_not_answer_is_left(desk: Desk) -> None:
    """Its text cannot be asked for."""
    await desk.orphan("memories")
    desk.stores["memories"].faults.refuse("find")
    (said,) = await said_of(desk)
    assert said.startswith("the store cannot be asked for its text (")
    assert desk.held()


async def test_another_store_that_does_not_answer_holds_up_no_salvage(desk: Desk) -> None:
    """What it holds of the fact is found by another sweep."""
    key = await desk.orphan("memories")
    desk.stores["agent"].faults.refuse("find")
    (saved,) = (await salvage(desk)).salvaged
    assert saved.entries == {"memories": (key,)}


class Changing(MemoryStore):
    """A store that shows an entry in another way when it is asked for its fact."""

    shown: dict[str, Any] | None = None

    async def find(self, fact_id: str) -> Any:
        """Return what it holds, changed; None is nothing."""
        found = await super().find(fact_id)
        return [] if self.shown is None else [replace(entry, **self.shown) for entry in found]


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ({"text": None}, "the store shows no text of it"),
        ({"space": None}, "its label says no space"),
    ],
)
async def test_an_orphan_that_says_too_little_is_left(
    tmp_path: Path, shown: dict[str, Any], said: str
) -> None:
    """A claim needs a text and a space."""
    async with open_desk(tmp_path, stores=lambda clock: [Changing("memories", clock=clock)]) as desk:
        await desk.orphan("memories")
        desk.stores["memories"].shown = shown  # type: ignore[attr-defined]  # it is a Changing
        assert await said_of(desk) == [said]


async def test_an_orphan_that_went_since_it_was_listed_is_nothing(tmp_path: Path) -> None:
    """Nothing is said of it."""
    async with open_desk(tmp_path, stores=lambda clock: [Changing("memories", clock=clock)]) as desk:
        await desk.orphan("memories")
        result = await salvage(desk)
        assert (result.salvaged, result.unrecorded) == ((), ())


async def rewrite(fact: Fact, _: object) -> Fact:
    """Return another text: a validator may."""
    return replace(fact, text=f"{fact.text}!")


async def test_an_orphan_whose_text_a_validator_rewrites_is_left(tmp_path: Path) -> None:
    """The store has another text than the ledger would have."""
    async with open_desk(tmp_path, validators=[rewrite]) as desk:
        await desk.orphan("memories")
        assert await said_of(desk) == ["a validator rewrites its text"]


async def test_an_orphan_whose_claim_is_not_recorded_is_left(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was settled against the claim, since the ledger did not answer; the code is said."""
    await desk.orphan("memories")

    async def settled(*_: object) -> None:
        raise Unrecorded(errors.LedgerUnavailable(cause="reset", fact_id="f", entries=()))

    monkeypatch.setattr(Recorder, "append", settled)
    assert await said_of(desk) == ["ledger_unavailable"]
