"""L4 held against a model: random histories, replayed by a few lines of plain Python."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from fix_ledger import START, Book, open_group_book
from hypothesis import given, settings
from hypothesis import strategies as st

from custody_sync.errors import Refused
from custody_sync.ledger import Assert
from custody_sync.ledger.drafts import Draft
from custody_sync.model import Entry, Event, EventKind, Fact, Provenance

HOUR = timedelta(hours=1)
NEVER = 10**9


@dataclass
class Known:
    """What the model knows of one fact: the fact, and the seq of what happened to it."""

    fact: Fact
    seq: int
    effect: int = NEVER
    retract: int = NEVER
    forget: int = NEVER
    anonymous: bool = False


@dataclass
class Model:
    """The rules as DESIGN states them, slowly and without an index."""

    facts: dict[str, Known] = field(default_factory=dict)
    times: list[datetime] = field(default_factory=list)

    def takes(self, draft: Draft) -> bool:
        """Tell whether the ledger has to take a draft."""
        known = self.facts.get(draft.fact_id)
        if isinstance(draft, Assert):
            return known is None and self._may_replace(draft.fact)
        if known is None:
            return False
        kind = type(draft).__name__
        if kind == "Forget":
            return known.forget == NEVER or (getattr(draft, "identity", False) and not known.anonymous)
        if known.forget != NEVER or known.retract != NEVER:
            return False
        if kind == "Confirm":
            return known.effect == NEVER and self._may_replace(known.fact)
        return kind == "Retract"

    def _may_replace(self, fact: Fact) -> bool:
        if fact.supersedes is None:
            return True
        target = self.facts.get(fact.supersedes)
        if target is None or target.effect == NEVER:
            return False
        if target.retract != NEVER or target.forget != NEVER:
            return False
        same = all(getattr(fact, f) == getattr(target.fact, f) for f in ("space", "subject", "predicate"))
        covered = any(k.effect < NEVER and k.retract == NEVER for k in self.later(fact.supersedes))
        return same and not covered and fact.valid_from >= target.fact.valid_from

    def later(self, fact_id: str) -> list[Known]:
        """Return every later link of a fact's chain."""
        links = [known for known in self.facts.values() if known.fact.supersedes == fact_id]
        return links + [deeper for link in links for deeper in self.later(link.fact.fact_id)]

    def root(self, fact_id: str) -> str:
        """Return the first link of a fact's chain."""
        while (earlier := self.facts[fact_id].fact.supersedes) is not None:
            fact_id = earlier
        return fact_id

    def take(self, draft: Draft, event: Event) -> None:
        """Go one event further."""
        self.times.append(event.tx_time)
        if isinstance(draft, Assert):
            known = Known(draft.fact, event.seq)
            if draft.fact.provenance is not Provenance.CLAIMED:
                known.effect = event.seq
            self.facts[draft.fact_id] = known
            return
        known = self.facts[draft.fact_id]
        if event.kind is EventKind.CONFIRM:
            known.effect = event.seq
        elif event.kind is EventKind.RETRACT:
            known.retract = event.seq
        else:
            known.forget = min(known.forget, event.seq)
            known.anonymous = known.anonymous or bool(getattr(draft, "identity", False))

    def as_of(self, valid_at: datetime, tx_at: datetime, claimed: bool, **only: str) -> list[Any]:
        """Return what the ledger has to answer, in write order."""
        head = sum(time <= tx_at for time in self.times)
        found = []
        for known in self.facts.values():
            fact = known.fact
            ended = fact.valid_to is not None and fact.valid_to <= valid_at
            if known.seq > head or known.retract <= head or known.forget <= head:
                continue
            if fact.valid_from > valid_at or ended:
                continue
            if known.effect > head and not claimed:
                continue
            if known.effect <= head and any(
                link.effect <= head < link.retract and link.fact.valid_from <= valid_at
                for link in self.later(fact.fact_id)
            ):
                continue
            names = {f: "" if known.anonymous else getattr(fact, f) for f in ("space", "predicate")}
            if any(names[name] != wanted for name, wanted in only.items()):
                continue
            gone = known.forget != NEVER
            confirmed = fact.provenance is Provenance.CLAIMED and known.effect <= head
            found.append((fact.fact_id, None if gone else fact.value, gone, confirmed, names["space"]))
        return found


