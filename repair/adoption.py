"""What an entry without a label becomes: the operator says it by a template or by a function."""

from __future__ import annotations

import inspect
import json
import re
import string
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from custody_sync.canonical import check_name
from custody_sync.errors import InvalidInput
from custody_sync.model import Entry, Json

FIELDS = ("scope", "store", "external_id")
"""What a template may name."""
_FIELD = re.compile(rf"{'|'.join(FIELDS)}|scope\[[0-9]{{1,4}}\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """The fact that an entry becomes; its text stays the entry's own, whatever is said here.

    Without subject and predicate it is free text, as a `write` without them.
    """

    space: str
    subject: str | None = None
    predicate: str | None = None
    value: Json = None
    """None stands for the entry's text."""
    valid_from: datetime | None = None
    """Since when the store has it, where the store says so, or else now."""


Mapper: TypeAlias = Callable[[Entry], "Adoption | Awaitable[Adoption | None] | None"]
"""Called with each entry; None leaves it as it is."""


class NotMapped(Exception):
    """The mapping cannot say what an entry becomes; carries the reason, and never an entry's text."""


class _Scope(str):
    """A scope in a template: whole, or one label of what a store writes as a JSON list, counted from 0."""

    __slots__ = ()

    def __getitem__(self, at: object) -> str:
        try:
            labels = json.loads(self)
        except ValueError:
            labels = None
        if not isinstance(labels, list) or not isinstance(at, int) or not at < len(labels):
            raise NotMapped(f"its scope has no label number {at}")
        return str(labels[at])


class Mapping:
    """Turns entries into adoptions, and whatever goes wrong in it into a reason.

    Args:
        space: a template such as `user:{scope}`, or a function of the entry.

    Raises:
        InvalidInput: it is neither, or the template names what no entry has.
    """

    def __init__(self, space: str | Mapper) -> None:
        self._call: Mapper
        if isinstance(space, str):
            self._call = _templated(space)
        elif callable(space):
            self._call = space
        else:
            problem = "must be a template such as 'user:{scope}', or a function of the entry"
            raise InvalidInput(field="space", problem=problem)

    async def of(self, entry: Entry) -> Adoption | None:
        """Return what an entry becomes; None to leave it.

        Raises:
            NotMapped: it cannot be said, or the function failed.
        """
        problem = ""
        answer: object = None
        try:
            answer = self._call(entry)
            if inspect.isawaitable(answer):
                answer = await answer
        except NotMapped:
            raise
        except Exception as error:
            problem = f"the mapping raised {type(error).__name__}"
        if isinstance(answer, str):
            answer = Adoption(space=answer)
        if not problem and not isinstance(answer, Adoption | None):
            problem = f"the mapping returned {type(answer).__name__}, not an Adoption"
        if problem:
            # Outside the handler, so that the function's error, which may quote a text, does not travel on.
            raise NotMapped(problem)
        assert isinstance(answer, Adoption | None)  # noqa: S101  # anything else is a problem
        return answer


def _named(template: str) -> set[str]:
    """Return what a template names, with whatever says how it is written: a width may ask for any length."""
    try:
        parts = [part for part in string.Formatter().parse(template) if part[1] is not None]
    except ValueError:
        return {template}
    return {
        f"{field}{f'!{conversion}' if conversion else ''}{f':{spec}' if spec else ''}"
        for _, field, spec, conversion in parts
    }


def _templated(template: str) -> Mapper:
    check_name(template, "space")
    named = _named(template)
    for field in named:
        if not _FIELD.fullmatch(field):
            wanted = ", ".join(f"{{{name}}}" for name in FIELDS)
            problem = (
                f"names {field!r}; a template may have {wanted} and, where scopes are lists, {{scope[1]}}"
            )
            raise InvalidInput(field="space", problem=problem)
    needs_scope = any(field.startswith("scope") for field in named)

    def mapped(entry: Entry) -> Adoption:
        if needs_scope and not entry.scope:
            raise NotMapped("it has no scope, and the template asks for one")
        said = {"store": entry.store, "external_id": entry.external_id, "scope": _Scope(entry.scope or "")}
        return Adoption(space=template.format(**said))

    return mapped


__all__ = ["Adoption", "Mapper", "Mapping", "NotMapped"]
