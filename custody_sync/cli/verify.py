"""`custody-sync verify`: ask every store again about everything that was removed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from custody_sync.cli.measuring import measuring
from custody_sync.cli.options import (
    ActorOption,
    ConfigOption,
    JsonOption,
    LedgerOption,
    LogOption,
    MetricsOption,
    ReceiptOption,
    actor_of,
)
from custody_sync.cli.output import Output, plain
from custody_sync.cli.session import Proof, open_custody, proof_of, run
from custody_sync.model import (
    Outcome,
    format_instant,
)
from custody_sync.results import (
    VerifyResult,
)
from custody_sync.settings import load_settings

_BY_WEIGHT = (
    Outcome.VERIFIED,
    Outcome.PLANNED,
    Outcome.STARTED,
    Outcome.UNVERIFIED,
    Outcome.FAILED,
    Outcome.STILL_INDEXED,
)
"""From proven gone to proven there; of several entries the last of these counts."""


def verify(
    fact_ids: Annotated[list[str] | None, typer.Argument(metavar="FACT_ID", show_default=False)] = None,
    actor: ActorOption = None,
    receipt_id: ReceiptOption = None,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
    metrics_file: MetricsOption = None,
    log: LogOption = None,
    json: JsonOption = False,
) -> int:
    """Ask the stores about what was removed.

    Every store is asked whether it still has what was retracted, superseded, forgotten or repaired.
    Exits with 3 if any answer is not a proof, and if there was nothing to ask about.
    """

    async def work(output: Output) -> int:
        settings = load_settings(config, ledger)
        who = actor_of(actor, settings)
        async with open_custody(settings, output) as custody, measuring(custody, output, metrics_file):
            with output.working("asking the stores"):
                result = await custody.coordinator.verify(
                    actor=who, fact_ids=fact_ids or None, receipt_id=receipt_id
                )
            proof = await proof_of(custody, who)
        _show(output, result, proof)
        output.document({**plain(proof), **plain(result)})
        return 0 if result.complete and result.asked else 3

    return run(work, json=json)


def _show(output: Output, result: VerifyResult, proof: Proof) -> None:
    cells: dict[str, dict[str, list[Outcome]]] = {}
    for removal in result.removals:
        cells.setdefault(removal.fact_id, {}).setdefault(removal.store, []).append(removal.outcome)
    stores = sorted({*proof.stores, *(removal.store for removal in result.removals)})
    output.table(
        "removed facts",
        ("fact", *stores),
        [(fact, *(_worst(row.get(store, ())) for store in stores)) for fact, row in cells.items()],
    )
    unproven = [r for r in result.removals if r.outcome is not Outcome.VERIFIED]
    if unproven:
        output.table(
            "not proven gone",
            ("fact", "store", "external id", "outcome", "detail"),
            [(r.fact_id, r.store, r.external_id, r.outcome.value, r.detail) for r in unproven],
        )
    if result.asked == 0:
        output.note("There was nothing to ask about, which proves nothing.")
    asked = ", ".join(proof.stores) or "no store"
    output.line(f"Asked {asked} at {format_instant(proof.time)}, by {proof.actor}.")
    output.line(f"Ledger {proof.ledger_id}, head {proof.head.seq}: {proof.head.hash}")


def _worst(outcomes: Sequence[Outcome]) -> str:
    """Return the outcome of a store's entry that is furthest from a proof."""
    return max(outcomes, key=_BY_WEIGHT.index).value if outcomes else "-"
