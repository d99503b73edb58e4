"""For every rule on trouble there is a store that takes a service at its word, and fails."""

# ruff: noqa: D101, D102 - the name of a broken store says what is broken

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable, Sequence

import pytest
from fix_broken import Broken, check_all_broken, check_told

from custody_sync.errors import (
    CustodyError,
    StoreRefused,
    StoreThrottled,
    StoreUnavailable,
)
from custody_sync.model import Capability, Entry, Fact, Hit, Label, Level, Support
from custody_sync.testing import Faults, MemoryHooks, MemoryStore, Trouble, Verdict, check_store
from custody_sync.testing.contract_trouble import TROUBLE
from custody_sync.testing.contract_trouble_proof import TROUBLE_PROOF


def refused(store: MemoryStore, operation: str) -> StoreRefused:
    """Return what says that certainly nothing was done."""
    return StoreRefused(store=store.name, operation=operation, cause="500")


# --- writes of which nobody knows ----------------------------------------------------------


class TakesAnErrorForARefusal(MemoryStore):
    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        try:
            return await super().put(fact, label)
        except StoreUnavailable:
            raise refused(self, "put") from None

    async def delete(self, entry: Entry) -> None:
        try:
            await super().delete(entry)
        except StoreUnavailable:
            raise refused(self, "delete") from None


class PutsAgain(MemoryStore):
    """Retries a put blindly, and knows only of the second entry."""

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        try:
            return await super().put(fact, label)
        except StoreUnavailable:
            return await super().put(fact, label)


class QuotesThePut(MemoryStore):
    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        try:
            return await super().put(fact, label)
        except StoreUnavailable as problem:
            raise StoreUnavailable(store=self.name, operation="put", cause="500") from ValueError(
                f"{problem} for {fact.text}"
            )


class MakesUpIds(MemoryStore):
    """Takes whatever happens for a success, and names what it would have been called."""

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        try:
            return await super().put(fact, label)
        except StoreUnavailable:
            return [label.key]

    async def put_many(self, items: Sequence[tuple[Fact, Label]]) -> Sequence[Sequence[str]]:
        try:
            return await super().put_many(items)
        except StoreUnavailable:
            return [[label.key] for _, label in items]


class FindsWhatItConfirmed(MemoryStore):
    """Keeps its own list of what was confirmed, so that what only arrived is not found."""

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        ids = await super().put(fact, label)
        self.confirmed = {*getattr(self, "confirmed", ()), *ids}
        return ids

    async def find(self, fact_id: str) -> list[Entry]:
        return [e for e in await super().find(fact_id) if e.external_id in self.confirmed]


class LabelsWithTheFactAlone(MemoryStore):
    async def find(self, fact_id: str) -> list[Entry]:
        return [
            Entry(store=e.store, external_id=e.external_id, fact_id=fact_id)
            for e in await super().find(fact_id)
        ]


class RaisesWhatItCannotDelete(MemoryStore):
    async def delete(self, entry: Entry) -> None:
        if entry.external_id not in self.snapshot():
            raise refused(self, "delete")
        await super().delete(entry)


class ReadsTheAnswerOfADelete(MemoryStore):
    """Parses the body of every answer, and there is none."""

    async def delete(self, entry: Entry) -> None:
        empty = self.faults.empty_replies > 0
        await super().delete(entry)
        if empty:
            raise ValueError("Expecting value: line 1 column 1 (char 0)")


# --- calls that are turned away ------------------------------------------------------------


class AnswersEmptyWhenTurnedAway(MemoryStore):
    async def find(self, fact_id: str) -> list[Entry]:
        try:
            return await super().find(fact_id)
        except StoreUnavailable:
            return []


class ServesNothingWhenTurnedAway(MemoryStore):
    async def search(self, query: str, k: int, spaces: Sequence[str] | None) -> list[Hit]:
        try:
            return await super().search(query, k, spaces)
        except StoreUnavailable:
            return []


class EndsItsListingWhenTurnedAway(MemoryStore):
    async def list_entries(self) -> AsyncIterator[Entry]:
        try:
            async for entry in super().list_entries():
                yield entry
        except StoreUnavailable:
            return


class GoneWhenTurnedAway(MemoryStore):
    async def verify_deleted(self, entry: Entry) -> bool:
        try:
            return await super().verify_deleted(entry)
        except StoreUnavailable:
            return True


class RefusesWhenThrottled(MemoryStore):
    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        try:
            return await super().put(fact, label)
        except StoreThrottled:
            raise refused(self, "put") from None


class TakesThrottlingForAnOutage(MemoryStore):
    async def delete(self, entry: Entry) -> None:
        try:
            await super().delete(entry)
        except StoreThrottled:
            raise StoreUnavailable(store=self.name, operation="delete", cause="429") from None


