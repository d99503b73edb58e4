"""When things break half-way through an erasure of many facts, what was done is told and the rest goes on."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fix_custody import BRIEF, Crash, Desk, error_of, open_desk

from custody_sync.errors import LedgerFull, StoreUnavailable
from custody_sync.ledger import Forget, Hold
from custody_sync.model import Entry, Erasure, Outcome
from custody_sync.results import FactFate, Fate
from custody_sync.testing import ManualClock, MemoryStore

USER = "user:42"
OLD = timedelta(days=10)
BOTH = pytest.mark.parametrize("operation", ["expire", "forget_where"])


async def fill(desk: Desk, count: int = 6) -> list[str]:
    """Write facts of one user and let them grow old."""
    written = [await desk.written(n, space=USER, subject=f"s-{n}") for n in range(count)]
    desk.clock.advance(OLD)
    return written


async def run(desk: Desk, operation: str, **more: Any) -> Any:
    """Forget all of the user's facts, in one way or the other."""
    if operation == "expire":
        return await desk.custody.expire(**({"actor": "dpo", "windows": {USER: "P1D"}} | more))
    return await desk.custody.forget_where(**({"actor": "dpo", "space": USER} | more))


def fates(facts: tuple[FactFate, ...]) -> dict[str, int]:
    """Count facts by fate."""
    return {fate.value: n for fate in Fate if (n := sum(fact.fate is fate for fact in facts))}


@BOTH
async def test_a_store_that_is_down(tmp_path: Path, operation: str) -> None:
    """Every fact is forgotten and named with the store that still has it; repair reaches it later."""
    async with open_desk(tmp_path, patience=BRIEF) as desk:
        written = await fill(desk)
        desk.stores["agent"].faults.refuse("delete", StoreUnavailable(store="agent", operation="delete"))
        result = await run(desk, operation)
        assert fates(result.facts) == {"forgotten": len(written)}
        assert (result.complete, result.stopped) == (False, None)
        for fact in result.facts:
            assert {r.store: r.outcome for r in fact.removals} == {
                "memories": Outcome.VERIFIED,
                "agent": Outcome.FAILED,
            }
        assert len(desk.held()) == len(written)
        # What a removal names already is not named again as a stranger's entry.
        assert operation == "expire" or (result.leftovers, result.young) == ((), ())
        desk.stores["agent"].faults.allow()
        assert (await desk.repair()).complete
        assert desk.held() == {}
        if operation == "forget_where":
            assert (await run(desk, operation)).complete
        await desk.judge_clean()


@BOTH
async def test_a_store_that_is_down_in_every_way(tmp_path: Path, operation: str) -> None:
    """A store that answers nothing at all stops nobody, and the certificate says it was not reached."""
    async with open_desk(tmp_path, patience=BRIEF) as desk:
        written = await fill(desk)
        for verb in ("delete", "find", "verify_deleted", "list_entries", "search"):
            desk.stores["agent"].faults.refuse(verb)
        result = await run(desk, operation)
        assert fates(result.facts) == {"forgotten": len(written)}
        assert not result.complete
        if operation == "forget_where":
            assert result.not_reached == ("agent: cannot list: refused",)


@BOTH
@pytest.mark.parametrize("identity", [False, True])
async def test_a_kill_between_batches_is_resumed(tmp_path: Path, operation: str, identity: bool) -> None:
    """Killed after any event, the same call goes on: every fact goes, none is recorded twice."""
    async with open_desk(tmp_path) as desk:
        written = await fill(desk)
        desk.fail_next("coordinator.recorded", Crash(), skip=3)
        with pytest.raises(Crash):
            await run(desk, operation, batch=2, identity=identity)
        await desk.custody.close()
        async with desk.coordinator() as fresh:
            desk.custody = fresh
            result = await run(desk, operation, batch=2, identity=identity)
            assert fates(result.facts).keys() == {"forgotten"}
            if operation == "forget_where":
                assert result.complete
            assert (await desk.repair()).complete
            for fact_id in written:
                assert (await desk.kinds(fact_id)).count("forget") == 1
            assert await desk.current() == []
            await desk.judge_clean()


