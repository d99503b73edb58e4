"""`custody-sync repair`: find what the ledger does not stand behind, remove it and verify that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated
from uuid import UUID

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
from custody_sync.cli.session import open_custody, run
from custody_sync.ledger import Ledger
from custody_sync.model import (
    REPAIR_MIN_AGE,
    Erasure,
    Outcome,
    format_instant,
)
from custody_sync.results import (
    Repaired,
    RepairResult,
)
from custody_sync.settings import load_settings

DONE, FINDING, PARTIAL = 0, 1, 3
NAMED = 5
"""Entries in one sentence; the document has them all."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMED = 7
"""The version of UUIDs that begin with the milliseconds since the epoch."""


def repair(
    actor: ActorOption = None,
    reason: ReasonOption = "repair from the command line",
    before: Annotated[
        str | None,
        typer.Option(
            "--before", metavar="INSTANT", help="Only entries older than this, and than ten minutes."
        ),
    ] = None,
    max_removals: MaxRemovalsOption = None,
    stores: StoresOption = None,
    space: SpaceOption = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", min=1, help="At most so many removals; the next run goes on."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; exit with 1 if there is anything to repair.")
    ] = False,
    plan: Annotated[
        Path | None,
        typer.Option("--plan", metavar="FILE", help="Write what would be removed, and change nothing."),
    ] = None,
    apply: Annotated[
        Path | None,
        typer.Option("--apply", metavar="FILE", help="Remove what a plan says, as far as it still holds."),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Drop what an interrupted sweep found and begin anew.")
    ] = False,
    only_due: Annotated[
        bool,
        typer.Option("--only-due", help="Leave alone a store that did not answer until its next try is due."),
    ] = False,
    salvage: Annotated[
        bool,
        typer.Option("--salvage", help="Make claims of orphans instead of removing them."),
    ] = False,
    moved: MovedOption = False,
    receipt_id: ReceiptOption = None,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
    metrics_file: MetricsOption = None,
    log: LogOption = None,
    json: JsonOption = False,
) -> int:
    """Find, remove and verify leftovers.

    Every store is swept: what the ledger does not stand behind is recorded, removed and verified.
    What is younger than ten minutes is left alone, since its write may still be under way: run
    repair again later. A sweep that was killed is gone on with. Exits with 0 when everything else is
    repaired, 1 for the findings of a dry run or a plan, 3 when something is left, 4 when it was refused.
    """

    async def work(output: Output) -> int:
        settings = load_settings(config, ledger)
        who, cutoff = actor_of(actor, settings), instant("--before", before)
        async with open_custody(settings, output) as custody, measuring(custody, output, metrics_file):
            started = custody.ledger.now()
            with output.watching("sweeping") as watch:
                result = await custody.coordinator.repair(
                    actor=who,
                    reason=reason,
                    before=cutoff,
                    dry_run=dry_run,
                    max_removals=max_removals,
                    stores=stores or None,
                    space=space,
                    limit=limit,
                    fresh=fresh,
                    only_due=only_due,
                    moved=moved,
                    salvage=salvage,
                    plan=plan,
                    apply=apply,
                    watch=watch,
                    receipt_id=receipt_id,
                )
            now = custody.ledger.now()
            planned = await _planned(custody.ledger, result, now) if result.dry_run else []
        _show(output, result, planned)
        if plan is not None:
            if result.repaired:
                output.line(f"The plan is in {plan}; carry it out with: custody-sync repair --apply {plan}")
            else:
                output.line(f"The plan in {plan} is empty: there is nothing to remove.")
        if result.young:
            output.line(_young(result, started, now))
        output.document(result)
        return _status(result)

    return run(work, json=json)


def _status(result: RepairResult) -> int:
    if not result.dry_run:
        return DONE if result.complete else PARTIAL
    if result.still_held:
        return PARTIAL
    return FINDING if result.repaired or result.restored else DONE


async def _planned(ledger: Ledger, result: RepairResult, now: datetime) -> list[tuple[object, ...]]:
    """Return a row for each entry that a dry run would take up."""
    rows: list[tuple[object, ...]] = []
    for entry in result.repaired:
        places = await ledger.placements(entry.fact_id)
        stored = [p.stored_at for p in places if (p.store, p.external_id) == (entry.store, entry.external_id)]
        since = stored[0] if stored else _made_at(entry.fact_id)
        age = "" if since is None else _age(now - since)
        kind = f"{entry.kind.value} ({entry.detail})" if entry.detail else entry.kind.value
        rows.append((entry.store, entry.external_id, entry.fact_id, kind, age))
    return rows


