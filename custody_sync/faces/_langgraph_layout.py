"""Where an item of a LangGraph store stands in a ledger, and how it is read back.

An item is one property of one subject: the subject is its namespace and key, written as a path, the
predicate is always `item`, the value is its dictionary. Nothing else is needed to find it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from custody_sync.canonical import check_name
from custody_sync.errors import InvalidInput
from custody_sync.ledger import Ledger
from custody_sync.model import Fact, Json

Namespace: TypeAlias = tuple[str, ...]
SpaceOf: TypeAlias = Callable[[Namespace], str]
SpacesBelow: TypeAlias = Callable[[Namespace], Sequence[str] | None]

PREDICATE = "item"
_PAGE = 1000


class Address(NamedTuple):
    """One item: in which space, and the path of its namespace and key."""

    space: str
    subject: str


class Kept(NamedTuple):
    """A fact, and the item that it is."""

    fact: Fact
    namespace: Namespace
    key: str
    value: dict[str, Json]


def joined(labels: Sequence[str]) -> str:
    """Write labels as one path, so that no two lists of labels have the same."""
    return "/".join(label.replace("%", "%25").replace("/", "%2F") for label in labels)


def split(path: str) -> Namespace | None:
    """Read such a path back; None for what `joined` would not have written."""
    labels = tuple(part.replace("%2F", "/").replace("%25", "%") for part in path.split("/"))
    return labels if joined(labels) == path and all(label.strip() for label in labels) else None


def check_namespace(labels: object, field: str = "namespace") -> Namespace:
    """Return a namespace or the beginning of one; a blank label is refused, since it names nobody."""
    if isinstance(labels, str) or not isinstance(labels, Sequence):
        raise InvalidInput(field=field, problem=f"must be a tuple of labels, not {type(labels).__name__}")
    return tuple(check_name(label, field) for label in labels)


class Layout:
    """Turns namespaces and keys into spaces and subjects, and facts back into items.

    Args:
        space: gives the space of a namespace; the namespace as a path by default.
        below: gives every space that namespaces with a given beginning can have, or None for all.
    """

    def __init__(self, space: SpaceOf | None = None, below: SpacesBelow | None = None) -> None:
        for name, given in (("space", space), ("below", below)):
            if given is not None and not callable(given):
                raise InvalidInput(field=name, problem="must be a function of a namespace")
        if below is not None and space is None:
            raise InvalidInput(field="below", problem="goes with space: without it the spaces are known")
        self.is_default = space is None
        self._space: SpaceOf = space or joined
        self._below = below

    def address(self, namespace: object, key: object) -> Address:
        """Return where an item stands.

        Raises:
            InvalidInput: an empty namespace, a blank label or key, or both together too long.
        """
        labels = check_namespace(namespace)
        if not labels:
            raise InvalidInput(field="namespace", problem="must not be empty")
        subject = joined([*labels, check_name(str(key), "key")])
        return Address(self.space_of(labels), check_name(subject, "namespace and key"))

    def space_of(self, namespace: Namespace) -> str:
        """Return the space of a namespace; what the caller's own function raises is not passed on."""
        space, problem = self._ruled(namespace)
        if problem:
            raise InvalidInput(field="space", problem=problem)
        return check_name(space, "space")

    def _ruled(self, namespace: Namespace) -> tuple[object, str]:
        try:
            return self._space(namespace), ""
        except Exception as error:
            # It may know only the namespaces that an application uses; facts of others are no items then.
            return None, f"its function raised {type(error).__name__}"

    def read(self, fact: Fact) -> Kept | None:
        """Return the item that a fact is; None for a fact that is none, or that stands in another space."""
        labels = split(fact.subject) if fact.predicate == PREDICATE else None
        if labels is None or len(labels) < 2 or not isinstance(fact.value, dict):
            return None
        namespace, key = labels[:-1], labels[-1]
        return Kept(fact, namespace, key, fact.value) if self._ruled(namespace)[0] == fact.space else None

    async def spaces(self, ledger: Ledger, prefix: Namespace, most: int | None = None) -> list[str] | None:
        """Return the spaces in which items below a prefix can be; None where they can be in any.

        Args:
            ledger: knows which spaces there are.
            prefix: what their namespaces begin with.
            most: more than so many need not be told apart from any.
        """
        if not self.is_default:
            told = None if self._below is None else self._below(prefix)
            return None if told is None else [check_name(space, "space") for space in dict.fromkeys(told)]
        if not prefix:
            return None
        found = [joined(label) for label in await self.namespaces(ledger, prefix, most)]
        return None if most is not None and len(found) > most else found

    async def namespaces(self, ledger: Ledger, prefix: Namespace, most: int | None = None) -> list[Namespace]:
        """Return the namespaces below a prefix that ever had an item, in order; no use without `is_default`.

        Their spaces stand side by side in the ledger's own order, so that no others are read.
        """
        found, beginning = [prefix] if prefix else [], f"{joined(prefix)}/" if prefix else ""
        after = beginning
        while most is None or len(found) <= most:
            page = await ledger.spaces(limit=_PAGE, after=after)
            below = [space for space in page if space.startswith(beginning)]
            found += [labels for labels in map(split, below) if labels is not None]
            if len(below) < _PAGE:
                break
            after = page[-1]
        return sorted(found)


__all__ = [
    "PREDICATE",
    "Address",
    "Kept",
    "Layout",
    "Namespace",
    "SpaceOf",
    "SpacesBelow",
    "check_namespace",
    "joined",
    "split",
]
