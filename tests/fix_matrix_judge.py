"""What has to hold in the crash matrix: what an operation says at once, and everything after one repair."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from fix_custody import Key, Story
from fix_matrix import OurBug
from fix_matrix_operations import Operation
from fix_matrix_world import World

from custody_sync.errors import CustodyError
from custody_sync.ledger import Ledger
from custody_sync.model import Outcome, format_instant
from custody_sync.recalled import RecallResult
from custody_sync.results import (
    ExpireResult,
    ForgetResult,
    ForgetWhereResult,
    Removal,
    RepairResult,
    RetractResult,
    VerifyResult,
    WriteResult,
)


@dataclass
class Log(Story):
    """What the log says; its chain, commitments and holds are checked on the way."""

    prev: str = "0" * 64
    repairs: set[Key] = field(default_factory=set)
    holds: dict[str, set[str]] = field(default_factory=dict)
    salts: dict[str, list[bytes]] = field(default_factory=dict)
    """By fact: of its content and, where the whole identity goes, of that."""
    adopted: set[Key] = field(default_factory=set)

    def take(self, row: Mapping[str, Any]) -> None:
        """Go one event further."""
        event = row["event"]
        assert event["prev"] == self.prev, f"I7: event {event['seq']} does not follow"
        self.prev = sha256(canonical(event)).hexdigest()
        assert row["hash"] == self.prev, f"I7: event {event['seq']} is not what its hash says"
        for name, section in row["sealed"].items():
            salt = bytes.fromhex(section["salt"])
            said = sha256(salt + canonical(section["body"])).hexdigest()
            assert event["sealed"][name] == said, f"I7: {name} of event {event['seq']} was altered"
        super().take(row)
        self._take_rest(row, event["kind"], event["fact_id"], event["data"])

    def _take_rest(self, row: Mapping[str, Any], kind: str, fact_id: str, data: Mapping[str, Any]) -> None:
        holds = self.holds.setdefault(fact_id, set())
        if kind == "hold":
            holds.add(data["hold_id"])
        elif kind == "release":
            holds.discard(data["hold_id"])
        elif kind == "forget":
            assert not holds, f"I4: {fact_id} was forgotten while {holds} stand"
        elif kind == "assert" and "content" in row["sealed"]:
            names = ("content", "identity")
            self.salts[fact_id] = [bytes.fromhex(row["sealed"][name]["salt"]) for name in names]
        elif kind == "repair" and data["store"] is not None:
            refs = row["sealed"].get("refs", {}).get("body", {})
            self.repairs.add((data["store"], refs.get("external_id", "")))

    def root(self, fact_id: str) -> str:
        """Return the first link of a fact's chain."""
        while (below := self.asserted[fact_id]["supersedes"]) is not None:
            fact_id = below
        return fact_id


