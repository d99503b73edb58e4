"""What the results of two operations say against each other, whatever their order was.

Each operation takes effect as if at one instant: whatever the schedule, the two come to what they
come to one after the other, one way round or the other. An operation may also be told that
another one is at it, and then it has done nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from custody_sync.testing.sim.judge import Violation
from custody_sync.testing.sim.pairs import Came, Run

DONE = "done"
BUSY = ("sweep_running", "write_in_progress")
"""Errors that say that another operation is at it and that nothing was done."""


def one_wins(came: Came) -> bool:
    """Of two that replace one fact exactly one is recorded, and one link of the chain is believed."""
    return came.ended.count(DONE) == 1 and came.count("believed") == 1


def never_both(came: Came) -> bool:
    """No fact is held and forgotten."""
    return not any({"held", "forgotten"} <= set(is_now.split()) for _, is_now in came.facts)


def one_fact(came: Came) -> bool:
    """A key is one fact, and somebody was told so."""
    return DONE in came.ended and sum("key" in words for words, _ in came.facts) == 1


def erased(came: Came) -> bool:
    """Whatever else happened to a fact, it can be forgotten, and whoever was told so was told the truth."""
    return came.ended[1] == DONE and came.count("forgotten") == 1


def claim_is_over(came: Came) -> bool:
    """A retraction is recorded whatever is confirmed, and what was retracted is not believed."""
    return came.ended[0] == DONE and not any(
        {"retracted", "believed"} <= set(is_now.split()) for _, is_now in came.facts
    )


RULES: dict[tuple[str, str], tuple[str, Callable[[Came], bool]]] = {
    ("supersede", "supersede"): ("I4", one_wins),
    ("forget", "hold"): ("I4", never_both),
    ("hold", "expire"): ("I4", never_both),
    ("write_keyed", "write_keyed"): ("I1", one_fact),
    ("supersede", "forget"): ("I6", erased),
    ("retract", "confirm"): ("I4", claim_is_over),
}
"""By pair, as `PAIRS` has it: what its results may not do, and the invariant that it belongs to."""


def judged(run: Run, serial: Sequence[Came]) -> Run:
    """Return a run with what its results say against each other, if it broke nothing before.

    Args:
        run: a run.
        serial: what the two come to one after the other.
    """
    if run.violation is not None:
        return run
    invariant, rule = RULES.get(run.pair.both, ("", None))
    if rule is not None and not rule(run.came):
        return replace(run, violation=Violation(invariant, f"not so: {rule.__doc__}"))
    if not any(_is_like(run.came, came) for came in serial):
        said = "; or ".join(map(str, serial))
        return replace(run, violation=Violation("order", f"{run.came}; and one after the other {said}"))
    return run


def _is_like(came: Came, serial: Came) -> bool:
    same = all(
        one in BUSY or (one == DONE) == (then == DONE)
        for one, then in zip(came.ended, serial.ended, strict=True)
    )
    return same and came.facts == serial.facts


__all__ = ["RULES", "judged"]
