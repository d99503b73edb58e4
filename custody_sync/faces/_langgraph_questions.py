"""LangGraph's operations, checked and copied before anything is done about any of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeAlias

from custody_sync.adapters._shared import vendor
from custody_sync.canonical import check_text, check_value
from custody_sync.errors import InvalidInput
from custody_sync.faces._langgraph_filters import check_filter
from custody_sync.faces._langgraph_layout import Address, Layout, check_namespace
from custody_sync.faces._langgraph_reading import Get, Match, Names, Search
from custody_sync.faces._langgraph_writing import Put
from custody_sync.model import Json

WHOLE = "$"
"""The path of a whole value."""
_LONGEST = 365_250 * 1440
"""Minutes; an end that lies beyond the last year that a calendar has could not be recorded."""

Question: TypeAlias = Get | Search | Names | Put


class Questions:
    """Checks operations against one layout and one choice of what is indexed.

    Args:
        layout: where items stand.
        fields: the paths that are indexed of a value unless a put says otherwise; None where the store
            has no index, so that nothing is gained by a choice.
    """

    def __init__(self, layout: Layout, fields: Sequence[str] | None) -> None:
        self._layout = layout
        self._fields = None if fields is None else _check_paths(fields, "fields")
        base = vendor("langgraph.store.base", feature="CustodyStore", extra="langgraph")
        self._get_op, self._search_op = base.GetOp, base.SearchOp
        self._put_op, self._names_op = base.PutOp, base.ListNamespacesOp

    def read(self, ops: Iterable[Any]) -> list[Question]:
        """Return all operations of a batch, each with a copy of its own of what the caller gave.

        Raises:
            InvalidInput: one of them; none is carried out.
        """
        return [self._read(op) for op in ops]

    def _read(self, op: Any) -> Question:
        if isinstance(op, self._get_op):
            return Get(address=self._layout.address(op.namespace, op.key), refresh=op.refresh_ttl is True)
        if isinstance(op, self._search_op):
            return Search(
                prefix=check_namespace(op.namespace_prefix, "namespace_prefix"),
                condition=check_filter(op.filter),
                limit=_check_count(op.limit, "limit"),
                offset=_check_count(op.offset, "offset"),
                query=None if op.query is None else check_text(op.query, "query"),
                refresh=op.refresh_ttl is True,
            )
        if isinstance(op, self._names_op):
            return Names(
                matches=tuple(map(_read_match, op.match_conditions or ())),
                depth=None if op.max_depth is None else _check_count(op.max_depth, "max_depth", least=1),
                limit=_check_count(op.limit, "limit"),
                offset=_check_count(op.offset, "offset"),
            )
        if isinstance(op, self._put_op):
            return self._read_put(op)
        raise InvalidInput(field="ops", problem=f"{type(op).__name__} is no operation of a LangGraph store")

    def _read_put(self, op: Any) -> Put:
        address = self._layout.address(op.namespace, op.key)
        if op.value is None:
            return Put(address=address, value=None)
        if not isinstance(op.value, Mapping):
            raise InvalidInput(field="value", problem=f"must be a dict, not {type(op.value).__name__}")
        value = check_value(dict(op.value))
        if not isinstance(value, dict):  # a dictionary stays one
            raise InvalidInput(field="value", problem="must be a dict")
        lasts = None if op.ttl is None else check_lifetime(op.ttl)
        return Put(address=address, value=value, text=self._text(value, op.index, address), lasts=lasts)

    def _text(self, value: dict[str, Json], index: object, address: Address) -> str:
        """Return what stores index of a value; the item's own path where that is nothing."""
        paths: Sequence[str] = self._fields or (WHOLE,)
        if self._fields is not None and index is not None:
            paths = () if index is False else _check_paths(index, "index")
        embed = vendor("langgraph.store.base.embed", feature="CustodyStore", extra="langgraph")
        texts = [text for path in paths for text in embed.get_text_at_path(value, path)]
        return "\n".join(text for text in texts if text.strip()) or address.subject


def check_lifetime(minutes: object, field: str = "ttl") -> timedelta:
    """Return how long an item lives, or refuse it; what ends with the calendar would be no lifetime."""
    problem = f"must be minutes above zero, {_LONGEST:,} at most (1,000 years); None is for good"
    if isinstance(minutes, bool) or not isinstance(minutes, int | float) or not 0 < minutes <= _LONGEST:
        raise InvalidInput(field=field, problem=problem)
    lasts = timedelta(minutes=minutes)
    if not lasts:
        raise InvalidInput(field=field, problem=problem)
    return lasts


def _read_match(condition: Any) -> Match:
    if condition.match_type not in ("prefix", "suffix"):
        raise InvalidInput(field="match_type", problem="must be 'prefix' or 'suffix'")
    path = check_namespace(condition.path, condition.match_type)
    return Match(path=path, from_end=condition.match_type == "suffix")


def _check_count(count: object, field: str, least: int = 0) -> int:
    if type(count) is not int or count < least:
        raise InvalidInput(field=field, problem=f"must be a whole number from {least}")
    return count


def _check_paths(paths: object, field: str) -> tuple[str, ...]:
    if isinstance(paths, str) or not isinstance(paths, Sequence):
        raise InvalidInput(field=field, problem="must be a list of paths such as 'text' or 'notes[*].title'")
    return tuple(check_text(path, field) for path in paths)


__all__ = ["WHOLE", "Question", "Questions", "check_lifetime"]
