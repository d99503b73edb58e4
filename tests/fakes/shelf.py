"""An index as people have one: it is searched, added to and deleted from, and knows no custody."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

from custody_sync.testing.embedding import WordEmbedder

EMBED = WordEmbedder()


class Shelf:
    """Texts by number, found by cosine.

    Args:
        shows: which parts of a result its search shows beside the id.
        most: as many results as one search gives at most, whatever it is asked for.
    """

    def __init__(self, shows: tuple[str, ...] = ("text", "score", "metadata"), most: int = 10_000) -> None:
        self.rows: dict[int, tuple[str, dict[str, Any]]] = {}
        self.served: dict[int, tuple[str, dict[str, Any]]] = {}
        """What the index has; the same rows unless it lags."""
        self.lags = False
        self.ignores_deletes = False
        self.fails: dict[str, Exception] = {}
        self.threads: set[str] = set()
        self.at_once = self.most_at_once = 0
        self._shows = shows
        self._most = most
        self._ids = itertools.count(1)

    def _enter(self, verb: str) -> None:
        self.threads.add(threading.current_thread().name)
        if verb in self.fails:
            raise self.fails[verb]

    def add(self, text: str, metadata: dict[str, Any]) -> int:
        """Keep a text and return its number."""
        self._enter("add")
        number = next(self._ids)
        self.rows[number] = self.served[number] = (text, metadata)
        return number

    def search(self, query: str, k: int) -> list[tuple[Any, ...]]:
        """Return (id, text, score, metadata), nearest first."""
        self._enter("search")
        asked = EMBED(query)
        scored = [
            (sum(a * b for a, b in zip(asked, EMBED(text), strict=True)), number)
            for number, (text, _) in self.served.items()
        ]
        scored.sort(key=lambda pair: (-pair[0], pair[1]))
        return [self._shown(number, score) for score, number in scored[: min(k, self._most)]]

    def delete(self, number: int) -> None:
        """Drop a text; an unknown number is a KeyError."""
        self._enter("delete")
        if self.ignores_deletes:
            return
        del self.rows[number]
        if not self.lags:
            del self.served[number]

    def get(self, number: int) -> tuple[Any, ...] | None:
        """Return one result, or None."""
        self._enter("get")
        return self._shown(number, 1.0) if number in self.rows else None

    def entries(self) -> Iterator[tuple[Any, ...]]:
        """Yield everything there is."""
        self._enter("entries")
        for number in list(self.rows):
            if number in self.rows:
                yield self._shown(number, None)

    def texts(self) -> list[str]:
        """Return the texts really held."""
        return [text for text, _ in self.rows.values()]

    def _shown(self, number: int, score: float | None) -> tuple[Any, ...]:
        text, metadata = self.served.get(number) or self.rows[number]
        parts = {"text": text, "score": score, "metadata": metadata}
        return (number, *(parts[name] if name in self._shows else None for name in parts))


__all__ = ["EMBED", "Shelf"]
