"""The rules of placements without any storage: who holds what, what has to go, what is owed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from fix_rules import Bench

from custody_sync.model import PLACEMENT_MAX_AGE, REPAIR_MIN_AGE, Outcome, PlacementState, Provenance

HELD, KEPT, DUE, GONE = (
    PlacementState.HELD,
    PlacementState.KEPT,
    PlacementState.DUE,
    PlacementState.GONE,
)
M1, M2, A1 = ("memories", "m-1"), ("memories", "m-2"), ("agent", "a-1")
TICK = timedelta(microseconds=1)


# --- taking placements up --------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["assert", "confirm", "place"])
def test_an_old_placement_is_refused(bench: Bench, kind: str) -> None:
    """Five minutes after the put no append takes it up any more, so that none can race the sweep."""
    claimed = bench.add(provenance=Provenance.CLAIMED)
    plain = bench.add()
    draft = {
        "assert": bench.state(held=[M1]),
        "confirm": bench.confirm(claimed, [M1]),
        "place": bench.place(plain, [M1]),
    }[kind]
    bench.clock.advance(PLACEMENT_MAX_AGE + TICK)
    assert bench.refused(draft) == "stale_placement"
    bench.clock.set(bench.clock.now() - TICK)
    bench.do(draft)


def test_the_oldest_placement_decides(bench: Bench) -> None:
    """One late store makes the whole append late; an undated placement can never be trusted."""
    draft = bench.state(held=[M1, A1])
    old = replace(draft.placements[0], stored_at=bench.clock.now() - PLACEMENT_MAX_AGE - TICK)
    undated = replace(draft.placements[0], stored_at=None)
    for bad in (old, undated):
        assert bench.refused(replace(draft, placements=(draft.placements[1], bad))) == "stale_placement"


def test_an_external_id_that_was_removed_is_never_taken_up_again(bench: Bench) -> None:
    """A removal that was recorded first wins, whoever asked for it."""
    fact_id = bench.add(held=[M1])
    claimed = bench.add(provenance=Provenance.CLAIMED)
    bench.do(bench.repair("f-orphan", *M2))
    bench.do(bench.remove(claimed, *A1, stored_at=bench.clock.now() - REPAIR_MIN_AGE))
    assert bench.refused(bench.confirm(claimed, [A1])) == "stale_placement"
    assert bench.refused(bench.state(held=[M2])) == "shared_entry"
    assert bench.refused(bench.place(fact_id, [A1])) == "shared_entry"


def test_two_facts_never_share_an_entry(bench: Bench) -> None:
    """Removing one would take the other."""
    bench.add(held=[M1])
    assert bench.refused(bench.state(held=[M1])) == "shared_entry"


def test_a_fact_is_placed_again_only_while_it_is_believed(bench: Bench) -> None:
    """A retracted, covered, forgotten, claimed or ended fact belongs in no store."""
    retracted, covered, forgotten = bench.add(), bench.add(), bench.add()
    bench.do(bench.retract(retracted))
    bench.add(supersedes=covered)
    bench.do(bench.forget(forgotten))
    claimed = bench.add(provenance=Provenance.CLAIMED)
    ended = bench.add(valid_to=bench.clock.now() + timedelta(hours=1))
    bench.clock.advance(3600)
    facts = (retracted, covered, forgotten, claimed, ended)
    found = [bench.refused(bench.place(fact_id, [M1])) for fact_id in facts]
    assert found == ["already_retracted", "not_believed", "forgotten", "not_believed", "not_believed"]


def test_a_store_that_holds_a_fact_is_not_given_it_again(bench: Bench) -> None:
    """Two processes that restore the same fact leave one placement."""
    fact_id = bench.add(held=[M1])
    assert bench.refused(bench.place(fact_id, [M2])) == "already_placed"
    bench.do(bench.place(fact_id, [A1]))


# --- what has to go --------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["retract", "forget", "supersede"])
def test_placements_fall_due_when_belief_ends(bench: Bench, end: str) -> None:
    """Every way of ending a belief makes every placement due for removal."""
    fact_id = bench.add(held=[M1, A1])
    if end == "supersede":
        bench.add(supersedes=fact_id)
    else:
        bench.do(getattr(bench, end)(fact_id))
    assert bench.placed(fact_id) == {M1: DUE, A1: DUE}


def test_a_store_may_keep_what_is_superseded(bench: Bench) -> None:
    """The policy `keep` spares the entry until a retraction or an erasure takes it all the same."""
    old = bench.add(held=[M1, A1])
    bench.do(replace(bench.state(supersedes=old), kept=("memories",)))
    assert bench.placed(old) == {M1: KEPT, A1: DUE}
    bench.do(bench.retract(old))
    assert bench.placed(old) == {M1: DUE, A1: DUE}


def test_a_kept_entry_is_held_again_when_its_fact_returns(bench: Bench) -> None:
    """Nothing is owed to the store that kept it, and what the others lack is owed to them."""
    old = bench.add(held=[M1, A1])
    draft = replace(bench.state(supersedes=old), kept=("memories",))
    bench.do(draft)
    bench.do(bench.retract(draft.fact_id))
    assert bench.placed(old) == {M1: HELD, A1: DUE}
    assert bench.state_of.owed[old] == {"agent"}


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (Outcome.STARTED, DUE),
        (Outcome.FAILED, DUE),
        (Outcome.STILL_INDEXED, DUE),
        (Outcome.UNVERIFIED, DUE),
        (Outcome.VERIFIED, GONE),
    ],
)
def test_only_verified_ends_a_placement(bench: Bench, outcome: Outcome, state: PlacementState) -> None:
    """What nobody saw gone stays pending."""
    fact_id = bench.add(held=[M1])
    bench.do(bench.retract(fact_id))
    bench.do(bench.remove(fact_id, *M1, outcome=outcome))
    assert bench.placed(fact_id) == {M1: state}


def test_an_entry_seen_again_after_its_removal_is_due_again(bench: Bench) -> None:
    """A later question that finds it makes it pending once more."""
    fact_id = bench.add(held=[M1])
    bench.do(bench.retract(fact_id))
    bench.do(bench.remove(fact_id, *M1))
    bench.do(bench.remove(fact_id, *M1, outcome=Outcome.STILL_INDEXED))
    assert bench.placed(fact_id) == {M1: DUE}


def test_the_placement_of_a_believed_fact_is_never_removed(bench: Bench) -> None:
    """Neither under its own fact nor under another's name, until its validity is over."""
    fact_id = bench.add(held=[M1], valid_to=bench.clock.now() + timedelta(hours=1))
    other = bench.add()
    bench.do(bench.retract(other))
    assert bench.refused(bench.remove(fact_id, *M1)) == "still_believed"
    assert bench.refused(bench.remove(other, *M1)) == "still_believed"
    assert bench.refused(bench.repair("f-orphan", *M1)) == "still_believed"
    bench.clock.advance(3600)
    bench.do(bench.remove(fact_id, *M1))


