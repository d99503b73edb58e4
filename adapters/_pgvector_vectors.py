"""Vectors as the caller's embedder makes them, checked before anything is written."""

from __future__ import annotations

import inspect
import math
import struct
import sys
from array import array
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from custody_sync.adapters._failures import translated
from custody_sync.adapters._shared import WorkerThreads
from custody_sync.errors import InvalidInput

Embed: TypeAlias = Callable[[str], Sequence[float] | Awaitable[Sequence[float]]]
"""Turns a text into a vector; a coroutine function, or a plain one, which is called in a thread."""

VectorType: TypeAlias = Literal["vector", "halfvec"]
Distance: TypeAlias = Literal["cosine", "l2", "inner_product"]

_MOST = 16_000
_MOST_INDEXED = {"vector": 2_000, "halfvec": 4_000}
"""The longest vectors that pgvector 0.8 takes in an HNSW index."""
_CODES = {"vector": "f", "halfvec": "e"}
_PRECISION = {"vector": "single precision", "halfvec": "half precision"}


@dataclass(frozen=True, slots=True)
class Embedding:
    """One checked vector, as the database will hold it."""

    packed: bytes
    """What pgvector reads in a binary COPY: the length, two empty bytes, the numbers."""
    code: str
    """How `struct` calls a number of its type."""

    @property
    def text(self) -> str:
        """The vector as a parameter of a statement."""
        (length,) = struct.unpack_from(">H", self.packed)
        return f"[{','.join(map(repr, struct.unpack_from(f'>{length}{self.code}', self.packed, 4)))}]"


class Embedder:
    """Ask the caller's embedder and refuse what pgvector could not search.

    Args:
        store: The store's name, for errors.
        embed: The caller's function.
        dimensions: How long every vector has to be.
        kind: The type of the table's vectors.
        threads: Where a blocking function runs.
    """

    def __init__(
        self, store: str, embed: Embed, dimensions: int, kind: VectorType, threads: WorkerThreads
    ) -> None:
        if not callable(embed):
            raise InvalidInput(field="embed", problem="must be a function of a text")
        self._store = store
        self._embed = embed
        self._dimensions = dimensions
        self._kind: VectorType = kind
        self._threads = threads
        call = getattr(embed, "__call__", None)  # noqa: B004 (its kind is asked for, not whether it is there)
        self._is_async = inspect.iscoroutinefunction(embed) or inspect.iscoroutinefunction(call)

    async def __call__(self, text: str) -> Embedding:
        """Return the text's vector."""
        return (await self.many([text]))[0]

    async def many(self, texts: Sequence[str]) -> list[Embedding]:
        """Return the vectors of several texts; a blocking function gets one thread for all of them."""
        return await translated(self._store, "embed", self._vectors(texts))

    async def _vectors(self, texts: Sequence[str]) -> list[Embedding]:
        if self._is_async:
            return [self._checked(await _awaited(self._embed(text))) for text in texts]
        # A function that is not a coroutine function may still return something to await.
        answers = await self._threads.run(lambda: [self._at_once(self._embed(text)) for text in texts])
        return [a if isinstance(a, Embedding) else self._checked(await a) for a in answers]

    def _at_once(self, answer: Any) -> Any:
        return answer if inspect.isawaitable(answer) else self._checked(answer)

    def _checked(self, answer: Iterable[float]) -> Embedding:
        vector = answer if isinstance(answer, list | tuple) else list(answer)
        if len(vector) != self._dimensions:
            problem = f"has {len(vector)} numbers, the table's vectors have {self._dimensions}"
            raise InvalidInput(field="embedding", problem=problem)
        numbers, body = _single(vector) if self._kind == "vector" else _half(vector)
        # A sum in double precision cannot overflow here, and is finite only if every number is.
        if numbers is None or not math.isfinite(sum(numbers)):
            problem = f"has a number that is not finite in {_PRECISION[self._kind]}"
            raise InvalidInput(field="embedding", problem=problem)
        if not any(numbers):
            raise InvalidInput(field="embedding", problem="is all zeros, so nothing can be near it")
        return Embedding(struct.pack(">HH", len(vector), 0) + body, _CODES[self._kind])


async def _awaited(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer


def _single(vector: Sequence[float]) -> tuple[Sequence[float], bytes]:
    numbers = array("f", vector)
    swapped = array("f", numbers)
    if sys.byteorder == "little":
        swapped.byteswap()
    return numbers, swapped.tobytes()


def _half(vector: Sequence[float]) -> tuple[Sequence[float] | None, bytes]:
    form = f">{len(vector)}e"
    try:
        body = struct.pack(form, *vector)
    except OverflowError:
        return None, b""
    return struct.unpack(form, body), body


def checked_dimensions(dimensions: object, kind: VectorType, index: str | None) -> int:
    """Refuse a length that the type, or an index on it, does not take."""
    if kind not in _MOST_INDEXED:
        raise InvalidInput(field="vector_type", problem=f"{kind!r} is neither 'vector' nor 'halfvec'")
    if index not in (None, "hnsw"):
        raise InvalidInput(field="index", problem=f"{index!r} is neither None nor 'hnsw'")
    most = _MOST if index is None else _MOST_INDEXED[kind]
    if isinstance(dimensions, bool) or not isinstance(dimensions, int) or not 1 <= dimensions <= most:
        limit = f"{most:,}" + ("" if index is None else f" (the most an HNSW index on {kind} takes)")
        if isinstance(dimensions, int) and most < dimensions <= _MOST_INDEXED["halfvec"]:
            limit += "; vector_type='halfvec' takes 4,000"
        raise InvalidInput(
            field="dimensions", problem=f"{dimensions!r} is not a whole number from 1 to {limit}"
        )
    return dimensions