def canonical(value: object) -> bytes:
    """Write what RFC 8785 does, as long as there are no fractions: and not with the library's own code."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


async def read_log(ledger: Ledger) -> Log:
    """Return what the log says."""
    log = Log()
    async for row in ledger.export():
        log.take(row)
    return log


@dataclass
class Judge:
    """Judges one case.

    Args:
        world: where it happens.
        operation: what was done.
        first: the log before.
        before: what was believed before, and when.
        held: what the stores held of ours before.
        strangers: what they held of others.
    """

    world: World
    operation: Operation
    first: Log
    before: dict[str, Any]
    held: dict[Key, str]
    strangers: dict[Key, Any]

    # --- what was said at once --------------------------------------------------------------

    async def claim(self, answer: object) -> None:
        """I5: hold what an operation answered, or raised, against the world at this moment."""
        for store in self.world.stores:
            # What a store was sent and carries out late was this operation's as well.
            store.land()
        log = await read_log(self.world.ledger)
        answers = answer if isinstance(answer, list) else [answer]
        if any(isinstance(one, OurBug) for one in answers):
            return
        named: set[str] = set()
        for one in answers:
            named |= set(_named(one))
            if not isinstance(one, BaseException):
                self._check_said(one, log)
        complete = all(getattr(one, "complete", True) for one in answers)
        # What a sweep that was broken off has left is an orphan that the next one finds.
        if not self.operation.sweeps and (complete or named or _fails(answers)):
            await self._check_named(named, log)

    async def _check_named(self, named: set[str], log: Log) -> None:
        now = format_instant(self.world.clock.now())
        pending = {(p.store, p.external_id) for p in await self.world.ledger.pending(limit=1000)}
        extra = self.world.held().keys() - self.held.keys() - log.current(now).keys() - pending
        unnamed = {store for store, _ in extra} - named
        assert not unnamed, f"I5: something is left in {sorted(unnamed)}, and only {sorted(named)} are named"

    def _check_said(self, answer: Any, log: Log) -> None:
        held, gone = self.world.held(), self._gone()
        for removal in _removals(answer):
            if removal.outcome is Outcome.VERIFIED and removal.external_id:
                key = removal.store, removal.external_id
                assert key in gone, f"I5: {key} is called gone, and the store never said so"
                assert key not in held, f"I5: {key} is called gone, and is there"
        if isinstance(answer, WriteResult):
            self._check_written(answer, log, held)
        if isinstance(answer, RecallResult):
            believed = log.believed(format_instant(self.world.clock.now()))
            served = {hit.fact.fact_id for hit in answer.hits}
            assert served <= believed, f"I1: {served - believed} were served and are not believed"
        for restored in getattr(answer, "restored", ()):
            for external_id in restored.external_ids:
                key = restored.store, external_id
                assert held.get(key) == restored.fact_id, f"I5: {key} is called placed, and is not there"
        if getattr(answer, "complete", False):
            self._check_complete(answer, log, held)

    def _check_written(self, answer: WriteResult, log: Log, held: Mapping[Key, str]) -> None:
        fact_id = answer.fact.fact_id
        assert fact_id in log.effective, f"I1: {fact_id} is acknowledged and not in the ledger"
        for store in self.world.stores:
            keys = [(store.name, external_id) for external_id in answer.placements.get(store.name, ())]
            assert keys, f"I1: {fact_id} is acknowledged and not placed in {store.name}"
            assert all(held.get(key) == fact_id for key in keys), f"I1: {keys} are acknowledged and not there"
        self.world.acknowledged.add(fact_id)

    def _check_complete(self, answer: Any, log: Log, held: Mapping[Key, str]) -> None:
        """Check that nothing of what had to go is there, in the stores or in the ledger's bytes."""
        now = format_instant(self.world.clock.now())
        ended = set(_ended(answer, self.operation, log, self.world.ids))
        current = log.current(now)
        left = {key for key, fact_id in held.items() if fact_id in ended and key not in current}
        assert not left, f"I5: it is complete, and {left} are there"
        if isinstance(answer, VerifyResult):
            assert answer.asked > 0, "I5: a verification that asked nothing is complete"
        if isinstance(answer, RepairResult):
            young = {(seen.store, seen.external_id) for seen in answer.young}
            assert held.keys() - young == current.keys(), "I2: a repair is complete, and stores differ"
        if isinstance(answer, ForgetResult | ForgetWhereResult | ExpireResult | RepairResult):
            self._check_erased(log)

    def _check_erased(self, log: Log) -> None:
        fact_id = self.world.ids.get("secret", "")
        if fact_id not in log.forgotten:
            return
        salts = self.first.salts.get(fact_id, [])[: len(self.operation.erases)]
        hidden = [form for salt in salts for form in (salt, salt.hex().encode())]
        for secret in (*(text.encode() for text in self.operation.erases), *hidden):
            found = self.world.disk.says(secret)
            what = "its salt" if secret in hidden else repr(secret)
            assert not found, f"I6: an erasure is complete, and {what} is in {found}"

    def _gone(self) -> set[Key]:
        return {(store.name, key) for store in self.world.stores for key in store.gone}

    # --- the end ----------------------------------------------------------------------------

    async def end(self) -> None:
        """Check everything after the repair, and after what is done once more."""
        hasty = self.world.trap.hasty
        assert not hasty, f"I3: {hasty} were deleted before anything was on record"
        world, ledger = self.world, self.world.ledger
        log, now = await read_log(ledger), format_instant(world.clock.now())
        believed, current, held = log.believed(now), log.current(now), world.held()
        answered = {fact.fact_id for fact in await ledger.as_of(limit=1000)}
        assert answered == believed, "I7: as_of(now) is not what the log says"
        more, less = held.items() - current.items(), current.items() - held.items()
        assert held == current, f"I2: held and not placed {more}, placed and not held {less}"
        for fact_id in believed:
            stores = {store for (store, _), of in held.items() if of == fact_id}
            assert stores == {s.name for s in world.stores}, f"I1: {fact_id} is only in {stores}"
        assert not log.repaired & (believed | log.asserted.keys()), "I4: a repaired id is a fact's"
        roots = [log.root(fact_id) for fact_id in believed]
        assert len(roots) == len(set(roots)), "I4: two links of one chain are believed"
        assert world.strangers() == self.strangers, "I3: something of somebody else was touched"
        assert await ledger.pending() == [], "I2: removals are left"
        assert await ledger.owed() == [], "I2: placements are owed"
        self._check_told(log, believed, now)
        self._check_erased(log)
        await self._check_past(log)

    def _check_told(self, log: Log, believed: set[str], now: str) -> None:
        ended = {self.world.ids[name] for name in self.operation.ends}
        over = ended & (log.retracted | log.forgotten | log.covered(now))
        lost = self.world.acknowledged - believed - over
        assert not lost, f"I1: {lost} were acknowledged and are lost"
        if self.operation.always:
            assert ended == over, f"{ended - over} are not ended, though it was done again"
        gone = self._gone()
        for key, outcome in log.removed.items():
            if outcome == "verified" and key not in self.first.removed:
                assert key in gone, f"I5: an event calls {key} gone, and the store never said so"
        silent = self.held.keys() - self.world.held().keys() - log.removed.keys() - log.repairs
        erased = {key for key in silent if self.held[key] in log.forgotten}
        assert not silent - erased, f"I3: {silent - erased} have gone, and nothing is on record"

    async def _check_past(self, log: Log) -> None:
        """I8: what was believed before is answered as before, but for what is forgotten."""
        then = await believed_at(self.world.ledger, self.before["at"])
        hidden = dict.fromkeys(log.forgotten)
        assert {**then, **hidden} == {**self.before["facts"], **hidden}, "I8: the past has changed"