class PutsLaterToo(MemoryStore):
    """Queues a put that was turned away, and raises all the same."""

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        try:
            ids = await super().put(fact, label)
        except StoreUnavailable:
            self.queue = [*getattr(self, "queue", ()), (fact, label)]
            raise
        for queued in getattr(self, "queue", ()):
            await super().put(*queued)
        self.queue = []
        return ids


class DropsTheDelete(MemoryStore):
    async def delete(self, entry: Entry) -> None:
        try:
            await super().delete(entry)
        except StoreUnavailable:
            return


# --- proof and listings --------------------------------------------------------------------


class LooksItUpById(MemoryStore):
    """Asks the store and not its search."""

    async def verify_deleted(self, entry: Entry) -> bool:
        return entry.external_id not in self.snapshot()


class NeverGone(MemoryStore):
    async def verify_deleted(self, entry: Entry) -> bool:
        return False


class TakesAFailureForAnAbsence(MemoryStore):
    async def verify_deleted(self, entry: Entry) -> bool:
        try:
            return await super().verify_deleted(entry)
        except StoreUnavailable:
            return entry.external_id not in self.snapshot()


class BelievesItsDelete(MemoryStore):
    """Takes a delete that was accepted for a proof."""

    async def delete(self, entry: Entry) -> None:
        with contextlib.suppress(StoreUnavailable):
            await super().delete(entry)
        self.deleted = {*getattr(self, "deleted", set()), entry.external_id}

    async def verify_deleted(self, entry: Entry) -> bool:
        return entry.external_id in getattr(self, "deleted", set())


class YieldsPagesAsTheyCome(MemoryStore):
    async def list_entries(self) -> AsyncIterator[Entry]:
        keys, short = list(self._held), self.faults.take_short_listing()
        for start in range(0, len(keys), self._page_size):
            for place in self._page(keys, start, short):
                yield self._entry(self._held[keys[place]])


class ConfirmsWhatIsPending(MemoryStore):
    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        if self.faults.pending:
            return [label.key]
        return await super().put(fact, label)


def own(kind: type[MemoryStore]) -> Callable[[], MemoryStore]:
    """Return a factory of such stores that make up their ids."""
    return lambda: kind(own_ids=True)


BROKEN = [
    Broken("C-50", TakesAnErrorForARefusal, "StoreUnavailable or success"),
    Broken("C-50", own(PutsAgain), "as they are shown"),
    Broken("C-50", own(MakesUpIds), "as they are shown"),
    Broken("C-50", FindsWhatItConfirmed, "shown by its fact id"),
    Broken("C-50", LabelsWithTheFactAlone, "generation"),
    Broken("C-50", QuotesThePut, "quotes no memory"),
    Broken("C-51", TakesAnErrorForARefusal, "StoreUnavailable or success"),
    Broken("C-51", own(PutsAgain), "as they are shown"),
    Broken("C-51", FindsWhatItConfirmed, "shown by its fact id"),
    Broken("C-52", own(MakesUpIds), "as they are shown"),
    Broken("C-53", own(MakesUpIds), "as they are shown"),
    Broken("C-53", FindsWhatItConfirmed, "to be shown"),
    Broken("C-54", TakesAnErrorForARefusal, "StoreUnavailable or success"),
    Broken("C-54", RaisesWhatItCannotDelete, "refused"),
    Broken("C-55", TakesAnErrorForARefusal, "StoreUnavailable or success"),
    Broken("C-55", RaisesWhatItCannotDelete, "refused"),
    Broken("C-55", NeverGone, "gone in the end"),
    Broken("C-56", ReadsTheAnswerOfADelete, "expected success"),
    Broken("C-57", AnswersEmptyWhenTurnedAway, "the right answer of find"),
    Broken("C-57", ServesNothingWhenTurnedAway, "the right answer of search"),
    Broken("C-57", EndsItsListingWhenTurnedAway, "the right answer of list_entries"),
    Broken("C-57", GoneWhenTurnedAway, "the right answer of verify_deleted"),
    Broken("C-57", RefusesWhenThrottled, "StoreThrottled or success from put"),
    Broken("C-57", TakesThrottlingForAnOutage, "StoreThrottled or success from delete"),
    Broken("C-57", own(PutsLaterToo), "the right answer of put, done once"),
    Broken("C-57", DropsTheDelete, "the right answer of delete"),
    Broken("C-58", AnswersEmptyWhenTurnedAway, "the right answer of find"),
    Broken("C-58", TakesAnErrorForARefusal, "StoreUnavailable or success from put"),
    Broken("C-58", own(PutsLaterToo), "the right answer of put, done once"),
    Broken("C-59", ConfirmsWhatIsPending, "no ids of what is not there"),
    Broken("C-60", LooksItUpById, "for 1 more questions"),
    Broken("C-60", NeverGone, "gone in the end"),
    Broken("C-61", LooksItUpById, "while the search still serves it"),
    Broken("C-62", ServesNothingWhenTurnedAway, "a StoreError"),
    Broken("C-62", TakesAFailureForAnAbsence, "while every search fails"),
    Broken("C-62", NeverGone, "once the search works again"),
    Broken("C-63", BelievesItsDelete, "a delete that did nothing"),
    Broken("C-64", BelievesItsDelete, "while its delete is pending"),
    Broken("C-65", YieldsPagesAsTheyCome, "no entry twice"),
    Broken("C-66", YieldsPagesAsTheyCome, "1 missing"),
]


