"""What a store shows, checked before anything is done with it.

Rows come from outside and may be forged, cut or mistaken. One of them must neither stop a sweep
nor reach the ledger, so each is either an entry that can be compared, recorded and deleted, or
is named as spoiled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from custody_sync.canonical import MAX_NAME_CHARS, check_name, check_text
from custody_sync.errors import InvalidInput
from custody_sync.model import Entry, read_instant

NAMELESS = "?"
REPEATS = 3
"""How often a listing may come back to the same entry before it counts as running in a circle."""


@dataclass(frozen=True, slots=True)
class Spoiled:
    """A row that cannot be used: as much of its id as can be printed, whose it says it is, and why."""

    external_id: str
    ledger_id: str | None
    problem: str


def read_entry(row: object, store: str) -> Entry | Spoiled:
    """Return a shown row as an entry of this store that is safe to handle, or say what spoils it.

    An entry belongs to the store that showed it, whatever the adapter wrote into it. An unlabelled
    one is only counted.
    """
    if type(row) is Entry and row.store == store and _is_plain(row):
        return row
    if not isinstance(row, Entry):
        return Spoiled(NAMELESS, None, f"it is {type(row).__name__}, not an Entry")
    try:
        if row.fact_id is None and row.ledger_id is None:
            return replace(row, store=store, external_id=_printable(row.external_id))
        return _checked(row, store)
    except InvalidInput as error:
        ledger_id = row.ledger_id if isinstance(row.ledger_id, str) else None
        return Spoiled(_printable(row.external_id), ledger_id, str(error).rstrip("."))


def _is_plain(row: Entry) -> bool:
    """Tell at a look whether a row is what nearly all are: labelled, in ASCII, dated in UTC."""
    fact_id, external_id, ledger_id = row.fact_id, row.external_id, row.ledger_id
    if not (type(fact_id) is str and type(external_id) is str and type(ledger_id) is str):
        return False
    if not fact_id.strip() or not external_id or len(fact_id) > MAX_NAME_CHARS:
        return False
    said = f"{fact_id}{external_id}{ledger_id}"
    for more in (row.space, row.scope, row.generation):
        if more is not None:
            if type(more) is not str:
                return False
            said += more
    if not said.isascii() or "\x00" in said or not (row.text is None or type(row.text) is str):
        return False
    stored_at, created_at = row.stored_at, row.created_at
    return (stored_at is None or (type(stored_at) is datetime and stored_at.tzinfo is UTC)) and (
        created_at is None or (type(created_at) is datetime and created_at.tzinfo is UTC)
    )


def _checked(row: Entry, store: str) -> Entry:
    check_name(row.fact_id, "fact_id")
    if not check_text(row.external_id, "external_id"):
        raise InvalidInput(field="external_id", problem="must not be empty")
    for field in ("ledger_id", "scope", "space", "generation"):
        if getattr(row, field) is not None:
            check_text(getattr(row, field), field)
    if row.text is not None and not isinstance(row.text, str):
        raise InvalidInput(field="text", problem=f"must be a string, not {type(row.text).__name__}")
    # A date that cannot be read dates nothing, which keeps the entry young.
    stored_at, created_at = read_instant(row.stored_at), read_instant(row.created_at)
    if type(row) is Entry and (row.store, row.stored_at, row.created_at) == (store, stored_at, created_at):
        return row
    return replace(row, store=store, stored_at=stored_at, created_at=created_at)


def _printable(external_id: object) -> str:
    if not isinstance(external_id, str):
        return NAMELESS
    return external_id.encode("ascii", "backslashreplace").decode().replace("\0", "\\x00")[:200]


class Circle:
    """Notices a listing that runs in a circle, remembering no more than one entry (Brent's method).

    The remembered entry is replaced after 1, 2, 4, 8, … rows, so whatever the circle's length, one
    is soon remembered for several rounds.
    """

    def __init__(self) -> None:
        self._anchor: Entry | None = None
        self._anchor_id: str | None = None
        self._met = self._rows = self._since = 0
        self._renew = 1

    def length_at(self, row: Entry | Spoiled) -> int | None:
        """Take the next row; return how many rows a round has once it has come back too often."""
        self._rows += 1
        # Ids differ nearly always, and are compared much faster than whole entries.
        if row.external_id == self._anchor_id and row == self._anchor:
            self._met += 1
            if self._met >= REPEATS:
                return (self._rows - self._since) // REPEATS
        if (
            self._rows >= self._renew
            and not isinstance(row, Spoiled)
            and row.external_id not in ("", NAMELESS)
        ):
            # Rows without an id of their own may look alike, and are never remembered.
            self._anchor, self._anchor_id, self._since, self._met = row, row.external_id, self._rows, 0
            self._renew = self._rows * 2
        return None


__all__ = ["Circle", "Spoiled", "read_entry"]
