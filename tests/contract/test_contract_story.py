"""For every story there is a store behind which custody comes out wrong, and fails it."""

# ruff: noqa: D101, D102 - the name of a broken store says what is broken

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Self

import pytest
from fix_broken import Broken, check_all_broken, check_told

from custody_sync.errors import NoProof, StoreUnavailable
from custody_sync.model import Capability, Entry, Fact, Hit, Label, Level, Limits, Support
from custody_sync.testing import MemoryHooks, MemoryStore, StoreHooks, Verdict, check_store
from custody_sync.testing.contract_story import STORY


class DeletesNothing(MemoryStore):
    """Says that it deleted, and that it is gone."""

    async def delete(self, entry: Entry) -> None:
        return

    async def verify_deleted(self, entry: Entry) -> bool:
        return True


class NeverGone(MemoryStore):
    async def verify_deleted(self, entry: Entry) -> bool:
        return False


class LooksItUpById(MemoryStore):
    async def verify_deleted(self, entry: Entry) -> bool:
        return entry.external_id not in self.snapshot()


class LooksAtTenHits(MemoryStore):
    """Takes an absence from the first hits for a proof."""

    async def verify_deleted(self, entry: Entry) -> bool:
        hits = await self.search(entry.text or "", 10, None)
        return entry.external_id not in {hit.entry.external_id for hit in hits}


class GivesUpInACrowd(MemoryStore):
    async def verify_deleted(self, entry: Entry) -> bool:
        if len(self.snapshot()) > 200:
            raise NoProof(store=self.name, operation="verify_deleted", cause="crowded")
        return await super().verify_deleted(entry)


class TakesAFailureForAnAbsence(MemoryStore):
    async def verify_deleted(self, entry: Entry) -> bool:
        try:
            return await super().verify_deleted(entry)
        except StoreUnavailable:
            return entry.external_id not in self.snapshot()


class BelievesLater(MemoryStore):
    """Asks the search while it has the text, and its memory of deletes later."""

    async def delete(self, entry: Entry) -> None:
        await super().delete(entry)
        self.deleted = {*getattr(self, "deleted", set()), entry.external_id}

    async def verify_deleted(self, entry: Entry) -> bool:
        if entry.text is None:
            return entry.external_id in self.deleted
        return await super().verify_deleted(entry)


class ListsAThousand(MemoryStore):
    async def list_entries(self) -> AsyncIterator[Entry]:
        listed = 0
        async with aclosing(super().list_entries()) as entries:
            async for entry in entries:
                listed += 1
                if listed <= 1_000:
                    yield entry


class ListsTheNewestFirst(MemoryStore):
    """Pages by offset from the newest, so that what arrives pushes rows onto the next page."""

    async def list_entries(self) -> AsyncIterator[Entry]:
        start = 0
        while page := list(reversed(self.snapshot().values()))[start : start + 100]:
            for entry in page:
                yield entry
            start += 100


class TakesEverythingForOurs(MemoryStore):
    """Reads each label as if the most frequent ledger had written it."""

    async def list_entries(self) -> AsyncIterator[Entry]:
        ids = Counter(e.ledger_id for e in self.snapshot().values() if e.ledger_id)
        owner = ids.most_common(1)[0][0] if ids else None
        async with aclosing(super().list_entries()) as entries:
            async for entry in entries:
                yield replace(entry, ledger_id=owner if entry.fact_id else None)


class DeletesTheUnlabelledToo(MemoryStore):
    """Cleans up what it does not know whenever it deletes."""

    async def delete(self, entry: Entry) -> None:
        await super().delete(entry)
        for key, held in self.snapshot().items():
            if held.fact_id is None:
                self.drop(key)


class SwallowsLostReplies(MemoryStore):
    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        try:
            return await super().put(fact, label)
        except StoreUnavailable:
            return ["unknown"]


class LabelsAfterwards(MemoryStore):
    """Puts the text first and its label with a second call, which a lost reply prevents."""

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        lost = self.faults.lost_writes > 0
        ids = [] if lost else await super().put(fact, label)
        if lost:
            self.faults.lost_writes = 0
            self.put_raw(fact.text or "")
            raise StoreUnavailable(store=self.name, operation="put", cause="the reply was lost")
        return ids


class LeaksByPrefix(MemoryStore):
    async def search(self, query: str, k: int, spaces: Sequence[str] | None) -> list[Hit]:
        hits = await super().search(query, 1_000, None)
        wanted = None if spaces is None else tuple(spaces)
        return [h for h in hits if wanted is None or (h.entry.space or "").startswith(wanted)][:k]


class ListsTheFirstScope(MemoryStore):
    def __init__(self) -> None:
        super().__init__(scope="{space}")

    async def list_entries(self) -> AsyncIterator[Entry]:
        first: str | None = None
        async with aclosing(super().list_entries()) as entries:
            async for entry in entries:
                first = entry.scope if first is None else first
                if entry.scope == first:
                    yield entry


class RemembersItsScopesItself(MemoryStore):
    """Knows only in this process which scopes it used."""

    def __init__(self) -> None:
        super().__init__(scope="{space}")
        self.used: set[str | None] = set()

    def __copy__(self) -> Self:
        other = type(self)()
        other._held = self._held
        return other

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        self.used.add(self.scope_of(fact))
        return await super().put(fact, label)

    async def list_entries(self) -> AsyncIterator[Entry]:
        async with aclosing(super().list_entries()) as entries:
            async for entry in entries:
                if entry.scope in self.used:
                    yield entry