@pytest.mark.parametrize("broken", BROKEN, ids=str)
async def test_a_naive_store_fails_the_rule_it_breaks(broken: Broken) -> None:
    """The report names the rule and what was expected of a store in trouble."""
    await check_told(broken)


def test_each_rule_on_trouble_has_a_store_that_breaks_it() -> None:
    """A rule that no store fails would show nothing."""
    check_all_broken(BROKEN, (*TROUBLE, *TROUBLE_PROOF))


class Unable(MemoryHooks):
    """A fixture that can make no trouble at all."""

    async def make_trouble(self, store: MemoryStore, trouble: Trouble, times: float = 1) -> None:
        await super(MemoryHooks, self).make_trouble(store, trouble, times)


async def test_trouble_that_cannot_be_made_is_not_a_pass() -> None:
    """A rule is left out with the fixture's own reason, and names the trouble."""
    rules = [rule.rule_id for rule in (*TROUBLE, *TROUBLE_PROOF)]
    report = await check_store(MemoryStore, hooks=Unable(), rules=rules)
    assert {result.verdict for result in report.results} == {Verdict.NOT_APPLICABLE}
    assert all("the fixture cannot make " in result.reason for result in report.results)


@pytest.mark.parametrize("trouble", list(Trouble))
async def test_the_memory_store_can_do_every_trouble(trouble: Trouble) -> None:
    """No trouble is silently without effect: a fixture that copies these hooks copies all of them."""
    before, store = Faults(), MemoryStore()
    await MemoryHooks().make_trouble(store, trouble, 3)
    assert store.faults != before


@pytest.mark.parametrize(
    ("own_ids", "note"), [(True, "it raised StoreUnavailable"), (False, "it settled itself")]
)
async def test_the_note_says_how_a_write_in_doubt_came_out(own_ids: bool, note: str) -> None:
    """Without it nobody could tell a store that settles itself from a fixture that makes no trouble."""
    report = await check_store(lambda: MemoryStore(own_ids=own_ids), hooks=MemoryHooks(), rules=["C-52"])
    assert report.results[0].note == note


class Partial(YieldsPagesAsTheyCome):
    """A store that says that its listing may be short."""

    def __init__(self) -> None:
        super().__init__()
        self.capabilities[Capability.LIST_ENTRIES] = Support(Level.PARTIAL, "its pages shift")


async def test_a_listing_may_say_that_it_is_partial() -> None:
    """What a store declares is told with its reason, and is not a failure."""
    report = await check_store(Partial, hooks=MemoryHooks(), rules=["C-65", "C-66"])
    assert {result.verdict for result in report.results} == {Verdict.NOT_APPLICABLE}
    assert all("its pages shift" in result.reason for result in report.results)


class Hangs(MemoryStore):
    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        if self.faults.pending:
            await asyncio.Event().wait()
        return await super().put(fact, label)


async def test_a_pending_put_has_to_end_before_the_coordinator_gives_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An adapter that waits for ever fails with the seconds that it had."""
    from custody_sync.testing import contract_trouble

    monkeypatch.setattr(contract_trouble, "SECONDS", 0.01)
    report = await check_store(Hangs, hooks=MemoryHooks(), rules=["C-59"])
    assert report.results[0].verdict is Verdict.FAILED
    assert "0.01 s" in report.results[0].reason


class RaisesItsVendors(MemoryStore):
    async def find(self, fact_id: str) -> list[Entry]:
        try:
            return await super().find(fact_id)
        except CustodyError:
            raise ConnectionResetError("by peer") from None


async def test_a_vendors_own_error_is_named() -> None:
    """Only our errors may leave an adapter."""
    report = await check_store(RaisesItsVendors, hooks=MemoryHooks(), rules=["C-58"])
    assert "ConnectionResetError" in report.results[0].reason


async def test_a_lag_for_ever_is_not_taken_for_one_that_ends() -> None:
    """The memory store itself, with an index that never ends to lag, fails the rule on lags that end."""
    store = MemoryStore()

    class Stuck(MemoryHooks):
        async def make_trouble(self, store: MemoryStore, trouble: Trouble, times: float = 1) -> None:
            await super().make_trouble(store, trouble, math.inf)

    report = await check_store(lambda: store, hooks=Stuck(), rules=["C-60", "C-61"])
    assert [result.verdict for result in report.results] == [Verdict.FAILED, Verdict.PASSED]
