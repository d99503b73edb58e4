"""An index as people have one: it is searched, added to and deleted from, and knows no custody."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from operator import mul
from typing import Any

from custody_sync.testing.embedding import WordEmbedder

_embed = lru_cache(maxsize=10_000)(WordEmbedder())
PARTS = ("text", "score", "metadata")


class Refused(Exception):
    """What a client raises: it quotes what it was given, and may carry a status."""

    def __init__(self, said: str, status_code: int | None = None) -> None:
        super().__init__(said)
        if status_code is not None:
            self.status_code = status_code


@dataclass
class Trouble:
    """An error that is met so many times, by the verbs that are named or by all."""

    error: BaseException | None = None
    times: float = math.inf
    verbs: tuple[str, ...] = ()

    def meet(self, verb: str) -> None:
        """Raise the error if it is this verb's turn."""
        if self.error is not None and self.times > 0 and (not self.verbs or verb in self.verbs):
            self.times -= 1
            raise self.error


class PlainIndex:
    """Texts found by cosine, in results (id, text, score, metadata).

    Args:
        shows: which parts of a result are shown beside the id; None stands for the others.
        most: as many results as one search gives at most, whatever it is asked for.
        number: makes an id of a number.
    """

    def __init__(
        self, shows: tuple[str, ...] = PARTS, most: int = 10_000, number: Callable[[int], Any] = int
    ) -> None:
        self.rows: dict[Any, tuple[str, dict[str, Any]]] = {}
        self.ghosts: dict[Any, tuple[str, dict[str, Any]]] = {}
        """What the index still serves although it was deleted."""
        self.lag = 0.0
        """How many more searches serve what was deleted."""
        self.lies = False
        """Whether a delete only says that it was done."""
        self.before = Trouble()
        """What is raised instead of doing anything."""
        self.after = Trouble()
        """What is raised when it is done."""
        self.calls: list[str] = []
        self.threads: set[str] = set()
        self._shows = shows
        self._most = most
        self._number = number
        self._ids = itertools.count(1)
        self._lock = threading.Lock()

    def add(self, text: str, metadata: dict[str, Any]) -> Any:
        """Keep a text, and the very dict that was given with it, and return its id."""
        self._enter("add")
        given = self._number(next(self._ids))
        self.rows[given] = (text, metadata)
        self.after.meet("add")
        return given

    def search(self, query: str, k: int) -> list[tuple[Any, ...]]:
        """Return the best results, nearest first."""
        self._enter("search")
        served = self.rows | (self.ghosts if self.lag > 0 else {})
        self.lag -= 1
        asked = _embed(query)
        scored = [(sum(map(mul, asked, _embed(text))), given) for given, (text, _) in served.items()]
        scored.sort(key=lambda pair: (-pair[0], str(pair[1])))
        self.after.meet("search")
        return [self._shown(given, served[given], score) for score, given in scored[: min(k, self._most)]]

    def delete(self, given: Any) -> None:
        """Drop a text; an unknown id is a KeyError."""
        self._enter("delete")
        if not self.lies:
            self.ghosts[given] = self.rows.pop(given)
        self.after.meet("delete")

    def get(self, given: Any) -> tuple[Any, ...] | None:
        """Return one result, or None."""
        self._enter("get")
        row = self.rows.get(given)
        return None if row is None else self._shown(given, row, None)

    def entries(self) -> Iterator[tuple[Any, ...]]:
        """Yield everything there is, while others come and go."""
        self._enter("entries")
        for given in list(self.rows):
            if given in self.rows:
                yield self._shown(given, self.rows[given], None)

    def texts(self) -> list[str]:
        """Return the texts really held."""
        return [text for text, _ in self.rows.values()]

    def _shown(self, given: Any, row: tuple[str, dict[str, Any]], score: float | None) -> tuple[Any, ...]:
        parts = {"text": row[0], "score": score, "metadata": row[1]}
        return (given, *(parts[name] if name in self._shows else None for name in PARTS))

    def _enter(self, verb: str) -> None:
        with self._lock:
            self.calls.append(verb)
            self.threads.add(threading.current_thread().name)
        self.before.meet(verb)


__all__ = ["PARTS", "PlainIndex", "Refused", "Trouble"]
