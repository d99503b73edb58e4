"""A log like one that a few years of agents' memories leave: customers come, are corrected, and go.

Most facts in it are superseded, retracted or forgotten, and the oldest customers have left
nothing that is believed: whatever looks for believed facts from the beginning has far to go.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from custody_sync.canonical import parse
from custody_sync.ledger import Assert, Confirm, Forget, Place, Remove, Repair, Retract
from custody_sync.ledger.chain import GENESIS, prepare, seal
from custody_sync.ledger.drafts import Draft
from custody_sync.ledger.replaying import Stored
from custody_sync.model import FREE_TEXT_PREDICATE, Fact, Outcome, Placement, Provenance, format_instant
from custody_sync.runtime import SystemIds

ACTOR = "agent:support"
STORES = ("vectors", "memories")
START = datetime(2025, 1, 1, tzinfo=UTC)
BETWEEN = timedelta(seconds=20)
"""From one event to the next."""
EVENTS_PER_SUBJECT = 60
SUBJECTS_PER_SPACE = 5
STAY = 0.3
"""For which part of the log a customer stays."""
PREDICATES = ("plan", "city", "language", "contact", "renewal")
WORDS = (
    *("the", "she", "they", "wants", "prefers", "moved", "asked", "about", "invoice", "coffee", "Berlin"),
    *("Monday", "refund", "gluten", "Österreich", "vegetarian", "seat", "upgrade", "aisle", "dog", "works"),
    *("nights", "since", "March", "allergic", "quarterly"),
)

Step = tuple[Draft, tuple[str, ...]]
"""A draft, and which of its sections a later forget takes."""


class SeededIds(SystemIds):
    """Ids and salts that are the same in every run, and no less random to an index."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)

    def secret(self, size: int) -> bytes:
        """Return bytes that anybody can guess; nothing here is secret."""
        return self._random.randbytes(size)


@dataclass(slots=True)
class Subject:
    """One customer: what is stated of them now."""

    space: str
    name: str
    doomed: bool
    """Whether they will ask to be forgotten when they leave."""
    arrived: int
    """How many events there were before."""
    left: int | None = None
    chains: dict[str, list[Fact]] = field(default_factory=dict)
    """By predicate: what was stated and not taken back, the last of it believed."""
    facts: list[Fact] = field(default_factory=list)


