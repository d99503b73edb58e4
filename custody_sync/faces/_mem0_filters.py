"""Mem0's filters, answered from what the ledger has; the store is not trusted with them.

Vendors differ on what they make of one filter, and some drop what they do not know
(https://github.com/mem0ai/mem0/issues/6423, /4453, /7113).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from custody_sync.errors import InvalidInput
from custody_sync.faces._equality import same
from custody_sync.faces._mem0_scope import ANY, ENTITIES, Scope, read_id

Row: TypeAlias = Mapping[str, Any]
"""A memory flat, as Mem0 filters it: its metadata, and above that its own fields."""
Matches: TypeAlias = Callable[[Row], bool]

_OPERATORS = ("eq", "ne", "gt", "gte", "lt", "lte", "in", "nin", "contains", "icontains")


@dataclass(frozen=True, slots=True)
class Filter:
    """Whose memories are asked for, and which of them."""

    scope: Scope
    matches: Matches


def read_filters(filters: object, more: Mapping[str, object]) -> Filter:
    """Return what filters say; they have to name a user, an agent or a run.

    The ids stand at the top or, as Mem0's service has it, in a list under `AND`.

    Args:
        filters: as the caller gave them; copied.
        more: what else the call was given and knows nothing of.

    Raises:
        InvalidInput: names what is wrong; nobody was asked.
    """
    for name in more:
        if name in ENTITIES:
            raise InvalidInput(field=name, problem=f"goes into filters={{'{name}': '...'}}")
        problem = "is called top_k" if name == "limit" else "is no argument of this call"
        raise InvalidInput(field=name, problem=problem)
    if not isinstance(filters, Mapping | None):
        raise InvalidInput(field="filters", problem=f"must be a dict, not {type(filters).__name__}")
    asked = copy.deepcopy(dict(filters or {}))
    found = _take_ids(asked)
    for one in asked["AND"] if isinstance(asked.get("AND"), list) else ():
        if isinstance(one, dict):
            found = {**_take_ids(one), **found}
    if not found:
        problem = "must name at least one of user_id, agent_id and run_id, as in {'user_id': 'ada'}"
        raise InvalidInput(field="filters", problem=problem)
    return Filter(Scope(**found), _all_of(asked))


def _take_ids(asked: dict[str, Any]) -> dict[str, str]:
    """Read the ids that a filter names, and put them back as they were read."""
    found = {name: read_id(asked[name], f"filters.{name}") for name in ENTITIES if name in asked}
    asked.update(found)
    return found


def _all_of(asked: object) -> Matches:
    if not isinstance(asked, Mapping):
        raise InvalidInput(field="filters", problem="a list of conditions must hold dicts")
    tests = [_one(key, wanted) for key, wanted in asked.items()]
    return lambda row: all(test(row) for test in tests)


def _one(key: object, wanted: Any) -> Matches:
    """Return the test of one key: a connective, operators, or what the value has to be."""
    if key in ("AND", "OR", "NOT"):
        if not isinstance(wanted, list) or not wanted:
            raise InvalidInput(field=f"filters.{key}", problem="must be a list of conditions, not empty")
        parts = [_all_of(part) for part in wanted]
        if key == "AND":
            return lambda row: all(part(row) for part in parts)
        is_met = key == "OR"
        return lambda row: any(part(row) for part in parts) is is_met
    if not isinstance(key, str):
        raise InvalidInput(field="filters", problem="names must be texts")
    if key == "metadata" and isinstance(wanted, Mapping):
        return _all_of(wanted)
    if isinstance(wanted, Mapping):
        if not wanted or any(operator not in _OPERATORS for operator in wanted):
            problem = f"takes {', '.join(_OPERATORS)} and nothing else"
            raise InvalidInput(field=f"filters.{key}", problem=problem)
        tests = [_operator(key, operator, operand) for operator, operand in wanted.items()]
        return lambda row: all(test(row) for test in tests)
    if isinstance(wanted, str) and wanted == ANY:
        return lambda row: row.get(key) is not None
    return _operator(key, "in" if isinstance(wanted, list) else "eq", wanted)


def _operator(key: str, operator: str, operand: Any) -> Matches:
    if operator in ("in", "nin"):
        if not isinstance(operand, list | tuple | set):
            raise InvalidInput(field=f"filters.{key}", problem=f"{operator!r} takes a list")
        wanted = list(operand)
        is_in = operator == "in"
        return lambda row: any(_equals(row.get(key), one) for one in wanted) is is_in
    if operator in ("contains", "icontains"):
        return lambda row: _contains(row.get(key), operand, folded=operator == "icontains")
    if operator in ("eq", "ne"):
        is_equal = operator == "eq"
        return lambda row: _equals(row.get(key), operand) is is_equal
    return lambda row: _compares(row.get(key), operator, operand)


def _equals(held: Any, wanted: Any) -> bool:
    """Tell whether a value is what is wanted, or a list that has it."""
    if isinstance(held, list) and not isinstance(wanted, list):
        return any(_equals(one, wanted) for one in held)
    return same(held, wanted)


def _contains(held: Any, wanted: Any, *, folded: bool) -> bool:
    if isinstance(held, list):
        return any(_equals(one, wanted) for one in held)
    if not isinstance(held, str) or not isinstance(wanted, str):
        return False
    return wanted.casefold() in held.casefold() if folded else wanted in held


def _compares(held: Any, operator: str, wanted: Any) -> bool:
    """Compare numbers with numbers and texts with texts; anything else does not match."""
    numbers = [isinstance(one, int | float) and not isinstance(one, bool) for one in (held, wanted)]
    if not all(numbers) and not (isinstance(held, str) and isinstance(wanted, str)):
        return False
    if operator in ("gt", "gte"):
        return bool(held > wanted or (operator == "gte" and held == wanted))
    return bool(held < wanted or (operator == "lte" and held == wanted))


__all__ = ["Filter", "Matches", "Row", "read_filters"]
