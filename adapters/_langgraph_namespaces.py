"""Where a fact lives in a LangGraph store: namespaces from a template, and how they are written down."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from custody_sync.adapters._scopes import OncePerFact, check_template, fill, is_fixed
from custody_sync.errors import InvalidInput
from custody_sync.model import Fact

Namespace: TypeAlias = tuple[str, ...]


class Namespaces:
    """Turn facts and spaces into namespaces that LangGraph accepts.

    Args:
        namespace: Labels, each fixed or with `{space}` in it, or a function of the fact.
    """

    def __init__(self, namespace: Sequence[str] | Callable[[Fact], Sequence[str]]) -> None:
        self._function = OncePerFact(_asker(namespace)) if callable(namespace) else None
        self._labels = () if callable(namespace) else _checked(namespace)
        fixed = next((n for n, label in enumerate(self._labels) if not is_fixed(label)), len(self._labels))
        self.root = escaped(self._labels[:fixed])
        """The labels that every namespace begins with."""
        self.is_per_space = fixed < len(self._labels)
        """Whether a space has a namespace of its own."""

    def of_fact(self, fact: Fact) -> Namespace:
        """Return the namespace a fact belongs in."""
        return self.of_space(fact.space) if self._function is None else self._function(fact)

    def of_space(self, space: str) -> Namespace:
        """Return the namespace of a space under the template."""
        return escaped([fill(label, space) for label in self._labels])


def _asker(function: Callable[[Fact], Sequence[str]]) -> Callable[[Fact], Namespace]:
    def ask(fact: Fact) -> Namespace:
        labels = function(fact)
        if isinstance(labels, str) or not labels or any(not isinstance(label, str) for label in labels):
            raise InvalidInput(field="namespace", problem="the function must return one or more texts")
        return escaped(labels)

    return ask


def _checked(namespace: Sequence[str]) -> tuple[str, ...]:
    if isinstance(namespace, str) or not namespace:
        raise InvalidInput(field="namespace", problem="must be a sequence of one or more texts")
    labels = tuple(check_template("namespace", label) for label in namespace)
    if labels[0] == "langgraph":
        raise InvalidInput(field="namespace", problem="LangGraph keeps the root label 'langgraph' for itself")
    return labels


def escaped(labels: Sequence[str]) -> Namespace:
    """Escape what LangGraph forbids, reversibly, so that two spaces never share a namespace."""
    safe = [label.replace("%", "%25").replace(".", "%2E") or "%" for label in labels]
    if safe and safe[0] == "langgraph":
        safe[0] = "%6Canggraph"
    return tuple(safe)


def outermost(places: Iterable[Namespace]) -> list[Namespace]:
    """Return the namespaces that lie below no other of them, shortest first."""
    kept: list[Namespace] = []
    for place in sorted(set(places), key=lambda labels: (len(labels), labels)):
        if not any(place[: len(outer)] == outer for outer in kept):
            kept.append(place)
    return kept


def written(namespace: Sequence[str]) -> str:
    """Write a namespace as the JSON list that `Entry.scope` holds."""
    return json.dumps(list(namespace), ensure_ascii=False, separators=(",", ":"))


def read(scope: str | None) -> Namespace | None:
    """Read a namespace back from a scope; None for anything that is not one."""
    try:
        labels = json.loads(scope or "")
    except (RecursionError, ValueError):
        return None
    if not isinstance(labels, list) or not labels or any(not isinstance(label, str) for label in labels):
        return None
    return tuple(labels)
