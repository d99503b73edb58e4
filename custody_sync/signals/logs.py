"""Log lines as JSON, one object a line, without a word that anybody wrote.

What goes into a line is chosen by name: an event, counts, stores, moments, an error's code and such
of its fields as quote nothing. No value, text, subject, space, actor or reason is among them, so that
an erasure, also one of identity, has nothing to look for in a log. Other packages' lines are told by
their logger and level alone: they may quote.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import IO, Any

from custody_sync.errors import CustodyError
from custody_sync.model import format_instant

NAME = "custody_sync"
EVERY = 5.0
"""Seconds between two lines about how far the same work is."""
_TELLING = ("store", "operation", "cause", "type", "place", "since", "until", "extra", "size", "limit")
"""Fields of errors that are names, numbers or moments of ours, whatever the error."""
_OPTION = re.compile(r"(--)?[a-z]+([-_][a-z]+)*")
"""What an argument is called."""
_ASKED = {"apply", "before", "fix", "limit", "max_puts", "max_removals", "metrics_file", "only_due"}
_ASKED |= {"plan", "salvage", "since", "store", "stores"}
"""Arguments that say how to work and quote no memory: of these the log has the sentence."""
_ID = re.compile(r"[0-9a-f-]{32,64}")
"""What may be a fact's id; anything else in its place is what somebody typed."""

_COUNTED = ("scanned", "expected", "found", "outcomes", "uncompared")
"""Where a result counts by store,"""
_LISTED = ("repaired", "removals", "restored", "young", "undated")
"""and where it names entries, which are counted here. A result about one store counts on its own."""

LOGGER = logging.getLogger(NAME)
LOGGER.addHandler(logging.NullHandler())


class JsonLine(logging.Formatter):
    """Formats a record of ours with its fields, and any other by its logger and level."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        line: dict[str, Any] = {
            "time": format_instant(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if record.name == NAME or record.name.startswith(f"{NAME}."):
            line |= {"event": record.msg, **getattr(record, "fields", {})}
        return json.dumps(line)


class Sparing(logging.Filter):
    """Lets a line about progress through only if the last one about the same is some seconds old."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[object, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a record is written."""
        if record.msg != "progress":
            return True
        step = getattr(record, "fields", {}).get("step")
        if record.created - self._last.get(step, 0.0) < EVERY:
            return False
        self._last[step] = record.created
        return True


@contextmanager
def json_lines(stream: IO[str]) -> Iterator[None]:
    """Write what is logged meanwhile to a stream, one JSON object a line."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLine())
    handler.addFilter(Sparing())
    root = logging.getLogger()
    level = LOGGER.level
    root.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        LOGGER.setLevel(level)
        root.removeHandler(handler)


def say(logger: logging.Logger, event: str, level: int = logging.INFO, /, **fields: Any) -> None:
    """Log an event of ours with its fields."""
    logger.log(
        level, event, extra={"fields": {key: value for key, value in fields.items() if value is not None}}
    )


def fields_of(error: CustodyError) -> dict[str, Any]:
    """Return what a line says of an error: its code, and what of its fields quotes nothing."""
    fields = error.fields
    told = {key: fields[key] for key in _TELLING if isinstance(fields.get(key), str | int | float)}
    if _ID.fullmatch(str(fields.get("fact_id", ""))):
        told["fact_id"] = fields["fact_id"]
    field = fields.get("field")
    if isinstance(field, str) and _OPTION.fullmatch(field):
        told["field"] = field
        if field.lstrip("-").replace("-", "_") in _ASKED:
            told["problem"] = str(fields.get("problem"))
    return {"error": error.code, **told}


def counts_of(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return by store how many entries a result of ours names, and what became of them."""
    found: dict[str, dict[str, Any]] = {}
    for kind in _COUNTED:
        counted = document.get(kind)
        for store, count in counted.items() if isinstance(counted, Mapping) else ():
            found.setdefault(str(store), {})[kind] = count
    for kind in _LISTED:
        rows = document.get(kind)
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, Mapping) and isinstance(row.get("store"), str):
                counts = found.setdefault(row["store"], {}).setdefault(kind, {})
                what = " ".join(str(row[key]) for key in ("kind", "outcome") if key in row) or "all"
                counts[what] = counts.get(what, 0) + 1
    if isinstance(store := document.get("store"), str):
        numbers = {key: count for key, count in document.items() if type(count) is int}
        found.setdefault(store, {}).update(numbers)
    return found


__all__ = ["LOGGER", "counts_of", "fields_of", "json_lines", "say"]
