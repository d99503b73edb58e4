"""What the last sweep and the last comparison came to, kept beside the log for who asks how things stand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from custody_sync.ledger import Ledger
from custody_sync.ledger.storage import Note
from custody_sync.model import format_instant, read_instant
from custody_sync.results import LastReconcile, LastSweep

TOPIC = "sweep-last"
RECONCILE_TOPIC = "reconcile-last"
KEY = "last"


async def note_last(ledger: Ledger, sweep: LastSweep) -> None:
    """Keep what a finished sweep came to, in place of the one before."""
    said = {
        "finished_at": format_instant(sweep.finished_at),
        "complete": sweep.complete,
        "scanned": dict(sweep.scanned),
        "orphans": dict(sweep.orphans),
        "strays": dict(sweep.strays),
        "still_held": list(sweep.still_held),
        "removed": dict(sweep.removed),
    }
    await _note(ledger, TOPIC, said, sweep.finished_at)


async def last_sweep(ledger: Ledger) -> LastSweep | None:
    """Return what the last finished sweep came to; None before the first."""
    for note in await ledger.notes(TOPIC, limit=1):
        said = json.loads(note.value)
        finished_at = read_instant(said["finished_at"])
        return LastSweep(
            finished_at=note.since if finished_at is None else finished_at,
            complete=said["complete"],
            scanned=said["scanned"],
            orphans=said["orphans"],
            strays=said["strays"],
            still_held=tuple(said["still_held"]),
            removed=said.get("removed", {}),
        )
    return None


async def note_last_reconcile(ledger: Ledger, reconcile: LastReconcile) -> None:
    """Keep what a finished comparison came to, in place of the one before."""
    said = {
        "finished_at": format_instant(reconcile.finished_at),
        "complete": reconcile.complete,
        "missing": dict(reconcile.missing),
        "altered": dict(reconcile.altered),
    }
    await _note(ledger, RECONCILE_TOPIC, said, reconcile.finished_at)


async def last_reconcile(ledger: Ledger) -> LastReconcile | None:
    """Return what the last finished comparison came to; None before the first."""
    for note in await ledger.notes(RECONCILE_TOPIC, limit=1):
        said = json.loads(note.value)
        return LastReconcile(
            finished_at=read_instant(said["finished_at"]) or note.since,
            complete=said["complete"],
            missing=said["missing"],
            altered=said["altered"],
        )
    return None


async def _note(ledger: Ledger, topic: str, said: Mapping[str, Any], since: datetime) -> None:
    await ledger.put_notes([Note(topic=topic, key=KEY, value=json.dumps(said), since=since)])


__all__ = ["last_reconcile", "last_sweep", "note_last", "note_last_reconcile"]
