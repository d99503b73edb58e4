"""The rules at their edges: to the microsecond, within one group, and in what a refusal names."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from fix_ledger import START, Drafts
from fix_rules import Bench
from fix_tables import Tables

from custody_sync.errors import DuplicateEvent, Refused
from custody_sync.ledger.chain import GENESIS, prepare, read_event
from custody_sync.ledger.consequences import AHEAD
from custody_sync.ledger.drafts import Draft
from custody_sync.ledger.rules import Group, event_of
from custody_sync.ledger.state import Position
from custody_sync.model import PLACEMENT_MAX_AGE, PlacementState, Provenance, format_instant
from custody_sync.testing import ManualClock, SteppingIds

HELD, KEPT, DUE = PlacementState.HELD, PlacementState.KEPT, PlacementState.DUE
M1, M2, A1 = ("memories", "m-1"), ("memories", "m-2"), ("agent", "a-1")
TICK = timedelta(microseconds=1)
HOUR = timedelta(hours=1)


def fields(bench: Bench, draft: Draft) -> dict[str, Any]:
    """Return what a refusal names."""
    with pytest.raises(Refused) as caught:
        bench.do(draft)
    return caught.value.fields


def later(bench: Bench, draft: Any, *stores: str) -> Any:
    """Return a draft that is to be placed only when its fact begins."""
    return replace(draft, owes=stores or ("memories",))


# --- to the microsecond ----------------------------------------------------------------------


def test_an_unrecorded_entry_may_go_once_what_takes_its_place_is_as_good_as_begun(bench: Bench) -> None:
    """Whoever begins within four minutes may have begun by another clock; a microsecond more is too early."""
    for more, refused in ((TICK, None), (2 * TICK, "still_believed")):
        bench = Bench()
        old = bench.add()
        starts = bench.group.position.tx_time + TICK + AHEAD + more
        bench.do(later(bench, bench.state(supersedes=old, valid_from=starts)))
        draft = bench.remove(old, *M1)
        if refused is None:
            bench.do(draft)
        else:
            assert bench.refused(draft) == refused


def test_a_fact_is_placed_from_the_instant_at_which_it_begins(bench: Bench) -> None:
    """Not a microsecond earlier."""
    fact_id = bench.add(valid_from=START + HOUR)
    bench.clock.set(START + HOUR - TICK)
    assert bench.refused(bench.place(fact_id, [M1])) == "not_believed"
    bench.clock.set(START + HOUR)
    bench.do(bench.place(fact_id, [M1]))


# --- what stays as it is ---------------------------------------------------------------------


def test_its_own_entry_that_has_to_go_is_never_taken_up_again(bench: Bench) -> None:
    """It is called stale, and not somebody else's."""
    old = bench.add(held=[M1])
    bench.do(bench.retract(bench.add(supersedes=old)))
    draft = bench.place(old, [M1])
    assert bench.refused(draft) == "stale_placement"
    assert fields(bench, draft) == {"store": "memories", "external_id": "m-1", "fact_id": old}


def test_a_link_that_stays_covered_is_owed_to_nobody_and_keeps_what_is_kept(bench: Bench) -> None:
    """A ← B ← C: retract B, and A, which C covers, is as it was."""
    a = bench.add(held=[M1, A1])
    b = bench.state(supersedes=a)
    bench.do(replace(b, kept=("memories",)))
    bench.add(supersedes=b.fact_id)
    bench.do(bench.retract(b.fact_id))
    assert bench.placed(a) == {M1: KEPT, A1: DUE}
    assert not bench.state_of.owed.get(a)


def test_a_store_that_never_had_a_fact_is_owed_it_still_when_it_comes_back(bench: Bench) -> None:
    """What it was never placed in is owed while it is covered, and with the others afterwards."""
    draft = replace(bench.state(held=[M1]), owes=("agent",))
    bench.do(draft)
    new = bench.add(supersedes=draft.fact_id)
    assert bench.state_of.owed[draft.fact_id] == {"agent"}
    bench.do(bench.retract(new))
    assert bench.state_of.owed[draft.fact_id] == {"agent", "memories"}


# --- within one group ------------------------------------------------------------------------


def test_a_hold_is_on_record_with_its_event_and_one_released_at_once_is_not(bench: Bench) -> None:
    """A storage that writes what was added and drops what was released ends with what stands."""
    fact_id = bench.add()
    event = bench.do(bench.hold(fact_id, "court"))
    assert bench.state_of.holds_added == {(fact_id, "court"): event.seq}
    bench.do(bench.release(fact_id, "court"))
    assert bench.state_of.holds_added == {}
    assert set(bench.state_of.holds_released) == {(fact_id, "court")}


