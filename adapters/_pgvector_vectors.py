"""Vectors as the caller's embedder makes them, checked before anything is written."""

from __future__ import annotations

import inspect
import math
from array import array
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from custody_sync.adapters._failures import translated
from custody_sync.adapters._shared import WorkerThreads
from custody_sync.errors import InvalidInput

Embed: TypeAlias = Callable[[str], Sequence[float] | Awaitable[Sequence[float]]]
"""Turns a text into a vector; a coroutine function, or a plain one, which is called in a thread."""


class Embedder:
    """Ask the caller's embedder and refuse what pgvector could not search.

    Args:
        store: The store's name, for errors.
        embed: The caller's function.
        dimensions: How long every vector has to be.
        threads: Where a blocking function runs.
    """

    def __init__(self, store: str, embed: Embed, dimensions: int, threads: WorkerThreads) -> None:
        if not callable(embed):
            raise InvalidInput(field="embed", problem="must be a function of a text")
        self._store = store
        self._embed = embed
        self._dimensions = dimensions
        self._threads = threads
        call = getattr(embed, "__call__", None)  # noqa: B004 (its kind is asked for, not whether it is there)
        self._is_async = inspect.iscoroutinefunction(embed) or inspect.iscoroutinefunction(call)

    async def __call__(self, text: str) -> str:
        """Return the text's vector as pgvector reads it."""
        return (await self.many([text]))[0]

    async def many(self, texts: Sequence[str]) -> list[str]:
        """Return the vectors of several texts; a blocking function gets one thread for all of them."""
        return [self._checked(v) for v in await translated(self._store, "embed", self._vectors(texts))]

    async def _vectors(self, texts: Sequence[str]) -> list[list[float]]:
        if self._is_async:
            return [await self._vector(self._embed(text)) for text in texts]
        answers = await self._threads.run(lambda: [self._embed(text) for text in texts])
        return [await self._vector(answer) for answer in answers]

    async def _vector(self, answer: Any) -> list[float]:
        return [float(number) for number in (await answer if inspect.isawaitable(answer) else answer)]

    def _checked(self, vector: list[float]) -> str:
        if len(vector) != self._dimensions:
            problem = f"has {len(vector)} numbers, the table's vectors have {self._dimensions}"
            raise InvalidInput(field="embedding", problem=problem)
        # As the database will hold it: what is too big or too small for four bytes shows here.
        single = array("f", vector)
        if not all(map(math.isfinite, single)):
            raise InvalidInput(
                field="embedding", problem="has a number that is not finite in single precision"
            )
        if not any(single):
            raise InvalidInput(field="embedding", problem="is all zeros, so nothing can be near it")
        return f"[{','.join(map(repr, vector))}]"
