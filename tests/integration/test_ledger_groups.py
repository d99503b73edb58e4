"""L2: every check happens inside the transaction and sees the earlier events of its group."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fix_ledger import Book, GroupBook, open_book, open_group_book

from custody_sync.errors import ClosedError, InvalidInput, Refused
from custody_sync.ledger.storage import Note
from custody_sync.model import Event, Outcome
from custody_sync.runtime import Runtime
from custody_sync.testing import FaultPlan


@pytest.fixture
async def groups(tmp_path: Path) -> AsyncIterator[GroupBook]:
    """A book whose writer can be held, so that drafts meet in one group."""
    book = await open_group_book(tmp_path / "l.db")
    yield book
    await book.ledger.close()


def codes(results: list[Any]) -> list[str]:
    """Return each result as `ok` or the code of its refusal."""
    return ["ok" if isinstance(result, Event) else result.code for result in results]


async def test_l2_one_refused_event_fails_alone(groups: GroupBook) -> None:
    """The others of its group are committed, without a gap in seq."""
    results = await groups.group([groups.state(), groups.retract("f-none"), groups.state()])
    assert codes(results) == ["ok", "unknown_fact", "ok"]
    assert [row["event"]["seq"] for row in await groups.export()] == [1, 2]


async def test_l2_two_supersedes_in_one_group_one_wins(groups: GroupBook) -> None:
    """The second sees the first, although neither is committed when it is decided."""
    target = await groups.add()
    results = await groups.group([groups.state(supersedes=target), groups.state(supersedes=target)])
    assert codes(results) == ["ok", "already_covered"]


async def test_l2_a_chain_can_be_built_and_undone_in_one_group(groups: GroupBook) -> None:
    """Assert, supersede, retract and supersede again, all of facts that the group itself made."""
    a, b, c = groups.state(held=[("m", "1")]), groups.state(), groups.state()
    drafts = [
        a,
        groups.state(fact_id=b.fact_id, supersedes=a.fact_id, value="b"),
        groups.retract(b.fact_id),
        groups.state(fact_id=c.fact_id, supersedes=a.fact_id, value="c"),
        groups.forget(c.fact_id),
    ]
    assert codes(await groups.group(drafts)) == ["ok"] * 5
    assert await groups.values() == []
    assert await groups.ledger.owed() == []
    (placement,) = await groups.ledger.placements(a.fact_id)
    assert placement.state == "due"


@pytest.mark.parametrize("order", [["hold", "forget"], ["forget", "hold"]])
async def test_l2_hold_and_forget_never_both_succeed(groups: GroupBook, order: list[str]) -> None:
    """Whichever comes first in a group wins."""
    fact_id = await groups.add()
    results = await groups.group([getattr(groups, kind)(fact_id) for kind in order])
    assert codes(results) == ["ok", "on_hold" if order[0] == "hold" else "forgotten"]


async def test_l2_a_hold_released_and_placed_again_in_one_group_stands(groups: GroupBook) -> None:
    """Released, held again and released again, it is what the last one said."""
    fact_id = await groups.add()
    await groups.append(groups.hold(fact_id, "h"))
    again = [groups.release(fact_id, "h"), groups.hold(fact_id, "h")]
    assert codes(await groups.group(again)) == ["ok", "ok"]
    assert await groups.refused(groups.forget(fact_id)) == "on_hold"
    never = [groups.release(fact_id, "h"), groups.hold(fact_id, "h"), groups.release(fact_id, "h")]
    assert codes(await groups.group(never)) == ["ok"] * 3
    await groups.append(groups.forget(fact_id))


async def test_l2_assert_and_repair_of_one_id_in_one_group(groups: GroupBook) -> None:
    """The first claim wins, in either order."""
    one, two = groups.state(), groups.state()
    results = await groups.group([one, groups.repair(one.fact_id), groups.repair(two.fact_id), two])
    assert codes(results) == ["ok", "asserted_id", "ok", "repaired_id"]


async def test_l2_a_fact_asserted_and_forgotten_in_one_group_leaves_nothing(groups: GroupBook) -> None:
    """Its value never reaches a page, although its event is there."""
    draft = groups.state(value="for a moment")
    erase = groups.forget(draft.fact_id, identity=True)
    assert codes(await groups.group([draft, erase])) == ["ok", "ok"]
    assert [event.kind for event in await groups.ledger.history(draft.fact_id)] == ["assert", "forget"]
    await groups.ledger.erase()
    assert b"for a moment" not in groups.path.read_bytes()


async def test_l2_a_removal_recorded_earlier_in_the_group_refuses_the_placement(groups: GroupBook) -> None:
    """The sweep and a late write cannot both have the entry."""
    draft = groups.state(held=[("memories", "m-1")])
    results = await groups.group([groups.repair("f-orphan", "memories", "m-1"), draft])
    assert codes(results) == ["ok", "shared_entry"]
    assert (await groups.ledger.known([draft.fact_id]))[draft.fact_id] == "unknown"


async def test_l2_the_same_draft_twice_in_one_group_is_one_event(groups: GroupBook) -> None:
    """A retry that meets its first attempt gets the first attempt's event."""
    draft = groups.state()
    first, second = await groups.group([draft, draft])
    assert first == second
    assert (await groups.ledger.head()).seq == 1