def test_what_was_settled_and_is_owed_again_is_not_settled(bench: Bench) -> None:
    """A storage may write what is owed and what is settled in either order."""
    old = bench.add(held=[M1])
    bench.do(bench.retract(bench.add(supersedes=old)))
    new = bench.add(supersedes=old)
    assert (bench.state_of.owed_added, set(bench.state_of.owed_settled)) == ({}, {(old, "memories")})
    bench.do(bench.retract(new))
    assert set(bench.state_of.owed_added) == {(old, "memories")}
    assert not bench.state_of.owed_settled


def test_what_is_appended_reads_the_same_from_its_body(bench: Bench) -> None:
    """Its place, its time and the hash before it are in the body that its own hash is of."""
    bench.add(held=[M1])
    bench.add()
    for appended in bench.group.appended:
        sections = {name: section.body for name, section in appended.prepared.sections.items()}
        assert read_event(appended.body, appended.hash, sections) == appended.event()
        assert appended.tx_time == format_instant(appended.tx)
        assert appended.hash == hashlib.sha256(appended.body.encode()).hexdigest()


def test_an_entry_that_a_store_names_twice_is_one_placement(bench: Bench) -> None:
    """A store may answer one put with an id twice."""
    fact_id = bench.add(held=[M1, M1])
    assert bench.placed(fact_id) == {M1: HELD}
    assert len(bench.state_of.placements_of(fact_id)) == 1


class Groups(Drafts):
    """Appends groups of drafts to tables, all at one time."""

    def __init__(self) -> None:
        super().__init__(ManualClock(START))
        self.tables, self.salts = Tables(), SteppingIds()

    def append(self, *group: Draft) -> list[int]:
        """Append one group and return the places of its events."""
        prepared = [prepare(draft, self.salts) for draft in group]
        deciding = self.tables.begin(prepared, START)
        seqs = [event_of(deciding.admit(one)).seq for one in prepared]
        self.tables.finish(deciding)
        return seqs

    def refuses(self, *group: Draft) -> bool:
        """Tell whether the last draft of a group is another one under an event id that is taken."""
        prepared = [prepare(draft, self.salts) for draft in group]
        deciding = self.tables.begin(prepared, START)
        for one in prepared[:-1]:
            deciding.admit(one)
        try:
            deciding.admit(prepared[-1])
        except DuplicateEvent:
            return True
        return False


def another(draft: Any, **more: Any) -> Any:
    """Return an assert under the same event id whose fact differs."""
    return replace(draft, fact=replace(draft.fact, **more))


@pytest.mark.parametrize("at_once", [True, False])
def test_nothing_tells_later_drafts_of_a_group_what_an_earlier_one_erased(at_once: bool) -> None:
    """Another value under the event id of an erased one is taken for the same, as in the next group."""
    book = Groups()
    first = book.state()
    value, space = another(first, value="another", text="another"), another(first, space="elsewhere")
    before = [first] if at_once else []
    if not at_once:
        book.append(first)
    assert book.refuses(*before, value)
    assert not book.refuses(*before, book.forget(first.fact_id), value)
    assert book.refuses(*before, book.forget(first.fact_id), space)
    assert not book.refuses(*before, book.forget(first.fact_id, identity=True), space)
    assert not book.refuses(*before, book.forget(first.fact_id, identity=True), value)
    assert book.append(*before, book.forget(first.fact_id), value)[-1] == 1
    assert book.append(value) == [1]


def test_the_reason_of_an_erasure_stays_and_what_was_erased_with_it_does_not() -> None:
    """Other entries or scopes under the event ids of an erased fact are the same once the last entry went."""
    book = Groups()
    first = book.state(held=[M1])
    forget = book.forget(first.fact_id, identity=True, reason="asked to")
    remove = book.remove(first.fact_id, *M1)
    moved = replace(first, placements=book.held(first.fact_id, [M1], scope="elsewhere"))
    assert book.refuses(first, forget, replace(forget, reason="otherwise"))
    assert book.refuses(first, forget, moved)
    assert not book.refuses(first, forget, remove, moved)
    assert not book.refuses(first, forget, remove, replace(remove, scope="elsewhere"))
    assert book.refuses(first, forget, remove, replace(forget, reason="otherwise"))


