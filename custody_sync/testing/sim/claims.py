"""What a result claims, held against the world at the moment when it is given.

`complete` says that no store holds or serves what had to go. What came after the operation began is
excepted, and what nobody could know of: an entry that no event names, in a store that cannot be
asked by fact.
"""

from __future__ import annotations

from collections.abc import Iterator

from custody_sync.mended import AdoptResult, BackfillResult, ReconcileResult
from custody_sync.model import Capability, format_instant
from custody_sync.results import (
    ExpireResult,
    Fate,
    ForgetManyResult,
    ForgetResult,
    ForgetWhereResult,
    RetractResult,
    VerifyResult,
    WriteResult,
)
from custody_sync.testing.sim.disk import LEDGER_ID
from custody_sync.testing.sim.judge import Call, Judge
from custody_sync.testing.sim.log import Key, Log


def begin_whole(judge: Judge, call: Call, space: str | None = None) -> None:
    """Note which facts there are when something begins that is about a whole space, or a whole store."""
    known = (
        judge.log.asserted
        if space is None
        else (one for one in judge.log.asserted if judge.spaces.get(one) == space)
    )
    call.known, call.space = frozenset(known), space


def begin_claim(judge: Judge, call: Call) -> None:
    """Note which entries a verification that begins now has to ask about: recorded, and to be gone."""
    log, at = judge.log, _now(judge, call)
    current, removed = log.current(at), log.retracted | log.forgotten | log.covered(at)
    call.due = frozenset(
        key for key, fact_id in log.placed.items() if fact_id in removed and key not in current
    )


def check_claim(judge: Judge, call: Call, result: object) -> None:
    """I5: what a result calls complete is so."""
    if not getattr(result, "complete", False):
        return
    owed = [one.fact_id for one in getattr(result, "restored", ()) if not one.placed]
    judge.expect(not owed, "I5", f"{call.operation} is complete, and {owed} are still to be placed")
    if isinstance(result, VerifyResult):
        judge.expect(result.asked > 0, "I5", "a verification that asked nothing is complete")
        for key, _ in _left(judge, call):
            judge.expect(key not in call.due, "I5", f"verify is complete, and {key} is still there")
        return
    if isinstance(result, BackfillResult):
        _check_filled(judge, call, result)
        return
    if isinstance(result, AdoptResult):
        _check_adopted(judge, result)
        return
    if isinstance(result, ReconcileResult):
        _check_reconciled(judge, call, result)
        return
    if isinstance(result, ForgetWhereResult):
        _check_space(judge, call)
    facts = set(_removed(judge.log, result))
    left = [key for key, fact_id in _left(judge, call) if fact_id in facts]
    if isinstance(result, WriteResult):
        # A store that keeps what is superseded owes nothing for it, and what has ended there is the sweep's.
        left = [key for key in left if key[0] not in judge.log.kept.get(judge.log.placed.get(key, ""), ())]
    judge.expect(not left, "I5", f"{call.operation} of {sorted(facts)} is complete, and {left} are there")


def _check_filled(judge: Judge, call: Call, result: BackfillResult) -> None:
    """I2: a store that is complete has a placement of all that was believed when it began, and still is."""
    log, at = judge.log, _now(judge, call)
    there = {fact_id for key, fact_id in log.current(at).items() if key[0] == result.store}
    lacking = (log.believed(at) & call.known) - there
    judge.expect(not lacking, "I2", f"backfill of {result.store} is complete, and it lacks {sorted(lacking)}")


def _check_adopted(judge: Judge, result: AdoptResult) -> None:
    """I1: all that had no label is a fact."""
    for key in judge.strangers:
        entry = judge.stores[key[0]].entry(key[1])
        if key[0] == result.store and entry is not None and entry.ledger_id is None:
            judge.expect(key in judge.adopted, "I1", f"adopt is complete, and {key} is no fact")


def _check_reconciled(judge: Judge, call: Call, result: ReconcileResult) -> None:
    """I2: what was current when it began, and still is, is there; where it was told to, it put it there."""
    current = judge.log.current(_now(judge, call))
    lacking = [key for key in current if key in call.due and not judge.stores[key[0]].holds(key[1])]
    lost_since = judge.lost - call.lost
    lacking = [key for key in lacking if key not in judge.log.doubtful and key not in lost_since]
    judge.expect(not lacking, "I2", f"reconcile is complete, and {lacking} are not there")
    changed = sorted(judge.changed(current.keys()) & call.edited & call.due)
    judge.expect(not changed, "I2", f"reconcile is complete, and {changed} have other texts than the ledger")


def _check_space(judge: Judge, call: Call) -> None:
    """I6: of a space that is erased nothing is believed or shown of what was there when it began."""
    log = judge.log
    left = call.known - log.forgotten
    judge.expect(not left, "I6", f"forget_where is complete, and {sorted(left)} are not forgotten")
    for store in judge.stores.values():
        for entry in store.shown():
            key = store.name, entry.external_id
            if entry.ledger_id == LEDGER_ID and entry.space == call.space and key not in judge.gone:
                since = judge.landed.get(key, 0)
                judge.expect(since > call.began, "I6", f"forget_where is complete, and {key} is there")


def _removed(log: Log, result: object) -> Iterator[str]:
    """Yield the facts whose entries a complete result says are gone."""
    if isinstance(result, ForgetResult | RetractResult):
        yield result.fact_id
    elif isinstance(result, ExpireResult | ForgetManyResult | ForgetWhereResult):
        yield from (one.fact_id for one in result.facts if one.fate is Fate.FORGOTTEN)
    elif isinstance(result, WriteResult) and not result.duplicate:
        below = result.fact.supersedes
        # A claim covers nothing, and for what was retracted or forgotten meanwhile others have to answer.
        is_covered = result.fact.fact_id in log.effective
        if below is not None and is_covered and below not in log.retracted | log.forgotten:
            yield below


def _left(judge: Judge, call: Call) -> Iterator[tuple[Key, str]]:
    """Yield what stores hold or serve that is not to be there, and that this operation could know of."""
    log = judge.log
    current = log.current(_now(judge, call)).keys()
    for store in judge.stores.values():
        blind = Capability.FIND in store.capabilities
        for entry in store.shown():
            key = store.name, entry.external_id
            fact_id = entry.fact_id if entry.ledger_id == LEDGER_ID else None
            if entry.ledger_id is None:
                fact_id = judge.adopted.get(key)
            if fact_id is None or key in current:
                continue
            # What only an index still has, of an entry that was never recorded, no lookup shows.
            is_hidden = (blind or not store.holds(entry.external_id)) and not _is_known(log, key)
            if judge.landed.get(key, 0) > call.began or is_hidden:
                continue
            # What its store has called gone and serves again by itself is the next verification's.
            if store.holds(entry.external_id) or key not in judge.gone:
                yield key, fact_id


def _now(judge: Judge, call: Call) -> str:
    """Return the ledger's time: never before its last event, wherever the process's clock is."""
    last = judge.log.events[-1]["tx_time"] if judge.log.events else ""
    return max(format_instant(call.process.clock.now()), last)


def _is_known(log: Log, key: Key) -> bool:
    return key in log.placed or key in log.ended


__all__ = ["begin_claim", "begin_whole", "check_claim"]
