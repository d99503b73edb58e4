"""`custody-sync retract`: say that a fact is no longer held to be true."""

from __future__ import annotations

from custody_sync.cli.options import (
    ActorOption,
    ConfigOption,
    FactArgument,
    JsonOption,
    LedgerOption,
    ReasonOption,
    ReceiptOption,
    actor_of,
)
from custody_sync.cli.output import Output
from custody_sync.cli.session import open_custody, run
from custody_sync.settings import load_settings


def retract(
    fact_id: FactArgument,
    reason: ReasonOption,
    actor: ActorOption = None,
    receipt_id: ReceiptOption = None,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
    json: JsonOption = False,
) -> int:
    """Say that a fact is not true after all.

    That is recorded, then the fact is removed from every store, and each store is asked whether it
    is gone. Its history stays; what it had superseded is believed again. To erase a value, use
    `forget`.
    """

    async def work(output: Output) -> int:
        settings = load_settings(config, ledger)
        who = actor_of(actor, settings)
        async with open_custody(settings, output) as custody:
            result = await custody.coordinator.retract(
                fact_id, actor=who, reason=reason, receipt_id=receipt_id
            )
        output.line(f"Retracted {result.fact_id}.")
        output.follow_up(result.removals, result.restored)
        if not result.complete:
            output.note("Not every store is done with it; `custody-sync repair` finishes it.")
        output.document(result)
        return 0 if result.complete else 3

    return run(work, json=json)
