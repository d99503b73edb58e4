"""What a store shows, checked before anything is done with it.

Rows come from outside and may be forged, cut or mistaken. One of them must neither stop a sweep
nor reach the ledger, so each is either an entry that can be compared, recorded and deleted, or
is named as spoiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeGuard

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
    if _is_plain(row, store):
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


def read_page(rows: Sequence[object], store: str) -> list[Entry | Spoiled]:
    """Read rows as `read_entry` does."""
    return [read_entry(row, store) for row in rows]


def read_texts(rows: Sequence[object], store: str) -> list[Entry | Spoiled]:
    """Read rows as `read_page` does, but let nothing odd pass in what has no label: it is to become ours."""
    return [_read_text(row, store) for row in rows]


def _read_text(row: object, store: str) -> Entry | Spoiled:
    if not isinstance(row, Entry) or row.fact_id is not None or row.ledger_id is not None:
        return read_entry(row, store)
    try:
        return _usable(row, store)
    except InvalidInput as error:
        return Spoiled(_printable(row.external_id), None, str(error).rstrip("."))


def _is_plain(row: object, store: str) -> TypeGuard[Entry]:
    """Tell at a look whether a row is what nearly all are: labelled, in ASCII, dated in UTC."""
    if type(row) is not Entry:
        return False
    fact_id, external_id, ledger_id = row.fact_id, row.external_id, row.ledger_id
    space, scope, generation = row.space, row.scope, row.generation
    # One after the other: a loop over them takes longer than all of it, and a listing has thousands of rows.
    if not (
        type(fact_id) is str
        and type(external_id) is str
        and type(ledger_id) is str
        and (space is None or type(space) is str)
        and (scope is None or type(scope) is str)
        and (generation is None or type(generation) is str)
        and (row.text is None or type(row.text) is str)
        and (row.custody is None or type(row.custody) is str)
        and type(row.store) is str
        and row.store == store
        and external_id
        and len(fact_id) <= MAX_NAME_CHARS
        and fact_id.strip()
        and _is_dated(row.stored_at)
        and _is_dated(row.created_at)
    ):
        return False
    said = f"{fact_id}{external_id}{ledger_id}{store}{space}{scope}{generation}"
    return said.isascii() and "\x00" not in said


def _is_dated(date: object) -> bool:
    return date is None or (type(date) is datetime and date.tzinfo is UTC)


def _checked(row: Entry, store: str) -> Entry:
    check_name(row.fact_id, "fact_id")
    return _usable(row, store)


def _usable(row: Entry, store: str) -> Entry:
    if not check_text(row.external_id, "external_id"):
        raise InvalidInput(field="external_id", problem="must not be empty")
    for field in ("ledger_id", "scope", "space", "generation"):
        if getattr(row, field) is not None:
            check_text(getattr(row, field), field)
    for field in ("text", "custody"):
        if not isinstance(said := getattr(row, field), str | None):
            raise InvalidInput(field=field, problem=f"must be a string, not {type(said).__name__}")
    # A date that cannot be read dates nothing, which keeps the entry young.
    stored_at, created_at = read_instant(row.stored_at), read_instant(row.created_at)
    same = (row.store, row.stored_at, row.created_at) == (store, stored_at, created_at)
    if same and type(row) is Entry and type(row.store) is str:
        return row
    return replace(row, store=store, stored_at=stored_at, created_at=created_at)


def _printable(external_id: object) -> str:
    if not isinstance(external_id, str):
        return NAMELESS
    return external_id.encode("ascii", "backslashreplace").decode().replace("\0", "\\x00")[:200]


class Circle:
    """Notices a listing that runs in a circle, remembering no more than one entry (Brent's method).

    The remembered entry is replaced after 1, 2, 4, 8, … pages, so whatever the circle's length, one
    is soon remembered for several rounds.
    """

    def __init__(self) -> None:
        self._anchor: Entry | None = None
        self._met = self._rows = self._since = self._pages = 0
        self._renew = 1

    def length_in(self, page: Sequence[Entry | Spoiled]) -> int | None:
        """Take the next page; return how many rows a round has once an entry has come back too often."""
        # Ids differ nearly always, and are compared much faster than whole entries.
        if self._anchor is not None and self._anchor.external_id in [row.external_id for row in page]:
            for at, row in enumerate(page, self._rows + 1):
                self._met += row == self._anchor
                if self._met >= REPEATS:
                    return (at - self._since) // REPEATS
        self._rows += len(page)
        self._pages += 1
        if self._pages >= self._renew:
            # Rows without an id of their own may look alike, and are never remembered.
            usable = (
                (at, row)
                for at, row in zip(range(self._rows, 0, -1), reversed(page), strict=False)
                if isinstance(row, Entry) and row.external_id not in ("", NAMELESS)
            )
            self._since, self._anchor = next(usable, (0, None))
            self._met, self._renew = 0, self._pages * 2
        return None


__all__ = ["Circle", "Spoiled", "read_entry", "read_page", "read_texts"]
