"""What the commands that erase share: the preview, the question, and the report."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from custody_sync.cli.output import Output
from custody_sync.errors import InvalidInput, LedgerArriving, LedgerError, LedgerMoved, UnknownFact
from custody_sync.forgetting import Progress
from custody_sync.ledger import Ledger
from custody_sync.model import Erasure, Fact, Outcome, PlacementState
from custody_sync.results import ExpireResult, FactFate, Fate, ForgetWhereResult

DONE, FINDING, PARTIAL, REFUSED = 0, 1, 3, 4
NOTHING_KNOWN = "no fact of this space and subject is known, which proves nothing"
SHOWN = 200
"""More facts than these are counted in a preview for people."""

R = TypeVar("R", ExpireResult, ForgetWhereResult)


def check_asked(output: Output, *, yes: bool, dry_run: bool) -> None:
    """Refuse to erase where nobody is there to be asked and nobody said yes beforehand."""
    if not (yes or dry_run or output.interactive):
        problem = "is needed where nobody can be asked, since erasing cannot be undone"
        raise InvalidInput(field="--yes", problem=problem)


def agreed(output: Output, count: int) -> bool:
    """Ask whether so many facts are to be erased."""
    output.note(f"Erase {count} fact{'s' if count != 1 else ''} for good? [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


async def known_fact(ledger: Ledger, fact_id: str) -> Fact:
    """Return a fact, or say that there is none of this id."""
    fact = await ledger.get(fact_id)
    if fact is None:
        raise UnknownFact(fact_id=fact_id)
    return fact


async def preview(ledger: Ledger, facts: Sequence[Fact], output: Output) -> list[dict[str, object]]:
    """Show what will be erased and where it is, and return it for the document."""
    where = [await _stores_of(ledger, fact.fact_id) for fact in facts]
    columns = ["fact", "space", "subject", "predicate", "stores"]
    rows = [
        [fact.fact_id, fact.space, fact.subject, fact.predicate, ", ".join(stores)]
        for fact, stores in zip(facts, where, strict=True)
    ]
    # A log that keeps this preview must not keep the value that is about to be erased.
    if output.seen:
        columns.append("text")
        rows = [[*row, fact.text or ""] for row, fact in zip(rows, facts, strict=True)]
    output.preview("to be erased", columns, rows[:SHOWN])
    if len(rows) > SHOWN:
        output.note(f"... and {len(rows) - SHOWN} more; --dry-run --json lists all.")
    return [
        {
            "fact_id": fact.fact_id,
            "space": fact.space,
            "subject": fact.subject,
            "predicate": fact.predicate,
            "stores": stores,
        }
        for fact, stores in zip(facts, where, strict=True)
    ]


async def fate_of(ledger: Ledger, fact: Fact) -> FactFate:
    """Say of one fact what a dry run of many says of each: whether a hold keeps it."""
    assert fact.seq is not None  # noqa: S101  # it comes from the ledger
    (account,) = await ledger.accounts(limit=1, after=fact.seq - 1)
    fate = Fate.HELD if account.holds else Fate.PLANNED
    return FactFate(fact_id=fact.fact_id, space=fact.space, fate=fate, holds=account.holds)


async def preview_fates(ledger: Ledger, facts: Sequence[FactFate], output: Output) -> list[dict[str, object]]:
    """Show what a dry run would erase, and what a hold keeps; return the former for the document."""
    planned = [await known_fact(ledger, fact.fact_id) for fact in facts if fact.fate is Fate.PLANNED]
    shown = await preview(ledger, planned, output)
    held = [(fact.fact_id, fact.space, ", ".join(fact.holds)) for fact in facts if fact.fate is Fate.HELD]
    if held:
        output.preview("kept by a hold", ("fact", "space", "holds"), held)
    return shown


async def _stores_of(ledger: Ledger, fact_id: str) -> list[str]:
    places = await ledger.placements(fact_id)
    return sorted({place.store for place in places if place.state is not PlacementState.GONE})


async def erase_many(output: Output, total: int, work: Callable[[Progress], Awaitable[R]]) -> R:
    """Run an erasure of many facts with its progress; one that is interrupted says how far it came."""
    done: Counter[Fate] = Counter()
    with output.working("erasing", total) as step:

        def progress(fact: FactFate) -> None:
            done[fact.fate] += 1
            step()

        try:
            return await work(progress)
        except asyncio.CancelledError:
            output.note(f"{done[Fate.FORGOTTEN]} of {total} facts were forgotten; running it again goes on.")
            raise


def show_fates(output: Output, result: ExpireResult | ForgetWhereResult) -> None:
    """Show what became of many facts: counted, and by name where something is left."""
    fates = Counter(fact.fate.value for fact in result.facts)
    said = ", ".join(f"{count} {fate}" for fate, count in sorted(fates.items()))
    erasure = result.erasure
    files = f"erasure from the ledger's files: {erasure.value}" if erasure else "nothing was erased"
    output.line(f"{said or 'No fact'}; {files}.")
    removals = [removal for fact in result.facts for removal in fact.removals]
    counts = Counter((removal.store, removal.outcome.value) for removal in removals)
    if counts:
        rows = [(*key, count) for key, count in sorted(counts.items())]
        output.table("removed", ("store", "outcome", "entries"), rows)
    output_left(output, result)


def output_left(output: Output, result: ExpireResult | ForgetWhereResult) -> None:
    """Name each fact that is not done with, and what the stores say that they keep."""
    kept = [fact for fact in result.facts if fact.fate in (Fate.HELD, Fate.FAILED)]
    if kept:
        columns = ("fact", "fate", "holds", "detail")
        rows = [(fact.fact_id, fact.fate.value, ", ".join(fact.holds), fact.detail) for fact in kept]
        output.table("not forgotten", columns, rows)
    left = [r for fact in result.facts for r in fact.removals if r.outcome is not Outcome.VERIFIED]
    output.follow_up(left, ())
    if result.erasure is Erasure.PENDING:
        output.note(
            "A reader keeps erased values in the ledger's files; `custody-sync repair` finishes them."
        )
    for note in result.notes:
        output.note(note)
    if result.stopped is not None:
        elsewhere = result.stopped in (LedgerMoved.code, LedgerArriving.code)
        goes_on = "it goes on where the ledger does" if elsewhere else "running it again goes on"
        output.note(f"Stopped early ({result.stopped}); {goes_on}.")


def document_of(result: ExpireResult | ForgetWhereResult) -> dict[str, Any]:
    """Return what the JSON document says of many facts besides the record itself."""
    return {
        "counts": {fate.value: len(result.with_fate(fate)) for fate in Fate},
        "incomplete": _incomplete(result),
    }


def _incomplete(result: ExpireResult | ForgetWhereResult) -> list[str]:
    """Return why a result is not complete, one sentence each; empty where it is."""
    if result.complete:
        return []
    left = sum(r.outcome is not Outcome.VERIFIED for fact in result.facts for r in fact.removals)
    said = [
        ("this was a dry run", result.dry_run),
        (f"it stopped early ({result.stopped})", result.stopped is not None),
        (f"facts that failed: {len(result.with_fate(Fate.FAILED))}", result.with_fate(Fate.FAILED)),
        (f"removals that are not verified: {left}", left),
        ("a reader keeps erased values in the ledger's files", result.erasure is Erasure.PENDING),
    ]
    if isinstance(result, ForgetWhereResult):
        held = result.with_fate(Fate.HELD)
        said += [
            (f"facts kept by a hold: {len(held)}", held),
            (NOTHING_KNOWN, not result.facts and not result.dry_run),
            (f"entries in the stores too young to judge: {len(result.young)}", result.young),
            (f"entries in the stores that no fact accounts for: {len(result.leftovers)}", result.leftovers),
            (f"facts stated meanwhile: {len(result.later)}", result.later),
            (f"not reached: {'; '.join(result.not_reached)}", result.not_reached),
        ]
    return [sentence for sentence, holds in said if holds]


def status_of(result: ExpireResult | ForgetWhereResult) -> int:
    """Return the exit status of an erasure of many facts."""
    if result.stopped is not None:
        return LedgerError.exit_code
    if result.complete:
        return DONE
    return REFUSED if result.facts and len(result.with_fate(Fate.HELD)) == len(result.facts) else PARTIAL
