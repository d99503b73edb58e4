"""For every rule on holding there is a store that breaks it and fails."""

# ruff: noqa: D101, D102 - the name of a broken store says what is broken

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from fix_broken import Broken, check_all_broken, check_told

from custody_sync.errors import StoreUnavailable
from custody_sync.model import Capability, Entry, Fact, Hit, Label, Level, Support
from custody_sync.testing import Faults, MemoryStore
from custody_sync.testing.contract_rules import HOLDING


class RenamesItself(MemoryStore):
    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        ids = await super().put(fact, label)
        self.name += "!"
        return ids


class ReturnsNoIds(MemoryStore):
    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        await super().put(fact, label)
        return []


class TrimsKeys(MemoryStore):
    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        return await super().put(fact, replace(label, generation="only"))


class DeleteDoesNothing(MemoryStore):
    async def delete(self, entry: Entry) -> None:
        return None


class DeleteInsistsOnExistence(MemoryStore):
    async def delete(self, entry: Entry) -> None:
        if entry.external_id not in self.snapshot():
            raise StoreUnavailable(store=self.name, operation="delete", cause="404")
        await super().delete(entry)


class DeletesTheWholeSpace(MemoryStore):
    async def delete(self, entry: Entry) -> None:
        target = self.snapshot().get(entry.external_id)
        for other in self.snapshot().values():
            if target is not None and other.space == target.space:
                await super().delete(other)


class DeletesByText(MemoryStore):
    async def delete(self, entry: Entry) -> None:
        for other in self.snapshot().values():
            if other.text == entry.text:
                await super().delete(other)


class RewritesEntries(MemoryStore):
    """Shows each entry through `rewrite`, by every way."""

    def rewrite(self, entry: Entry) -> Entry:
        return entry

    async def find(self, fact_id: str) -> list[Entry]:
        return [self.rewrite(entry) for entry in await super().find(fact_id)]

    async def list_entries(self) -> AsyncIterator[Entry]:
        async for entry in super().list_entries():
            yield self.rewrite(entry)

    async def search(self, query: str, k: int, spaces: Sequence[str] | None) -> list[Hit]:
        hits = await super().search(query, k, spaces)
        return [Hit(entry=self.rewrite(hit.entry), score=hit.score) for hit in hits]


class FoldsSpaces(RewritesEntries):
    def rewrite(self, entry: Entry) -> Entry:
        return replace(entry, space=entry.space.casefold() if entry.space else None)


class ComposesText(RewritesEntries):
    def rewrite(self, entry: Entry) -> Entry:
        return replace(entry, text=(entry.text or "").replace("e\u0301", "\u00e9"))


class CutsMicroseconds(RewritesEntries):
    def rewrite(self, entry: Entry) -> Entry:
        return replace(entry, stored_at=entry.stored_at.replace(microsecond=0) if entry.stored_at else None)


class ShowsNaiveTimes(RewritesEntries):
    def rewrite(self, entry: Entry) -> Entry:
        return replace(entry, created_at=entry.created_at.replace(tzinfo=None) if entry.created_at else None)


class ClaimsOtherLedgers(RewritesEntries):
    def rewrite(self, entry: Entry) -> Entry:
        return replace(entry, ledger_id="ours")


class ClaimsUnlabelled(RewritesEntries):
    def rewrite(self, entry: Entry) -> Entry:
        return entry if entry.fact_id else replace(entry, fact_id="unknown", ledger_id="ours")


class ShowsOtherScopes(RewritesEntries):
    def rewrite(self, entry: Entry) -> Entry:
        return replace(entry, scope="all")


class IgnoresScopesOnDelete(MemoryStore):
    async def delete(self, entry: Entry) -> None:
        await super().delete(replace(entry, scope=self.snapshot().get(entry.external_id, entry).scope))


class FindsTen(MemoryStore):
    async def find(self, fact_id: str) -> list[Entry]:
        return (await super().find(fact_id))[:10]


class HidesUnlabelled(MemoryStore):
    async def list_entries(self) -> AsyncIterator[Entry]:
        async for entry in super().list_entries():
            if entry.fact_id:
                yield entry


class ListsOnePage(MemoryStore):
    async def list_entries(self) -> AsyncIterator[Entry]:
        for entry in list(self.snapshot().values())[:100]:
            yield entry


class ListsByOffset(MemoryStore):
    async def list_entries(self) -> AsyncIterator[Entry]:
        offset = 0
        while page := list(self.snapshot().values())[offset : offset + 20]:
            for entry in page:
                yield entry
            offset += 20


class LosesConcurrentPuts(MemoryStore):
    busy = 0

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        self.busy += 1
        ids = await super().put(fact, label)
        await self._sleep(0)
        if self.busy > 20:
            self.drop(ids[0])
        self.busy -= 1
        return ids


