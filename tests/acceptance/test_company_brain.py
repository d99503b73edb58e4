"""A price that was corrected: both dates right, one current value, and nothing guessed once it was erased."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from custody_sync import AsyncCoordinator
from custody_sync.ledger import Ledger
from custody_sync.model import Json
from custody_sync.ports import Store
from custody_sync.recalled import Belief, Card, Dropped, RecallStatus
from custody_sync.testing import ManualClock, MemoryStore, testing_runtime

if TYPE_CHECKING:
    from fix_pgvector import Connect

LEARNED = datetime(2026, 1, 12, 9, tzinfo=UTC)
FEBRUARY = datetime(2026, 2, 9, 12, tzinfo=UTC)
REPLACED = datetime(2026, 3, 3, 14, tzinfo=UTC)
JUNE = datetime(2026, 6, 15, tzinfo=UTC)
OLD, NEW = "$4,200", "$3,600"
IN_FEBRUARY: tuple[dict[str, Any], ...] = (
    {"valid_at": FEBRUARY},
    {"tx_at": FEBRUARY},
    {"valid_at": FEBRUARY, "tx_at": FEBRUARY},
)


class Brain:
    """A ledger of what a company knows, over one store, and the clock of both."""

    def __init__(self, custody: AsyncCoordinator, clock: ManualClock) -> None:
        self.custody = custody
        self.clock = clock

    async def learn(self) -> tuple[str, str]:
        """Learn a price in January and its correction in March; return both fact ids."""
        first = await self._price(LEARNED, OLD, "ticket-17")
        other = await self.custody.write(
            subject="plan:basic", predicate="price", value="$900", space="org", actor="agent:sales"
        )
        assert other.complete
        second = await self._price(REPLACED, NEW, "ticket-52", supersedes=first)
        return first, second

    async def _price(self, now: datetime, value: str, receipt_id: str, **more: Any) -> str:
        self.clock.set(now)
        written = await self.custody.write(
            subject="plan:enterprise",
            predicate="price",
            value=value,
            text=f"The enterprise plan costs {value} a month",
            space="org",
            actor="agent:sales",
            receipt_id=receipt_id,
            **more,
        )
        assert written.complete
        return written.fact.fact_id

    async def asked(self, **when: Any) -> list[Json]:
        """Ask what the enterprise plan costs, and return the values that are served."""
        found = await self.custody.recall("What does the enterprise plan cost a month?", k=10, **when)
        assert [hit.text for hit in found.hits] == [hit.fact.text for hit in found.hits]
        return [hit.value for hit in found.hits if hit.fact.subject == "plan:enterprise"]

    async def card(self, **when: Any) -> Card:
        """Return the one card of the price."""
        (card,) = await self.custody.card("plan:enterprise", "price", **when)
        return card

    async def check_both_dates(self, first: str, second: str) -> None:
        """One value is current now and another was in February, by recall and by card alike."""
        assert await self.asked() == [NEW]
        for when in IN_FEBRUARY:
            assert await self.asked(**when) == [OLD]
            assert [fact.value for fact in (await self.card(**when)).current] == [OLD]
        assert await self.asked(valid_at=REPLACED - timedelta(microseconds=1)) == [OLD]
        assert await self.asked(valid_at=REPLACED) == [NEW]
        assert await self.asked(valid_at=LEARNED - timedelta(days=1)) == []
        card = await self.card()
        assert [fact.fact_id for fact in card.current] == [second]
        assert card.original is not None
        assert (card.original.fact_id, card.original.value) == (first, OLD)
        links = [(link.fact.value, link.belief, link.fact.receipt_id) for link in card.chain]
        assert links == [(OLD, Belief.SUPERSEDED, "ticket-17"), (NEW, Belief.BELIEVED, "ticket-52")]

    async def check_no_record_of_february(self) -> None:
        """What was erased is in no answer about its time, and nothing else is put in its place."""
        for when in IN_FEBRUARY:
            found = await self.custody.recall("enterprise plan", k=10, spaces=["org"], **when)
            assert [hit.value for hit in found.hits if hit.fact.subject == "plan:enterprise"] == []
            assert found.status is RecallStatus.EXHAUSTED
            assert sum(found.dropped.values()) >= 1
            assert found.dropped.keys() <= {Dropped.FORGOTTEN, Dropped.LATER}
            card = await self.card(**when)
            assert OLD not in json.dumps([link.fact.value for link in card.chain])
            assert [fact for fact in card.current if not fact.forgotten] == []
        assert await self.asked() == [NEW]
        assert [fact.value for fact in (await self.card()).current] == [NEW]
        assert [link.fact.forgotten for link in (await self.card()).chain] == [True, False]


@asynccontextmanager
async def open_brain(url: str, clock: ManualClock, store: Store, *, superseded: Any) -> AsyncIterator[Brain]:
    """Open a brain on a new ledger."""
    runtime = testing_runtime(clock=clock)
    async with (
        await Ledger.open(url, create=True, runtime=runtime) as ledger,
        AsyncCoordinator(ledger, stores=[store], runtime=runtime, superseded=superseded) as custody,
    ):
        yield Brain(custody, clock)


async def check(brain: Brain) -> None:
    """Tell the whole story."""
    first, second = await brain.learn()
    brain.clock.set(JUNE)
    await brain.check_both_dates(first, second)
    windows = {"org": "P90D"}
    expired = await brain.custody.expire(actor="job:retention", windows=windows, age_from="superseded")
    assert [fact.fact_id for fact in expired.facts] == [first]
    assert expired.complete
    await brain.check_no_record_of_february()


@pytest.mark.parametrize("policy", ["remove", "keep"])
async def test_the_price_of_february_and_of_today(ledger_url: str, policy: str) -> None:
    """On every storage, whether the store let go of the old price or still serves it."""
    clock = ManualClock(LEARNED)
    async with open_brain(ledger_url, clock, MemoryStore(clock=clock), superseded=policy) as brain:
        await check(brain)


async def test_the_price_of_february_and_of_today_in_a_table(schema_url: str, connect: Connect) -> None:
    """A ledger in Postgres over a pgvector table that keeps what was superseded."""
    pytest.importorskip("psycopg", reason="a table needs custody-sync[pgvector]")
    from fix_pgvector import store_of

    store = store_of(connect())
    async with open_brain(schema_url, ManualClock(LEARNED), store, superseded="keep") as brain:
        await check(brain)
