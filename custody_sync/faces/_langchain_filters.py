"""Filters of a LangChain search, applied to what the ledger has and never trusted to the store.

Vector stores have a filter language each. Two forms are understood whatever the store: a function of the
document, as `InMemoryVectorStore` takes it, and a mapping with the operators that most hosted stores share.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, TypeAlias

from custody_sync.errors import InvalidInput
from custody_sync.faces._equality import same

if TYPE_CHECKING:
    from langchain_core.documents import Document

Filter: TypeAlias = "Callable[[Document], bool] | Mapping[str, Any] | None"
Test: TypeAlias = Callable[[Mapping[str, Any]], bool]

_ABSENT = object()
_DEEPEST = 100


def _sized(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], bool]:
    """Compare by size; true and false have none."""
    return lambda held, wanted: not {bool} & {type(held), type(wanted)} and bool(compare(held, wanted))


_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "$eq": same,
    "$ne": lambda held, wanted: not same(held, wanted),
    "$gt": _sized(operator.gt),
    "$gte": _sized(operator.ge),
    "$lt": _sized(operator.lt),
    "$lte": _sized(operator.le),
    "$in": lambda held, wanted: any(same(held, one) for one in wanted),
    "$nin": lambda held, wanted: not any(same(held, one) for one in wanted),
}
_TRUE_WHERE_ABSENT = ("$ne", "$nin")
_MANY = ("$and", "$or")


def read_filter(given: Any) -> Callable[[Document], bool] | None:
    """Return the test that a filter stands for; None where everything passes.

    Raises:
        InvalidInput: it is neither a function nor a mapping, or has an operator that is not known.
    """
    if given is None:
        return None
    if isinstance(given, Mapping):
        test = _all_of(given)
        return lambda document: test(document.metadata)
    if not callable(given):
        problem = f"must be a function of the document or a dict, not {type(given).__name__}"
        raise InvalidInput(field="filter", problem=f"{problem}: it is applied to the ledger's facts")
    return lambda document: bool(given(document))


def _all_of(given: Mapping[str, Any], depth: int = 0) -> Test:
    if depth > _DEEPEST:
        raise InvalidInput(field="filter", problem=f"is nested more than {_DEEPEST} levels deep")
    tests = [_one(key, wanted, depth + 1) for key, wanted in given.items()]
    return lambda metadata: all(test(metadata) for test in tests)


def _one(key: object, wanted: Any, depth: int) -> Test:
    if not isinstance(key, str):
        raise InvalidInput(field="filter", problem="has a key that is no text")
    if key in _MANY:
        if isinstance(wanted, str) or not isinstance(wanted, Sequence):
            raise InvalidInput(field="filter", problem=f"{key} needs a list of filters")
        tests = [_all_of(_mapping(one, key), depth) for one in wanted]
        enough = all if key == "$and" else any
        return lambda metadata: enough(test(metadata) for test in tests)
    if key == "$not":
        inner = _all_of(_mapping(wanted, key), depth)
        return lambda metadata: not inner(metadata)
    if key.startswith("$"):
        raise InvalidInput(field="filter", problem=f"{key!r} is no operator that is known here")
    if isinstance(wanted, Mapping) and any(str(name).startswith("$") for name in wanted):
        parts = [_compared(key, name, value) for name, value in wanted.items()]
        return lambda metadata: all(part(metadata) for part in parts)
    return _compared(key, "$eq", wanted)


def _compared(key: str, name: str, wanted: Any) -> Test:
    compare = _COMPARE.get(name)
    if compare is None:
        raise InvalidInput(field="filter", problem=f"{name!r} is no operator that is known here")
    if name in ("$in", "$nin") and (
        isinstance(wanted, str | bytes) or not isinstance(wanted, Sequence | Set)
    ):
        raise InvalidInput(field="filter", problem=f"{name} needs a list of values")

    def test(metadata: Mapping[str, Any]) -> bool:
        held = metadata.get(key, _ABSENT)
        if held is _ABSENT:
            return name in _TRUE_WHERE_ABSENT
        try:
            return bool(compare(held, wanted))
        except TypeError:
            # What cannot be compared, such as "n/a" with 10, is in no range.
            return False

    return test


def _mapping(given: Any, key: str) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise InvalidInput(field="filter", problem=f"{key} needs filters, each a dict")
    return given


__all__ = ["Filter", "read_filter"]