async def test_a_group_is_one_commit(tmp_path: Path) -> None:
    """What waits while a commit is under way shares the next one."""
    plan = FaultPlan()
    book = await open_group_book(tmp_path / "l.db", reach=plan)
    await book.group([book.state() for _ in range(30)])
    assert plan.reached["ledger.before_commit"] == 1  # type: ignore[index]  # a StrEnum's value
    assert (await book.ledger.head()).seq == 30
    await book.ledger.close()


async def test_callers_who_meet_in_threads_share_commits(tmp_path: Path) -> None:
    """With the real writer thread, a hundred concurrent appends take far fewer commits."""
    plan = FaultPlan()
    book = await open_book(tmp_path / "l.db", runtime=Runtime(reach=plan))
    await asyncio.gather(*(book.append(book.state(valid_from=book.ledger.now())) for _ in range(100)))
    assert (await book.ledger.head()).seq == 100
    assert plan.reached["ledger.before_commit"] <= 10  # type: ignore[index]  # a StrEnum's value
    await book.ledger.close()


async def test_a_draft_is_checked_before_it_can_hurt_its_group(groups: GroupBook) -> None:
    """What would fail inside the transaction is refused outside of it."""
    good = groups.state()
    naive = groups.clock.now().replace(tzinfo=None)
    bad: list[Any] = [
        groups.place("f1", [("m", "1")], stored_at=naive),
        groups.place("f1", [("m", "1")] * 65_537),
        groups.state(held=[("m", "\ud800")]),
        groups.state(held=[("m\x00", "1")]),
        groups.state(held=[("m", "")]),
        groups.state(held=[("m", "erased~1")]),
        groups.state(provenance="attested"),
        groups.state(text=" "),
        groups.hold("f1", "h\x00"),
        groups.remove("f1", "m", "1", detail="\ud800"),
        groups.remove("f1", "m", "1", outcome=Outcome.PLANNED),
        groups.repair("f1", "m"),
        groups.repair("f1", "m", "1", stored_at=naive),
        groups.retract("f1", "because\x00"),
        "not a draft",
    ]
    results = await groups.group([good, *bad])
    assert isinstance(results[0], Event)
    for draft, result in zip(bad, results[1:], strict=True):
        assert isinstance(result, InvalidInput), draft
    with pytest.raises(InvalidInput, match="a placement is of another fact"):
        await groups.append(
            groups.state(held=[]).__class__(
                event_id="e-x", fact=groups.fact(), placements=groups.held("f-other", [("m", "1")])
            )
        )
    assert (await groups.ledger.head()).seq == 1


async def test_an_append_that_was_cancelled_in_the_queue_is_not_made(groups: GroupBook) -> None:
    """What the writer has not taken up is called back; the others go on."""
    groups.writer.holding = True
    waiting = [asyncio.ensure_future(groups.append(groups.state())) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    await asyncio.sleep(0)
    groups.writer.let_go()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(result) for result in results] == [Event, asyncio.CancelledError, Event]
    assert (await groups.ledger.head()).seq == 2


async def test_check_says_what_append_would_say_and_writes_nothing(book: Book) -> None:
    """It decides by the same rules against the committed state."""
    fact_id = await book.add()
    before = await book.ledger.head()
    await book.ledger.check(book.state(supersedes=fact_id))
    with pytest.raises(Refused) as caught:
        await book.ledger.check(book.state(supersedes="f-none"))
    assert caught.value.code == "unknown_fact"
    assert await book.ledger.head() == before


async def test_a_lease_is_one_holders_until_it_lapses(book: Book) -> None:
    """Leases go by the ledger's clock; their holder may renew, another may take over when they lapsed."""

    async def take(holder: str) -> Note:
        return await book.ledger.acquire(
            "lease", "sweep", holder=holder, value='""', ttl=timedelta(minutes=1)
        )

    first = await take("a")
    assert (first.holder, (await take("b")).holder) == ("a", "a")
    book.later(seconds=30)
    renewed = await take("a")
    assert (renewed.since, renewed.expires_at) == (first.since, book.clock.now() + timedelta(minutes=1))
    book.later(seconds=60)
    assert (await take("b")).holder == "b"
    await book.ledger.drop_notes("lease", ["sweep"], holder="a")
    assert (await take("c")).holder == "b"
    await book.ledger.drop_notes("lease", ["sweep"], holder="b")
    assert (await take("c")).holder == "c"


async def test_a_closed_ledger_says_so(tmp_path: Path) -> None:
    """Closing twice is harmless; everything else afterwards is one clear error, and the file is released."""
    book = await open_book(tmp_path / "l.db")
    await book.add()
    await book.ledger.close()
    await book.ledger.close()
    async with book.ledger:
        pass
    for call in (
        book.append(book.state()),
        book.ledger.as_of(),
        book.ledger.get("f1"),
        book.ledger.erase(),
        book.ledger.put_notes([]),
        book.ledger.check(book.state()),
    ):
        with pytest.raises(ClosedError, match="is closed"):
            await call
    conn = sqlite3.connect(tmp_path / "l.db")
    conn.execute("BEGIN EXCLUSIVE")
    conn.close()
