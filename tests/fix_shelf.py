"""A store that goes on serving whatever it was ever given, and what a recall from it has to answer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from custody_sync import Entry, Fact, Hit, Label
from custody_sync.errors import StoreRefused

WORD = re.compile(r"\w+")


@dataclass
class Shelf:
    """Ranks all its entries by words in common; it knows no spaces, and nothing is ever taken from it."""

    ledger_id: str
    name: str = "shelf"

    def __post_init__(self) -> None:
        self._held: list[tuple[Entry, frozenset[str]]] = []

    def hold(self, fact_id: str, text: str, ledger_id: str | None = None) -> None:
        """Have an entry of a fact, with a label of the ledger or of another."""
        entry = Entry(
            store=self.name,
            external_id=f"{len(self._held):06}",
            fact_id=fact_id,
            scope=None,
            stored_at=None,
            text=text,
            ledger_id=ledger_id or self.ledger_id,
        )
        self._held.append((entry, words(text)))

    def ranked(self, query: str) -> list[tuple[Entry, float]]:
        """Return every entry with its score, best first."""
        asked = words(query)
        scored = [(entry, len(asked & there) / len(asked | there)) for entry, there in self._held]
        return sorted(scored, key=lambda one: -one[1])

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        """Refuse: what it holds is laid into it."""
        raise StoreRefused(store=self.name, operation="put", cause="laid_into_it")

    async def delete(self, entry: Entry) -> None:
        """Refuse: nothing is ever taken from it."""
        raise StoreRefused(store=self.name, operation="delete", cause="kept_for_ever")

    async def search(self, query: str, k: int, spaces: Sequence[str] | None) -> list[Hit]:
        """Serve the best, of whatever space."""
        return [Hit(entry=entry, score=score) for entry, score in self.ranked(query)[:k]]


def words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(WORD.findall(text.casefold()))


def check_both_ways(
    served: Sequence[str], ranked: Sequence[tuple[Entry, float]], leads: Mapping[str, str], k: int
) -> None:
    """Hold an answer to what it has to be: the best `k` live facts that the store leads to, each once.

    What is dead leads nowhere and may not be there, and nothing live that ranks higher may be missing;
    of those that rank alike, any may be the last.

    Args:
        served: the ids of the facts that were answered.
        ranked: everything the store holds.
        leads: by the fact id of an entry of this ledger, the fact that holds in its place, worked out
            without the ledger.
        k: how many were asked for.
    """
    best: dict[str, float] = {}
    for entry, score in ranked:
        if (led := leads.get(entry.fact_id or "")) is not None:
            best.setdefault(led, score)
    assert set(served) <= best.keys(), "something dead was served"
    assert len(set(served)) == len(served), "a fact was served twice"
    assert [best[fact_id] for fact_id in served] == sorted(best.values(), reverse=True)[:k]
