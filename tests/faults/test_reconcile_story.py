"""A story of drift: whatever happens to the stores, one run mends it and a second finds nothing."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fix_custody import LATER, Desk, open_desk
from fix_reconcile import alter, found
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from custody_sync.model import Capability
from custody_sync.testing import MemoryStore

SPACES = ("org", "user:1")
HAPPENS = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 3)),
    st.tuples(st.sampled_from(["supersede", "retract", "forget"]), st.integers(0, 9)),
    st.tuples(
        st.sampled_from(["lose", "edit", "respace", "redate", "strip", "swap", "fool"]), st.integers(0, 19)
    ),
    st.tuples(st.sampled_from(["orphan", "stray", "foreign", "unlabelled"]), st.integers(0, 9)),
)


class Teller:
    """Makes things happen at a desk."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._ids: list[str] = []
        self.strangers: set[tuple[str, str]] = set()

    async def tell(self, what: str, number: int) -> None:
        """Make one thing happen."""
        if what == "write":
            space = SPACES[number % 2]
            self._ids.append(await self._desk.written(number, subject=f"s:{len(self._ids)}", space=space))
        elif what in ("supersede", "retract", "forget"):
            await self._decide(what, number)
        else:
            await self._drift(what, number)

    async def _decide(self, what: str, number: int) -> None:
        believed = await self._desk.current()
        if not believed:
            return
        fact = await self._desk.ledger.get(believed[number % len(believed)])
        assert fact is not None
        if what == "supersede":
            told = {"subject": fact.subject, "space": fact.space, "supersedes": fact.fact_id}
            self._ids.append(await self._desk.written(number, **told))
        else:
            await getattr(self._desk, what)(fact.fact_id)

    async def _drift(self, what: str, number: int) -> None:
        name = tuple(self._desk.stores)[number % len(self._desk.stores)]
        store = self._desk.stores[name]
        if what in ("orphan", "stray"):
            known = self._ids[number % len(self._ids)] if what == "stray" and self._ids else None
            await self._desk.orphan(name, fact_id=known)
            return
        if what in ("foreign", "unlabelled"):
            key = store.put_raw("a stranger's note")
            if what == "foreign":
                label = {"source": "custody-sync", "fact_id": f"theirs-{key}", "ledger_id": "another"}
                alter(store, key, **label)
            self.strangers.add((name, key))
            return
        placed = [(n, k) for (n, k), owner in self._desk.held().items() if n == name]
        if placed:
            self._change(store, what, sorted(placed)[number % len(placed)][1])

    def _change(self, store: MemoryStore, what: str, key: str) -> None:
        if what == "lose":
            store.drop(key)
        elif what == "edit":
            alter(store, key, text="somebody wrote over it")
        elif what == "respace":
            alter(store, key, space="elsewhere")
        elif what == "redate":
            alter(store, key, stored_at="2020-01-01T00:00:00Z")
        elif what == "fool":
            alter(store, key, custody="{}")
        elif what == "swap" and self._ids:
            alter(store, key, fact_id=self._ids[0])
        elif what == "strip" and store.capabilities.get(Capability.RELABEL) is None:
            store._held[key] = replace(store._held[key], metadata={})


async def told(story: Sequence[tuple[str, int]], folder: Path, stores: Any) -> None:
    """Tell a story, mend what drifted, and judge what is left."""
    async with open_desk(folder, stores=stores) as desk:
        teller = Teller(desk)
        for what, number in story:
            await teller.tell(what, number)
        # What drifted stays as it is; whatever could be a write under way is old by now.
        desk.clock.advance(LATER)
        await desk.custody.reconcile(actor="ops", fix="all", max_removals=1000, max_puts=1000)
        again = await desk.custody.reconcile(actor="ops", fix="all", max_removals=1000, max_puts=1000)
        assert (found(again), again.complete) == ([], True), again
        await desk.judge_clean()
        for fact_id in await desk.current():
            assert all(len(keys) == 1 for keys in desk.held_of(fact_id).values())
            fact = await desk.ledger.get(fact_id)
            texts = [
                e.text for s in desk.stores.values() for e in s.snapshot().values() if e.fact_id == fact_id
            ]
            assert fact is not None
            assert set(texts) == {fact.text}
        shown = {(name, key) for name, store in desk.stores.items() for key in store.snapshot()}
        assert teller.strangers <= shown


@pytest.mark.parametrize("relabels", [True, False])
def test_a_story_of_drift(relabels: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """After one run nothing differs, every believed fact is in every store once, strangers are untouched."""
    without = () if relabels else (Capability.RELABEL,)

    def stores(clock: Any) -> list[MemoryStore]:
        return [
            MemoryStore("keyed", clock=clock, without=without, page_size=2),
            MemoryStore("own", own_ids=True, clock=clock, without=without),
        ]

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(HAPPENS, min_size=3, max_size=25))
    def tell(story: list[tuple[str, int]]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            # Ids are the same in every example, and a witness would take one for an older state of another.
            monkeypatch.setenv("CUSTODY_SYNC_WITNESS", str(Path(folder) / "witnesses"))
            asyncio.run(told([("write", 0), ("write", 1), *story], Path(folder), stores))

    tell()
