"""L3: the ledger's own time, and answers about the past that never change."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from fix_ledger import START, Book, day, open_book

from custody_sync.errors import InvalidInput, LedgerError
from custody_sync.ledger.chain import GENESIS
from custody_sync.model import Head, Provenance

TICK = timedelta(microseconds=1)


async def test_l3_time_is_strictly_increasing_across_groups_and_openings(tmp_path: Path) -> None:
    """With the clock standing still or going back, also after the ledger was opened anew."""
    events = []
    for offset in (0, 0, -3600, -7200):
        book = await open_book(tmp_path / "l.db", prefix=f"{len(events)}-")
        book.clock.set(START + timedelta(seconds=offset))
        for _ in range(2):
            events.append(await book.append(book.state()))
        await book.ledger.close()
    times = [event.tx_time for event in events]
    assert times == [START + i * TICK for i in range(8)]


async def test_l3_every_answer_says_its_head(book: Book) -> None:
    """Reads take effect at the committed head, and a page carries it."""
    empty = await book.ledger.as_of()
    assert (empty, empty.head) == ([], Head(0, None, GENESIS))
    event = await book.append(book.state())
    head = Head(1, event.tx_time, event.hash)
    for page in (
        await book.ledger.as_of(),
        await book.ledger.history(event.fact_id),
        await book.ledger.pending(),
        await book.ledger.removed(),
    ):
        assert page.head == head
    assert await book.ledger.head() == head


async def test_l3_a_question_about_the_past_is_answered_at_the_head_of_then(book: Book) -> None:
    """`tx_at` between two events means the earlier one; before the first, nothing; later, the head."""
    first = await book.append(book.state(value="a"))
    book.later(hours=1)
    second = await book.append(book.state(value="b"))
    asked = {
        START - TICK: 0,
        first.tx_time: 1,
        second.tx_time - TICK: 1,
        second.tx_time: 2,
        second.tx_time + timedelta(days=400): 2,
    }
    for instant, seq in asked.items():
        page = await book.ledger.as_of(tx_at=instant, valid_at=day(20))
        assert (page.head.seq, len(page)) == (seq, seq)


async def test_l3_valid_at_is_the_later_of_the_clock_and_the_head(book: Book) -> None:
    """A clock that was turned back does not hide what was just recorded."""
    book.at(day(5))
    await book.add(value="now")
    book.at(day(2))
    assert await book.values() == ["now"]
    assert await book.values(valid_at=day(2)) == []


async def test_before_the_first_event_every_storage_names_the_same_head(book: Book) -> None:
    """It is that of an empty ledger, of which every chain begins."""
    await book.add()
    page = await book.ledger.as_of(tx_at=START - timedelta(days=1))
    assert (page, page.head) == ([], Head(0, None, GENESIS))


@pytest.mark.parametrize("bad", [datetime(2026, 9, 1), "2026-09-01T00:00:00Z", 1_700_000_000, ""])
@pytest.mark.parametrize("which", ["valid_at", "tx_at"])
async def test_l3_naive_and_unparsable_times_are_refused(book: Book, which: str, bad: Any) -> None:
    """Nobody can know what a time without a zone means; reading refuses it like writing."""
    with pytest.raises(InvalidInput, match=which):
        await book.ledger.as_of(**{which: bad})


@pytest.mark.parametrize("bad", [datetime(2026, 9, 1), "2026-09-01", None])
async def test_l3_a_fact_with_a_naive_time_is_refused(book: Book, bad: Any) -> None:
    """Nothing is appended of it."""
    for field in ("valid_from", "valid_to"):
        if bad is None and field == "valid_to":
            continue
        with pytest.raises(InvalidInput, match=field):
            await book.append(book.state(**{field: bad}))
    assert (await book.ledger.head()).seq == 0


async def test_l3_times_of_any_zone_are_one_instant(book: Book) -> None:
    """Answers come in UTC, whatever zone a time was given in."""
    zurich = ZoneInfo("Europe/Zurich")
    fact_id = await book.add(
        valid_from=datetime(2026, 9, 1, 2, tzinfo=zurich),
        valid_to=datetime(2026, 10, 25, 2, 30, tzinfo=zurich, fold=1),
    )
    fact = await book.ledger.get(fact_id)
    assert fact is not None
    assert (fact.valid_from, fact.valid_from.tzinfo) == (START, UTC)
    assert fact.valid_to == datetime(2026, 10, 25, 1, 30, tzinfo=UTC)
    assert await book.values(valid_at=datetime(2026, 9, 1, 2, tzinfo=zurich)) == ["pro"]


async def test_l3_an_interval_has_to_go_forward(book: Book) -> None:
    """A fact that ends before or when it starts is refused."""
    for ends in (START, START - TICK):
        with pytest.raises(InvalidInput, match="valid_to: must be later than valid_from"):
            await book.append(book.state(valid_to=ends))


def _steps(book: Book) -> list[Callable[[], Any]]:
    """Return later events that touch everything an earlier answer showed."""

    async def supersede() -> None:
        (pro,) = await book.ledger.as_of(predicate="plan")
        await book.add(value="enterprise", supersedes=pro.fact_id)

    async def retract() -> None:
        (owner,) = await book.ledger.as_of(predicate="owner")
        await book.append(book.retract(owner.fact_id))

    async def confirm() -> None:
        (claimed,) = await book.ledger.as_of(predicate="claim", include_claimed=True)
        await book.append(book.confirm(claimed.fact_id))

    async def backdate() -> None:
        await book.add("acct:42", "note", "late", valid_from=day(1, month=8))

    return [supersede, retract, confirm, backdate]


async def test_l3_a_past_answer_never_changes(book: Book) -> None:
    """Whatever comes later, the answer as of an instant that the head has passed stays the same (I8)."""
    await book.add(value="pro")
    await book.add(predicate="owner", value="dana")
    await book.add(predicate="claim", value="x", provenance=Provenance.CLAIMED)
    book.later(hours=1)
    await book.add(predicate="other", value=1)
    asked = {"valid_at": day(2), "tx_at": START + timedelta(minutes=30)}
    before = list(await book.ledger.as_of(**asked))
    assert [fact.value for fact in before] == ["pro", "dana"]
    for step in _steps(book):
        book.later(hours=1)
        await step()
        assert list(await book.ledger.as_of(**asked)) == before
    later = {fact.predicate: fact.value for fact in await book.ledger.as_of(valid_at=day(2))}
    assert later == {"plan": "enterprise", "other": 1, "claim": "x", "note": "late"}


@pytest.mark.parametrize("edge", [datetime.max, datetime.min])
async def test_l3_a_clock_at_the_end_of_the_calendar_dates_nothing(book: Book, edge: datetime) -> None:
    """An event of that instant would be the ledger's last one; reading goes on."""
    await book.add()
    book.at(edge.replace(tzinfo=UTC))
    for call in (
        lambda: book.append(book.repair("f-other")),
        lambda: book.ledger.check(book.repair("f-other")),
        lambda: book.ledger.acquire("lease", "k", holder="me", value="1", ttl=timedelta(minutes=1)),
    ):
        with pytest.raises(LedgerError, match=r"its clock says .* where the calendar ends"):
            await call()
    with pytest.raises(LedgerError, match="its clock says"):
        book.ledger.now()
    assert (await book.ledger.head()).seq == 1
    assert await book.values() == ["pro"]
    book.at(START)
    assert (await book.append(book.state())).seq == 2


@pytest.mark.storages("sqlite")
@pytest.mark.damages
async def test_l3_a_head_at_the_end_of_the_calendar_is_named(book: Book) -> None:
    """Nothing can follow it, which is one sentence and not an overflow."""
    await book.add()
    conn = sqlite3.connect(book.path)
    conn.execute("UPDATE head SET tx_time = '9999-12-31T23:59:59.999999Z'")
    conn.commit()
    conn.close()
    with pytest.raises(LedgerError, match=r"its last event is of 9999-12-31T23:59:59\.999999Z"):
        await book.append(book.state())
    assert await book.values() == ["pro"]