async def believed_at(ledger: Ledger, at: Any) -> dict[str, Any]:
    """Return the values believed at an instant of the ledger, as it was known then."""
    facts = await ledger.as_of(valid_at=at, tx_at=at, limit=1000)
    return {fact.fact_id: fact.value for fact in facts}


def _fails(answers: Iterable[object]) -> bool:
    return any(isinstance(answer, CustodyError) for answer in answers)


def _named(answer: object) -> Iterator[str]:
    """Yield the stores that an error or a result says something may be left in."""
    if isinstance(answer, CustodyError):
        yield from answer.fields.get("left", ())
        yield from (entry["store"] for entry in answer.fields.get("entries", ()))
    for removal in _removals(answer):
        if removal.outcome is not Outcome.VERIFIED:
            yield removal.store
    for restored in getattr(answer, "restored", ()):
        if not restored.placed:
            yield restored.store


def _removals(answer: object) -> Iterator[Removal]:
    yield from getattr(answer, "removals", ())
    if isinstance(answer, ForgetWhereResult | ExpireResult):
        for fact in answer.facts:
            yield from fact.removals


def _ended(answer: object, operation: Operation, log: Log, ids: Mapping[str, str]) -> Iterator[str]:
    """Yield the facts of which a complete result says that no store has them."""
    if isinstance(answer, WriteResult) and answer.fact.supersedes is not None:
        yield answer.fact.supersedes
    if isinstance(answer, ForgetResult | RetractResult):
        yield answer.fact_id
    if isinstance(answer, ForgetWhereResult | ExpireResult):
        yield from (fact.fact_id for fact in answer.facts)
    if isinstance(answer, VerifyResult):
        yield from log.retracted | log.forgotten


__all__ = ["Judge", "Log", "believed_at", "read_log"]
