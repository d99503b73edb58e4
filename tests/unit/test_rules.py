"""The ledger's rules without any storage: what may be appended, and what follows from it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from fix_ledger import START
from fix_rules import Bench

from custody_sync.ledger.chain import GENESIS
from custody_sync.model import PlacementState, Provenance, Standing

CLAIMED = Provenance.CLAIMED
HELD, DUE = PlacementState.HELD, PlacementState.DUE


# --- L1: the first record wins ---------------------------------------------------------------


def test_l1_an_asserted_id_is_never_asserted_or_repaired_again(bench: Bench) -> None:
    """The first record of a fact id decides what it is."""
    fact_id = bench.add()
    assert bench.refused(bench.state(fact_id=fact_id)) == "duplicate_fact"
    assert bench.refused(bench.repair(fact_id)) == "asserted_id"
    assert bench.refused(bench.repair(fact_id, "memories", "x-1")) == "asserted_id"


def test_l1_a_repaired_id_is_never_asserted(bench: Bench) -> None:
    """A repaired id is an orphan's for ever; nothing that needs a fact works on it."""
    bench.do(bench.repair("f-orphan", "memories", "x-1"))
    assert bench.state_of.claims["f-orphan"] is Standing.REPAIRED
    assert bench.refused(bench.state(fact_id="f-orphan")) == "repaired_id"
    for draft in (
        bench.retract("f-orphan"),
        bench.confirm("f-orphan"),
        bench.forget("f-orphan"),
        bench.hold("f-orphan"),
        bench.release("f-orphan"),
        bench.place("f-orphan", [("memories", "x-2")]),
        bench.state(supersedes="f-orphan"),
    ):
        assert bench.refused(draft) == "repaired_id"


def test_l1_further_orphans_get_one_event_each(bench: Bench) -> None:
    """A repaired id takes one repair per (store, external id), and a bare claim only once."""
    bench.do(bench.repair("f-orphan", "memories", "x-1"))
    bench.do(bench.repair("f-orphan", "memories", "x-2"))
    bench.do(bench.repair("f-orphan", "agent", "x-1"))
    assert bench.refused(bench.repair("f-orphan", "memories", "x-1")) == "already_recorded"
    assert bench.refused(bench.repair("f-orphan")) == "already_recorded"
    bench.do(bench.repair("f-claimed"))
    assert bench.refused(bench.repair("f-claimed")) == "already_recorded"
    bench.do(bench.repair("f-claimed", "memories", "x-9"))
    assert set(bench.placed("f-orphan").values()) == {DUE}


def test_l1_nothing_works_on_an_id_that_nobody_claimed(bench: Bench) -> None:
    """An unknown id is named as unknown, whatever is asked of it."""
    for draft in (
        bench.retract("f-none"),
        bench.confirm("f-none"),
        bench.forget("f-none"),
        bench.hold("f-none"),
        bench.release("f-none"),
        bench.place("f-none", [("memories", "x-1")]),
        bench.remove("f-none", "memories", "x-1"),
        bench.state(supersedes="f-none"),
    ):
        assert bench.refused(draft) == "unknown_fact"


# --- event ids -------------------------------------------------------------------------------


def test_the_same_draft_again_is_the_same_event(bench: Bench) -> None:
    """Appending a draft twice appends it once; that is how an unknown outcome is settled."""
    draft = bench.state()
    first = bench.do(draft)
    assert bench.do(draft) == first
    assert len(bench.group.appended) == 1


def test_another_draft_under_a_used_event_id_is_refused(bench: Bench) -> None:
    """An event id names one event."""
    draft = bench.state()
    bench.do(draft)
    other = bench.state()
    stolen = type(other)(event_id=draft.event_id, fact=other.fact)
    assert bench.refused(stolen) == "duplicate_event"


# --- L3: time --------------------------------------------------------------------------------


def test_l3_time_grows_with_every_event_whatever_the_clock_does(bench: Bench) -> None:
    """With the clock standing still, going back or ahead, tx_time is strictly increasing."""
    events = []
    for step in (0, 0, 0, -3600, -3600, 10800, 0):
        bench.clock.set(bench.clock.now() + timedelta(seconds=step))
        events.append(bench.do(bench.state()))
    times = [event.tx_time for event in events]
    assert times == sorted(set(times))
    assert [event.seq for event in events] == list(range(1, 8))
    assert times[5] == bench.clock.now()
    assert times[3] == times[2] + timedelta(microseconds=1)