def test_an_unrecorded_entry_of_a_believed_fact_is_left_alone_while_young(bench: Bench) -> None:
    """It may be a write under way; ten minutes later it is a stray."""
    for provenance in (Provenance.ATTESTED, Provenance.CLAIMED):
        fact_id = bench.add(provenance=provenance)
        entry = ("memories", f"stray-{provenance}")
        stored_at = bench.clock.now()
        assert bench.refused(bench.remove(fact_id, *entry)) == "still_believed"
        assert bench.refused(bench.remove(fact_id, *entry, stored_at=stored_at)) == "still_believed"
        bench.clock.advance(REPAIR_MIN_AGE)
        bench.do(bench.remove(fact_id, *entry, outcome=Outcome.STARTED, stored_at=stored_at))
        assert bench.placed(fact_id) == {entry: DUE}


def test_an_unrecorded_entry_of_an_ended_belief_may_go_at_once(bench: Bench) -> None:
    """After a retraction or an erasure nothing can still be on its way there."""
    retracted, forgotten = bench.add(), bench.add()
    bench.do(bench.retract(retracted))
    bench.do(bench.forget(forgotten))
    bench.do(bench.remove(retracted, *M1, outcome=Outcome.STARTED))
    bench.do(bench.remove(forgotten, *A1, outcome=Outcome.STARTED))


# --- what is owed ----------------------------------------------------------------------------


def test_a_restored_fact_is_owed_to_the_stores_that_let_it_go(bench: Bench) -> None:
    """A retraction owes the covered fact back; placing it settles that, store by store."""
    old = bench.add(held=[M1, A1])
    new = bench.add(supersedes=old)
    bench.do(bench.retract(new))
    assert bench.state_of.owed[old] == {"memories", "agent"}
    bench.do(bench.place(old, [M2]))
    assert bench.state_of.owed[old] == {"agent"}


@pytest.mark.parametrize("end", ["retract", "forget", "supersede"])
def test_nothing_is_owed_of_a_fact_that_is_not_believed_any_more(bench: Bench, end: str) -> None:
    """A restored fact that ends before it was placed is owed to nobody."""
    old = bench.add(held=[M1])
    bench.do(bench.retract(bench.add(supersedes=old)))
    assert bench.state_of.owed[old] == {"memories"}
    if end == "supersede":
        bench.add(supersedes=old)
    else:
        bench.do(getattr(bench, end)(old))
    assert bench.state_of.owed[old] == set()
    assert bench.state_of.owed_added == {}


def test_a_fact_whose_validity_is_over_is_owed_to_nobody(bench: Bench) -> None:
    """What has ended in the world needs no place in a store."""
    ends = bench.clock.now() + timedelta(hours=1)
    old = bench.add(held=[M1], valid_to=ends)
    new = bench.add(supersedes=old)
    bench.clock.set(ends)
    bench.do(bench.retract(new))
    assert not bench.state_of.owed.get(old)


# --- erasure of identity ---------------------------------------------------------------------


def test_ids_and_scopes_of_an_erased_identity_go_once_removed(bench: Bench) -> None:
    """They are needed until the last entry was seen gone, and not a moment longer."""
    fact_id = bench.add(held=[M1, A1])
    bench.do(bench.forget(fact_id, identity=True))
    assert fact_id not in bench.state_of.dereferenced
    bench.do(bench.remove(fact_id, *M1))
    assert fact_id not in bench.state_of.dereferenced
    bench.do(bench.remove(fact_id, *A1))
    assert fact_id in bench.state_of.dereferenced


def test_without_placements_an_identity_goes_at_once(bench: Bench) -> None:
    """Nothing is left to be asked about; a plain forget keeps ids and scopes for good."""
    bare, plain = bench.add(), bench.add(held=[M1])
    bench.do(bench.forget(bare, identity=True))
    bench.do(bench.forget(plain))
    bench.do(bench.remove(plain, *M1))
    assert set(bench.state_of.dereferenced) == {bare}
