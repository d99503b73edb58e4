"""`custody-sync history`: everything the ledger recorded about one fact id."""

from __future__ import annotations

import json as jsonlib
from typing import Any

from custody_sync.cli.options import ConfigOption, FactArgument, JsonOption, LedgerOption
from custody_sync.cli.output import Output
from custody_sync.cli.session import open_ledger, run
from custody_sync.errors import UnknownFact
from custody_sync.model import Event
from custody_sync.settings import load_settings


def history(
    fact_id: FactArgument,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
    json: JsonOption = False,
) -> int:
    """Show every event of one fact id.

    The id may also be one that was repaired and never was a fact.
    """

    async def work(output: Output) -> int:
        settings = load_settings(config, ledger)
        async with open_ledger(settings, read_only=True) as opened:
            events = await opened.history(fact_id)
        if not events:
            raise UnknownFact(fact_id=fact_id)
        output.table(
            f"history of {fact_id}",
            ("seq", "when", "event", "actor", "reason", "receipt", "details"),
            [(e.seq, e.tx_time, e.kind.value, e.actor, e.reason, e.receipt_id, details(e)) for e in events],
        )
        output.document({"fact_id": fact_id, "events": list(events)})
        return 0

    return run(work, json=json)


def details(event: Event) -> str:
    """Show what an event carries besides its reason, as one line of JSON."""
    parts = {name: part for name, part in carried(event).items() if name != "reason"}
    return jsonlib.dumps(parts, ensure_ascii=False, default=str)


def carried(event: Event) -> dict[str, Any]:
    """Return what an event says, the erasable parts that are still there included."""
    return {
        **event.data,
        **{name: part for section in event.sealed.values() for name, part in section.items()},
    }