def test_each_event_follows_the_one_before_it(bench: Bench) -> None:
    """`prev` is the hash before; the first event follows the genesis."""
    events = [bench.do(bench.state()) for _ in range(3)]
    assert [event.prev for event in events] == [GENESIS, events[0].hash, events[1].hash]


# --- L4: replacements ------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["space", "subject", "predicate"])
def test_l4_a_replacement_says_the_same_of_the_same(bench: Bench, field: str) -> None:
    """A replacement has its target's space, subject and predicate."""
    target = bench.add()
    assert bench.refused(bench.state(**{field: "other"}, supersedes=target)) == "other_statement"


def test_l4_a_replacement_starts_no_earlier_than_its_target(bench: Bench) -> None:
    """The same instant is allowed, a microsecond earlier is not."""
    target = bench.add()
    early = START - timedelta(microseconds=1)
    assert bench.refused(bench.state(supersedes=target, valid_from=early)) == "starts_too_early"
    bench.do(bench.state(supersedes=target, valid_from=START))


def test_l4_two_supersedes_of_one_fact_one_wins(bench: Bench) -> None:
    """The second one is told that the fact is covered, and by what."""
    target = bench.add()
    winner = bench.add(supersedes=target)
    assert bench.refused(bench.state(supersedes=target)) == "already_covered"
    assert bench.live() == {winner}


def test_l4_a_target_must_be_believed(bench: Bench) -> None:
    """A claimed, a retracted and a forgotten fact cannot be superseded."""
    claimed = bench.add(provenance=CLAIMED)
    retracted, forgotten = bench.add(), bench.add()
    bench.do(bench.retract(retracted))
    bench.do(bench.forget(forgotten))
    found = [bench.refused(bench.state(supersedes=fact)) for fact in (claimed, retracted, forgotten)]
    assert found == ["not_confirmed", "already_retracted", "forgotten"]


def test_l4_retracting_the_middle_changes_nothing_believed(bench: Bench) -> None:
    """A ← B ← C: retract B and only C is believed; retract C and A returns."""
    a = bench.add()
    b = bench.add(supersedes=a)
    c = bench.add(supersedes=b)
    bench.do(bench.retract(b))
    assert bench.live() == {c}
    bench.do(bench.retract(c))
    assert bench.live() == {a}


def test_l4_retracting_the_end_gives_back_what_it_covered(bench: Bench) -> None:
    """A ← B ← C: retract C and B is believed again, not A."""
    a = bench.add()
    b = bench.add(supersedes=a)
    c = bench.add(supersedes=b)
    bench.do(bench.retract(c))
    assert bench.live() == {b}
    assert bench.refused(bench.state(supersedes=a)) == "already_covered"
    bench.do(bench.state(supersedes=b))


def test_l4_forgetting_a_link_brings_nothing_older_back(bench: Bench) -> None:
    """An erased end of a chain goes on covering; retracting it afterwards is refused."""
    a = bench.add()
    b = bench.add(supersedes=a)
    bench.do(bench.forget(b))
    assert bench.live() == set()
    assert bench.refused(bench.retract(b)) == "forgotten"
    assert bench.refused(bench.state(supersedes=a)) == "already_covered"


def test_l4_retracting_onto_a_forgotten_link_restores_nothing(bench: Bench) -> None:
    """A ← B ← C with B forgotten: retract C and nothing is believed."""
    a = bench.add(held=[("memories", "x-1")])
    b = bench.add(supersedes=a)
    c = bench.add(supersedes=b)
    bench.do(bench.forget(b))
    bench.do(bench.retract(c))
    assert bench.live() == set()
    assert not any(bench.state_of.owed.values())


# --- L5: claimed facts -----------------------------------------------------------------------


def test_l5_a_claimed_fact_takes_effect_when_confirmed(bench: Bench) -> None:
    """It belongs in no store before, and is confirmed once."""
    fact_id = bench.add(provenance=CLAIMED)
    assert bench.live() == set()
    assert bench.refused(bench.place(fact_id, [("memories", "x-1")])) == "not_believed"
    bench.do(bench.confirm(fact_id, [("memories", "x-1")]))
    assert bench.live() == {fact_id}
    assert bench.placed(fact_id) == {("memories", "x-1"): HELD}
    assert bench.refused(bench.confirm(fact_id)) == "already_confirmed"
    assert bench.refused(bench.confirm(bench.add())) == "already_confirmed"


