"""One event as it is stored and exported: what it says, what is left of it, and whether it is in its place.

What comes from a file may be anybody's: nothing in it is believed before it was read into the one
form that its hash is made of, and no word of it stands in an error.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from custody_sync.canonical import canonical, canonical_plain, is_plain, parse
from custody_sync.errors import InvalidInput
from custody_sync.ledger.chain import FORMAT, SALT_BYTES, SECTIONS, Section, commit
from custody_sync.ledger.checks import FIRST, LAST
from custody_sync.ledger.state import Position
from custody_sync.model import format_instant, read_instant

KEYS = frozenset(
    ("actor", "data", "event_id", "fact_id", "kind", "prev", "receipt_id", "sealed", "seq", "tx_time", "v")
)
_DIGEST = re.compile("[0-9a-f]{64}")
_SALT = re.compile(f"[0-9a-f]{{{2 * SALT_BYTES}}}")


class Stored(NamedTuple):
    """One event as it is stored and exported."""

    doc: Mapping[str, Any]
    body: str
    hash: str
    sections: dict[str, Section]

    @property
    def seq(self) -> int:
        """Its place in the log."""
        seq: int = self.doc["seq"]
        return seq

    @property
    def tx_time(self) -> datetime:
        """When the ledger took it in."""
        instant = read_instant(self.doc["tx_time"])
        if instant is None:
            raise ValueError("tx_time")
        return instant

    def position(self) -> Position:
        """Return where the log ends with it."""
        return Position(self.seq, self.tx_time, self.hash)


def read_stored(row: object) -> Stored:
    """Read an event as `Ledger.export` yields it.

    Raises:
        ValueError: it has not the shape of one; says what is missing.
    """
    if not isinstance(row, Mapping) or set(row) != {"event", "hash", "sealed"}:
        raise ValueError("is no exported event")
    event, sealed, digest = row["event"], row["sealed"], row["hash"]
    if not isinstance(event, Mapping) or frozenset(event) != KEYS or not isinstance(digest, str):
        raise ValueError("is no exported event")
    try:
        body, doc = _canonical(event)
        commitments: dict[str, str] = doc["sealed"]
        committed = all(map(_DIGEST.fullmatch, commitments.values()))
        if committed and sealed.keys() <= commitments.keys() <= set(SECTIONS):
            names = [name for name in SECTIONS if name in sealed]
            return Stored(
                doc, body, digest, {name: _section(sealed[name], commitments[name]) for name in names}
            )
    except (AttributeError, InvalidInput, KeyError, RecursionError, TypeError, ValueError):
        raise ValueError("its fields cannot be read") from None
    raise ValueError("its sealed sections are not those it commits to")


def _canonical(document: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the form that is hashed and what it says: `1.0` and `-0.0` are whole numbers there."""
    if isinstance(document, dict) and is_plain(document):
        # Several times faster, and the same for almost every event there is.
        form = canonical_plain(document)
        form.encode()  # refuses what is no Unicode text, as `canonical` does
    else:
        form = canonical(document).decode()
    return form, parse(form)


def _section(section: Mapping[str, Any], commitment: str) -> Section:
    fields, salt = section["body"], section["salt"]
    # Another length, upper case or spaces would be other bytes for the same commitment.
    if set(section) != {"body", "salt"} or not isinstance(fields, Mapping) or not _SALT.fullmatch(salt):
        raise ValueError("section")
    form, fields = _canonical(fields)
    return Section(fields, form, bytes.fromhex(salt), commitment)


def problem_of(stored: Stored, after: Position) -> str | None:
    """Say what is wrong with an event that should follow a position, or None."""
    doc = stored.doc
    if type(doc["v"]) is not int:
        return f"it is of an unknown event format, and this version knows {FORMAT}"
    if doc["v"] != FORMAT:
        return f"it is of event format {doc['v']}, and this version knows {FORMAT}"
    if type(doc["seq"]) is not int or doc["seq"] != after.seq + 1:
        return f"event {after.seq + 1} is missing or out of its place"
    if doc["prev"] != after.hash:
        return "it does not follow the event before it"
    if hashlib.sha256(stored.body.encode()).hexdigest() != stored.hash:
        return "its fields are not those its hash was made of"
    for name, section in stored.sections.items():
        if commit(section.body, section.salt) != section.commitment:
            return f"its {name} is not what was committed to"
    tx_time = read_instant(doc["tx_time"])
    if tx_time is None or format_instant(tx_time) != doc["tx_time"]:
        return "its time cannot be read"
    if not FIRST < tx_time < LAST:
        return "its time is where the calendar ends"
    if after.tx_time is not None and tx_time <= after.tx_time:
        return "its time is not later than that of the event before it"
    return None
