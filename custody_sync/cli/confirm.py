"""`custody-sync confirm`: believe a claimed fact, and give it to the stores."""

from __future__ import annotations

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
from custody_sync.cli.write import show_write
from custody_sync.settings import load_settings


def confirm(
    fact_id: FactArgument,
    actor: ActorOption = None,
    reason: OptionalReason = None,
    receipt_id: ReceiptOption = None,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
    json: JsonOption = False,
) -> int:
    """Believe a claimed fact from now on.

    It is put in every store, and then recorded as confirmed.
    """

    async def work(output: Output) -> int:
        settings = load_settings(config, ledger)
        who = actor_of(actor, settings)
        async with open_custody(settings, output, validating=True) as custody:
            result = await custody.coordinator.confirm(
                fact_id, actor=who, reason=reason, receipt_id=receipt_id
            )
        return show_write(output, result)

    return run(work, json=json)
