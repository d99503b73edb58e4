"""Wrong calls that a type checker has to refuse: `make lint` fails when one of them passes.

Nothing here is executed. Each line carries the error that mypy and basedpyright must give; both
report an ignore comment that ignores nothing, so a call that becomes right turns the check red.
"""

from __future__ import annotations

from custody_sync import AsyncCoordinator, Coordinator, Entry, Fact, Ledger, Outcome


class NoDelete:
    """A store without `delete`: what went in could never be taken out."""

    name = "half"

    async def put(self, fact: Fact) -> list[str]:
        """Take an entry."""
        return [fact.fact_id]


async def asynchronous(custody: AsyncCoordinator, ledger: Ledger, fact: Fact) -> None:
    """Call the asynchronous surface wrongly."""
    # every write names who wrote it and where it belongs
    await custody.write(value="x", space="org")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await custody.write(value="x", actor="me")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    # values are JSON
    await custody.write(value=b"x", space="org", actor="me")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    # instants are datetimes, never text
    await custody.write(value="x", space="org", actor="me", valid_from="2026-01-01")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    # only the fact id is positional
    await custody.retract("id", "me", "wrong")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    # nothing is erased without saying where
    await custody.forget_where(actor="me")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    # an age counts from one of two moments
    await custody.expire(actor="me", windows={}, age_from="valid_from")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    # a recall has one of three policies, and spaces are a list of texts
    await custody.recall("plan", unlabelled="hide")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await custody.recall("plan", spaces=[1])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    # a forgotten fact has no text
    fact.text.upper()  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]
    # a fact never changes
    fact.value = "other"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    # a store takes an entry out by more than an id
    AsyncCoordinator(ledger, stores=[NoDelete()])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    # an answer has to be awaited
    ledger.history("id")  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]


def synchronous(custody: Coordinator, entry: Entry) -> str:
    """Call the synchronous surface and the records wrongly."""
    # the twin answers at once
    print(custody.repair(actor="ops", reason="weekly").no_such_field)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    # an outcome is one of a closed list
    wrong: Outcome = "verified"  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    # an unlabelled entry has no fact id
    return entry.fact_id or wrong.missing  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
