"""What a caller's callables give, read into one shape: ids of their own type, results of any form."""

from __future__ import annotations

import copy
import numbers
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from custody_sync.adapters._shared import finite
from custody_sync.errors import InvalidStore
from custody_sync.model import ERASED_ID, FREE_TEXT_PREDICATE, Entry, Fact, Json

Id: TypeAlias = "str | int | UUID"

_TEXT, _INT, _UUID = "str:", "int:", "uuid:"
_TAKEN = (_TEXT, _INT, _UUID, ERASED_ID)
_TYPES = {_INT: "int", _UUID: "UUID", _TEXT: "str"}
_KINDS = {"text": str, "score": numbers.Real, "metadata": Mapping}
_SHAPE = "give wrap a read= that makes Found(id, text, score, metadata) of one"


class Found(NamedTuple):
    """One result of a search.

    A caller's own search gives any of `Found`, a tuple in this order, a mapping or an object with these
    names, or a bare id. What a guarded search gives back has the ledger's text and metadata.
    """

    id: Id
    text: str | None = None
    score: float | None = None
    metadata: Mapping[str, Any] | None = None
    """What was given to `add`. None says that the search does not show it, so that the id alone counts."""


Read: TypeAlias = Callable[[Any], Found]


class Ids:
    """Ids as the ledger keeps them, which is as text, and as their owner has them.

    An id that is no text says its type in the ledger, so that every process turns it back into the same.

    Args:
        store: The store's name, for errors.
        kind: Makes an id of its text, where one call of the owner gives numbers and another one texts.
    """

    def __init__(self, store: str, kind: Callable[[str], Id] | None = None) -> None:
        self._store = store
        self._kind = kind
        self.agree = False
        """Whether a search was seen to show an entry under the very id that it was given."""

    def write(self, given: object) -> str:
        """Return an id as text.

        Raises:
            InvalidStore: it is no text, whole number or UUID, or an empty text; or no id can be made of it.
        """
        one = given if self._kind is None else self._made(given)
        if isinstance(one, str) and one:
            # Joined, since a driver's own kind of text would not stay what it is in a ledger.
            return f"{_TEXT}{one}" if one.startswith(_TAKEN) else "".join(one)
        if isinstance(one, UUID):
            return f"{_UUID}{one}"
        if isinstance(one, numbers.Integral) and not isinstance(one, bool):
            with suppress(ValueError):  # Python writes no number of more than some thousand digits.
                return f"{_INT}{int(one)}"
        problem = f"an id must be a text that is not empty, an int or a UUID, not {_named(one)}; {_SHAPE}"
        raise InvalidStore(store=self._store, problem=problem)

    def _made(self, given: object) -> object:
        """Return what `ids=` makes of an id; what is none stays what it is, and is refused as that."""
        is_id = isinstance(given, str | UUID | numbers.Integral) and not isinstance(given, bool)
        if self._kind is None or not is_id or given == "":
            return given
        with suppress(Exception):  # It would quote the id.
            return self._kind("".join(given) if isinstance(given, str) else str(given))
        raise InvalidStore(store=self._store, problem="ids= makes no id of one that its callables gave")

    def read(self, external_id: str) -> Id:
        """Return an id in its owner's type."""
        tag, _, rest = external_id.partition(":")
        if external_id.startswith(_INT):
            return int(rest)
        if external_id.startswith(_UUID):
            return UUID(rest)
        return rest if f"{tag}:" == _TEXT else external_id

    def is_alike(self, one: str, other: str) -> bool:
        """Tell whether two ids in the ledger's form are the same text in two types, as 7 and "7" are."""
        return one != other and _bare(one) == _bare(other)

    def alike(self, placed: str) -> InvalidStore:
        """Say that an entry is shown under an id of another type than the one it was placed under."""
        gave = next((kind for tag, kind in _TYPES.items() if placed.startswith(tag)), "str")
        problem = (
            "it shows entries under ids of another type than add gave them, so that what is live looks like "
            f"what is left over; say ids={gave}"
        )
        return InvalidStore(store=self._store, problem=problem)


def _bare(external_id: str) -> str:
    tag = next((tag for tag in _TYPES if external_id.startswith(tag)), "")
    return external_id.removeprefix(tag).casefold()


class Results:
    """Reads what a search, a lookup or a listing gives.

    Args:
        store: The store's name.
        ids: How ids are written.
        read: Makes a `Found` of one result; by default the forms that `Found` names are read.
    """

    def __init__(self, store: str, ids: Ids, read: Read | None) -> None:
        self._store = store
        self._ids = ids
        self._read = read

    def found(self, result: object) -> Found:
        """Return a result in our form.

        Raises:
            InvalidStore: it has another one; says in one sentence what to do.
        """
        found: Any = self._read(result) if self._read else self._guess(result)
        if not isinstance(found, Found):
            raise self._odd(f"what read= gave is {_named(found)}")
        parts: dict[str, Any] = found._asdict()
        for name, kind in _KINDS.items():
            part = parts[name]
            if part is not None and (isinstance(part, bool) or not isinstance(part, kind)):
                raise self._odd(f"the {name} of a result is {_named(part)}")
        return found._replace(score=None if parts["score"] is None else finite(parts["score"]))

    def entry(self, found: Found) -> Entry:
        """Return a result as an entry; its text says nothing where no label is shown beside it."""
        shown = found.text if found.metadata is not None else None
        return Entry.from_metadata(
            found.metadata, store=self._store, external_id=self._ids.write(found.id), text=shown
        )

    def _guess(self, result: Any) -> Found:
        if isinstance(result, Found):
            return result
        parts: list[Any] = []
        if isinstance(result, tuple | list):
            parts = list(result)
        elif isinstance(result, Mapping) and "id" in result:
            parts = [result.get(name) for name in Found._fields]
        elif hasattr(result, "id"):
            parts = [getattr(result, name, None) for name in Found._fields]
        if not 1 <= len(parts) <= len(Found._fields):
            raise self._odd(f"a result is {_named(result)}")
        return Found(*parts)

    def _odd(self, problem: str) -> InvalidStore:
        return InvalidStore(store=self._store, problem=f"{problem}; {_SHAPE}")


def _named(given: object) -> str:
    return "None" if given is None else f"of type {type(given).__name__}"


# --- a text with metadata as a fact -----------------------------------------------------------


def value_of(text: str, metadata: Mapping[str, Json] | None) -> Json:
    """Return the value of a remembered text: the text alone, or with the metadata it was given."""
    return {"metadata": dict(metadata), "text": text} if metadata else text


def metadata_of(fact: Fact) -> dict[str, Json]:
    """Return a copy of the metadata that a remembered text was given."""
    value = fact.value
    if (
        fact.predicate == FREE_TEXT_PREDICATE
        and isinstance(value, dict)
        and set(value) == {"metadata", "text"}
    ):
        given = value["metadata"]
        return copy.deepcopy(given) if isinstance(given, dict) else {}
    return {}


__all__ = ["Found", "Id", "Ids", "Read", "Results", "metadata_of", "value_of"]
