"""A deterministic toy embedder: no model, no network, and equal texts are at distance zero."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence

from custody_sync.errors import InvalidInput

_WORD = re.compile(r"\w+")


class WordEmbedder:
    """Turn a text into a bag of hashed words, normalised, so that shared words bring texts near.

    It is for tests and the demo: it ranks by words in common and knows no meaning.

    Args:
        dimensions: The length of every vector.
    """

    def __init__(self, dimensions: int = 64) -> None:
        if dimensions < 2:
            raise InvalidInput(field="dimensions", problem=f"{dimensions} is not at least 2")
        self.dimensions = dimensions

    def __call__(self, text: str) -> list[float]:
        """Return the vector of one text; the same on every machine and in every process."""
        vector = [0.0] * self.dimensions
        for word in _WORD.findall(text.casefold()) or [text]:
            self._add(vector, word)
        norm = math.sqrt(sum(number * number for number in vector))
        if norm == 0.0:
            # Words can cancel each other out, and a store refuses a vector that points nowhere.
            self._add(vector, text)
            norm = math.sqrt(sum(number * number for number in vector)) or 1.0
        return [number / norm for number in vector]

    def many(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the vectors of several texts, the shape LangGraph's `embed` has."""
        return [self(text) for text in texts]

    def _add(self, vector: list[float], word: str) -> None:
        digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        number = int.from_bytes(digest, "big")
        vector[(number >> 1) % self.dimensions] += 1.0 if number & 1 else -1.0


__all__ = ["WordEmbedder"]
