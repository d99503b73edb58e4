"""What happens seldom to what is kept beside the log: a store's claims, and what a sweep has found so far."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fix_custody import LATER, Desk, kinds_of, open_desk
from fix_notebook import ScopedStore

from custody_sync import errors, releasing
from custody_sync.ledger.storage import CLAIMS, NOTEBOOK, Note
from custody_sync.model import Entry, Erasure
from custody_sync.repair import listing
from custody_sync.repair.listing import Batch, Seen
from custody_sync.repair.spool import Spool
from custody_sync.testing import MemoryStore

STAYS = "where it keeps the erased space stays noted until `custody-sync repair`"


def scoped(folder: Path, *kinds: Any) -> AbstractAsyncContextManager[Desk]:
    """Open a desk with stores that keep facts apart by space."""
    return open_desk(folder, stores=lambda clock: [kind(clock=clock) for kind in kinds])


async def rows(desk: Desk) -> list[str]:
    """Return every row of the notebooks."""
    return [note.key for topic in NOTEBOOK for note in await desk.ledger.notes(topic)]


# --- what a store's listing says of a space --------------------------------------------------


async def test_pending_removals_are_looked_for_to_the_last_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of other stores stand in nobody's way."""
    monkeypatch.setattr(releasing, "LOOK", 1)
    async with scoped(tmp_path, ScopedStore, MemoryStore) as desk:
        fact_id = await desk.written()
        others = [await desk.written(n, space="other", predicate=f"p{n}") for n in range(3)]
        desk.stores["memory"].faults.refuse("delete", times=30)
        for other in others:
            await desk.retract(other)
        assert {row.store for row in await desk.ledger.pending()} == {"memory"}
        desk.stores["memory"].faults.allow()
        result = await desk.forget(fact_id, identity=True)
        assert not any(STAYS in note for note in result.notes)
        assert result.erasure is Erasure.DONE


class Vague(ScopedStore):
    """A store that does not say of what space its entries are."""

    async def list_entries(self) -> AsyncIterator[Entry]:
        """Yield entries without their space."""
        async for entry in super().list_entries():
            yield replace(entry, space=None)


class Circling(ScopedStore):
    """A store whose listing begins anew at its end."""

    async def list_entries(self) -> AsyncIterator[Entry]:
        """Yield the same entries for ever."""
        while True:
            async for entry in super().list_entries():
                yield entry


@pytest.mark.parametrize(
    ("kind", "most", "why"),
    [
        (Vague, 1000, "it lists entries that cannot be told apart"),
        (Circling, 1000, "it holds too much to look through now"),
        (Circling, None, "its listing runs in a circle"),
    ],
)
async def test_a_listing_that_does_not_tell_keeps_what_it_needs(
    tmp_path: Path, kind: type[ScopedStore], most: int | None, why: str
) -> None:
    """Whether something of the space is left nobody can say, so its claim stays, and why is said."""
    async with scoped(tmp_path, kind) as desk:
        await desk.written(space="other")
        result = await desk.forget(await desk.written(), identity=True)
        assert (result.erasure, result.complete) == (Erasure.PENDING, False)
        (said,) = await desk.custody._notebooks.settle(most=most)
        assert said == f"scoped: {STAYS} ({why})"


async def test_of_two_stores_the_one_that_is_done_lets_go(tmp_path: Path) -> None:
    """What the other needs stays due until it is done as well."""

    def second(**more: Any) -> ScopedStore:
        return ScopedStore("second", **more)

    async with scoped(tmp_path, ScopedStore, second) as desk:
        fact_id = await desk.written()
        desk.stores["second"].faults.refuse("delete")
        result = await desk.forget(fact_id, identity=True)
        assert [note for note in result.notes if STAYS in note] == [f"second: {STAYS} (removals are pending)"]
        assert len(await desk.ledger.notes(CLAIMS)) == 1
        desk.stores["second"].faults.allow()
        assert (await desk.repair()).complete
        assert await rows(desk) == []


