"""`custody-sync hold` and `release`: keep a fact from being forgotten, and let it go again."""

from __future__ import annotations

from typing import Annotated

import typer

from custody_sync.cli.options import (
    ActorOption,
    ConfigOption,
    FactArgument,
    JsonOption,
    LedgerOption,
    OptionalReason,
    ReceiptOption,
    actor_of,
)
from custody_sync.cli.output import Output
from custody_sync.cli.session import open_custody, run
from custody_sync.results import HoldResult
from custody_sync.settings import load_settings


def hold(
    fact_id: FactArgument,
    hold_id: Annotated[
        str | None,
        typer.Option("--hold-id", metavar="ID", help="Name of the hold, as a case number; else made up."),
    ] = None,
    reason: OptionalReason = None,
    actor: ActorOption = None,
    receipt_id: ReceiptOption = None,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
    json: JsonOption = False,
) -> int:
    """Keep a fact from being forgotten.

    While a hold stands, `forget` and `expire` refuse the fact. Holds stack, and each is released by
    its own id. A hold does not keep a fact believed, nor in any store.
    """

    async def work(output: Output) -> int:
        settings = load_settings(config, ledger)
        who = actor_of(actor, settings)
        async with open_custody(settings, output) as custody:
            result = await custody.coordinator.hold(
                fact_id, actor=who, reason=reason, hold_id=hold_id, receipt_id=receipt_id
            )
        output.line(f"Holding {result.fact_id} as {result.hold_id}.")
        return _show(output, result)

    return run(work, json=json)


def release(
    fact_id: FactArgument,
    hold_id: Annotated[str, typer.Option("--hold-id", metavar="ID", help="The hold to end.")],
    reason: OptionalReason = None,
    actor: ActorOption = None,
    receipt_id: ReceiptOption = None,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
    json: JsonOption = False,
) -> int:
    """End one hold of a fact.

    The fact can be forgotten once no other hold stands.
    """

    async def work(output: Output) -> int:
        settings = load_settings(config, ledger)
        who = actor_of(actor, settings)
        async with open_custody(settings, output) as custody:
            result = await custody.coordinator.release(
                fact_id, hold_id=hold_id, actor=who, reason=reason, receipt_id=receipt_id
            )
        output.line(f"Released {result.hold_id} of {result.fact_id}.")
        return _show(output, result)

    return run(work, json=json)


def _show(output: Output, result: HoldResult) -> int:
    standing = ", ".join(result.holds)
    output.line(f"Holds that stand: {standing}." if standing else "No hold stands on it now.")
    output.document(result)
    return 0