class KeepsTheCallersValue(MemoryStore):
    values: dict[str, Any]

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        self.values = {**getattr(self, "values", {}), label.key: fact.value}
        return await super().put(fact, label)

    def value(self, external_id: str) -> Any:
        return self.values[external_id]


class CutsBigTexts(MemoryStore):
    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        return await super().put(replace(fact, text=(fact.text or "")[:8192]), label)


class PromisesFind(MemoryStore):
    def __init__(self) -> None:
        super().__init__(without=["find"])
        self.capabilities[Capability.FIND] = Support(Level.FULL)


class GivesNoReason(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.capabilities[Capability.SEARCH] = Support(Level.PARTIAL, " ")


class HoldsItsLockWhenCancelled(MemoryStore):
    locked = False

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        if self.locked:
            raise StoreUnavailable(store=self.name, operation="put", cause="locked")
        self.locked = True
        await self._sleep(0)
        ids = await super().put(fact, label)
        self.locked = False
        return ids


class AnswersManyInReverse(MemoryStore):
    async def put_many(self, items: Sequence[tuple[Fact, Label]]) -> Sequence[Sequence[str]]:
        return list(reversed(await super().put_many(items)))


class RelabelsTheSpace(MemoryStore):
    async def relabel(self, entry: Entry, label: Label) -> None:
        for other in self.snapshot().values():
            await super().relabel(other, label)


class SharesOneId(MemoryStore):
    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        await super().put(fact, label)
        return ["memory-1"]


class ListsThrice(MemoryStore):
    async def list_entries(self) -> AsyncIterator[Entry]:
        for _ in range(3):
            async for entry in super().list_entries():
                yield entry


BROKEN = [
    Broken("C-01", lambda: MemoryStore("  "), "a non-empty name"),
    Broken("C-01", RenamesItself, "the name 'memory' again"),
    Broken("C-02", ReturnsNoIds, "at least one external id"),
    Broken("C-03", SharesOneId, "no shared id"),
    Broken("C-04", lambda: MemoryStore(own_ids=True), "after the retry"),
    Broken("C-05", TrimsKeys, "new ids for a new generation"),
    Broken("C-06", DeleteDoesNothing, "nothing after the delete"),
    Broken("C-07", DeleteInsistsOnExistence, "got StoreUnavailable"),
    Broken("C-08", DeletesTheWholeSpace, "of fact 1"),
    Broken("C-09", DeletesByText, "still held"),
    Broken("C-09", lambda: MemoryStore(faults=Faults(shared_ids=True)), "still held"),
    Broken("C-10", FoldsSpaces, "store, fact, space and ledger"),
    Broken("C-11", ComposesText, "(decomposed)"),
    Broken("C-12", CutsMicroseconds, "stored_at"),
    Broken("C-12", ShowsNaiveTimes, "an aware created_at"),
    Broken("C-13", ClaimsOtherLedgers, "store, fact, space and ledger"),
    Broken("C-14", FindsTen, "the 25 entries"),
    Broken("C-15", ListsOnePage, "30 missing"),
    Broken("C-15", lambda: MemoryStore(faults=Faults(repeat_pages=True)), "no entry twice"),
    Broken("C-16", ListsByOffset, "every entry that stayed"),
    Broken("C-16", ListsThrice, "no entry twice"),
    Broken("C-17", HidesUnlabelled, "once in the listing"),
    Broken("C-17", ClaimsUnlabelled, "no fact, ledger, space"),
    Broken("C-18", LosesConcurrentPuts, "all fifty held"),
    Broken("C-19", KeepsTheCallersValue, "inside the store"),
    Broken("C-20", CutsBigTexts, "20000 characters"),
    Broken("C-21", PromisesFind, "a method find()"),
    Broken("C-22", GivesNoReason, "a reason for search"),
    Broken("C-23", lambda: ShowsOtherScopes(scope="{space}"), "scope"),
    Broken("C-23", lambda: IgnoresScopesOnDelete(scope="{space}"), "after a delete in another scope"),
    Broken("C-24", HoldsItsLockWhenCancelled, "raised StoreUnavailable"),
    Broken("C-25", AnswersManyInReverse, "held"),
    Broken("C-26", RelabelsTheSpace, "by find"),
]


@pytest.mark.parametrize("broken", BROKEN, ids=str)
async def test_a_broken_store_fails_the_rule_it_breaks(broken: Broken) -> None:
    """The report names the rule, what was expected and what was got."""
    await check_told(broken)


def test_every_rule_has_a_store_that_breaks_it() -> None:
    """A rule that nothing can fail is not a rule."""
    check_all_broken(BROKEN, HOLDING)
