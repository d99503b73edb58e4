"""Expiry: what is too old goes, what is held stays, and the report says both."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fix_custody import ACTOR, Desk, error_of

from custody_sync.errors import ClosedError, InvalidInput
from custody_sync.model import Erasure, Outcome
from custody_sync.results import ExpireResult, FactFate, Fate

EVERYTHING = {"before": datetime(2026, 1, 1, 12, tzinfo=UTC), "all_spaces": True}


def day(number: int, month: int = 9, year: int = 2026) -> datetime:
    """Return a day's midnight in UTC."""
    return datetime(year, month, number, tzinfo=UTC)


def ids(facts: tuple[FactFate, ...]) -> list[str]:
    """Return their ids, sorted."""
    return sorted(fact.fact_id for fact in facts)


async def expire(desk: Desk, **more: Any) -> ExpireResult:
    """Expire as the night job does."""
    return await desk.custody.expire(**({"actor": "job:retention"} | more))


async def at(desk: Desk, when: datetime, value: Any = "pro", **more: Any) -> str:
    """Write a fact at a time."""
    desk.clock.set(when)
    return await desk.written(value, **more)


async def test_c11_before_a_day_in_one_space(desk: Desk) -> None:
    """C11: of a space, what was learned before the day goes unless it is held; all else stays."""
    free = await at(desk, day(1), subject="a")
    held = await at(desk, day(1), subject="b")
    elsewhere = await at(desk, day(1), space="user:1", subject="a")
    late = await at(desk, day(10), subject="c")
    await desk.custody.hold(held, actor="counsel", hold_id="case-7")
    result = await expire(desk, before=day(5), space="org")
    assert ids(result.with_fate(Fate.FORGOTTEN)) == [free]
    (kept,) = result.with_fate(Fate.HELD)
    assert (kept.fact_id, kept.holds, kept.removals) == (held, ("case-7",), ())
    assert (result.complete, result.stopped, result.erasure) == (True, None, Erasure.DONE)
    assert dict(result.cutoffs) == {"org": day(5)}
    assert await desk.current() == sorted([held, elsewhere, late])
    (forgotten,) = result.with_fate(Fate.FORGOTTEN)
    assert {(r.store, r.outcome) for r in forgotten.removals} == {
        ("memories", Outcome.VERIFIED),
        ("agent", Outcome.VERIFIED),
    }
    await desk.judge_clean()


async def test_c11_windows_by_space(desk: Desk) -> None:
    """C11: the most specific window decides, and a space without one keeps everything."""
    start = day(1)
    legal = await at(desk, start, space="team:legal")
    support = await at(desk, start, space="team:support")
    org = await at(desk, start, space="org")
    user = await at(desk, start, space="user:1")
    desk.clock.set(start + timedelta(days=40))
    windows = {"org": "P50D", "team:*": "P1D", "team:legal": "P10Y"}
    result = await expire(desk, windows=windows)
    assert ids(result.facts) == [support]
    assert await desk.current() == sorted([legal, org, user])
    assert result.cutoffs["team:legal"] == day(11, 10, 2016)
    again = await expire(desk, windows=windows | {"org": "P40D"})
    assert again.facts == ()
    desk.clock.advance(timedelta(seconds=1))
    assert ids((await expire(desk, windows=windows | {"org": "P40D"})).facts) == [org]


async def test_c12_the_company_brain(desk: Desk) -> None:
    """C12: what was superseded ninety days ago goes; its time has no record then, and today's value stays."""
    price = {"subject": "plan:team", "predicate": "list_price"}
    learned, changed, today = day(12, 1), day(3, 3), day(27, 8)
    old = await at(desk, learned, 4200, valid_from=learned, **price)
    new = await at(desk, changed, 3600, valid_from=changed, supersedes=old, **price)
    desk.clock.set(today)

    async def believed(valid_at: datetime) -> list[Any]:
        return [fact.value for fact in await desk.ledger.as_of(space="org", valid_at=valid_at)]

    assert await believed(day(9, 2)) == [4200]
    assert await believed(today) == [3600]
    for instant in (learned, changed - timedelta(microseconds=1), changed, today):
        assert len(await believed(instant)) == 1
    result = await expire(desk, windows={"org": "P90D"}, age_from="superseded")
    assert ids(result.facts) == [old]
    assert result.complete
    assert await believed(day(9, 2)) == []
    assert await believed(today) == [3600]
    assert await desk.current() == [new]
    assert (await desk.ledger.history(old))[-1].reason == "expired: superseded its window ago"


