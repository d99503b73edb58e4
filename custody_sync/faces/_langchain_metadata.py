"""Metadata of a LangChain document as JSON, and back: what is read is what was written, or it was refused.

JSON has no dates, tuples or exact decimals, and RFC 8785 writes 1.0 as 1. Each such value is kept as an
object of one key that says its type, `{"~datetime": "2026-01-12T09:00:00+00:00"}`; everything that JSON
carries as it is stays as it is.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, cast
from uuid import UUID
from zoneinfo import ZoneInfo

from custody_sync.canonical import MAX_SAFE_INTEGER, check_text
from custody_sync.errors import InvalidInput
from custody_sync.model import Json

_DEEPEST = 40
_MARK = "~"


def kept(metadata: object) -> dict[str, Json]:
    """Return metadata as JSON that shares nothing with it.

    Raises:
        InvalidInput: names the key of what cannot be kept without loss.
    """
    if not isinstance(metadata, Mapping):
        raise InvalidInput(field="metadata", problem=f"must be a dict, not {type(metadata).__name__}")
    found: dict[str, Json] = {}
    for key, value in metadata.items():
        if type(key) is not str:
            raise InvalidInput(field="metadata", problem=f"has a key that is no string but {_name(key)}")
        check_text(key, "a key of metadata")
        found[key] = _keep(value, f"metadata[{key!r}]", 0)
    return found


def given_back(document: Json) -> dict[str, Any]:
    """Return metadata as the caller wrote it, in new objects."""
    if not isinstance(document, dict):
        return {}
    return {key: _give(value) for key, value in document.items()}


def _keep(value: Any, field: str, depth: int) -> Json:
    if depth > _DEEPEST:
        raise InvalidInput(field=field, problem=f"is nested more than {_DEEPEST} levels deep")
    kind: type[Any] = type(value)
    if value is None or kind is bool:
        return cast("Json", value)
    if kind is str:
        return check_text(value, field)
    if kind is list:
        return [_keep(one, field, depth + 1) for one in value]
    if kind is dict and _is_plain(value):
        return {check_text(key, field): _keep(one, field, depth + 1) for key, one in value.items()}
    if kind is int and abs(value) <= MAX_SAFE_INTEGER:
        return cast("int", value)
    if kind is float and math.isfinite(value) and not value.is_integer():
        return cast("float", value)
    write = _WRITE.get(kind)
    if write is None:
        problem = f"is a {_name(value)}, which cannot be kept without loss; write it as text"
        raise InvalidInput(field=field, problem=problem)
    written = write(value)
    if isinstance(written, list):
        written = [_keep(one, field, depth + 1) for one in written]
    if written is None:
        raise InvalidInput(field=field, problem="has a time zone that cannot be kept without loss; use UTC")
    return {f"{_MARK}{kind.__name__}": written}


def _is_plain(value: dict[Any, Any]) -> bool:
    """Tell whether a dictionary is no other value's written form, nor has keys that JSON has not."""
    if not all(type(key) is str for key in value):
        return False
    return len(value) != 1 or not next(iter(value)).startswith(_MARK)


def _give(value: Json) -> Any:
    if isinstance(value, list):
        return [_give(one) for one in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        key, written = next(iter(value.items()))
        read = _READ.get(key.removeprefix(_MARK)) if key.startswith(_MARK) else None
        if read is not None:
            return read(_give(written))
    return {key: _give(one) for key, one in value.items()}


def _name(value: object) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _write_time(value: datetime | time) -> str | list[Any] | None:
    """Write an offset as it is and a zone by its name, which knows more than the offset of one instant."""
    zone = value.tzinfo
    if zone is None or type(zone) is timezone:
        return [value.isoformat(), None, value.fold] if value.fold else value.isoformat()
    # A zone that was read from a file may have no name.
    name: str | None = getattr(zone, "key", None) if type(zone) is ZoneInfo else None
    return None if name is None else [value.replace(tzinfo=None).isoformat(), name, value.fold]


def _read_time(kind: type[Any]) -> Callable[[Any], Any]:
    def read(written: Any) -> Any:
        if isinstance(written, str):
            return kind.fromisoformat(written)
        text, key, fold = written
        value = kind.fromisoformat(text).replace(fold=fold)
        return value if key is None else value.replace(tzinfo=ZoneInfo(key))

    return read


_WRITE: Mapping[type[Any], Callable[[Any], Any]] = {
    int: str,
    float: repr,
    tuple: list,
    set: lambda value: sorted(value, key=repr),
    frozenset: lambda value: sorted(value, key=repr),
    dict: lambda value: [list(item) for item in value.items()],
    datetime: _write_time,
    time: _write_time,
    date: date.isoformat,
    timedelta: lambda value: [value.days, value.seconds, value.microseconds],
    Decimal: str,
    UUID: str,
    bytes: lambda value: base64.b64encode(value).decode(),
}
_READ: Mapping[str, Callable[[Any], Any]] = {
    "int": int,
    "float": float,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": lambda pairs: {key: value for key, value in pairs},
    "datetime": _read_time(datetime),
    "time": _read_time(time),
    "date": date.fromisoformat,
    "timedelta": lambda parts: timedelta(*parts),
    "Decimal": Decimal,
    "UUID": UUID,
    "bytes": base64.b64decode,
}

__all__ = ["given_back", "kept"]
