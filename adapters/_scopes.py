"""Where in a store a fact belongs: a fixed value, a template of the space, or the caller's function."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from custody_sync.errors import InvalidInput
from custody_sync.model import Fact

V = TypeVar("V")

_SPACE = "{space}"
_REMEMBERED = 16_384


@dataclass(frozen=True, slots=True)
class PerSpace:
    """A function of the space: unlike one of the fact, it says where a search in a space has to look."""

    of_space: Callable[[str], str]


Scoping: TypeAlias = "str | PerSpace | Callable[[Fact], str]"
"""A fixed value, a template such as `"{space}"`, or a function of the space or of the fact."""


class OncePerFact(Generic[V]):
    """Ask a caller's function once for a fact, and give the same answer ever after.

    The ledger records where a fact goes and the put sends it there: two questions, and a function that
    goes by a clock or a turn would answer the second one differently.

    Args:
        ask: Asks the function and checks its answer.
        most: How many answers are remembered; the one that was used least recently goes first.
    """

    def __init__(self, ask: Callable[[Fact], V], most: int = _REMEMBERED) -> None:
        self._ask = ask
        self._most = most
        self._answers: OrderedDict[str, V] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, fact: Fact) -> V:
        """Return the answer for a fact."""
        with self._lock:
            if fact.fact_id not in self._answers:
                self._answers[fact.fact_id] = self._ask(fact)
            self._answers.move_to_end(fact.fact_id)
            while len(self._answers) > self._most:
                self._answers.popitem(last=False)
            return self._answers[fact.fact_id]


class Scope:
    """One dimension of a store's addressing, such as `user_id`, `dataset` or `graph`.

    Args:
        field: What the vendor calls it, for errors.
        scoping: A fixed value, a template with `{space}` in it, or a function of the fact.
        encode: Makes a value one that the vendor takes, reversibly, so that no two spaces share one.
    """

    def __init__(self, field: str, scoping: Scoping, encode: Callable[[str], str] = str) -> None:
        self.field = field
        self._encode = encode
        self._function = OncePerFact(self._asker(scoping)) if callable(scoping) else None
        self._per_space = scoping.of_space if isinstance(scoping, PerSpace) else None
        self._template = None if callable(scoping) else check_template(field, _template_of(scoping))

    @property
    def fixed(self) -> str | None:
        """The one value that every fact has; None where it depends on the fact."""
        if self._template is not None and is_fixed(self._template):
            return self._encode(self._template)
        return None

    @property
    def is_per_space(self) -> bool:
        """Whether a template gives every space a value of its own."""
        return self._template is not None and not is_fixed(self._template)

    def of_fact(self, fact: Fact) -> str:
        """Return the value for a fact.

        Raises:
            InvalidInput: the caller's function did not return a text.
        """
        return self.of_space(fact.space) if self._function is None else self._function(fact)

    def _asker(self, function: Callable[[Fact], object]) -> Callable[[Fact], str]:
        def ask(fact: Fact) -> str:
            return self._encode(self._checked(function(fact)))

        return ask

    def _checked(self, value: object) -> str:
        if not isinstance(value, str) or not value.strip():
            problem = "the function must return a text that is not empty"
            raise InvalidInput(field=self.field, problem=problem)
        return value

    def of_space(self, space: str) -> str:
        """Return the value for a space under the template."""
        if self._template is None:
            raise InvalidInput(field=self.field, problem="a function of the fact has no value for a space")
        if self._per_space is not None:
            return self._encode(self._checked(self._per_space(space)))
        return self._encode(fill(self._template, space))

    def among(self, spaces: Sequence[str] | None) -> list[str] | None:
        """Return where a search in these spaces has to look; None where it has to look everywhere."""
        if self.fixed is not None:
            return [self.fixed]
        if spaces is None or not self.is_per_space:
            return None
        return list(dict.fromkeys(map(self.of_space, spaces)))


class LooseNotes:
    """The notebook of a store that no ledger has given one: it lasts as long as the process."""

    def __init__(self) -> None:
        self._held: dict[str, str] = {}

    async def get(self, key: str) -> str | None:
        """Return what stands for a key, or None."""
        return self._held.get(key)

    async def claim(self, key: str, value: str) -> str:
        """Set a value unless one stands, and return the one that stands."""
        return self._held.setdefault(key, value)

    async def read(self) -> Mapping[str, str]:
        """Return everything that was claimed."""
        return dict(self._held)

    async def drop(self, key: str, value: str | None = None) -> None:
        """Forget a key; with a value, only while that is what stands."""
        if value is None or self._held.get(key) == value:
            self._held.pop(key, None)


def _template_of(scoping: str | PerSpace) -> str:
    return _SPACE if isinstance(scoping, PerSpace) else scoping


def check_template(field: str, template: object) -> str:
    """Refuse a scope that is not a text or has a placeholder other than `{space}`."""
    if not isinstance(template, str) or not template:
        raise InvalidInput(field=field, problem="each part must be a text that is not empty")
    if "{" in template.replace(_SPACE, "") or "}" in template.replace(_SPACE, ""):
        raise InvalidInput(field=field, problem=f"{template!r} has a placeholder other than {_SPACE}")
    return template


def is_fixed(template: str) -> bool:
    """Tell whether a scope is the same for every space."""
    return _SPACE not in template


def fill(template: str, space: str) -> str:
    """Put a space into a scope template."""
    return template.replace(_SPACE, space)


__all__ = ["LooseNotes", "OncePerFact", "PerSpace", "Scope", "Scoping", "check_template", "fill", "is_fixed"]