async def test_a_resumed_erasure_of_identity_finds_what_left_its_space(tmp_path: Path) -> None:
    """A fact that was recorded as forgotten, and then not removed, is part of the next certificate."""
    async with open_desk(tmp_path) as desk:
        written = await fill(desk, 2)
        desk.fail_next("coordinator.recorded", Crash(), skip=1)
        with pytest.raises(Crash):
            await run(desk, "forget_where", batch=1, identity=True)
        lost = written[1]
        assert lost in desk.held().values()
        assert await desk.ledger.accounts(space=USER) == []
        result = await run(desk, "forget_where", identity=True)
        assert [fact.fact_id for fact in result.facts] == [lost]
        assert result.complete
        assert desk.held() == {}
        assert (await run(desk, "forget_where", identity=True)).facts == ()


async def test_what_is_not_seen_gone_stays_part_of_the_certificate(tmp_path: Path) -> None:
    """With the identity gone too, a fact is asked about again until its stores are done with it."""
    async with open_desk(tmp_path, patience=BRIEF) as desk:
        written = await fill(desk, 3)
        desk.stores["agent"].faults.refuse("delete")
        assert not (await run(desk, "forget_where", identity=True)).complete
        again = await run(desk, "forget_where", identity=True)
        assert {fact.fact_id for fact in again.facts} == set(written)
        assert not again.complete
        desk.stores["agent"].faults.allow()
        assert (await run(desk, "forget_where", identity=True)).complete


async def test_one_scopes_resumption_is_not_anothers(desk: Desk) -> None:
    """What is left of one erasure is in no other certificate, whatever their names have in common."""
    (lost,) = await fill(desk, 1)
    other = await desk.written(space="user:4", subject="s-0")
    desk.fail_next("coordinator.recorded", Crash())
    with pytest.raises(Crash):
        await run(desk, "forget_where", identity=True)
    for scope in ({"space": "user:4"}, {"space": USER, "subject": "s-0"}):
        result = await run(desk, "forget_where", identity=True, **scope)
        assert lost not in {fact.fact_id for fact in result.facts}
    fact = await desk.ledger.get(other)
    assert fact is not None
    assert fact.forgotten
    assert [f.fact_id for f in (await run(desk, "forget_where", identity=True)).facts] == [lost]


@BOTH
async def test_a_hold_placed_meanwhile_wins(desk: Desk, operation: str) -> None:
    """A hold that comes between looking and forgetting keeps its fact, and the report names the hold."""
    written = await fill(desk, 3)
    known = desk.ledger.get

    async def get(fact_id: str) -> Any:
        if fact_id == written[1]:
            await desk.ledger.append(
                Hold(event_id="hold", fact_id=fact_id, actor="counsel", hold_id="case-7")
            )
        return await known(fact_id)

    desk.ledger.get = get
    result = await run(desk, operation)
    assert fates(result.facts) == {"forgotten": 2, "held": 1}
    (kept,) = result.with_fate(Fate.HELD)
    assert (kept.fact_id, kept.holds) == (written[1], ("case-7",))
    assert result.complete is (operation == "expire")
    assert await desk.current() == [written[1]]
    await desk.judge_clean()


@BOTH
@pytest.mark.parametrize("problem", [LedgerFull(name="ledger"), OSError("cut")])
async def test_a_ledger_that_is_gone_midway(tmp_path: Path, operation: str, problem: Exception) -> None:
    """The run ends, the report says how far it came and why it ended, and running again goes on."""
    async with open_desk(tmp_path, settle_tries=2) as desk:
        written = await fill(desk)
        append, forgets = desk.ledger.append, iter(range(3))

        async def gone(draft: Any) -> Any:
            if isinstance(draft, Forget) and next(forgets, None) is None:
                raise problem
            return await append(draft)

        desk.ledger.append = gone
        result = await run(desk, operation, batch=2)
        expected = "ledger_full" if isinstance(problem, LedgerFull) else "ledger_unavailable"
        assert (result.stopped, result.complete) == (expected, False)
        assert fates(result.facts) == {"forgotten": 3, "failed": 1}
        assert [fact.detail for fact in result.with_fate(Fate.FAILED)] == [expected]
        desk.ledger.append = append
        again = await run(desk, operation, batch=2)
        assert again.stopped is None
        assert await desk.current() == []
        for fact_id in written:
            assert (await desk.kinds(fact_id)).count("forget") == 1
        await desk.judge_clean()