@dataclass
class History:
    """A random history under way: the ledger, the model, and what was drafted."""

    book: Book
    model: Model = field(default_factory=Model)

    def draft(self, op: tuple[Any, ...]) -> Draft:
        """Turn random numbers into a draft; targets are picked among all facts so far."""
        kind, pick, start, length, names, claimed = op
        facts = list(self.model.facts)
        target = facts[pick % len(facts)] if facts else None
        if kind == "assert" or target is None:
            return self._state(None, start, length, names, claimed)
        if kind == "supersede":
            return self._state(target, start, length, names, claimed)
        if kind == "forget":
            return self.book.forget(target, identity=claimed)
        return self.book.retract(target) if kind == "retract" else self.book.confirm(target)

    def _state(self, target: str | None, start: int, length: int, names: int, claimed: bool) -> Draft:
        made = self.model.facts[target].fact if target is not None else None
        # Mostly the target's own names, now and then others, which has to be refused.
        space, predicate = (
            (made.space, made.predicate)
            if made is not None and names < 9
            else (("org", "team:a")[names % 2], ("plan", "owner")[names % 3 % 2])
        )
        return self.book.state(
            space=space,
            predicate=predicate,
            value=f"v{len(self.model.facts)}",
            valid_from=START + start * HOUR,
            valid_to=None if not length else START + (start + length) * HOUR,
            provenance=Provenance.CLAIMED if claimed else Provenance.ATTESTED,
            supersedes=target,
            held=[("memories", f"m{len(self.model.facts)}")],
        )

    async def go(self, op: tuple[Any, ...]) -> None:
        """Append one draft; ledger and model have to agree whether it is taken."""
        draft = self.draft(op)
        expected = self.model.takes(draft)
        try:
            event = await self.book.append(draft)
        except Refused:
            assert not expected, draft
        else:
            assert expected, draft
            self.model.take(draft, event)

    async def compare(self) -> None:
        """Ask ledger and model every question there is, as of before, between and after the events."""
        moments = sorted({START - HOUR, *self.model.times, START + 99 * HOUR})
        for tx_at in moments:
            for hour in (-1, 0, 1, 2, 3, 5, 8):
                valid_at = START + hour * HOUR
                for claimed in (False, True):
                    for only in ({}, {"space": "org"}, {"predicate": "plan", "space": "team:a"}):
                        page = await self.book.ledger.as_of(
                            valid_at=valid_at, tx_at=tx_at, include_claimed=claimed, limit=1000, **only
                        )
                        got = [(f.fact_id, f.value, f.forgotten, f.confirmed, f.space) for f in page]
                        assert got == self.model.as_of(valid_at, tx_at, claimed, **only)
                        if not only:
                            await self.check_trails(page, valid_at, tx_at, claimed)

    async def check_trails(
        self, believed: list[Fact], valid_at: datetime, tx_at: datetime, claimed: bool
    ) -> None:
        """Every fact leads to the one of its chain that `as_of` lists, and a waiting claim to itself."""
        waiting = {f.fact_id: f for f in believed if f.provenance is Provenance.CLAIMED and not f.confirmed}
        live = {self.model.root(f.fact_id): f for f in believed if f.fact_id not in waiting}
        assert len(live) + len(waiting) == len(believed), "two links of a chain are believed"
        ids = list(self.model.facts)
        entries = [Entry(store="memories", external_id="", fact_id=fact_id) for fact_id in ids]
        _, found = await self.book.ledger.follow(
            entries, valid_at=valid_at, tx_at=tx_at, include_claimed=claimed
        )
        wanted = [waiting.get(fact_id) or live.get(self.model.root(fact_id)) for fact_id in ids]
        assert [one.fact for one in found] == wanted


OPS = st.tuples(
    st.sampled_from(["assert", "supersede", "supersede", "supersede", "retract", "confirm", "forget"]),
    st.integers(0, 30),
    st.integers(0, 4),
    st.sampled_from([0, 0, 0, 1, 3]),
    st.integers(0, 9),
    st.sampled_from([False, False, True]),
)
STEPS = st.sampled_from([0, 0, 1, 1, -1])


@settings(max_examples=60)
@given(st.lists(st.tuples(OPS, STEPS), max_size=18))
def test_l4_as_of_equals_a_replay_of_the_events(history: list[tuple[tuple[Any, ...], int]]) -> None:
    """For every two instants, what is believed, claimed and forgotten is what the rules say (I4, I8)."""

    async def run(folder: Path) -> None:
        book = await open_group_book(folder / "l.db", option="?synchronous=off")
        going = History(book)
        for op, step in history:
            book.clock.set(book.clock.now() + step * HOUR)
            await going.go(op)
        await going.compare()
        await book.ledger.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))


@settings(max_examples=25)
@given(st.lists(OPS, min_size=2, max_size=14), st.integers(1, 6))
def test_l2_a_group_decides_like_its_drafts_one_by_one(history: list[tuple[Any, ...]], size: int) -> None:
    """The same drafts give the same events, refusals and tables, however they are grouped."""

    async def run(folder: Path) -> None:
        alone = await open_group_book(folder / "alone.db", option="?synchronous=off")
        grouped = await open_group_book(folder / "grouped.db", option="?synchronous=off")
        going = History(alone)
        drafts: list[Draft] = []
        results: list[str] = []
        for op in history:
            drafts.append(going.draft(op))
            try:
                event = await alone.append(drafts[-1])
            except Refused as refusal:
                results.append(refusal.code)
            else:
                results.append(event.hash)
                going.model.take(drafts[-1], event)
        found = [r for i in range(0, len(drafts), size) for r in await grouped.group(drafts[i : i + size])]
        assert [r.hash if isinstance(r, Event) else getattr(r, "code", r) for r in found] == results
        assert await alone.export() == await grouped.export()
        for book in (alone, grouped):
            await book.ledger.close()
        assert tables(folder / "alone.db") == tables(folder / "grouped.db")

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))


def tables(path: Path) -> dict[str, list[Any]]:
    """Return every table that is derived from the log."""
    conn = sqlite3.connect(path)
    names = ("head", "events", "sealed", "claims", "facts", "placements", "owed", "holds")
    rows = {name: sorted(conn.execute(f"SELECT * FROM {name}"), key=repr) for name in names}
    conn.close()
    return rows