async def test_ages_are_the_ledgers(desk: Desk) -> None:
    """A fact that was long true when it was learned yesterday is a day old."""
    await at(desk, day(1), valid_from=day(1, 1, 2000))
    desk.clock.set(day(2))
    assert (await expire(desk, windows={"org": "P30D"})).facts == ()
    assert (await expire(desk, before=day(1), space="org")).facts == ()
    assert len((await expire(desk, before=day(1, 9) + timedelta(seconds=1), space="org")).facts) == 1


async def test_facts_of_every_state_expire(desk: Desk) -> None:
    """Claimed, superseded, retracted and ended facts are old like any other."""
    start = day(1)
    claimed = await at(desk, start, "claim", subject="a", provenance="claimed")
    old = await at(desk, start, "old", subject="b")
    new = await at(desk, start, "new", subject="b", supersedes=old)
    wrong = await at(desk, start, "wrong", subject="c")
    await desk.retract(wrong)
    ended = await at(desk, start, "ended", subject="d", valid_to=day(2))
    desk.clock.set(day(20))
    result = await expire(desk, windows={"org": "P7D"})
    assert ids(result.with_fate(Fate.FORGOTTEN)) == sorted([claimed, old, new, wrong, ended])
    assert desk.held() == {}
    await desk.judge_clean()


async def test_dry_run_changes_nothing(desk: Desk) -> None:
    """A dry run lists what would go and what is held, and appends and deletes nothing."""
    free, held = await at(desk, day(1), subject="a"), await at(desk, day(1), subject="b")
    await desk.custody.hold(held, actor="counsel", hold_id="case")
    desk.clock.set(day(20))
    head, there = await desk.ledger.head(), desk.held()
    result = await expire(desk, windows={"*": "P1D"}, dry_run=True)
    assert (ids(result.with_fate(Fate.PLANNED)), ids(result.with_fate(Fate.HELD))) == ([free], [held])
    assert (result.dry_run, result.complete) == (True, False)
    assert (await desk.ledger.head(), desk.held()) == (head, there)


async def test_again_finds_nothing(desk: Desk) -> None:
    """What is forgotten does not expire twice, but once more where its identity is to go as well."""
    fact_id = await at(desk, day(1), space="user:42")
    desk.clock.set(day(20))
    windows = {"user:*": "P1D"}
    assert len((await expire(desk, windows=windows)).facts) == 1
    head = await desk.ledger.head()
    again = await expire(desk, windows=windows)
    assert (again.facts, again.complete) == ((), True)
    assert await desk.ledger.head() == head
    assert ids((await expire(desk, windows=windows, identity=True)).facts) == [fact_id]
    fact = await desk.ledger.get(fact_id)
    assert fact is not None
    assert (fact.space, fact.subject) == ("", "")
    assert (await expire(desk, windows=windows, identity=True)).facts == ()


async def test_batches_and_progress(desk: Desk) -> None:
    """However small the batches, every fact goes once and is told once."""
    written = sorted([await at(desk, day(1), n, subject=f"s-{n}", space=f"team:{n % 3}") for n in range(11)])
    desk.clock.set(day(20))
    told: list[FactFate] = []
    result = await expire(desk, before=day(2), all_spaces=True, batch=2, progress=told.append)
    assert ids(result.facts) == written
    assert tuple(told) == result.facts
    assert await desk.current() == []
    assert dict(result.cutoffs) == {"*": day(2)}


