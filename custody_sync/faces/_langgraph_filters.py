"""A LangGraph filter over the ledger's values: numbers are compared as numbers, whatever the store does."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from custody_sync.errors import InvalidInput
from custody_sync.faces._equality import same
from custody_sync.model import Json

_ORDER: Mapping[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_EQUAL = ("$eq", "$ne")
_DEEPEST = 100


def check_filter(condition: object) -> dict[str, Json]:
    """Return a private copy of a filter.

    Raises:
        InvalidInput: it is no dictionary, names an operator that there is not, or compares by size
            with something that is neither a number nor a text.
    """
    if condition is None:
        return {}
    if not isinstance(condition, Mapping):
        raise InvalidInput(field="filter", problem=f"must be a dict, not {type(condition).__name__}")
    return {_check_key(key): _checked(wanted) for key, wanted in condition.items()}


def matches(value: Mapping[str, Json], condition: Mapping[str, Json]) -> bool:
    """Tell whether a value has everything that a checked filter asks for; a missing field counts as null.

    A key with dots that is no field by itself is a path to one.
    """
    return all(_fits(_field(value, key), wanted) for key, wanted in condition.items())


def _checked(wanted: object, depth: int = 0) -> Json:
    """Return a copy; what JSON has no form for is allowed as long as it can be compared, infinity too."""
    if wanted is None or isinstance(wanted, bool | int | float | str):
        return wanted
    if depth > _DEEPEST:
        raise InvalidInput(field="filter", problem=f"is nested more than {_DEEPEST} levels deep")
    if isinstance(wanted, list | tuple):
        return [_checked(item, depth + 1) for item in wanted]
    if not isinstance(wanted, Mapping):
        problem = f"compares with {type(wanted).__name__}, which no item can hold"
        raise InvalidInput(field="filter", problem=problem)
    copied = {_check_key(key): _checked(item, depth + 1) for key, item in wanted.items()}
    if _has_operators(copied):
        for name, bound in copied.items():
            _check_operator(name, bound)
    return copied


def _check_key(key: object) -> str:
    if not isinstance(key, str):
        raise InvalidInput(field="filter", problem="has a key that is no text")
    return key


def _check_operator(name: str, bound: Json) -> None:
    if name not in _ORDER and name not in _EQUAL:
        known = ", ".join((*_EQUAL, *_ORDER))
        raise InvalidInput(field="filter", problem=f"has no operator {name!r}; there are {known}")
    if name in _ORDER and not (_is_number(bound) or isinstance(bound, str)):
        raise InvalidInput(field="filter", problem=f"{name} needs a number or a text to compare with")


def _field(value: Mapping[str, Json], key: str) -> Json:
    if key in value or "." not in key:
        return value.get(key)
    found: Json = dict(value)
    for part in key.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _fits(value: Json, wanted: Json) -> bool:
    if isinstance(wanted, dict) and _has_operators(wanted):
        return all(_holds(value, name, bound) for name, bound in wanted.items())
    if isinstance(wanted, dict):
        return isinstance(value, dict) and all(_fits(value.get(key), item) for key, item in wanted.items())
    if isinstance(wanted, list):
        same_size = isinstance(value, list) and len(value) == len(wanted)
        return isinstance(value, list) and same_size and all(map(_fits, value, wanted))
    return same(value, wanted)


def _holds(value: Json, name: str, bound: Json) -> bool:
    if name in _EQUAL:
        return same(value, bound) is (name == "$eq")
    alike = (_is_number(value) and _is_number(bound)) or (isinstance(value, str) and isinstance(bound, str))
    return alike and _ORDER[name](value, bound)


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _has_operators(wanted: Mapping[str, Json]) -> bool:
    return any(name.startswith("$") for name in wanted)


__all__ = ["check_filter", "matches"]