@BOTH
async def test_a_ledger_that_is_gone_is_not_asked_for_the_rest(desk: Desk, operation: str) -> None:
    """What had not been taken up when the ledger was lost is not begun, and not reported as failed."""
    written = await fill(desk, 60)

    async def gone(draft: Any) -> Any:
        raise LedgerFull(name="ledger")

    desk.ledger.append = gone
    result = await run(desk, operation)
    assert result.stopped == "ledger_full"
    assert 0 < fates(result.facts)["failed"] < len(written)


@BOTH
async def test_a_ledger_that_is_gone_from_the_start(desk: Desk, operation: str) -> None:
    """Where nothing was done yet the error itself is the answer."""
    await fill(desk)
    await desk.ledger.close()
    await error_of(run(desk, operation))


@BOTH
async def test_whoever_cancels_has_the_report(desk: Desk, operation: str) -> None:
    """A fact that was taken up is seen through and told; the rest is not begun, and stays as it is."""
    written = await fill(desk, 40)
    told: list[FactFate] = []
    begun, slow = asyncio.Event(), desk.stores["memories"].delete

    async def delete(entry: Entry) -> None:
        begun.set()
        await asyncio.sleep(0.01)
        await slow(entry)

    desk.stores["memories"].delete = delete
    running = asyncio.create_task(run(desk, operation, progress=told.append))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await desk.custody.close()
    assert 0 < len(told) < len(written)
    assert all(fact.complete for fact in told)
    forgotten = {fact.fact_id for fact in told}
    assert set(await desk.current()) == set(written) - forgotten
    async with desk.coordinator() as fresh:
        desk.custody = fresh
        await run(desk, operation)
        assert await desk.current() == []
        assert (await desk.repair()).complete
        await desk.judge_clean()


async def test_a_reader_keeps_the_erasure_pending(desk: Desk) -> None:
    """While the ledger's files still say it the certificate is not complete; asking again completes it."""
    await fill(desk, 2)
    erase = desk.ledger.erase

    async def pending() -> Erasure:
        return Erasure.PENDING

    desk.ledger.erase = pending
    result = await run(desk, "forget_where")
    assert (result.erasure, result.complete) == (Erasure.PENDING, False)
    desk.ledger.erase = erase
    assert (await run(desk, "forget_where")).complete


@pytest.mark.parametrize("after", [0, 1, 3])
async def test_a_listing_that_breaks_is_named(tmp_path: Path, after: int) -> None:
    """What was not listed was not looked through: the store is named and the certificate stays open."""

    def stores(clock: ManualClock) -> list[MemoryStore]:
        return [MemoryStore("memories", clock=clock), MemoryStore("agent", clock=clock)]

    async with open_desk(tmp_path, stores=stores) as desk:
        await fill(desk, 2)
        for n in range(4):
            await desk.written(n, space="org", subject=f"o-{n}")
        desk.stores["agent"].faults.list_breaks_after = after
        result = await run(desk, "forget_where")
        assert result.not_reached == ("agent: cannot list: StoreUnavailable",)
        assert not result.complete
        assert all(fact.complete for fact in result.facts)


async def test_rows_that_cannot_be_used_are_counted(desk: Desk) -> None:
    """A row that might be an entry of the space, and cannot be read, keeps the certificate open."""
    await fill(desk, 1)

    async def list_entries() -> Any:
        yield Entry(store="agent", external_id="", fact_id="f", ledger_id=desk.ledger.ledger_id, space=USER)

    desk.stores["agent"].list_entries = list_entries
    result = await run(desk, "forget_where")
    assert result.not_reached == ("agent: 1 entries cannot be used",)
    assert not result.complete


async def test_a_label_without_a_space_is_looked_at(desk: Desk) -> None:
    """An adapter that loses the space of an orphan's label does not make it invisible."""
    await fill(desk, 1)
    lost = Entry(
        store="agent",
        external_id="x-1",
        fact_id="f-lost",
        ledger_id=desk.ledger.ledger_id,
        stored_at=desk.clock.now() - timedelta(hours=1),
    )

    async def list_entries() -> Any:
        yield lost

    desk.stores["agent"].list_entries = list_entries
    result = await run(desk, "forget_where")
    assert [seen.external_id for seen in result.leftovers] == ["x-1"]
