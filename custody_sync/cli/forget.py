"""`custody-sync forget`: erase facts for good, from every store and from the ledger's own files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from custody_sync.cli.options import (
    ActorOption,
    ConfigOption,
    JsonOption,
    LedgerOption,
    ReasonOption,
    ReceiptOption,
    actor_of,
)
from custody_sync.cli.output import Output, plain
from custody_sync.cli.sentences import sentence, told
from custody_sync.cli.session import Proof, open_custody, open_ledger, proof_of, run
from custody_sync.coordinator import AsyncCoordinator
from custody_sync.errors import CustodyError, InvalidInput, LedgerError, UnknownFact
from custody_sync.ledger import Ledger
from custody_sync.model import (
    Erasure,
    Fact,
    PlacementState,
)
from custody_sync.results import (
    ForgetResult,
)
from custody_sync.settings import load_settings

DONE, FINDING, PARTIAL, REFUSED = 0, 1, 3, 4


def forget(
    fact_ids: Annotated[list[str], typer.Argument(metavar="FACT_ID", show_default=False)],
    reason: ReasonOption,
    actor: ActorOption = None,
    digest: Annotated[
        str | None,
        typer.Option(
            "--digest",
            metavar="KIND",
            help="What stays of the value: hmac-sha256 (needs forget_key_env), sha256 or none.",
        ),
    ] = None,
    identity: Annotated[
        bool, typer.Option("--identity", help="Erase subject, predicate, space and reasons as well.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Erase without asking.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be erased, and exit with 1.")
    ] = False,
    receipt_id: ReceiptOption = None,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
    json: JsonOption = False,
) -> int:
    """Erase facts for good, everywhere.

    The value leaves every store and the ledger's files; that it was erased stays on record. What will
    be erased is shown first. On a terminal you are asked; anywhere else, and with --json, --yes is
    needed.
    """
    settings = load_settings(config, ledger)
    who = actor_of(actor, settings)
    output = Output(json=json)
    if not (yes or dry_run or output.interactive):
        problem = "erasing cannot be undone; where nobody can be asked it needs --yes"
        raise InvalidInput(field="forget", problem=problem)

    async def plan(output: Output) -> list[str]:
        async with open_ledger(settings, read_only=True) as opened:
            facts = [await _known(opened, fact_id) for fact_id in dict.fromkeys(fact_ids)]
            planned = await _preview(opened, facts, output)
        if dry_run:
            output.document({"planned": planned})
        return [fact.fact_id for fact in facts]

    async def erase(output: Output) -> int:
        how = {"digest": digest, "identity": identity, "receipt_id": receipt_id}
        async with open_custody(settings, output) as custody:
            with output.working("erasing", len(known)) as step:
                results, failures = await _erase(
                    custody.coordinator, known, step, actor=who, reason=reason, **how
                )
            proof = await proof_of(custody, who)
        return _show(output, results, failures, proof)

    known = run(plan, json=json)
    if dry_run:
        return FINDING
    # Asked between two event loops: inside one, Ctrl-C would have to be pressed twice.
    if not yes and not _agreed(output, len(known)):
        output.note("Nothing was erased.")
        return REFUSED
    return run(erase, json=json)


async def _erase(
    custody: AsyncCoordinator, fact_ids: Sequence[str], step: Callable[[], None], **how: Any
) -> tuple[list[ForgetResult], list[CustodyError]]:
    """Erase one after the other; a refusal does not stop the rest, a ledger that is gone does."""
    results: list[ForgetResult] = []
    failures: list[CustodyError] = []
    for fact_id in fact_ids:
        try:
            results.append(await custody.forget(fact_id, **how))
        except LedgerError:
            raise
        except CustodyError as error:
            failures.append(error)
        step()
    return results, failures


async def _known(ledger: Ledger, fact_id: str) -> Fact:
    fact = await ledger.get(fact_id)
    if fact is None:
        raise UnknownFact(fact_id=fact_id)
    return fact


async def _preview(ledger: Ledger, facts: Sequence[Fact], output: Output) -> list[dict[str, object]]:
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
    output.preview("to be erased", columns, rows)
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


async def _stores_of(ledger: Ledger, fact_id: str) -> list[str]:
    places = await ledger.placements(fact_id)
    return sorted({place.store for place in places if place.state is not PlacementState.GONE})


def _agreed(output: Output, count: int) -> bool:
    output.note(f"Erase {count} fact{'s' if count != 1 else ''} for good? [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _show(
    output: Output,
    results: Sequence[ForgetResult],
    failures: Sequence[CustodyError],
    proof: Proof,
) -> int:
    for result in results:
        output.line(f"Forgot {result.fact_id}; erasure from the ledger's files: {result.erasure.value}.")
        output.follow_up(result.removals, result.restored)
        if result.erasure is Erasure.PENDING:
            output.note(
                "A reader keeps the erased value in the ledger's files; `custody-sync repair` finishes it."
            )
    for note in dict.fromkeys(note for result in results for note in result.notes):
        output.note(note)
    for failure in failures:
        output.note(sentence(failure))
    complete = not failures and all(result.complete for result in results)
    output.document(
        {
            **plain(proof),
            "forgotten": list(results),
            "failed": [{**told(failure), "exit_code": failure.exit_code} for failure in failures],
            "complete": complete,
        }
    )
    if failures and not results:
        return failures[0].exit_code
    return DONE if complete else PARTIAL
