"""The simulator's parts: a disk and a network that fail as they are told, and a log read from its bytes."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from custody_sync import errors
from custody_sync.coordinator import AsyncCoordinator
from custody_sync.model import Entry, Erasure
from custody_sync.results import ForgetResult, VerifyResult
from custody_sync.testing.sim import DiskFault, NetFault, Plan, VirtualLoop
from custody_sync.testing.sim.claims import begin_claim, check_claim
from custody_sync.testing.sim.judge import Judge
from custody_sync.testing.sim.log import Log, LogBroken
from custody_sync.testing.sim.network import LATEST, SimStore
from custody_sync.testing.sim.process import Process
from custody_sync.testing.sim.surroundings import Surroundings

ACTOR = "agent:test"


@dataclass
class Bench:
    """One store, one process and a disk, to try faults on."""

    around: Surroundings = field(
        default_factory=lambda: Surroundings(
            Plan(seed=1, stores=("own",), keeps=(False,), skews=(0.0,), slow=0.0, steps=())
        )
    )

    @property
    def store(self) -> SimStore:
        """The store."""
        return self.around.stores[0]

    @property
    def process(self) -> Process:
        """The process."""
        return self.around.processes[0]

    @property
    def custody(self) -> AsyncCoordinator:
        """Its coordinator."""
        return self.process.custody

    @property
    def loop(self) -> VirtualLoop:
        """The virtual loop."""
        return self.around.loop

    def ours(self) -> list[Entry]:
        """Return what the store holds of this ledger."""
        return [
            entry for entry in self.store.snapshot().values() if entry.ledger_id and "c0de" in entry.ledger_id
        ]

    def run(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Do something, then end everything."""

        async def whole() -> Any:
            return await work()

        try:
            return self.loop.run_until_complete(whole())
        finally:
            self.around.bury()

    async def write(self, **more: Any) -> Any:
        """Write a fact."""
        call = self.around.judge.begin("write", self.process, ACTOR)
        task = self.process.start(
            self.custody.write(value="violet", space="org", actor=ACTOR, **more), call.number
        )
        return await task


@pytest.mark.parametrize(
    ("fault", "error"),
    [(DiskFault.FULL, errors.LedgerFull), (DiskFault.BUSY, errors.LedgerBusy)],
)
def test_a_full_or_busy_disk_takes_nothing(fault: DiskFault, error: type[errors.CustodyError]) -> None:
    """What fails before the commit is certainly not recorded, and what stores took is taken back."""
    bench = Bench()

    async def work() -> None:
        bench.around.disk.faults[fault] = 1
        with pytest.raises(error):
            await bench.write()
        assert bench.around.judge.log.events == []
        assert bench.ours() == []

    bench.run(work)


@pytest.mark.parametrize("fault", [DiskFault.LOST, DiskFault.BROKEN, DiskFault.LATE])
def test_a_commit_without_an_answer_is_settled(fault: DiskFault) -> None:
    """Written before the answer was lost, not at all, or later: the fact is recorded once."""
    bench = Bench()

    async def work() -> None:
        bench.around.disk.faults[fault] = 1
        result = await bench.write()
        await asyncio.sleep(LATEST)
        assert list(bench.around.judge.log.asserted) == [result.fact.fact_id]
        assert [event["kind"] for event in bench.around.judge.log.events] == ["assert"]

    bench.run(work)


def test_a_disk_that_is_away_answers_nothing() -> None:
    """Neither questions nor commits get through, until it is healed."""
    bench = Bench()

    async def work() -> None:
        bench.around.disk.away = True
        with pytest.raises(errors.LedgerError):
            await bench.custody.ledger.head()
        bench.around.heal()
        assert (await bench.custody.ledger.head()).seq == 0

    bench.run(work)


@pytest.mark.parametrize("kept", [False, True])
def test_an_erasure_leaves_no_byte_of_the_value(kept: bool) -> None:
    """A forget is complete once the value and its salt are in no page; where they are kept it is pending."""
    bench = Bench()

    async def work() -> None:
        fact = (await bench.custody.write(value="violet-heron", space="org", actor=ACTOR)).fact
        assert b"violet-heron" in bench.around.disk.image()
        bench.around.disk.keeps_erased = kept
        result = await bench.custody.forget(fact.fact_id, actor=ACTOR, reason="asked")
        assert result.complete is not kept
        bench.around.heal()
        assert (await bench.custody.ledger.erase()).value == "done"
        image = bench.around.disk.image()
        assert b"violet-heron" not in image
        assert not any(salt in image for salt in bench.around.judge.salts[fact.fact_id][:1])

    bench.run(work)


@pytest.mark.parametrize(
    ("fault", "soon", "later"),
    [
        (NetFault.LOST_REQUEST, 0, 0),
        (NetFault.LOST_REPLY, 1, 1),
        (NetFault.LATE, 0, 1),
        (NetFault.HANG, 0, 1),
        (NetFault.REFUSED, 0, 0),
        (NetFault.ODD, 0, 0),
    ],
)
def test_what_becomes_of_a_put(fault: NetFault, soon: int, later: int) -> None:
    """A put that fails is there at once, afterwards, or never; the caller hears of no success."""
    bench = Bench()

    async def work() -> None:
        bench.store.armed["put"] = [fault]
        bench.store.armed["find"] = [NetFault.LOST_REQUEST] * 9
        with pytest.raises(errors.StoreWriteFailed) as caught:
            await bench.write()
        assert "violet" not in str(caught.value)
        assert len(bench.ours()) in (soon, later)
        await asyncio.sleep(LATEST)
        assert len(bench.ours()) == later

    bench.run(work)


