"""`custody-sync backfill`: put into a store that was added later what is believed."""

from __future__ import annotations

from typing import Annotated

import typer

from custody_sync.cli.adopt import DONE, FINDING, PARTIAL, show_left
from custody_sync.cli.options import (
    ActorOption,
    ApplyOption,
    ConfigOption,
    JsonOption,
    LedgerOption,
    LogOption,
    ReceiptOption,
    SpaceOption,
    actor_of,
)
from custody_sync.cli.output import Output
from custody_sync.cli.sentences import counted
from custody_sync.cli.session import open_custody, run
from custody_sync.mended import BackfillResult
from custody_sync.settings import load_settings

SHOWN = 5
"""Fact ids in one sentence; the document has more of them."""


def backfill(
    store: Annotated[str, typer.Argument(metavar="STORE", show_default=False)],
    space: SpaceOption = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", min=1, help="At most so many facts; the next run goes on."),
    ] = None,
    apply: ApplyOption = False,
    actor: ActorOption = None,
    receipt_id: ReceiptOption = None,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
    log: LogOption = None,
    json: JsonOption = False,
) -> int:
    """Put every fact that is believed into a store that does not hold it.

    Each is put, then recorded; running it again does what is left, and what is written meanwhile is not
    put twice. Exits with 1 where a run without --apply found something, with 3 where something is left.
    """

    async def work(output: Output) -> int:
        settings = load_settings(config, ledger)
        who = actor_of(actor, settings)
        async with open_custody(settings, output) as custody:
            with output.watching("filling") as watch:
                result = await custody.coordinator.backfill(
                    store,
                    actor=who,
                    space=space,
                    dry_run=not apply,
                    limit=limit,
                    receipt_id=receipt_id,
                    watch=watch,
                )
        _show(output, result)
        output.document(result)
        return _status(result)

    return run(work, json=json)


def _status(result: BackfillResult) -> int:
    if not result.dry_run:
        return DONE if result.complete else PARTIAL
    if result.stopped is not None:
        return PARTIAL
    return FINDING if result.lacking else DONE


def _show(output: Output, result: BackfillResult) -> None:
    done = "would be put" if result.dry_run else "was put" if result.placed == 1 else "were put"
    lacking = counted(result.lacking, "fact was", "facts were")
    of = f"More than {lacking}" if result.more else lacking
    output.line(f"{of} not in {result.store}; {result.placed} {done}.")
    if result.placed_elsewhere:
        output.line(f"{counted(result.placed_elsewhere, 'was', 'were')} placed or ended by others meanwhile.")
    show_left(output, "still missing", result.refused, result.refusals)
    if result.left:
        facts = ", ".join(result.leftovers[:SHOWN])
        tries = counted(result.left, "try", "tries")
        output.note(f"{tries} may have left an entry ({facts}); run custody-sync repair.")
    if result.more:
        output.note("More is left because of --limit; run it again.")
    if result.stopped is not None:
        output.note(f"It ended early ({result.stopped}); run it again.")
    if result.dry_run and result.placed:
        output.line("Nothing was changed; --apply does it.")