async def test_what_is_young_is_not_read_through(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A space is read up to the first fact that is too young, however many follow."""
    monkeypatch.setattr("custody_sync.retention.PAGE", 2)
    old = [await at(desk, day(1), n, subject=f"s-{n}") for n in range(3)]
    for n in range(9):
        await at(desk, day(10), n, subject=f"s-{n}")
    pages: list[int] = []
    accounts = desk.ledger.accounts

    async def counted(**asked: Any) -> Any:
        page = await accounts(**asked)
        pages.append(len(page))
        return page

    monkeypatch.setattr(desk.ledger, "accounts", counted)
    result = await expire(desk, before=day(5), space="org", dry_run=True)
    assert ids(result.facts) == sorted(old)
    assert pages == [2, 2]


async def test_one_space_of_the_windows(desk: Desk) -> None:
    """`space` narrows the windows to one space."""
    one = await at(desk, day(1), space="team:a")
    two = await at(desk, day(1), space="team:b")
    desk.clock.set(day(20))
    assert ids((await expire(desk, windows={"team:*": "P1D"}, space="team:a")).facts) == [one]
    assert await desk.current() == [two]
    assert (await expire(desk, windows={"org": "P1D"}, space="team:b")).facts == ()


async def test_the_digest_is_the_callers_choice(desk: Desk) -> None:
    """What may remain of a value is said once for all of them."""
    fact_id = await at(desk, day(1))
    desk.clock.set(day(20))
    await expire(desk, before=day(2), space="org", digest="sha256", reason="policy 4", receipt_id="t-1")
    event = (await desk.ledger.history(fact_id))[1]
    assert isinstance(event.data["digest"], Mapping)
    assert event.data["digest"]["alg"] == "sha256"
    assert (event.reason, event.actor, event.receipt_id) == ("policy 4", "job:retention", "t-1")


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({}, "before"),
        ({"before": day(1, 1), "windows": {"org": "P1D"}, "space": "org"}, "before"),
        ({"before": day(1, 1)}, "space"),
        ({"before": day(1, 1), "space": "org", "all_spaces": True}, "space"),
        ({"before": day(1, 1), "space": ""}, "space"),
        ({"before": day(1, 1), "space": "  "}, "space"),
        ({"before": day(1, 1), "all_spaces": "no"}, "all_spaces"),
        ({"before": datetime(2026, 1, 1), "space": "org"}, "before"),
        ({"before": "2026-01-01", "space": "org"}, "before"),
        ({"before": day(1, 1, 2030), "space": "org"}, "before"),
        ({"windows": {}}, "windows"),
        ({"windows": {"org": "PT"}}, "windows.org"),
        ({"windows": {"org": "P1D"}, "all_spaces": True}, "all_spaces"),
        ({"windows": {"org": "P1D"}, "space": ""}, "space"),
        (EVERYTHING | {"age_from": "valid"}, "age_from"),
        (EVERYTHING | {"identity": "yes"}, "identity"),
        (EVERYTHING | {"dry_run": 0}, "dry_run"),
        (EVERYTHING | {"digest": "md5"}, "digest"),
        (EVERYTHING | {"digest": "hmac-sha256"}, "digest"),
        (EVERYTHING | {"batch": 0}, "batch"),
        (EVERYTHING | {"batch": 1001}, "batch"),
        (EVERYTHING | {"batch": True}, "batch"),
        (EVERYTHING | {"actor": " "}, "actor"),
    ],
)
async def test_what_could_erase_too_much_is_refused(
    desk: Desk, arguments: dict[str, Any], field: str
) -> None:
    """No default erases: every doubtful argument is refused, and nothing is touched."""
    desk.clock.set(day(1, 1, 2025))
    await desk.written()
    desk.clock.set(day(1, 2))
    head = await desk.ledger.head()
    assert (await error_of(expire(desk, **arguments), InvalidInput)).field == field
    assert await desk.ledger.head() == head


async def test_a_closed_coordinator_expires_nothing(desk: Desk) -> None:
    """After closing every call says so."""
    await desk.custody.close()
    await error_of(expire(desk, windows={"org": "P1D"}), ClosedError)
    await error_of(desk.custody.forget_where(space="org", actor=ACTOR), ClosedError)