def test_a_put_may_arrive_twice() -> None:
    """What a proxy sends again is a second entry, and one sweep takes it."""
    bench = Bench()

    async def work() -> None:
        bench.store.armed["put"] = [NetFault.TWICE]
        await bench.write()
        assert len(bench.ours()) == 1
        await asyncio.sleep(LATEST)
        assert len(bench.ours()) == 2
        await asyncio.sleep(660)
        assert (await bench.custody.repair(actor=ACTOR, reason="test")).complete
        assert len(bench.ours()) == 1

    bench.run(work)


def test_a_request_outlives_whoever_sent_it() -> None:
    """A process that dies while its put is on the way leaves an orphan that nobody was told of."""
    bench = Bench()

    async def work() -> None:
        bench.store.armed["put"] = [NetFault.HANG]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(bench.write()), 1)
        bench.process.dead = True
        await asyncio.sleep(LATEST)
        assert bench.around.judge.log.events == []
        assert len(bench.ours()) == 1
        assert bench.around.kills == 1
        assert not bench.around.restart(0).dead

    bench.run(work)


def body(seq: int = 1, prev: str = "0" * 64, **more: Any) -> tuple[str, str]:
    """Return the bytes of a retract, and their hash."""
    event = {
        "seq": seq,
        "prev": prev,
        "kind": "retract",
        "fact_id": "f",
        "actor": "a",
        "data": {},
        "tx_time": "2026-01-01T00:00:00.000000Z",
    } | more
    text = json.dumps({key: value for key, value in event.items() if value is not None}, sort_keys=True)
    form = json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
    return form, hashlib.sha256(form.encode()).hexdigest()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"seq": 2}, "follow"),
        ({"prev": "1" * 64}, "follow"),
        ({"actor": None}, "lacks actor"),
        ({"actor": ""}, "lacks its actor"),
        ({"tx_time": "2026-01-01T00:00:00"}, "time"),
    ],
)
def test_the_log_is_read_from_its_bytes(more: dict[str, Any], said: str) -> None:
    """An event that does not follow, or lacks what every event has, is named."""
    with pytest.raises(LogBroken, match=said):
        Log().take(*body(**more), None)


def test_an_event_is_what_its_hash_says() -> None:
    """A changed body, or one in another form, is found; times only go forward."""
    form, digest = body()
    log = Log()
    log.take(form, digest, None)
    assert log.retracted == {"f"}
    with pytest.raises(LogBroken, match="later"):
        log.take(*body(2, digest), None)
    with pytest.raises(LogBroken, match="hash"):
        Log().take(form.replace('"a"', '"b"'), digest, None)


def test_two_links_of_a_chain_are_noticed() -> None:
    """A fork is seen wherever it is believed, and not where one of its links was retracted."""
    log, data = Log(), {"provenance": "attested", "valid_from": "1", "valid_to": None, "kept": []}
    for seq, (fact_id, below) in enumerate([("a", None), ("b", "a"), ("c", "b"), ("d", "a")], 1):
        event = {"kind": "assert", "seq": seq, "fact_id": fact_id, "data": {**data, "supersedes": below}}
        log.follow(event, {})
    assert log.believed("1") == {"c", "d"}
    assert log.split("1") == ("c", "d")
    log.follow({"kind": "retract", "seq": 5, "fact_id": "d", "data": {}}, {})
    assert log.split("1") is None
    assert log.believed("1") == {"c"}


def test_the_judge_names_what_it_sees() -> None:
    """A lease that had not lapsed, an unnamed leftover and a quoted value are violations, by invariant."""
    bench = Bench()

    async def work() -> None:
        judge: Judge = bench.around.judge
        now = bench.around.clock.now()
        judge.took_over("lease", "2020-01-01T00:00:00.000000Z", now)
        assert judge.violations == []
        judge.took_over("lease", "2030-01-01T00:00:00.000000Z", now)
        call = judge.begin("write", bench.process, ACTOR)
        bench.store.network.chance = random.Random(1)
        await bench.write()
        judge.words["f"] = "quoted"
        judge.failed(call, errors.InvalidInput(field="value", problem="not quoted"))
        assert [violation.invariant for violation in judge.violations] == ["I3", "I6"]

    bench.run(work)


def test_the_judge_believes_no_result() -> None:
    """What is called complete while a store still has an entry that had to go is a violation."""
    bench = Bench()

    async def work() -> None:
        judge: Judge = bench.around.judge
        fact = (await bench.write()).fact
        forget = judge.begin("forget", bench.process, "forgetting")
        verify = judge.begin("verify", bench.process, "verifying")
        judge.log.forgotten.add(fact.fact_id)
        begin_claim(judge, verify)
        result = ForgetResult(
            fact_id=fact.fact_id, removals=(), restored=(), erasure=Erasure.DONE, complete=True
        )
        check_claim(judge, forget, replace(result, complete=False))
        assert judge.violations == []
        check_claim(judge, forget, result)
        check_claim(judge, verify, VerifyResult(asked=1, removals=(), complete=True))
        assert [violation.invariant for violation in judge.violations] == ["I5", "I5"]
        # What landed after the operation began is not its to answer for.
        late = judge.begin("forget", bench.process, "forgetting")
        for key in judge.landed:
            judge.landed[key] = late.began + 1
        check_claim(judge, late, result)
        assert len(judge.violations) == 2

    bench.run(work)
