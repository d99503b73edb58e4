"""`custody-sync repair`: find what the ledger does not stand behind, remove it and verify that."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer

from custody_sync.cli.options import (
    ActorOption,
    ConfigOption,
    JsonOption,
    LedgerOption,
    ReceiptOption,
    actor_of,
    instant,
)
from custody_sync.cli.output import Output
from custody_sync.cli.session import open_custody, run
from custody_sync.model import Erasure, RepairResult
from custody_sync.settings import load_settings

DONE, FINDING, PARTIAL = 0, 1, 3


def repair(
    actor: ActorOption = None,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why; it is recorded in the ledger.")
    ] = "repair from the command line",
    before: Annotated[
        str | None,
        typer.Option(
            "--before", metavar="INSTANT", help="Only entries older than this, and than ten minutes."
        ),
    ] = None,
    max_removals: Annotated[
        int | None,
        typer.Option(
            "--max-removals", metavar="N", min=0, help="Allow so many removals where the breaker stops."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; exit with 1 if there is anything to repair.")
    ] = False,
    receipt_id: ReceiptOption = None,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
    json: JsonOption = False,
) -> int:
    """Find, remove and verify leftovers.

    Every store is swept: what the ledger does not stand behind is recorded, removed and verified.
    Exits with 0 when everything is repaired, 1 for the findings of a dry run, 3 when something is left.
    """

    async def work(output: Output) -> int:
        settings = load_settings(config, ledger)
        who, cutoff = actor_of(actor, settings), instant("--before", before)
        async with open_custody(settings, output) as (_, custody):
            with output.working("sweeping"):
                result = await custody.repair(
                    actor=who,
                    reason=reason,
                    before=cutoff,
                    dry_run=dry_run,
                    max_removals=max_removals,
                    receipt_id=receipt_id,
                )
        _show(output, result)
        output.document(result)
        return _status(result)

    return run(work, json=json)


def _status(result: RepairResult) -> int:
    if not result.dry_run:
        return DONE if result.complete else PARTIAL
    if result.still_held:
        return PARTIAL
    return FINDING if result.repaired or result.restored else DONE


def _show(output: Output, result: RepairResult) -> None:
    counts = Counter((r.store, r.kind.value, r.outcome.value) for r in result.repaired)
    output.table(
        "planned" if result.dry_run else "repaired",
        ("store", "kind", "outcome", "entries"),
        [(*key, count) for key, count in sorted(counts.items())],
    )
    odd = [r for r in result.repaired if r.detail]
    if odd:
        output.table(
            "remarks",
            ("store", "external id", "fact", "outcome", "detail"),
            [(r.store, r.external_id, r.fact_id, r.outcome.value, r.detail) for r in odd],
        )
    output.follow_up((), result.restored)
    output.table("scanned", ("store", "entries"), sorted(result.scanned.items()))
    if result.young:
        output.note(
            f"{len(result.young)} unrecorded entries are too young to touch; their writes may be under way."
        )
    if result.undated:
        output.note(f"{len(result.undated)} unrecorded entries carry no usable time and were left alone.")
    for store in result.unlisted:
        output.note(
            f"store {store!r} cannot list what it holds; only what the ledger knows of it was checked."
        )
    for sentence in (*result.still_held, *result.unrecorded):
        output.note(sentence)
    if result.erasure is Erasure.PENDING:
        output.note("A reader keeps erased values in the ledger's files; run repair again when it is gone.")
