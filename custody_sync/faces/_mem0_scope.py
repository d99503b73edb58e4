"""Whose memories: Mem0's ids of users, agents and runs, and the space that they come to."""

from __future__ import annotations

from dataclasses import dataclass

from custody_sync.errors import InvalidInput

ENTITIES = ("user_id", "agent_id", "run_id")
ANY = "*"
"""In a search or a listing: whoever it is, but somebody."""
_PREFIXES = {"user_id": "user:", "agent_id": "agent:", "run_id": "run:"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The ids that a call gave, at least one."""

    user_id: str | None = None
    agent_id: str | None = None
    run_id: str | None = None

    @property
    def given(self) -> dict[str, str]:
        """The ids that were given, by name, in Mem0's order."""
        ids = {name: getattr(self, name) for name in ENTITIES}
        return {name: value for name, value in ids.items() if value is not None}

    @property
    def space(self) -> str | None:
        """The one space that has all of it; None where it may lie in several.

        A memory of a user is in the user's space, whatever else it has; an agent's or a run's own space has
        only what belongs to nobody before it in that order.
        """
        if self.user_id is None or self.user_id == ANY:
            return None
        return space_of(self.given)


def space_of(ids: dict[str, str]) -> str:
    """Return the space of a memory that has these ids: the first one's, user before agent before run."""
    name = next(name for name in ENTITIES if name in ids)
    return f"{_PREFIXES[name]}{ids[name]}"


def ids_in(space: str) -> dict[str, str]:
    """Return the one id that a space's name has, for facts that do not say more themselves."""
    for name, prefix in _PREFIXES.items():
        if space.startswith(prefix) and len(space) > len(prefix):
            return {name: space.removeprefix(prefix)}
    return {}


def user_of_space(space: str) -> str:
    """Return the id that a space has in Mem0: the user's own, so that other readers find it under that."""
    return ids_in(space).get("user_id", space)


def read_id(given: object, field: str) -> str:
    """Return an id as Mem0 reads it: a number as text, trimmed, without white space.

    Raises:
        InvalidInput: it is blank or none at all: that must never come to mean everybody.
    """
    if given is None or isinstance(given, bool | bytes | dict | list | tuple | set):
        raise InvalidInput(field=field, problem=f"must be one id, not {type(given).__name__}")
    text = str(given).strip()
    if not text:
        raise InvalidInput(field=field, problem="must not be empty; leave it out to say nothing of it")
    if any(map(str.isspace, text)):
        raise InvalidInput(field=field, problem="must not have white space in it")
    return text


def read_scope(user_id: object, agent_id: object, run_id: object) -> Scope:
    """Return the scope of a write or a deletion; None leaves an id out, and one has to be left.

    Raises:
        InvalidInput: none was given, one is blank, or one is the wildcard.
    """
    found: dict[str, str] = {}
    for name, given in zip(ENTITIES, (user_id, agent_id, run_id), strict=True):
        if given is not None:
            found[name] = read_id(given, name)
            if found[name] == ANY:
                raise InvalidInput(field=name, problem="must name one, '*' is everybody")
    if not found:
        problem = "is missing: at least one of user_id, agent_id and run_id has to be given"
        raise InvalidInput(field="user_id", problem=problem)
    return Scope(**found)


__all__ = ["ANY", "ENTITIES", "Scope", "ids_in", "read_id", "read_scope", "space_of", "user_of_space"]
