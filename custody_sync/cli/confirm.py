"""`custody-sync confirm`: believe claimed facts, and give them to the stores."""

from __future__ import annotations

from typing import Annotated

import typer

from custody_sync.cli.adopt import DONE, FINDING, PARTIAL, show_left
from custody_sync.cli.importing import read_file
from custody_sync.cli.options import (
    ActorOption,
    ConfigOption,
    JsonOption,
    LedgerOption,
    OptionalReason,
    ReceiptOption,
    actor_of,
)
from custody_sync.cli.output import Output
from custody_sync.cli.sentences import counted
from custody_sync.cli.session import open_custody, run
from custody_sync.cli.write import show_write
from custody_sync.errors import InvalidInput
from custody_sync.mended import ConfirmManyResult
from custody_sync.settings import load_settings


def confirm(
    fact_ids: Annotated[list[str] | None, typer.Argument(metavar="FACT_ID", show_default=False)] = None,
    space: Annotated[
        str | None,
        typer.Option(
            "--space", metavar="SPACE", help="All claims that wait in this space, or in those like user:*."
        ),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", metavar="FILE", help="The claims whose ids it has, one a line; - is stdin."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count the claims; exit with 1 if there are any.")
    ] = False,
    actor: ActorOption = None,
    reason: OptionalReason = None,
    receipt_id: ReceiptOption = None,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
    json: JsonOption = False,
) -> int:
    """Believe claimed facts from now on.

    Each is put in every store that does not hold it, and then recorded as confirmed. Of many, one that
    is refused does not keep the others; run it again for what is left.
    """

    async def work(output: Output) -> int:
        settings = load_settings(config, ledger)
        who, ids = actor_of(actor, settings), _ids(fact_ids, space, file)
        async with open_custody(settings, output, validating=True) as custody:
            if ids is not None and len(ids) == 1 and file is None and not dry_run:
                result = await custody.coordinator.confirm(
                    ids[0], actor=who, reason=reason, receipt_id=receipt_id
                )
                return show_write(output, result)
            with output.watching("confirming") as watch:
                many = await custody.coordinator.confirm_many(
                    actor=who,
                    fact_ids=ids,
                    space=space,
                    reason=reason,
                    dry_run=dry_run,
                    receipt_id=receipt_id,
                    watch=watch,
                )
        _show(output, many)
        output.document(many)
        return _status(many)

    return run(work, json=json)


def _ids(fact_ids: list[str] | None, space: str | None, file: str | None) -> list[str] | None:
    if sum(given is not None for given in (fact_ids or None, space, file)) != 1:
        raise InvalidInput(field="FACT_ID", problem="or --space or --file says what to confirm; give one")
    if file is None:
        return fact_ids or None
    try:
        raw = read_file(file).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput(field="file", problem="is not UTF-8") from None
    return [line.strip() for line in raw.split("\n") if line.strip()]


def _status(result: ConfirmManyResult) -> int:
    if not result.dry_run:
        return DONE if result.complete else PARTIAL
    return FINDING if result.claimed else DONE


def _show(output: Output, result: ConfirmManyResult) -> None:
    done = "would be" if result.dry_run else "was" if result.confirmed == 1 else "were"
    output.line(f"{result.confirmed} of {counted(result.claimed, 'claim', 'claims')} {done} confirmed.")
    if result.unfinished:
        are = counted(result.unfinished, "of them is", "of them are")
        output.note(f"{are} not yet right in every store, or not seen there; run repair, then reconcile.")
    show_left(output, "not confirmed", result.refused, result.refusals)
    if result.stopped is not None:
        output.note(f"It ended early ({result.stopped}); run it again.")
