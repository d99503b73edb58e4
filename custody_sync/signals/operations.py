"""Telling a tracer about an operation: which, how it ended, how much it was; nothing that was said in it.

A tracer that is not there costs one look.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Sized
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar

from custody_sync.ports import Tracer

P = ParamSpec("P")
T = TypeVar("T")

_ROWS = ("facts", "repaired")
_NUMBERS = ("asked", "adopted", "placed", "confirmed")
"""Where a result says how much it took up; the first that it has counts."""


class _Traced(Protocol):
    """A runtime, as far as this needs to know one."""

    @property
    def tracer(self) -> Tracer | None: ...


class _Named(Protocol):
    @property
    def ledger_id(self) -> str: ...


class _Operates(Protocol):
    """What has operations to be told of: a coordinator."""

    @property
    def ledger(self) -> _Named: ...

    @property
    def _runtime(self) -> _Traced: ...


S = TypeVar("S", bound=_Operates)
Method: TypeAlias = Callable[Concatenate[S, P], Coroutine[Any, Any, T]]


def traced(verb: str) -> Callable[[Method[S, P, T]], Method[S, P, T]]:
    """Make a method of a coordinator tell the runtime's tracer about each call of it."""

    def decorate(method: Method[S, P, T]) -> Method[S, P, T]:
        of_fact = "fact_id" in inspect.signature(method).parameters

        @functools.wraps(method)
        async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
            tracer = self._runtime.tracer
            if tracer is None:
                return await method(self, *args, **kwargs)
            with tracer.operation(
                "supersede" if kwargs.get("supersedes") is not None else verb,
                ledger_id=self.ledger.ledger_id,
                fact_id=_text(args[0] if args else kwargs.get("fact_id")) if of_fact else None,
                dry_run=kwargs.get("dry_run") is True,
            ) as span:
                result = await method(self, *args, **kwargs)
                fact_id = _text(getattr(getattr(result, "fact", result), "fact_id", None))
                span.done(
                    fact_id=fact_id,
                    count=_count(result) if fact_id is None else 1,
                    complete=_flag(getattr(result, "complete", None)),
                )
                return result

        return call

    return decorate


_UNTRACED: AbstractContextManager[object] = nullcontext()


def store_call(
    tracer: Tracer | None, verb: str, *, store: str, fact_id: str | None = None, count: int | None = None
) -> AbstractContextManager[object]:
    """Return what a call to a store runs in, so that a tracer is told of it if there is one."""
    if tracer is None:
        return _UNTRACED
    return tracer.store_call(verb, store=store, fact_id=fact_id, count=count)


def _count(result: object) -> int | None:
    for name in _NUMBERS:
        if type(number := getattr(result, name, None)) is int:
            return number
    for name in _ROWS:
        if isinstance(rows := getattr(result, name, None), Sized):
            return len(rows)
    return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


__all__ = ["store_call", "traced"]
