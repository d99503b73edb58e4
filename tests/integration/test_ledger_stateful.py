"""Random stories of two writers on every storage at once, held against one model of the rules."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

import pytest
from fix_arenas import Arena
from fix_drafting import HOUR, KINDS, MINUTE, STORES, Dice, brief
from fix_ledger import START
from fix_model import NEVER, TICK
from fix_story import Story, outcome
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from custody_sync.ledger.drafts import Draft
from custody_sync.ledger.storage import BEYOND, LEASED, Note
from custody_sync.model import ERASED_ID, Entry, Erasure, Outcome

STEPS = (MINUTE, TICK, timedelta(seconds=1), 5 * MINUTE, 11 * MINUTE, HOUR, 3 * HOUR, -MINUTE, -2 * HOUR)
DICE = st.integers(0, 2**24 - 1)
WRITER = st.sampled_from((0, 1))
Op = tuple[str, int, int]


def ops_of(*kinds: str) -> st.SearchStrategy[Op]:
    """Return random numbers for drafts of some kinds."""
    return st.tuples(st.sampled_from(kinds), DICE, DICE)


OP = ops_of(*KINDS)
QUESTIONS = ("as_of", "past", "fact", "lists", "unaccounted", "compare", "known", "export", "trails")
LEASE = timedelta(minutes=1)
FULL = bool(os.environ.get("CUSTODY_SYNC_FULL"))
STORIES, PARTS = 200 if FULL else 24, 4
"""How many stories there are, and in how many tests, so that they can be told on several processors."""


def lapsed(note: Note, now: datetime, longest: timedelta) -> bool:
    """Tell whether a note stands in nobody's way: it is over, or is of a clock that went back since."""
    return note.expires_at is not None and not now < note.expires_at <= now + longest


def about(note: Note) -> str:
    """Return the fact that a note names."""
    try:
        value = json.loads(note.value)
    except ValueError:
        return ""
    return str(value.get("fact_id", "")) if isinstance(value, dict) else ""