def test_l5_a_claimed_replacement_covers_nothing_until_confirmed(bench: Bench) -> None:
    """The attested target stays believed meanwhile (C30)."""
    target = bench.add(held=[("memories", "x-1")])
    claimed = bench.add(supersedes=target, provenance=CLAIMED)
    assert bench.live() == {target}
    bench.do(bench.confirm(claimed))
    assert bench.live() == {claimed}
    assert bench.placed(target) == {("memories", "x-1"): DUE}


def test_l5_a_claimed_replacement_is_checked_again_when_confirmed(bench: Bench) -> None:
    """What happened to its target since decides."""
    covered, retracted, forgotten = bench.add(), bench.add(), bench.add()
    waiting = [bench.add(supersedes=fact, provenance=CLAIMED) for fact in (covered, retracted, forgotten)]
    bench.add(supersedes=covered)
    bench.do(bench.retract(retracted))
    bench.do(bench.forget(forgotten))
    found = [bench.refused(bench.confirm(fact)) for fact in waiting]
    assert found == ["already_covered", "already_retracted", "forgotten"]


def test_l5_a_claimed_fact_can_be_retracted_and_forgotten(bench: Bench) -> None:
    """Quarantine is no way out of a retraction or an erasure, and neither can be confirmed away."""
    one, two = bench.add(provenance=CLAIMED), bench.add(provenance=CLAIMED)
    bench.do(bench.retract(one))
    bench.do(bench.forget(two))
    assert bench.refused(bench.confirm(one)) == "already_retracted"
    assert bench.refused(bench.confirm(two)) == "forgotten"


# --- holds and forgets -----------------------------------------------------------------------


def test_c10_holds_stack_and_refuse_a_forget(bench: Bench) -> None:
    """Releasing one of two holds still refuses; releasing both allows."""
    fact_id = bench.add()
    bench.do(bench.hold(fact_id, "court"))
    bench.do(bench.hold(fact_id, "audit"))
    assert bench.refused(bench.forget(fact_id)) == "on_hold"
    bench.do(bench.release(fact_id, "court"))
    assert bench.refused(bench.forget(fact_id)) == "on_hold"
    bench.do(bench.release(fact_id, "audit"))
    bench.do(bench.forget(fact_id))
    assert bench.refused(bench.hold(fact_id)) == "forgotten"


def test_a_hold_id_is_used_once_at_a_time(bench: Bench) -> None:
    """The same hold twice and the release of none are named; released, the id is free again."""
    fact_id = bench.add()
    assert bench.refused(bench.release(fact_id, "court")) == "no_such_hold"
    bench.do(bench.hold(fact_id, "court"))
    assert bench.refused(bench.hold(fact_id, "court")) == "duplicate_hold"
    bench.do(bench.release(fact_id, "court"))
    assert bench.refused(bench.release(fact_id, "court")) == "no_such_hold"
    bench.do(bench.hold(fact_id, "court"))


def test_a_hold_does_not_stop_a_retraction(bench: Bench) -> None:
    """Holding keeps the record, not the belief."""
    fact_id = bench.add()
    bench.do(bench.hold(fact_id))
    bench.do(bench.retract(fact_id))
    assert bench.live() == set()
    assert bench.refused(bench.forget(fact_id)) == "on_hold"


def test_a_fact_is_forgotten_once_and_its_identity_once_more(bench: Bench) -> None:
    """A second forget is refused unless it also takes the identity."""
    fact_id = bench.add()
    bench.do(bench.forget(fact_id))
    assert bench.refused(bench.forget(fact_id)) == "forgotten"
    bench.do(bench.forget(fact_id, identity=True))
    assert bench.refused(bench.forget(fact_id, identity=True)) == "forgotten"
    row = bench.state_of.facts[fact_id]
    assert (row.space, row.subject, row.predicate) == ("", "", "")


def test_a_retracted_fact_can_still_be_forgotten(bench: Bench) -> None:
    """An erasure is never refused for lack of belief."""
    a = bench.add()
    b = bench.add(supersedes=a)
    bench.do(bench.retract(b))
    bench.do(bench.forget(b))
    bench.do(bench.forget(a))
    assert bench.refused(bench.retract(a)) == "forgotten"


def test_only_believed_facts_are_retracted_once(bench: Bench) -> None:
    """A second retraction is named."""
    fact_id = bench.add()
    bench.do(bench.retract(fact_id))
    assert bench.refused(bench.retract(fact_id)) == "already_retracted"
