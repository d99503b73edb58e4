"""Dated corrections about 200 subjects, the stores and the ledger that hold them, and how answers count."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import numpy

from custody_sync import AsyncCoordinator
from custody_sync.model import Entry, Fact, Hit, Label
from custody_sync.testing import MemoryStore

DATA = Path(__file__).parents[2] / "shared" / "data" / "amendments"
ACTOR = "agent:bench"
Embed = Callable[[str], list[float]]


@dataclass(frozen=True)
class Query:
    """A question, and the values of its subject: the one that holds today and those that did."""

    text: str
    current: str
    stale: frozenset[str]


@dataclass(frozen=True)
class Amendments:
    """The data."""

    chains: Mapping[str, Sequence[Mapping[str, Any]]]
    """By subject, oldest first."""
    queries: Sequence[Query]

    @property
    def texts(self) -> list[str]:
        """Every text there is, facts and questions."""
        values = [link["value"] for chain in self.chains.values() for link in chain]
        return list(dict.fromkeys([*values, *(query.text for query in self.queries)]))

    @property
    def current(self) -> dict[str, str]:
        """By value: the one that holds of its subject today."""
        return {link["value"]: chain[-1]["value"] for chain in self.chains.values() for link in chain}


def read(subjects: int | None = None) -> Amendments:
    """Read every fact and question, or those about the first so many subjects."""
    chains: dict[str, list[Mapping[str, Any]]] = {}
    for line in (DATA / "multivault.facts.jsonl").read_text().splitlines():
        link = json.loads(line)
        chains.setdefault(link["subject"], []).append(link)
    chains = dict(islice(chains.items(), subjects))
    raw = json.loads((DATA / "multivault.queries.json").read_text())
    queries = [Query(one["q"], one["cur"], frozenset(one["stale"])) for one in raw if one["proj"] in chains]
    return Amendments(chains, queries)


async def write(custody: AsyncCoordinator, data: Amendments) -> None:
    """Write every chain as an application does: each value supersedes the one before it."""

    async def write_chain(chain: Sequence[Mapping[str, Any]]) -> None:
        before = None
        for link in chain:
            result = await custody.write(
                subject=link["subject"],
                predicate=link["predicate"],
                value=link["value"],
                text=link["value"],
                space=link["space"],
                actor=ACTOR,
                valid_from=datetime.fromisoformat(link["valid_from"]),
                supersedes=before,
            )
            before = result.fact.fact_id

    await asyncio.gather(*map(write_chain, data.chains.values()))


class VectorMemory(MemoryStore):
    """An in-process store that searches all its vectors.

    Args:
        embed: turns a text into a unit vector.
    """

    def __init__(self, embed: Embed) -> None:
        super().__init__("memory")
        self._vector_of = embed
        self._entries: list[Entry] = []
        self._vectors: list[list[float]] = []
        self._matrix: Any = None

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        """Hold the text, and its vector."""
        ids = await super().put(fact, label)
        self._entries += [self.snapshot()[external_id] for external_id in ids]
        self._vectors += [self._vector_of(fact.text or "")] * len(ids)
        return ids

    async def search(self, query: str, k: int, spaces: Sequence[str] | None) -> list[Hit]:
        """Return the nearest of all, or of some spaces."""
        if self._matrix is None or len(self._matrix) != len(self._vectors):
            self._matrix = numpy.array(self._vectors)
        scores = numpy.einsum("ij,j->i", self._matrix, numpy.array(self._vector_of(query)))
        ranked = numpy.argsort(-scores, kind="stable").tolist()
        hits = (Hit(entry=self._entries[place], score=float(scores[place])) for place in ranked)
        return list(islice((hit for hit in hits if spaces is None or hit.entry.space in spaces), k))


# --- counting ----------------------------------------------------------------------------------


@dataclass
class Tally:
    """Of how many answers something is true; a question is about one subject, and only its values count."""

    asked: int = 0
    current_only: int = 0
    current_first: int = 0
    """The current value is there, and no stale one of its subject stands before it."""
    stale_served: int = 0
    contradictions: int = 0
    """Two values of its subject, or more."""
    nothing_found: int = 0
    stale_of_anybody: int = 0
    """A stale value of whatever subject: the answer is not filtered, so others' come along."""

    def take(self, query: Query, texts: Sequence[str], current: Mapping[str, str]) -> None:
        """Count one answer."""
        own = [text for text in texts if text == query.current or text in query.stale]
        has_current, has_stale = query.current in own, any(text in query.stale for text in own)
        self.asked += 1
        self.current_only += has_current and not has_stale
        self.current_first += own[:1] == [query.current]
        self.stale_served += has_stale
        self.contradictions += len(set(own)) > 1
        self.nothing_found += not own
        self.stale_of_anybody += any(current[text] != text for text in texts)

    def counts(self) -> dict[str, int]:
        """Return every count."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


@dataclass
class Compared:
    """One store at one `k`, alone and guarded, over the same questions."""

    alone: Tally = field(default_factory=Tally)
    guarded: Tally = field(default_factory=Tally)
    lost: int = 0
    """Questions about a subject that the store alone finds, in whatever version, and the guard does not."""
    withheld: int = 0
    """Current facts that the store ranks above the last one served, or at all, and that are not served."""

    def take(
        self, query: Query, alone: Sequence[str], guarded: Sequence[str], withheld: Iterable[str],
        current: Mapping[str, str],
    ) -> None:  # fmt: skip
        """Count one question."""
        self.alone.take(query, alone, current)
        self.guarded.take(query, guarded, current)
        finds = any(text == query.current or text in query.stale for text in alone)
        self.lost += finds and query.current not in guarded
        self.withheld += len(set(withheld))


def withheld(
    ranked: Sequence[tuple[str, float]], served: Sequence[str], k: int, current: Mapping[str, str]
) -> list[str]:
    """Return the current values that have to be in an answer and are not, worked out without the ledger.

    Args:
        ranked: everything the store holds, best first, with scores.
        served: the guarded answer.
        k: how many were asked for.
        current: by value, the one that holds today.
    """
    best: dict[str, float] = {}
    for text, score in ranked:
        best.setdefault(current[text], score)
    # Of those that rank alike, any may be the last.
    last = sorted(best.values(), reverse=True)[k - 1] if len(best) >= k else float("-inf")
    return [text for text, score in best.items() if score > last and text not in served]
