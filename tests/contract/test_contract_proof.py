"""For every rule on recall and proof there is a store that breaks it and fails."""

# ruff: noqa: D101, D102 - the name of a broken store says what is broken

from __future__ import annotations

from collections.abc import Sequence

import pytest
from fix_broken import Broken, check_all_broken, check_told

from custody_sync.errors import StoreUnavailable
from custody_sync.model import Entry, Hit
from custody_sync.testing import Faults, MemoryStore
from custody_sync.testing.contract_proof import PROOF


class ServesNothing(MemoryStore):
    async def search(self, query: str, k: int, spaces: Sequence[str] | None) -> list[Hit]:
        return []


class ServesMoreThanAsked(MemoryStore):
    async def search(self, query: str, k: int, spaces: Sequence[str] | None) -> list[Hit]:
        return await super().search(query, k + 5, spaces)


class LeaksByPrefix(MemoryStore):
    async def search(self, query: str, k: int, spaces: Sequence[str] | None) -> list[Hit]:
        hits = await super().search(query, 1_000, None)
        wanted = None if spaces is None else tuple(spaces)
        return [h for h in hits if wanted is None or (h.entry.space or "").startswith(wanted)][:k]


class TakesNoSpaceForAll(MemoryStore):
    async def search(self, query: str, k: int, spaces: Sequence[str] | None) -> list[Hit]:
        return await super().search(query, k, spaces or None)


class FiltersAfterTheCut(MemoryStore):
    async def search(self, query: str, k: int, spaces: Sequence[str] | None) -> list[Hit]:
        hits = await super().search(query, 60, None)
        return [hit for hit in hits if spaces is None or hit.entry.space in spaces][:k]


class CrowdedByTheDead(MemoryStore):
    """As an index whose candidate list is full of deleted rows."""

    async def search(self, query: str, k: int, spaces: Sequence[str] | None) -> list[Hit]:
        self.faults.index_lag = float("inf")
        hits = (await super().search(query, 40, spaces))[: max(k, 40)]
        held = self.snapshot()
        ghosts = sum(ghost.text in query or query in ghost.text for ghost in self._ghosts.values())
        return [hit for hit in hits if hit.entry.external_id in held][: k if ghosts < 40 else 0]

    async def delete(self, entry: Entry) -> None:
        self.faults.index_lag = float("inf")
        await super().delete(entry)


class AnswersEmptyOnFailure(MemoryStore):
    async def search(self, query: str, k: int, spaces: Sequence[str] | None) -> list[Hit]:
        try:
            return await super().search(query, k, spaces)
        except StoreUnavailable:
            return []


class QuotesTheQuery(MemoryStore):
    async def search(self, query: str, k: int, spaces: Sequence[str] | None) -> list[Hit]:
        try:
            return await super().search(query, k, spaces)
        except StoreUnavailable:
            raise StoreUnavailable(
                store=self.name, operation="search", cause=f"no answer to {query}"
            ) from None


class AlwaysGone(MemoryStore):
    async def verify_deleted(self, entry: Entry) -> bool:
        return True


class NeverGone(MemoryStore):
    async def verify_deleted(self, entry: Entry) -> bool:
        return False


class BelievesItsDelete(MemoryStore):
    """Takes the answer of a delete for a proof."""

    async def delete(self, entry: Entry) -> None:
        await super().delete(entry)
        self.deleted = {*getattr(self, "deleted", set()), entry.external_id}

    async def verify_deleted(self, entry: Entry) -> bool:
        return entry.external_id in getattr(self, "deleted", set()) or await super().verify_deleted(entry)


class LooksAtTenHits(MemoryStore):
    """Takes an absence from the first hits for a proof."""

    async def verify_deleted(self, entry: Entry) -> bool:
        if entry.text is None:
            return await super().verify_deleted(entry)
        hits = await self.search(entry.text, 10, None)
        return entry.external_id not in {hit.entry.external_id for hit in hits}


class GoneWhenSearchFails(MemoryStore):
    async def verify_deleted(self, entry: Entry) -> bool:
        try:
            return await super().verify_deleted(entry)
        except StoreUnavailable:
            return entry.external_id not in self.snapshot()


class VerifiesByText(MemoryStore):
    async def verify_deleted(self, entry: Entry) -> bool:
        same = [e for e in self.snapshot().values() if e.text == entry.text]
        return not same and await super().verify_deleted(entry)


class VerifiesByFact(MemoryStore):
    async def verify_deleted(self, entry: Entry) -> bool:
        return not await self.find(entry.fact_id or "") and await super().verify_deleted(entry)


class VerifiesByIdWithinFact(MemoryStore):
    async def verify_deleted(self, entry: Entry) -> bool:
        return entry.external_id not in {e.external_id for e in await self.find(entry.fact_id or "")}


class CrashesInACrowd(MemoryStore):
    async def verify_deleted(self, entry: Entry) -> bool:
        if len(self.snapshot()) > 200:
            raise StoreUnavailable(store=self.name, operation="verify_deleted", cause="too many")
        return await super().verify_deleted(entry)


BROKEN = [
    Broken("C-30", ServesNothing, "nothing of it"),
    Broken("C-31", ServesMoreThanAsked, "from 1 to 1 hits"),
    Broken("C-32", LeaksByPrefix, "nothing from outside"),
    Broken("C-32", TakesNoSpaceForAll, "the list of spaces is empty"),
    Broken("C-33", FiltersAfterTheCut, "the one entry of the small space"),
    Broken("C-34", CrowdedByTheDead, "the entry that remains"),
    Broken("C-35", lambda: MemoryStore(faults=Faults(index_lag=1_000)), "the deleted entry no more"),
    Broken("C-36", AnswersEmptyOnFailure, "a StoreError"),
    Broken("C-36", QuotesTheQuery, "quotes no memory"),
    Broken("C-40", AlwaysGone, "while it is held"),
    Broken("C-41", NeverGone, "after its delete"),
    Broken("C-42", BelievesItsDelete, "after a delete that did nothing"),
    Broken("C-43", LooksAtTenHits, "among 301 equal texts"),
    Broken("C-44", LooksAtTenHits, "among 301 equal texts"),
    Broken("C-45", GoneWhenSearchFails, "while the search fails"),
    Broken("C-46", VerifiesByText, "another fact says the same"),
    Broken("C-47", VerifiesByFact, "newer generation"),
    Broken("C-48", CrashesInACrowd, "gone or NoProof"),
    Broken("C-49", VerifiesByIdWithinFact, "still held"),
]


@pytest.mark.parametrize("broken", BROKEN, ids=str)
async def test_a_broken_store_fails_the_rule_it_breaks(broken: Broken) -> None:
    """The report names the rule, what was expected and what was got."""
    await check_told(broken)


def test_every_rule_has_a_store_that_breaks_it() -> None:
    """A rule that nothing can fail is not a rule."""
    check_all_broken(BROKEN, PROOF)
