"""A story of two writers, acted out on a ledger of every storage at once and held against the model."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

import rfc8785
from fix_arenas import Arena
from fix_drafting import HOUR, STORES, Drafter, brief
from fix_ledger import START
from fix_model import Model
from fix_model_answers import Answers, told
from fix_model_events import Record, lasting, sections
from hypothesis.stateful import RuleBasedStateMachine

from custody_sync.errors import Refused
from custody_sync.ledger import Ledger
from custody_sync.ledger.drafts import Draft
from custody_sync.ledger.storage import Note
from custody_sync.model import Entry, Event, Fact

T = TypeVar("T")
Work = list[tuple[int, Draft]]


async def outcome(call: Awaitable[T]) -> T | str:
    """Return what a call returns, or the code of its refusal."""
    try:
        return await call
    except Refused as refusal:
        return refusal.code


async def together(handles: list[Ledger], work: Work) -> list[Event | str]:
    """Append drafts at once: those of one handle are one group."""
    return await asyncio.gather(*(outcome(handles[writer].append(draft)) for writer, draft in work))


async def walk(ask: Callable[..., Awaitable[Any]], limit: int) -> list[Any]:
    """Read all pages of an answer."""
    found: list[Any] = []
    after = None
    while True:
        page = await ask(limit=limit, after=after)
        found += page
        if page.next is None:
            return found
        after = page.next


class Story(RuleBasedStateMachine):
    """Two handles on one ledger of each storage, their clocks, and the model that knows better."""

    def __init__(self, loop: asyncio.AbstractEventLoop, arenas: list[Arena]) -> None:
        super().__init__()
        self.loop, self.arenas = loop, arenas
        self.model = Model()
        self.clocks = arenas[0].clocks
        self.drafters = [Drafter(clock, f"w{n}", model=self.model) for n, clock in enumerate(self.clocks)]
        self.opened = 0
        self.drafts: list[Draft] = []
        self.notes: dict[tuple[str, str], Note] = {}
        self.remembered: list[tuple[dict[str, Any], list[Fact]]] = []
        self.story: list[str] = []
        self.failed = False
        for clock in self.clocks:
            clock.set(START)
        self.renew()

    def run(self, call: Awaitable[T]) -> T:
        """Run a call to its end."""
        return self.loop.run_until_complete(call)

    def renew(self) -> None:
        """Begin with empty ledgers."""
        for arena in self.arenas:
            self.run(arena.renew(self.opened))
        self.opened += 2

    def each(self, call: Callable[[list[Ledger]], Awaitable[T]]) -> T:
        """Ask every storage the same; all have to answer the same."""

        async def ask() -> list[T]:
            return await asyncio.gather(*(call(arena.handles) for arena in self.arenas))

        first, *others = self.run(ask())
        for arena, answer in zip(self.arenas[1:], others, strict=True):
            names = f"{arena.name} and {self.arenas[0].name}"
            assert answer == first, f"{names} differ: {answer!r} and {first!r}"
        return first

    def same(self, got: Any, wanted: Any, what: str) -> None:
        """Compare an answer with the model's."""
        assert got == wanted, f"{what}: got {got!r}, and the rules say {wanted!r}"

    @contextmanager
    def telling(self, line: str) -> Iterator[None]:
        """Add a line to the story, which a failure tells."""
        self.story.append(line)
        try:
            yield
        except Exception as error:
            self.failed = True
            error.add_note("The story:\n" + "\n".join(self.story))
            raise

    def answers(self, writer: int) -> Answers:
        """Return the model as a writer asks it."""
        return Answers(self.model, self.clocks[writer].now())

    # --- appending on every storage -------------------------------------------------------

    def commit(self, *drafts: tuple[int, Draft]) -> None:
        """Append drafts, those of one writer as one group; the model says what has to become of each."""
        with self.telling("\n".join(f"writer {writer}: {brief(draft)}" for writer, draft in drafts)):
            work, found = self.append_everywhere(list(drafts))
            decided = [self.model.append(draft, self.clocks[w].now()) for w, draft in work]
            self.story.append(f"    → {[f if isinstance(f, str) else f.seq for f in found]}")
            for result, expected in zip(found, decided, strict=True):
                if isinstance(result, Event):
                    assert isinstance(expected, Record), f"taken, and must be refused as {expected}"
                    # A later draft of the same group may have erased it.
                    left = {name: part for name, part in result.sealed.items() if name not in expected.gone}
                    wanted = told(expected)
                    got = replace(result, sealed=left, erased=wanted.erased, prev="", hash="")
                    self.same(got, wanted, "the event")
                else:
                    assert isinstance(expected, set), f"refused as {result}, and must be taken"
                    assert result in expected, f"refused as {result}, and must be as {expected}"
            self.drafts += [draft for _, draft in work]

    def append_everywhere(self, work: Work) -> tuple[Work, list[Event | str]]:
        """Append drafts on every storage, and say which writer came first.

        Where both are free to go first the first storage decides, and the others are given their drafts
        in that order.
        """
        first, *others = self.arenas
        found = self.run(together(first.handles, work))
        both = len({writer for writer, _ in work}) == 2
        if both and not self.explains(work, found):
            turned = sorted(range(len(work)), key=lambda n: -work[n][0])
            work, found = [work[n] for n in turned], [found[n] for n in turned]
        for arena in others:
            answer = self.run(together(arena.handles, work))
            taken = [result if isinstance(result, Event) else None for result in answer]
            wanted = [result if isinstance(result, Event) else None for result in found]
            assert taken == wanted, f"{arena.name} and {first.name} differ: {answer!r} and {found!r}"
            # In a race a draft may have been refused before the one that gives another reason.
            assert answer == found or both, f"{arena.name} and {first.name} differ: {answer!r} and {found!r}"
        return work, found

    def explains(self, work: Work, found: list[Event | str]) -> bool:
        """Tell whether drafts come to what they came to if the first writer's were decided on first."""
        model = self.model.copy()
        for (writer, draft), result in zip(work, found, strict=True):
            decided = model.append(draft, self.clocks[writer].now())
            if isinstance(decided, Record):
                if isinstance(result, str) or result.seq != decided.seq:
                    return False
            elif isinstance(result, Event) or result not in decided:
                return False
        return True

    # --- asking every storage -------------------------------------------------------------

    def believed(self, writer: int, **question: Any) -> None:
        """Ask an as-of question, check the answer, and remember it if it is about the past."""
        asked = {name: value for name, value in question.items() if value is not None}
        page = self.each(lambda handles: handles[writer].as_of(limit=1000, **asked))
        facts, head = self.answers(writer).as_of(**asked)
        self.same(list(page), facts, f"as of {asked}")
        self.same(page.head.seq, head, "the head of the answer")
        # Of a time that no event has reached yet, an answer may still change.
        times = [record.tx for record in self.model.log[-1:]]
        if {"valid_at", "tx_at"} <= asked.keys() and times and asked["tx_at"] <= times[0]:
            self.remembered.append((asked, list(page)))

    def trails(
        self,
        writer: int,
        entries: list[Entry],
        ids: list[str],
        valid_at: datetime | None,
        tx_at: datetime | None,
        claimed: bool,
    ) -> None:
        """Ask where entries lead and what chains facts are in, and check the answers and their instants."""
        answers, when = self.answers(writer), {"valid_at": valid_at, "tx_at": tx_at}
        at, led = self.each(lambda hs: hs[writer].follow(entries, include_claimed=claimed, **when))
        self.same((at.valid_at, at.head.seq), answers.instants(valid_at, tx_at), "the instants")
        wanted = answers.follow(entries, valid_at, tx_at, claimed)
        for entry, got, expected in zip(entries, led, wanted, strict=True):
            self.same(got, expected, f"where {entry} leads at {when}")
        found = self.each(lambda hs: hs[writer].links(ids, **when))
        self.same(found, (at, answers.links(ids, valid_at, tx_at)), f"the chains at {when}")

    def still(self, writer: int, asked: dict[str, Any], then: list[Fact]) -> None:
        """An answer about the past is what it was, but for what was forgotten since."""
        now = list(self.each(lambda handles: handles[writer].as_of(limit=1000, **asked)))
        now_by_id = {fact.fact_id: fact for fact in now}
        left = [fact for fact in then if fact.fact_id in now_by_id]
        self.same([fact.fact_id for fact in now], [fact.fact_id for fact in left], f"again as of {asked}")
        for fact in then:
            again = now_by_id.get(fact.fact_id)
            if again is None:
                # An erased identity is found by nothing that it was about.
                assert self.model.facts[fact.fact_id].anonymous
                assert asked.keys() & {"space", "subject", "predicate"}
            elif again.forgotten:
                names = {name: getattr(again, name) for name in ("space", "subject", "predicate")}
                erased = replace(fact, value=None, text=None, evidence=None, forgotten=True, **names)
                self.same(again, erased, "a forgotten fact")
                assert set(names.values()) == {""} or names == {name: getattr(fact, name) for name in names}
            else:
                self.same(again, fact, "a fact")

    def compare_fact(self, fact_id: str, writer: int) -> None:
        """Ask everything about one fact."""
        answers = self.answers(writer)
        self.same(self.each(lambda hs: hs[writer].get(fact_id)), answers.get(fact_id), "the fact")
        found = self.each(lambda hs: walk(lambda **page: hs[writer].history(fact_id, **page), 4))
        self.same([replace(event, prev="", hash="") for event in found], answers.history(fact_id), "history")
        found = self.each(lambda hs: hs[writer].placements(fact_id))
        self.same(found, answers.placements(fact_id), "placements")
        self.same(self.each(lambda hs: hs[writer].owed(fact_id)), answers.owed(fact_id), "owed of a fact")

    def compare_lists(self, writer: int, limit: int) -> None:
        """Ask for everything that is listed a page at a time."""
        answers = self.answers(writer)
        for only in ({}, {"space": "org"}, {"subject": "acct:7"}):
            found = self.each(lambda hs, o=only: walk(lambda **page: hs[writer].accounts(**o, **page), limit))
            self.same(found, answers.accounts(**only), f"accounts of {only}")
        self.same(self.each(lambda hs: walk(hs[writer].pending, limit)), answers.pending(), "pending")
        self.same(self.each(lambda hs: walk(hs[writer].removed, limit)), answers.removed(), "removed")
        for store in STORES:
            found = self.each(lambda hs, s=store: walk(lambda **page: hs[writer].ended(s, **page), limit))
            self.same(found, answers.ended(store), f"ended in {store}")
            found = self.each(lambda hs, s=store: walk(lambda **page: hs[writer].held(s, **page), limit))
            self.same(found, answers.held(store), f"held in {store}")
            found = self.each(lambda hs, s=store: walk(lambda **page: hs[writer].lacking(s, **page), limit))
            self.same(found, answers.lacking(store), f"lacking in {store}")
        self.compare_waiting(writer, limit)
        owed, spaces = answers.owed(), answers.spaces()
        self.same(self.each(lambda hs: hs[writer].owed(limit=limit)), owed[:limit], "owed")
        if owed:
            found = self.each(lambda hs: hs[writer].owed(limit=limit, after=owed[0]))
            self.same(found, owed[1:][:limit], "owed, from the second on")
        self.same(self.each(lambda hs: hs[writer].spaces()), spaces, "spaces")
        found = self.each(lambda hs: hs[writer].spaces(limit=1, after="org"))
        self.same(found, [space for space in spaces if space > "org"][:1], "spaces after org")

    def compare_waiting(self, writer: int, limit: int) -> None:
        """Ask what begins later; a page is so many facts, with all stores of each."""
        found = self.each(lambda hs: walk(hs[writer].waiting, max(limit // 3, 1)))
        self.same(found, self.answers(writer).waiting(), "waiting")
        told = {store.store: store for store in self.each(lambda hs: hs[writer].backlog())}
        owed, waiting = self.answers(writer).owed(), self.answers(writer).waiting()
        for store in STORES:
            due = [row.due_at for row in waiting if row.store == store]
            counts = sum(where == store for _, where in owed), len(due), min(due, default=None)
            there = told.get(store)
            got = (there.owed, there.waiting, there.next_waiting) if there else (0, 0, None)
            self.same(got, counts, f"what is to do in {store}")

    def compare_log(self, writer: int, page: int = 1000) -> list[dict[str, Any]]:
        """Ask for the log: the same bytes everywhere, a chain, and what the model says of each event."""

        async def export(handles: list[Ledger]) -> list[str]:
            return [json.dumps(row, sort_keys=True) async for row in handles[writer].export(page=page)]

        lines = self.each(export)
        prev = "0" * 64
        for row, record in zip(map(json.loads, lines), self.model.log, strict=True):
            body, sealed = row["event"], row["sealed"]
            self.same(row["hash"], hashlib.sha256(rfc8785.dumps(body)).hexdigest(), "the hash")
            self.same(body.pop("prev"), prev, "the hash before")
            commitments = body.pop("sealed")
            self.same(commitments.keys(), sections(record.draft).keys(), "what was committed to")
            self.same({name: part["body"] for name, part in sealed.items()}, record.left(), "what is left")
            for name, part in sealed.items():
                form = bytes.fromhex(part["salt"]) + rfc8785.dumps(part["body"])
                self.same(commitments[name], hashlib.sha256(form).hexdigest(), "a commitment")
            tx_time = f"{record.tx:%Y-%m-%dT%H:%M:%S.%f}Z"
            self.same(
                body, {**lasting(record.draft), "seq": record.seq, "tx_time": tx_time, "v": 1}, "a body"
            )
            prev = row["hash"]
        self.same(self.each(lambda handles: handles[writer].head()).hash, prev, "the head")
        return [json.loads(line) for line in lines]

    def compare_all(self, writer: int, facts: int, moments: int) -> list[dict[str, Any]]:
        """Ask every question, about some of the facts and some of the past, and return the log."""
        self.compare_lists(writer, 1000)
        for fact_id in [*list(self.model.facts)[-facts:], *sorted(self.model.repaired)[:2]]:
            self.compare_fact(fact_id, writer)
        times = [START, *(record.tx for record in self.model.log)]
        for tx_at in {*times[:: len(times) // moments + 1], times[-1]}:
            for hour in (0, 1, 3):
                self.believed(writer, valid_at=START + hour * HOUR, tx_at=tx_at, include_claimed=hour == 1)
        return self.compare_log(writer)

    def restore(self, rows: list[dict[str, Any]]) -> None:
        """Put the log into a new ledger of one storage, in two parts, and go on with that one alone."""
        self.arenas = [self.arenas[len(rows) % len(self.arenas)]]
        self.renew()
        half = len(rows) // 2
        for part in (rows[:half], rows[half:]):
            self.each(lambda handles, part=part: handles[1].restore(part))