def _made_at(fact_id: str) -> datetime | None:
    """Read when an id was made, if it says so; an orphan's id is all that the ledger has of its time."""
    try:
        read = UUID(fact_id)
    except ValueError:
        return None
    if read.version != TIMED:
        return None
    return EPOCH + timedelta(milliseconds=read.int >> 80)


def _age(age: timedelta) -> str:
    minutes = max(int(age.total_seconds()), 0) // 60
    days, hours = minutes // (24 * 60), minutes // 60 % 24
    return f"{days} d {hours} h" if days else f"{hours} h {minutes % 60} min" if hours else f"{minutes} min"


def _show(output: Output, result: RepairResult, planned: Sequence[Sequence[object]]) -> None:
    if result.dry_run:
        output.table("planned", ("store", "external id", "fact", "kind", "age"), planned)
    else:
        _show_counts(output, "repaired", [r for r in result.repaired if r.outcome is Outcome.VERIFIED])
        left = [r for r in result.repaired if r.outcome is not Outcome.VERIFIED]
        if left:
            _show_counts(output, "not repaired", left)
    if result.salvaged:
        rows = [(one.fact_id, one.space, ", ".join(one.entries)) for one in result.salvaged]
        output.table("salvaged, waiting to be confirmed", ("fact", "space", "stores"), rows)
    # A dry run says it with the kind.
    odd = [] if result.dry_run else [r for r in result.repaired if r.detail]
    if odd:
        output.table(
            "remarks",
            ("store", "external id", "fact", "outcome", "detail"),
            [(r.store, r.external_id, r.fact_id, r.outcome.value, r.detail) for r in odd],
        )
    if result.skipped:
        output.table(
            "skipped",
            ("store", "external id", "fact", "reason"),
            [(s.store, s.external_id, s.fact_id, s.reason) for s in result.skipped],
        )
    output.follow_up((), result.restored)
    output.table("scanned", ("store", "entries"), sorted(result.scanned.items()))
    for store in result.unlisted:
        output.line(
            f"Store {store!r} was not checked: it cannot list what it holds, so only what the ledger "
            "knows of it was looked at."
        )
    if result.undated:
        output.note(_undated(result))
    if result.resumed is not None:
        output.line(
            f"This went on with the sweep that began at {format_instant(result.resumed)}; "
            f"what was stored after {format_instant(result.before)} is for the next one."
        )
    if result.left_over:
        output.note(f"{result.left_over} removals are left because of --limit; run repair again.")
    for sentence in (*result.notices, *result.still_held, *result.unrecorded):
        output.note(sentence)
    if result.erasure is Erasure.PENDING:
        output.note("A reader keeps erased values in the ledger's files; run repair again when it is gone.")


def _show_counts(output: Output, title: str, entries: Sequence[Repaired]) -> None:
    counts = Counter((r.store, r.kind.value, r.outcome.value) for r in entries)
    columns = ("store", "kind", "outcome", "entries")
    output.table(title, columns, [(*key, count) for key, count in sorted(counts.items())])


def _undated(result: RepairResult) -> str:
    """Name entries whose age nobody can tell; only a run that is no dry run exits with 3 for them."""
    count = len(result.undated)
    entries, were = ("entry says", "was") if count == 1 else ("entries say", "were")
    named = ", ".join(
        f"{seen.store}/{seen.external_id} ({format_instant(seen.since) if seen.since else 'no time'})"
        for seen in result.undated[:NAMED]
    )
    more = f" and {count - NAMED} more" if count > NAMED else ""
    ends = "; a repair leaves this and exits with 3" if result.dry_run else ""
    said = f"{count} unrecorded {entries} to be from the future, so nobody can tell the age, and {were} left"
    return f"{said} alone: {named}{more}{ends}."


def _young(result: RepairResult, started: datetime, ended: datetime) -> str:
    """Say how many entries have to wait since their writes may be under way, and until when."""
    count = len(result.young)
    entries, were = ("entry is", "was") if count == 1 else ("entries are", "were")
    limit, when = "younger than ten minutes", "without --before"
    if result.before < started - REPAIR_MIN_AGE:
        limit = f"not older than {format_instant(result.before)}"
    else:
        youngest = max(seen.since or ended for seen in result.young)
        when = f"after {youngest + REPAIR_MIN_AGE + timedelta(seconds=1):%H:%M:%S} UTC"
    return f"{count} {entries} {limit} and {were} left alone; run again {when}."