class TwoWriters(Story):
    """What the two may do, and in what order chance has it."""

    @rule(writer=WRITER, ops=st.lists(OP, min_size=1, max_size=2))
    def append(self, writer: int, ops: list[Op]) -> None:
        """One writer appends drafts one by one."""
        for op in ops:
            self.commit((writer, self.draft(writer, op)))

    @rule(writer=WRITER, ops=st.lists(ops_of("supersede", "retract", "confirm"), min_size=1, max_size=2))
    def correct(self, writer: int, ops: list[Op]) -> None:
        """One writer changes what is believed."""
        self.append(writer, ops)

    @rule(writer=WRITER, ops=st.lists(ops_of("forget", "remove", "repair", "place"), min_size=1, max_size=2))
    def clear(self, writer: int, ops: list[Op]) -> None:
        """One writer erases, and follows what stores hold."""
        self.append(writer, ops)

    @rule(mine=st.lists(OP, min_size=1, max_size=3), others=st.lists(OP, min_size=1, max_size=2))
    def append_at_once(self, mine: list[Op], others: list[Op]) -> None:
        """Both writers append groups at the same time."""
        work = [(0, self.draft(0, op)) for op in mine] + [(1, self.draft(1, op)) for op in others]
        self.commit(*work)

    @rule(writer=WRITER, pick=DICE, more=st.lists(OP, max_size=2))
    def append_again(self, writer: int, pick: int, more: list[Op]) -> None:
        """A writer appends an earlier draft again, or another one under its event id, alone or in a group."""
        if self.drafts:
            dice = Dice(pick)
            earlier = dice.of(self.drafts[-12:][::-1])
            again = self.drafters[writer].again(earlier, dice)
            self.commit(*((writer, self.draft(writer, op)) for op in more), (writer, again))

    @rule(writer=WRITER, number=DICE, more=st.lists(OP, max_size=2))
    def erase_at_once(self, writer: int, number: int, more: list[Op]) -> None:
        """A writer erases an identity and what is left of it in one group, in which more is said of it."""
        dice, drafter = Dice(number), self.drafters[writer]
        facts = [fact_id for fact_id, known in self.model.facts.items() if not known.holds]
        if facts:
            fact_id = dice.of(facts[-8:][::-1])
            group: list[Draft] = [drafter.forget(fact_id, identity=True)]
            left = [spot for spot in self.model.of(fact_id) if spot.state != "gone"]
            group += [drafter.remove(fact_id, spot.store, spot.external_id) for spot in left]
            group += [drafter.again(d, dice) for d in self.drafts if d.fact_id == fact_id][-2:]
            store, external_id = dice.of(STORES), f"late{len(self.drafts)}"
            group.append(
                drafter.remove(fact_id, store, external_id, dice.of((Outcome.STARTED, Outcome.VERIFIED)))
            )
            if left and not left[0].external_id.startswith(ERASED_ID):
                group.append(drafter.state(held=[(left[0].store, left[0].external_id)]))
            self.commit(
                *((writer, draft) for draft in group), *((writer, self.draft(writer, op)) for op in more)
            )

    @rule(writer=WRITER, op=OP)
    def check(self, writer: int, op: Op) -> None:
        """A writer asks whether a draft would be taken."""
        draft, before = self.draft(writer, op), self.model.head
        with self.telling(f"writer {writer} checks: {brief(draft)}"):
            refused = self.each(lambda handles: outcome(handles[writer].check(draft)))
            now = self.clocks[writer].now()
            tx = max(now, self.model.log[-1].tx + TICK) if self.model.log else now
            codes = self.model.broken(draft, now, tx)
            assert (refused in codes) if codes else refused is None, f"said {refused}, not {codes}"
            assert self.each(lambda handles: handles[writer].head()).seq == before

    def draft(self, writer: int, op: Op) -> Draft:
        """Make a draft of random numbers."""
        kind, number, more = op
        return self.drafters[writer].random(kind, Dice(number * 2**24 + more))

    @rule(writer=WRITER, step=st.sampled_from((*STEPS, None)))
    def time_passes(self, writer: int, step: timedelta | None) -> None:
        """A writer's clock goes on or is turned back, or it closes its handle and opens another one."""
        if step is not None:
            self.clocks[writer].set(self.clocks[writer].now() + step)
            self.story.append(f"writer {writer}'s clock: {self.clocks[writer].now()}")
            return
        self.story.append(f"writer {writer} reopens")
        for arena in self.arenas:
            self.run(arena.reopen(writer, self.opened))
        self.opened += 1

    # --- what they ask --------------------------------------------------------------------

    @rule(writer=WRITER, question=st.sampled_from(QUESTIONS), number=DICE)
    def ask(self, writer: int, question: str, number: int) -> None:
        """A writer asks something, and every storage answers what the model does."""
        with self.telling(f"writer {writer} asks: {question} ({number})"):
            getattr(self, f"_ask_{question}")(writer, Dice(number))

    def _ask_as_of(self, writer: int, dice: Dice) -> None:
        only = dice.of(
            ({}, {"space": "org"}, {"subject": "acct:42"}, {"space": "team:a", "predicate": "plan"})
        )
        self.believed(
            writer,
            valid_at=dice.of((None, *(START + n * HOUR for n in (0, 1, 2, 3, 6)), START + HOUR + TICK)),
            tx_at=dice.of((None, self.moment(dice))),
            include_claimed=dice.of((False, True)),
            **only,
        )

    def moment(self, dice: Dice) -> datetime:
        """Choose an instant of the ledger's time."""
        times = [record.tx for record in self.model.log[-20:]] or [START]
        return dice.of(times) + dice.of((0, 1, -1)) * TICK

    def _ask_past(self, writer: int, dice: Dice) -> None:
        if self.remembered:
            self.still(writer, *dice.of(self.remembered[-20:]))

    def _ask_fact(self, writer: int, dice: Dice) -> None:
        fact_id = dice.of([*reversed(self.model.facts), *sorted(self.model.repaired), "nobody"][:20])
        self.compare_fact(fact_id, writer)

    def _ask_lists(self, writer: int, dice: Dice) -> None:
        self.compare_lists(writer, limit=dice.of((1000, 4, 7)))

    def listing(self, dice: Dice, more: tuple[str, ...] = ()) -> tuple[str, dict[str, str], bool]:
        """Return what a store may list, and whether its policy keeps what is superseded."""
        store, keep = dice.of(STORES), dice.of((False, True))
        ids = [*self.model.facts, *sorted(self.model.repaired), "nobody", *more]
        pairs = {spot.external_id: spot.fact_id for spot in self.model.spots if spot.store == store}
        for external_id in [*list(pairs)[:2], "unseen", "x\x00y"]:
            pairs[external_id] = dice.of(ids)
        return store, pairs, keep

    def _ask_compare(self, writer: int, dice: Dice) -> None:
        store, listed, keep = self.listing(dice, more=("f\x00", ""))
        listed = dict(dice.of((list(listed.items()), [*reversed(listed.items())])))
        found = self.each(lambda hs: hs[writer].compare(store, listed, keep))
        self.same(found, self.answers(writer).compare(store, listed, keep), "compared")

    def _ask_unaccounted(self, writer: int, dice: Dice) -> None:
        store, pairs, keep = self.listing(dice)
        found = self.each(lambda hs: hs[writer].unaccounted(store, pairs, keep=keep))
        self.same(found, self.answers(writer).unaccounted(store, pairs, keep), "unaccounted")

    def _ask_trails(self, writer: int, dice: Dice) -> None:
        ids = [*self.model.facts, *sorted(self.model.repaired), "nobody", "f\x00", "\ud800", ""]
        entries = [
            Entry(store=dice.of(STORES), external_id=dice.of("ab"), fact_id=fact_id) for fact_id in ids[-20:]
        ]
        for spot in self.model.spots[-12:]:
            scope = dice.of((spot.scope, spot.scope, None, "other"))
            known = self.model.facts.get(spot.fact_id)
            text = dice.of((None, known and known.fact.text, "another"))
            entries.append(Entry(store=spot.store, external_id=spot.external_id, scope=scope, text=text))
        valid_at = dice.of((None, *(START + n * HOUR for n in (0, 1, 2, 3, 6)), START + HOUR + TICK))
        tx_at, claimed = dice.of((None, self.moment(dice))), dice.of((False, True))
        self.trails(writer, entries, ids[-20:], valid_at, tx_at, claimed)

    def _ask_known(self, writer: int, dice: Dice) -> None:
        ids = [*self.model.facts, *self.model.repaired, "nobody", "", "x\x00", "\ud800"][dice.of((0, 1, 2)) :]
        found = self.each(lambda hs: hs[writer].known(ids))
        self.same(found, self.answers(writer).known(ids), "known")

    def _ask_export(self, writer: int, dice: Dice) -> None:
        self.compare_log(writer, page=dice.of((1000, 7)))

    # --- notes and erasures ---------------------------------------------------------------

    @rule(writer=WRITER, what=st.sampled_from(("notes", "lease", "erasure")), number=DICE)
    def beside_the_log(self, writer: int, what: str, number: int) -> None:
        """A writer keeps notes, takes a lease, or drives erased values out."""
        dice = Dice(number)
        with self.telling(f"writer {writer}: {what} ({number})"):
            if what == "lease":
                self.acquire(writer, dice.of(("lease", "spool")), dice.of("ab"))
            elif what == "erasure":
                self.erase(writer)
            elif dice.of((False, True)):
                self.drop_notes(writer, dice)
            else:
                self.put_notes(writer, dice)
            self.compare_notes(writer)

    def acquire(self, writer: int, topic: str, key: str) -> None:
        """A writer takes a lease, or is told who has it."""
        now, holder = self.clocks[writer].now(), f"writer {writer}"
        standing = self.notes.get((topic, key))
        if standing is None or standing.holder == holder or lapsed(standing, now, LEASE + BEYOND):
            mine = standing is not None and standing.holder == holder
            since = standing.since if standing is not None and mine else now
            standing = Note(
                topic=topic, key=key, value="{}", holder=holder, since=since, expires_at=now + LEASE
            )
        found = self.each(lambda hs: hs[writer].acquire(topic, key, holder=holder, value="{}", ttl=LEASE))
        self.same(found, standing, "the lease")
        self.notes[topic, key] = standing

    def drop_notes(self, writer: int, dice: Dice) -> None:
        """A writer drops notes: all, by key, or by holder."""
        only, holder = dice.of((None, ["a"], ["b", "c"], [])), dice.of((None, "writer 0", "nobody"))
        self.each(lambda hs: hs[writer].drop_notes("spool", only, holder=holder))
        for (topic, key), note in list(self.notes.items()):
            named = (only is None or key in only) and holder in (None, note.holder)
            if topic == "spool" and named:
                del self.notes[topic, key]

    def put_notes(self, writer: int, dice: Dice) -> None:
        """A writer puts notes, some about facts."""
        about = [json.dumps({"fact_id": fact_id}) for fact_id in list(self.model.facts)[-4:]]
        value, holder = dice.of(["no JSON", *about, "[1]"]), dice.of((None, "writer 0"))
        now = self.clocks[writer].now()
        notes = [
            Note(topic="spool", key=key, value=value, since=now, holder=holder)
            for key in dice.of(("ab", "a", "bc", "c"))
        ]
        self.each(lambda hs: hs[writer].put_notes(notes))
        self.notes |= {(note.topic, note.key): note for note in notes}

    def compare_notes(self, writer: int) -> None:
        """Ask for all notes."""
        for topic, after in (("lease", ""), ("spool", ""), ("spool", "a")):
            wanted = [n for (t, key), n in sorted(self.notes.items()) if t == topic and key > after]
            found = self.each(lambda hs, t=topic, a=after: hs[writer].notes(t, limit=2, after=a))
            self.same(found, wanted[:2], f"notes of {topic}")

    def erase(self, writer: int) -> None:
        """A writer drives erased values out; notes of a sweep under way that names one stand in the way."""
        now = self.clocks[writer].now()
        due = self.model.unscrubbed
        named = {at: note for at, note in self.notes.items() if due.get(about(note), False)}
        leases = [note for (topic, _), note in self.notes.items() if topic == "lease"]
        working = not all(lapsed(note, now, LEASED) for note in leases)
        for arena in self.arenas:
            found = self.run(arena.handles[writer].erase())
            if arena.vacuums:
                self.same(found, Erasure.PENDING if named and working else Erasure.DONE, arena.name)
            else:
                forgotten = any(known.forget < NEVER for known in self.model.facts.values())
                self.same(found, Erasure.PENDING if forgotten else Erasure.DONE, arena.name)
        left = {about(note) for note in named.values()} if working else set()
        self.model.unscrubbed = {fact_id: gone for fact_id, gone in due.items() if fact_id in left}
        if not working:
            self.forget_notes(writer, named)

    def forget_notes(self, writer: int, named: Iterable[tuple[str, str]]) -> None:
        """Notes of a sweep that ended went with the identities they name, where somebody saw to it."""
        for topic, key in named:
            del self.notes[topic, key]
            for arena in self.arenas:
                if not arena.vacuums:
                    self.run(arena.handles[writer].drop_notes(topic, [key]))

    # --- the end --------------------------------------------------------------------------

    def teardown(self) -> None:
        """Ask everything once more, and let other storages take over the log."""
        if self.failed:
            return
        with self.telling("the end"):
            rows = self.compare_all(0, facts=8, moments=2)
            for asked, then in self.remembered[-8:]:
                self.still(1, asked, then)
        with self.telling("taken over by a new ledger"):
            self.restore(rows)
            self.compare_all(1, facts=5, moments=1)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """One event loop for every step of every story."""
    made = asyncio.new_event_loop()
    yield made
    made.close()


# A failure is shrunk for up to five minutes.
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_storage_does_what_the_rules_say(
    loop: asyncio.AbstractEventLoop, arenas: list[Arena], part: int
) -> None:
    """Whatever two writers do: the same refusals, answers and bytes everywhere, and the right ones."""
    try:
        run_state_machine_as_test(
            seed(part)(lambda: TwoWriters(loop, arenas)),
            settings=settings(
                max_examples=STORIES // PARTS,
                stateful_step_count=50,
                # Seeded: the same in every run, and others with every change of the rules above. To make a
                # failing one small takes minutes, in which nothing else is tried.
                database=None,
                phases=[Phase.generate, *([Phase.shrink] if FULL else [])],
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        for arena in arenas:
            loop.run_until_complete(arena.close())
