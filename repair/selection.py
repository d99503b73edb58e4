"""What a repair, a reconciliation or a verification is about: some stores, a space, a part of a listing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from custody_sync.canonical import check_name
from custody_sync.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A stretch of one store's listing, between two cursors of it; None is either end.

    What may be given to several workers: each sweeps its stretch, and no two of them see one entry.
    """

    store: str
    after: str | None = None
    until: str | None = None
    """The cursor that is still part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which stores and which spaces; None is all of them.

    An entry or a placement whose space nobody can tell is in no space that was asked for.
    """

    stores: frozenset[str] | None = None
    space: str | None = None
    """A space, or its beginning and a `*`."""
    part: Part | None = None
    salvage: bool = False
    """Whether orphans are saved: a sweep that is to remove them does not go on with one that saves them."""

    @property
    def everything(self) -> bool:
        """Tell whether nothing is left out."""
        return self.stores is None and self.space is None and self.part is None

    def whole(self, stores: Iterable[str]) -> bool:
        """Tell whether nothing is left out of what these stores hold."""
        return self.space is None and self.part is None and all(map(self.has_store, stores))

    def has_store(self, name: str) -> bool:
        """Tell whether a store is in it, configured or not."""
        if self.part is not None and name != self.part.store:
            return False
        return self.stores is None or name in self.stores

    def has_space(self, space: str | None) -> bool:
        """Tell whether a space is in it."""
        if self.space is None:
            return True
        if not space:
            return False
        return space.startswith(self.space[:-1]) if self.space.endswith("*") else space == self.space

    def to_json(self) -> dict[str, Any]:
        """Return what two selections have in common if and only if they are the same."""
        part = None if self.part is None else [self.part.store, self.part.after, self.part.until]
        saving = {"salvage": True} if self.salvage else {}
        return {
            **saving,
            "part": part,
            "space": self.space,
            "stores": None if self.stores is None else sorted(self.stores),
        }


EVERYTHING = Selection()


def select(
    configured: Collection[str],
    *,
    stores: Iterable[str] | None = None,
    space: str | None = None,
    part: Part | None = None,
) -> Selection:
    """Return a selection, or say what of it cannot be.

    Args:
        configured: the names of the stores that there are.
        stores: the names of those that are meant; None for all.
        space: a space, or its beginning and a `*`.
        part: a stretch of one store's listing.

    Raises:
        InvalidInput: names a store that is not configured, or a space that is none.
    """
    chosen: frozenset[str] | None = None
    if stores is not None:
        if isinstance(stores, str | bytes | Mapping):
            raise InvalidInput(field="stores", problem="must be a list of names, not one string")
        chosen = frozenset(check_name(name, "stores") for name in stores)
        if not chosen:
            raise InvalidInput(field="stores", problem="must name at least one store")
    for name in sorted((chosen or frozenset()) | ({part.store} if part is not None else set())):
        if name not in configured:
            known = ", ".join(sorted(configured)) or "none"
            raise InvalidInput(field="stores", problem=f"{name!r} is not configured here; {known} are")
    if space is not None and "*" in check_name(space, "space")[:-1]:
        problem = f"{space!r} has a * that is not its end; give a space, or its beginning and a *"
        raise InvalidInput(field="space", problem=problem)
    return Selection(stores=chosen, space=space, part=part)


def check_count(count: int | None, field: str, least: int) -> int | None:
    """Return a number that was given, or refuse it."""
    if count is not None and (type(count) is not int or count < least):
        raise InvalidInput(field=field, problem=f"must be a whole number, {least} or more")
    return count


__all__ = ["EVERYTHING", "Part", "Selection", "check_count", "select"]
