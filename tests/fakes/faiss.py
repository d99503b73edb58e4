"""A vector store for Mem0 that cuts first and filters afterwards, as Mem0 2.2.1 does with FAISS.

Mem0's own library runs on it; only the index is a stand-in. Its module has the name of Mem0's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Point:
    """What Mem0 reads of a hit."""

    id: str
    payload: dict[str, Any]
    score: float | None = None


class Faiss:
    """Vectors in memory, searched exactly: the nearest `2 * top_k` of all, then whatever of them fits."""

    def __init__(self, dimensions: int) -> None:
        self.path: str | None = None
        self._vectors: NDArray[np.float64] = np.zeros((0, dimensions))
        self._points: list[Point] = []

    def insert(self, vectors: list[list[float]], payloads: list[dict[str, Any]], ids: list[str]) -> None:
        """Add points."""
        self._vectors = np.vstack([self._vectors, np.array(vectors)])
        self._points += [Point(key, dict(payload)) for key, payload in zip(ids, payloads, strict=True)]

    def delete(self, vector_id: str) -> None:
        """Take a point out."""
        kept = [n for n, point in enumerate(self._points) if point.id != vector_id]
        self._vectors = self._vectors[kept]
        self._points = [self._points[n] for n in kept]

    def get(self, vector_id: str) -> Point | None:
        """Return a point."""
        return next((point for point in self._points if point.id == vector_id), None)

    def search(
        self, query: str, vectors: list[float], top_k: int, filters: dict[str, Any] | None = None
    ) -> list[Point]:
        """Cut, then filter."""
        scores = self._vectors @ np.array(vectors)
        nearest = np.argsort(-scores, kind="stable")[: top_k * 2 if filters else top_k]
        hits = [replace(self._points[n], score=float(scores[n])) for n in nearest]
        return [hit for hit in hits if _fits(hit, filters)][:top_k]

    def keyword_search(self, query: str, top_k: int, filters: dict[str, Any] | None = None) -> None:
        """Offer none."""

    def list(self, filters: dict[str, Any] | None = None, top_k: int = 100) -> list[list[Point]]:
        """Return what fits, in the order it was added; a wildcard fits nothing."""
        return [[point for point in self._points if _fits(point, filters)][:top_k]]

    def col_info(self) -> dict[str, Any]:
        """Return how many vectors there are."""
        return {"name": "memories", "count": len(self._points)}


def _fits(point: Point, filters: dict[str, Any] | None) -> bool:
    return all(point.payload.get(key) == value for key, value in (filters or {}).items())