class Log:
    """The events of one log, in order; the same for the same number.

    Args:
        events: how many there are.
    """

    def __init__(self, events: int) -> None:
        self.events = events
        self.fact_ids: list[str] = []
        self.orphans: list[str] = []
        self.subjects: list[Subject] = []
        self._ids = SeededIds(events)
        self._random = random.Random(events)
        self._now = START
        self._held: dict[str, tuple[Placement, ...]] = {}

    def time_of(self, seq: int) -> datetime:
        """Return when an event was appended."""
        return START + (seq - 1) * BETWEEN

    def staying(self, seq: int) -> list[Subject]:
        """Return the customers at an event that were there for a while, and stayed on."""
        while_ago = seq - int(STAY / 3 * self.events)
        return [s for s in self.subjects if s.arrived < while_ago and (s.left is None or s.left > seq)]

    def pages(self, size: int = 10_000) -> Iterator[list[Stored]]:
        """Yield the events as they would be exported, a page at a time."""
        events = self._stored()
        while page := list(itertools.islice(events, size)):
            yield page

    def _stored(self) -> Iterator[Stored]:
        prev = GENESIS
        for seq, (draft, erased) in enumerate(itertools.islice(self._drafts(), self.events), start=1):
            prepared = prepare(draft, self._ids)
            body, digest = seal(prepared, seq=seq, tx_time=format_instant(self._now), prev=prev)
            # What was forgotten later is gone from an export.
            left = {name: section for name, section in prepared.sections.items() if name not in erased}
            yield Stored(parse(body), body, digest, left)
            prev, self._now = digest, START + seq * BETWEEN

    def _drafts(self) -> Iterator[Step]:
        """Yield drafts without end."""
        staying: deque[tuple[int, Subject]] = deque()
        appended = 0
        for number in itertools.count():
            subject = self._arrive(number, appended)
            staying.append((appended, subject))
            for _ in range(EVENTS_PER_SUBJECT * 2 // 5):
                _, chosen = self._random.choice(staying)
                for draft in self._state(chosen):
                    appended += 1
                    yield draft
            if self._random.random() < 0.3:
                for draft in self._repair():
                    appended += 1
                    yield draft
            while staying[0][0] < appended - STAY * self.events and appended < self.events:
                leaving = staying.popleft()[1]
                leaving.left = appended
                for draft in self._leave(leaving):
                    appended += 1
                    yield draft

    def _arrive(self, number: int, appended: int) -> Subject:
        space = f"user:{number // SUBJECTS_PER_SPACE}"
        doomed = self._random.random() < 0.4
        subject = Subject(space, f"acct:{number}", doomed=doomed, arrived=appended)
        self.subjects.append(subject)
        return subject

    def _state(self, subject: Subject) -> Iterator[Step]:
        """State something of a customer: new, in place of what stands, or taken back."""
        predicate = self._random.choice(PREDICATES)
        chain = subject.chains.setdefault(predicate, [])
        if chain and self._random.random() < 0.15:
            yield from self._take_back(chain)
            return
        old = chain[-1] if chain else None
        yield from self._assert(subject, subject.name, predicate, chain)
        if old is not None:
            yield from self._removed(old)
        if self._random.random() < 0.2:
            note = subject.chains.setdefault(f"note {len(subject.facts)}", [])
            yield from self._assert(subject, subject.space, FREE_TEXT_PREDICATE, note)

    def _assert(self, subject: Subject, about: str, predicate: str, chain: list[Fact]) -> Iterator[Step]:
        claimed = self._random.random() < 0.05
        fact = self._fact(subject.space, about, predicate, chain[-1] if chain else None, claimed=claimed)
        placements = self._placements(fact)
        draft = Assert(event_id=self._ids.event_id(), fact=fact, placements=() if claimed else placements)
        yield draft, ("content",) if subject.doomed else ()
        if claimed:
            yield Confirm(**self._act(fact), placements=placements), ()
        chain.append(fact)
        subject.facts.append(fact)
        self.fact_ids.append(fact.fact_id)

    def _take_back(self, chain: list[Fact]) -> Iterator[Step]:
        fact = chain.pop()
        yield Retract(**self._act(fact), reason="was never so"), ()
        yield from self._removed(fact)
        if chain:
            yield Place(**self._act(chain[-1]), placements=self._placements(chain[-1])), ()

    def _leave(self, subject: Subject) -> Iterator[Step]:
        """End what is stated of a customer: forgotten, or just taken back from the oldest on."""
        for fact in subject.facts if subject.doomed else ():
            yield Forget(**self._act(fact), reason="asked to be forgotten"), ()
        for chain in subject.chains.values():
            for fact in () if subject.doomed else chain:
                yield Retract(**self._act(fact), reason="left"), ()
            for fact in chain[-1:]:
                yield from self._removed(fact)
        subject.facts.clear()
        subject.chains.clear()

    def _repair(self) -> Iterator[Step]:
        """Find an entry whose write never reached the ledger."""
        fact_id, store = self._ids.fact_id(self._now), STORES[0]
        self.orphans.append(fact_id)
        where = {"store": store, "external_id": f"{fact_id}.{self._ids.generation()}", "scope": None}
        act = {"event_id": self._ids.event_id(), "fact_id": fact_id, "actor": "repair"}
        yield Repair(**act, **where, stored_at=self._now, reason="outage"), ()
        act = {"event_id": self._ids.event_id(), "fact_id": fact_id, "actor": "repair"}
        yield Remove(**act, **where, stored_at=self._now, outcome=Outcome.VERIFIED, detail=""), ()

    def _removed(self, fact: Fact) -> Iterator[Step]:
        for held in self._held.pop(fact.fact_id, ()):
            removal = Remove(
                **self._act(fact),
                store=held.store,
                external_id=held.external_id,
                scope=None,
                stored_at=held.stored_at,
                outcome=Outcome.VERIFIED,
                detail="",
            )
            yield removal, ()

    def _act(self, fact: Fact) -> dict[str, Any]:
        return {"event_id": self._ids.event_id(), "fact_id": fact.fact_id, "actor": ACTOR}

    def _fact(self, space: str, subject: str, predicate: str, old: Fact | None, *, claimed: bool) -> Fact:
        value = " ".join(self._random.choices(WORDS, k=12))
        text = value if predicate == FREE_TEXT_PREDICATE else f"{subject} {predicate}: {value}"
        return Fact(
            fact_id=self._ids.fact_id(self._now),
            space=space,
            subject=subject,
            predicate=predicate,
            value=value,
            text=text,
            actor=ACTOR,
            provenance=Provenance.CLAIMED if claimed else Provenance.ATTESTED,
            valid_from=self._now,
            supersedes=None if old is None else old.fact_id,
            receipt_id=f"turn:{self._random.randrange(10**6)}",
        )

    def _placements(self, fact: Fact) -> tuple[Placement, ...]:
        held = tuple(
            Placement(
                store=store,
                external_id=f"{fact.fact_id}.{self._ids.generation()}",
                fact_id=fact.fact_id,
                scope=None,
                stored_at=self._now,
            )
            for store in STORES
        )
        self._held[fact.fact_id] = held
        return held
