"""`custody-sync reconcile`: show the whole difference between the ledger and the stores, and mend it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from custody_sync.cli.measuring import measuring
from custody_sync.cli.options import (
    ActorOption,
    ConfigOption,
    JsonOption,
    LedgerOption,
    LogOption,
    MaxRemovalsOption,
    MetricsOption,
    MovedOption,
    ReasonOption,
    ReceiptOption,
    SpaceOption,
    StoresOption,
    actor_of,
    instant,
)
from custody_sync.cli.output import Output
from custody_sync.cli.sentences import counted
from custody_sync.cli.session import open_custody, run
from custody_sync.mended import Difference, Drift, Mended, ReconcileResult
from custody_sync.settings import load_settings

DONE, FINDING, PARTIAL = 0, 1, 3
SHOWN = 1000
"""More differences than these are summed up for people; the JSON document has up to ten thousand."""


def reconcile(
    fix: Annotated[
        list[str] | None,
        typer.Option(
            "--fix",
            metavar="KIND",
            help="Mend orphan, stray, missing, altered-text, altered-label or all; may be given several "
            "times. Without it nothing is changed.",
        ),
    ] = None,
    stores: StoresOption = None,
    space: SpaceOption = None,
    before: Annotated[
        str | None,
        typer.Option(
            "--before", metavar="INSTANT", help="Orphans and strays only if older than this, and ten minutes."
        ),
    ] = None,
    max_removals: MaxRemovalsOption = None,
    max_puts: Annotated[
        int | None,
        typer.Option("--max-puts", metavar="N", min=0, help="Allow so many puts where the breaker stops."),
    ] = None,
    moved: MovedOption = False,
    reason: ReasonOption = "reconcile from the command line",
    actor: ActorOption = None,
    receipt_id: ReceiptOption = None,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
    metrics_file: MetricsOption = None,
    log: LogOption = None,
    json: JsonOption = False,
) -> int:
    """Compare the stores with the ledger.

    Every store is listed and held against the ledger: what has no place there, what is missing, and
    what has another text or label. Nothing is changed unless --fix names it. Exits with 0 when nothing
    differs any more, 1 when something was found, 3 when something could not be mended or told.
    """

    async def work(output: Output) -> int:
        settings = load_settings(config, ledger)
        who, cutoff = actor_of(actor, settings), instant("--before", before)
        async with open_custody(settings, output) as custody, measuring(custody, output, metrics_file):
            with output.watching("comparing") as watch:
                result = await custody.coordinator.reconcile(
                    actor=who,
                    reason=reason,
                    fix=[_kind(name) for name in fix or ()],
                    stores=stores or None,
                    space=space,
                    before=cutoff,
                    max_removals=max_removals,
                    max_puts=max_puts,
                    moved=moved,
                    receipt_id=receipt_id,
                    watch=watch,
                )
        _show(output, result)
        output.document(result)
        return _status(result)

    return run(work, json=json)


def _kind(name: str) -> str:
    """Return a kind as the library spells it; what is none is repeated as it was typed."""
    kind = name.replace("-", "_")
    return kind if kind in set(Drift) else name


def _status(result: ReconcileResult) -> int:
    left = any(counts.get(Mended.LEFT.value) for counts in result.outcomes.values())
    if result.unanswered or left:
        return PARTIAL
    return DONE if result.complete else FINDING


def _show(output: Output, result: ReconcileResult) -> None:
    output.table(
        "compared",
        ("store", "listed", "expected"),
        [(name, scanned, result.expected[name]) for name, scanned in sorted(result.scanned.items())],
    )
    output.table("differences", ("store", "kind", "entries"), _rows(result.found))
    if result.outcomes:
        output.table("mended", ("store", "outcome", "entries"), _rows(result.outcomes))
    named = [one for one in result.differences if _is_shown(one)]
    if named:
        output.table(
            "entries",
            ("store", "kind", "external id", "fact", "outcome", "detail"),
            [
                (d.store, d.kind.value, d.external_id, d.fact_id, d.outcome.value, d.detail)
                for d in named[:SHOWN]
            ],
        )
    more = result.unnamed + max(len(named) - SHOWN, 0)
    if more:
        output.line(f"{more} more are counted and not named.")
    for store, count in sorted(result.uncompared.items()):
        were = counted(count, "entry was", "entries were")
        output.note(f"{store}: {were} compared without text, which it does not show.")
    for store in result.unlisted:
        output.line(f"Store {store!r} was not compared: it cannot list what it holds.")
    for sentence in (*result.notices, *result.unanswered):
        output.note(sentence)
    if result.count(Drift.OWED):
        output.note("Facts that have begun, or are believed again, are owed to a store: run repair.")
    if result.count(Drift.UNPLACED):
        output.note("Facts that a store never got are unplaced: run backfill.")


def _rows(counted: Mapping[str, Mapping[str, int]]) -> list[tuple[str, str, int]]:
    return [(store, name, n) for store, counts in sorted(counted.items()) for name, n in counts.items()]


def _is_shown(one: Difference) -> bool:
    """Leave out what was mended as it should be: that is counted."""
    return one.outcome in (Mended.FOUND, Mended.LEFT)


__all__ = ["reconcile"]