BROKEN = [
    Broken("C-70", DeletesNothing, "entries of what is believed"),
    Broken("C-70", NeverGone, "what is superseded to end as"),
    Broken("C-71", LooksItUpById, "still_indexed under lag"),
    Broken("C-71", LooksAtTenHits, "still_indexed under lag"),
    Broken("C-71", GivesUpInACrowd, "verified under lag 1 times"),
    Broken("C-72", TakesAFailureForAnAbsence, "unverified under search_fails"),
    Broken("C-73", LooksAtTenHits, "not verified: it is still held"),
    Broken("C-73", BelievesLater, "not verified: it is still held"),
    Broken("C-74", ListsAThousand, "missed"),
    Broken("C-74", ListsTheNewestFirst, "each entry once"),
    Broken("C-74", TakesEverythingForOurs, "135 removals out of"),
    Broken("C-74", DeletesTheUnlabelledToo, "unlabelled entries as they were"),
    Broken("C-74", NeverGone, "the orphans to end as"),
    Broken("C-75", SwallowsLostReplies, "entries of what is believed"),
    Broken("C-75", LabelsAfterwards, "no other copy of the text"),
    Broken("C-76", SwallowsLostReplies, "entries of what is believed"),
    Broken("C-77", LeaksByPrefix, "nothing from outside"),
    Broken("C-77", ListsTheFirstScope, "the orphans of both spaces swept"),
    Broken("C-78", RemembersItsScopesItself, "the orphans of 3 spaces swept"),
]


@pytest.mark.parametrize("broken", BROKEN, ids=str)
async def test_a_broken_store_fails_the_story_it_breaks(broken: Broken) -> None:
    """The report names the story, what was expected and what was got."""
    await check_told(broken)


def test_each_story_has_a_store_that_breaks_it() -> None:
    """A story that no store fails would show nothing."""
    check_all_broken(BROKEN, STORY)


async def test_the_report_says_on_what_scale() -> None:
    """1,234 entries and 301 equal texts unless the hooks say less, and the report names the figure."""
    hooks = MemoryHooks()
    full = await check_store(MemoryStore, hooks=hooks, rules=["C-71", "C-74"])
    assert [r.note for r in full.results] == [
        "301 equal texts around it",
        "1,234 entries, 123 of them orphans",
    ]
    hooks.many, hooks.crowd = 200, 11
    less = await check_store(MemoryStore, hooks=hooks, rules=["C-71", "C-74"])
    assert [r.note for r in less.results] == ["11 equal texts around it", "200 entries, 20 of them orphans"]
    assert full.passed
    assert less.passed


class Honest(GivesUpInACrowd):
    """A store that says beforehand that some of its answers prove nothing."""

    def __init__(self) -> None:
        super().__init__(limits=Limits(text_chars=5_000))
        self.capabilities[Capability.VERIFY_DELETED] = Support(
            Level.PARTIAL, "a crowd hides what it asks for"
        )


async def test_a_partial_proof_is_told_and_not_failed() -> None:
    """What a store declared is its reason where the story is about proof, and a note where it is not."""
    hooks = MemoryHooks()
    hooks.many = 200
    report = await check_store(Honest, hooks=hooks, rules=["C-70", "C-71", "C-73", "C-74"])
    verdicts = [result.verdict for result in report.results]
    assert verdicts == [Verdict.PASSED, Verdict.NOT_APPLICABLE, Verdict.PASSED, Verdict.PASSED]
    assert "a crowd hides what it asks for" in report.results[1].reason
    assert "20 removals unverified: a crowd hides what it asks for" in report.results[3].note


async def test_a_store_that_cannot_list_still_plays_what_it_can() -> None:
    """What a sweep needs is left out with the store's reason; a write and a forget are tried all the same."""
    report = await check_store(
        lambda: MemoryStore(without=["list_entries"]), hooks=MemoryHooks(), rules=["C-70", "C-74", "C-77"]
    )
    verdicts = [result.verdict for result in report.results]
    assert verdicts == [Verdict.PASSED, Verdict.NOT_APPLICABLE, Verdict.PASSED]
    assert "built without it" in report.results[1].reason


async def test_a_store_that_proves_nothing_keeps_the_plain_story() -> None:
    """Without verify_deleted every removal is unverified, and the note says why."""
    report = await check_store(
        lambda: MemoryStore(without=["verify_deleted"]), hooks=MemoryHooks(), rules=["C-70", "C-71"]
    )
    assert [result.verdict for result in report.results] == [Verdict.PASSED, Verdict.NOT_APPLICABLE]
    assert "unverified: this memory store was built without it" in report.results[0].note


async def test_another_process_needs_a_hook() -> None:
    """Without `reopened()` the rule is left out, since nobody could tell."""
    report = await check_store(MemoryStore, hooks=StoreHooks(), rules=["C-78"])
    assert report.results[0].reason == "the fixture has no reopened()"


async def test_other_entries_of_the_store_are_left_alone() -> None:
    """A story also holds in a store that is not empty: it looks at its own ledger only."""
    store = MemoryStore()
    store.put_raw("was here before", {"source": "somebody"})
    before = copy.deepcopy(store.snapshot())
    report = await check_store(lambda: store, hooks=MemoryHooks(), rules=["C-70", "C-75", "C-77", "C-78"])
    assert report.passed, report.failures
    assert store.snapshot().items() >= before.items()
