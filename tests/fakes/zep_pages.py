"""Pages of the stand-in for Zep: opaque cursors after a key, which neither puts nor deletes move."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list."""

    items: list[Row]
    number: int
    before: list[Row]
    """The last row of the page before, if there is one."""
    cursor: str | None


def page(rows: list[Row], query: Mapping[str, str], *, size: int, by: str | None) -> Page:
    """Return the page that a query asks for: in the order of a field, or as the rows are ranked.

    Raises:
        ValueError: The cursor is none of ours.
    """
    after = _read(query.get("cursor"))
    start = after["at"] if after is not None else 0
    order_by = query.get("order_by", by)
    if order_by is not None:
        down = query.get("order") == "desc"
        rows = sorted(rows, key=lambda row: _key(row, order_by), reverse=down)
        if after is not None:
            start = _start(rows, order_by, after["key"], down=down)
    number = after["page"] + 1 if after is not None else 1
    cursor = None
    if start + size < len(rows):
        last = rows[start + size - 1]
        key = _key(last, order_by) if order_by is not None else None
        cursor = _written({"at": start + size, "key": key, "page": number})
    return Page(rows[start : start + size], number, rows[max(start - 1, 0) : start], cursor)


def _key(row: Row, by: str) -> list[str]:
    return [row[by], row["uuid"]]


def _start(rows: list[Row], by: str, key: list[str], *, down: bool) -> int:
    for n, row in enumerate(rows):
        if _key(row, by) < key if down else _key(row, by) > key:
            return n
    return len(rows)


def _written(place: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


def _read(raw: str | None) -> dict[str, Any] | None:
    if raw is None:
        return None
    place: dict[str, Any] = json.loads(base64.urlsafe_b64decode(raw))
    return place