async def test_a_claim_that_somebody_else_drops_is_not_put_back(tmp_path: Path) -> None:
    """There is nothing left in it to claim."""
    async with scoped(tmp_path, ScopedStore) as desk:
        row = f"{desk.ledger.keyed_id('notebook', 'scoped')}.0"
        note = Note(topic=CLAIMS, key=row, value="null", since=desk.ledger.now())
        await desk.custody._notebooks._put_back("org", row, note)
        assert await rows(desk) == []


# --- what a sweep has found so far -----------------------------------------------------------


class Mixing(MemoryStore):
    """A store that shows an id in another form than it gave."""

    mixes = False

    async def list_entries(self) -> AsyncIterator[Entry]:
        """Yield the entries of facts under another form of their ids."""
        async for entry in super().list_entries():
            other = self.mixes and "lost" not in (entry.text or "")
            yield replace(entry, external_id=f"0{entry.external_id}") if other else entry

    def is_same_id(self, one: str, other: str) -> bool:
        """Tell whether two ids are one in two forms."""
        return one.lstrip("0") == other.lstrip("0")

    def mixed_ids(self, placed: str) -> errors.InvalidStore:
        """Say what to do."""
        return errors.InvalidStore(store=self.name, problem=f"shows {placed} in another form")


async def test_nothing_is_taken_of_a_store_that_shows_ids_in_another_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is live would look like a stray: also what was found before it was noticed is let go of."""
    monkeypatch.setattr(listing, "BATCH", 2)

    def stores(clock: Any) -> list[MemoryStore]:
        return [MemoryStore("zulu", clock=clock), Mixing("mixing", clock=clock), Mixing("late", clock=clock)]

    async with open_desk(tmp_path, stores=stores) as desk:
        for store in ("zulu", "mixing"):
            await desk.orphan(store)
        fact_id = await desk.written()
        desk.clock.advance(LATER)
        desk.stores["mixing"].mixes = True  # type: ignore[attr-defined]  # it is a Mixing
        result = await desk.repair(watch=lambda *_: None)
        assert not result.complete
        assert kinds_of(result) == [("zulu", "orphan", "verified")]
        assert any("in another form" in problem for problem in result.still_held), result.still_held
        assert set(desk.held_of(fact_id)) == {"zulu", "mixing", "late"}
        assert len(desk.stores["mixing"].snapshot()) == 2
        desk.stores["mixing"].mixes = False  # type: ignore[attr-defined]  # it is a Mixing
        assert kinds_of(await desk.repair()) == [("mixing", "orphan", "verified")]


async def test_another_form_of_an_id_that_nothing_was_placed_under_is_a_stray(tmp_path: Path) -> None:
    """Only what is on record, in that store and not gone, can be shown in another form."""
    async with open_desk(tmp_path, stores=lambda clock: [Mixing("mixing", clock=clock)]) as desk:
        fact_id = await desk.written()
        stray = await desk.orphan("mixing", fact_id=fact_id)
        assert kinds_of(await desk.repair()) == [("mixing", "stray", "verified")]
        assert stray not in desk.stores["mixing"].snapshot()
        await desk.judge_clean()


async def test_what_another_run_has_noted_is_not_told(desk: Desk) -> None:
    """Each run has what it found by itself."""
    mine, other = (Spool(desk.ledger, run=run) for run in ("mine", "other"))
    now = desk.ledger.now()
    seen = Seen(store="memories", external_id="x", fact_id="f", since=now)
    progress = Note(topic="run", key="k", value='""', since=now)
    await other.put(
        Batch(cursor=None, scanned=1, labelled=1, spoiled=(), spoiled_more=0, young=[seen]), progress
    )
    assert [found async for found in other.seen()] == [("young", seen)]
    assert [found async for found in mine.seen()] == []