@pytest.mark.parametrize(("more", "state"), [(timedelta(0), DUE), (TICK, HELD)])
def test_what_begins_within_four_minutes_takes_its_place_at_once(
    bench: Bench, more: timedelta, state: PlacementState
) -> None:
    """A microsecond later, and the entries of what it replaces are current until then."""
    old = bench.add(held=[M1])
    bench.do(bench.state(supersedes=old, valid_from=START + TICK + AHEAD + more))
    assert bench.placed(old) == {M1: state}


def test_every_block_that_has_a_changed_fact_knows_the_last_event_that_changed_it(bench: Bench) -> None:
    """A fact and what replaces it may lie in two blocks of the log: both change."""
    bench.group = Group(bench.state_of, Position(1022, None, GENESIS), START)
    old = bench.add()
    assert bench.state_of.touched == {0: 1023}
    new = bench.add(supersedes=old)
    assert bench.state_of.touched == {0: 1024, 1: 1024}
    bench.do(bench.retract(new))
    assert bench.state_of.touched == {0: 1025, 1: 1025}
    bench.add(provenance=Provenance.CLAIMED)
    assert bench.state_of.touched == {0: 1025, 1: 1026}


# --- what a refusal names --------------------------------------------------------------------


def test_a_refusal_names_the_fact_and_the_entry_in_the_way(bench: Bench) -> None:
    """Whoever is refused learns by which fact, in which store and under which id."""
    old, other = bench.add(held=[M1]), bench.add()
    bench.do(bench.repair("f-orphan", *M2))
    bench.do(bench.repair("f-bare"))
    entry = {"store": "memories", "external_id": "m-1"}
    orphan = {"fact_id": "f-orphan", "store": "memories", "external_id": "m-2"}
    assert fields(bench, bench.repair("f-orphan", *M2)) == orphan
    assert fields(bench, bench.repair("f-bare")) == {"fact_id": "f-bare", "store": None, "external_id": None}
    assert fields(bench, bench.repair("f-next", *M1)) == {"fact_id": old, **entry}
    assert fields(bench, bench.remove(other, *M1)) == {"fact_id": old, **entry}
    assert fields(bench, bench.remove(old, *M1)) == {"fact_id": old, **entry}
    assert fields(bench, bench.remove(old, *A1)) == {"fact_id": old, "store": "agent", "external_id": "a-1"}
    assert fields(bench, bench.state(held=[M1])) == {"fact_id": old, **entry}
    assert fields(bench, bench.place(other, [M2])) == orphan
    assert fields(bench, bench.place(old, [("memories", "m-3")])) == {"fact_id": old, "store": "memories"}
    replacing = replace(bench.place(old, [("memories", "m-3")]), replaces=(("memories", "m-9"),))
    assert fields(bench, replacing) == {"fact_id": old, "store": "memories", "external_id": "m-9"}
    bench.clock.advance(PLACEMENT_MAX_AGE + TICK)
    stale = replace(bench.state(), placements=())
    stale = replace(stale, placements=bench.held(stale.fact_id, [A1], stored_at=START))
    assert fields(bench, stale) == {"fact_id": stale.fact_id, "store": "agent", "external_id": "a-1"}


def test_a_refusal_names_the_facts_of_a_chain(bench: Bench) -> None:
    """What is not to be replaced is named, with what stands in the way of it."""
    old = bench.add()
    early = START - TICK
    found = fields(bench, bench.state(supersedes=old, valid_from=early))
    row = bench.state_of.facts[old]
    assert found["fact_id"] == old
    assert found["target_from"] == row.valid_from
    assert found["valid_from"] < row.valid_from
    assert fields(bench, bench.state(supersedes=old, space="x")) == {"field": "space", "fact_id": old}
    new = bench.add(supersedes=old)
    assert fields(bench, bench.state(supersedes=old)) == {"fact_id": old, "by": new}
    claimed = bench.add(provenance=Provenance.CLAIMED)
    assert fields(bench, bench.state(supersedes=claimed)) == {"fact_id": claimed}
    assert fields(bench, bench.place(claimed, [M1])) == {"fact_id": claimed}


def test_a_refusal_names_the_holds_in_the_way(bench: Bench) -> None:
    """All of them, in order."""
    fact_id = bench.add()
    for hold_id in ("court", "audit"):
        bench.do(bench.hold(fact_id, hold_id))
    assert fields(bench, bench.forget(fact_id)) == {"fact_id": fact_id, "holds": ["audit", "court"]}
    assert fields(bench, bench.hold(fact_id, "court")) == {"fact_id": fact_id, "hold_id": "court"}
    assert fields(bench, bench.release(fact_id, "none")) == {"fact_id": fact_id, "hold_id": "none"}
