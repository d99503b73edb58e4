"""Recall held against the ledger's own `as_of`, over random histories and a store that let go of nothing."""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from fix_ledger import START, Book, open_book
from fix_recall import Shelf, entry_of
from hypothesis import given, settings
from hypothesis import strategies as st

from custody_sync.coordinator import AsyncCoordinator
from custody_sync.errors import Refused
from custody_sync.model import Entry, Fact, Provenance
from custody_sync.recalled import Dropped

HOUR = timedelta(hours=1)
FULL = bool(os.environ.get("CUSTODY_SYNC_FULL"))
SPACES = ("org", "team:a")


@dataclass
class History:
    """A random history under way, and every fact that it stated."""

    book: Book
    facts: dict[str, Fact] = field(default_factory=dict)

    async def go(self, kind: str, pick: int, start: int, length: int, claimed: bool) -> None:
        """Append one draft, or be refused."""
        ids = list(self.facts)
        target = self.facts[ids[pick % len(ids)]] if ids else None
        if target is None or kind in ("state", "supersede"):
            draft: Any = self._state(target if kind == "supersede" else None, pick, start, length, claimed)
        elif kind == "forget":
            draft = self.book.forget(target.fact_id, identity=claimed)
        else:
            draft = getattr(self.book, kind)(target.fact_id)
        try:
            await self.book.append(draft)
        except Refused:
            return
        if kind in ("state", "supersede") or target is None:
            self.facts[draft.fact_id] = draft.fact

    def _state(self, target: Fact | None, pick: int, start: int, length: int, claimed: bool) -> Any:
        number = len(self.facts)
        return self.book.state(
            subject=target.subject if target else f"s{number}",
            space=target.space if target else SPACES[pick % 2],
            value=number,
            valid_from=START + start * HOUR,
            valid_to=None if not length else START + (start + length) * HOUR,
            provenance=Provenance.CLAIMED if claimed else Provenance.ATTESTED,
            supersedes=target.fact_id if target else None,
        )

    def root(self, fact_id: str) -> str:
        """Return the first link of a chain."""
        while (below := self.facts[fact_id].supersedes) is not None:
            fact_id = below
        return fact_id

    def expected(self, served: list[Entry], believed: list[Fact]) -> list[Fact]:
        """Work out what a list of entries leads to, of what `as_of` believes."""
        led: dict[str, Fact] = {}
        for entry in served:
            for fact in believed:
                waits = fact.provenance is Provenance.CLAIMED and not fact.confirmed
                is_it = fact.fact_id == entry.fact_id
                own = next((f for f in believed if f.fact_id == entry.fact_id and f is not fact), None)
                own_waits = own is not None and own.provenance is Provenance.CLAIMED and not own.confirmed
                same_chain = self.root(fact.fact_id) == self.root(entry.fact_id or "")
                if is_it or (same_chain and not waits and not own_waits):
                    led.setdefault(fact.fact_id, fact)
        return list(led.values())


OPS = st.tuples(
    st.sampled_from(["state", "supersede", "supersede", "supersede", "retract", "confirm", "forget"]),
    st.integers(0, 30),
    st.integers(0, 4),
    st.sampled_from([0, 0, 0, 1, 3]),
    st.sampled_from([False, False, True]),
)
STEPS = st.sampled_from([0, 0, 1, 1])


@settings(max_examples=600 if FULL else 20)
@given(st.lists(st.tuples(OPS, STEPS), min_size=1, max_size=14), st.randoms(use_true_random=False))
def test_recall_serves_exactly_what_as_of_believes(
    history: list[tuple[tuple[Any, ...], int]], chance: random.Random
) -> None:
    """At any two instants: every believed fact that the store led to, in its order, and no other."""

    async def run(folder: Path) -> None:
        book = await open_book(folder / "l.db", url=f"sqlite:///{folder / 'l.db'}?synchronous=off")
        going = History(book)
        for op, step in history:
            book.clock.set(book.clock.now() + step * HOUR)
            await going.go(*op)
        shelf = Shelf()
        custody = AsyncCoordinator(book.ledger, stores=[shelf])
        for _ in range(4):
            await _compare(custody, shelf, going, chance)
        await custody.close()
        await book.ledger.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))


async def _compare(custody: AsyncCoordinator, shelf: Shelf, going: History, chance: random.Random) -> None:
    """Lay out every entry that ever was, some of them twice, and ask at instants drawn by chance."""
    ledger = going.book.ledger
    ids = list(going.facts)
    served = [
        entry_of(ledger, fact_id, external_id=f"x{n}")
        for n, fact_id in enumerate(chance.sample(ids, len(ids)) + chance.choices(ids, k=3))
    ]
    shelf.lay(*served)
    asked: dict[str, Any] = {
        "valid_at": chance.choice([None, _instant(chance)]),
        "tx_at": chance.choice([None, _instant(chance)]),
        "include_claimed": chance.random() < 0.3,
    }
    spaces = chance.choice([None, None, *((space,) for space in SPACES), SPACES])
    believed = [
        fact
        for fact in await ledger.as_of(limit=1000, **asked)
        if not fact.forgotten and (spaces is None or fact.space in spaces)
    ]
    expected = going.expected(served, believed)
    found = await custody.recall("q", k=1000, spaces=spaces, **asked)
    assert list(found.facts) == expected
    # The store has everything, so nothing that is believed may be missing.
    assert Counter(fact.fact_id for fact in expected) == Counter(fact.fact_id for fact in believed)
    assert found.status == "exhausted"
    assert found.seen == len(served) == len(found.hits) + sum(found.dropped.values())
    assert Dropped.ORPHAN not in found.dropped
    assert repr(await custody.recall("q", k=1000, spaces=spaces, **asked)) == repr(found)
    for k in range(1, len(expected) + 1):
        best = await custody.recall("q", k=k, spaces=spaces, **asked)
        assert (list(best.facts), best.status) == (expected[:k], "full")
    # Of a store that lost some of it, what the rest leads to.
    left = chance.sample(served, len(served) // 2)
    shelf.lay(*left)
    some = await custody.recall("q", k=1000, spaces=spaces, **asked)
    assert list(some.facts) == going.expected(left, believed)
    assert some.complete == (len(some.facts) == len(believed))


def _instant(chance: random.Random) -> datetime:
    return START + chance.randint(-1, 9) * HOUR
