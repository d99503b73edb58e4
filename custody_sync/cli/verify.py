"""`custody-sync verify`: ask every store again about everything that was removed."""

from __future__ import annotations

from typing import Annotated

import typer

from custody_sync.cli.options import (
    ActorOption,
    ConfigOption,
    JsonOption,
    LedgerOption,
    ReceiptOption,
    actor_of,
)
from custody_sync.cli.output import Output
from custody_sync.cli.session import open_custody, run
from custody_sync.model import Outcome, Removal, VerifyResult
from custody_sync.settings import load_settings


def verify(
    fact_ids: Annotated[list[str] | None, typer.Argument(metavar="FACT_ID", show_default=False)] = None,
    actor: ActorOption = None,
    receipt_id: ReceiptOption = None,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
    json: JsonOption = False,
) -> int:
    """Ask the stores about what was removed.

    Every store is asked whether it still has what was retracted, superseded, forgotten or repaired.
    Exits with 3 if any answer is not a proof, and if there was nothing to ask about.
    """

    async def work(output: Output) -> int:
        settings = load_settings(config, ledger)
        who = actor_of(actor, settings)
        async with open_custody(settings, output) as (_, custody):
            with output.working("asking the stores"):
                result = await custody.verify(actor=who, fact_ids=fact_ids or None, receipt_id=receipt_id)
        _show(output, result)
        output.document(result)
        return 0 if result.complete and result.asked else 3

    return run(work, json=json)


def _show(output: Output, result: VerifyResult) -> None:
    stores = sorted({removal.store for removal in result.removals})
    cells: dict[str, dict[str, list[Removal]]] = {}
    for removal in result.removals:
        cells.setdefault(removal.fact_id, {}).setdefault(removal.store, []).append(removal)
    output.table(
        "removed facts",
        ("fact", *stores),
        [(fact, *(_worst(row.get(store, [])) for store in stores)) for fact, row in cells.items()],
    )
    for removal in result.removals:
        if removal.outcome is not Outcome.VERIFIED and removal.detail:
            output.note(f"{removal.fact_id} in {removal.store}: {removal.detail}")
    if result.asked == 0:
        output.note("There was nothing to ask about, which proves nothing.")


def _worst(removals: list[Removal]) -> str:
    open_ones = [r.outcome.value for r in removals if r.outcome is not Outcome.VERIFIED]
    if open_ones:
        return ", ".join(sorted(set(open_ones)))
    return Outcome.VERIFIED.value if removals else "-"
