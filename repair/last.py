"""What the last finished sweep came to, kept beside the log for whoever asks how things stand."""

from __future__ import annotations

import json

from custody_sync.ledger import Ledger
from custody_sync.ledger.storage import Note
from custody_sync.model import format_instant, read_instant
from custody_sync.results import LastSweep

TOPIC = "sweep-last"
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
    }
    note = Note(topic=TOPIC, key=KEY, value=json.dumps(said), since=sweep.finished_at)
    await ledger.put_notes([note])


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
        )
    return None


__all__ = ["last_sweep", "note_last"]
