"""The operations of the crash matrix: what each finds, does, and does once more after the repair."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from fix_custody import ACTOR, Crash
from fix_matrix import UNWANTED
from fix_matrix_world import World

from custody_sync import errors
from custody_sync.ledger import Forget, Retract
from custody_sync.model import Entry
from custody_sync.repair.adoption import Adoption

WHY: dict[str, Any] = {"actor": ACTOR, "reason": "asked to"}
SECRET, WHOSE = "violet-heron-7731", "heron-4711"
SPACE = f"user:{WHOSE}"

Prepare = Callable[[World], Awaitable[dict[str, str]]]
Work = Callable[[World], Awaitable[Any]]


async def nothing(w: World) -> dict[str, str]:
    """Find a neighbour and strangers only."""
    return {}


async def target(w: World) -> dict[str, str]:
    """Find a fact that can be superseded."""
    return {"old": await w.write("4", "bronze")}


async def chain(w: World) -> dict[str, str]:
    """Find a fact and its replacement."""
    old = await w.write("4", "bronze")
    w.acknowledged.discard(old)
    return {"old": old, "tip": await w.write("4", "gold", supersedes=old)}


async def secret(w: World) -> dict[str, str]:
    """Find a fact that is to be forgotten."""
    return {"secret": await w.write(WHOSE, SECRET, space=SPACE)}


async def unwanted_claim(w: World) -> dict[str, str]:
    """Find a claim that a store will not take."""
    return {"claim": await w.write("4", UNWANTED, provenance="claimed")}


async def mess(w: World) -> dict[str, str]:
    """Find an orphan, a stray, pending removals, an owed placement and a due erasure."""
    ids = await chain(w) | {"secret": await w.write(WHOSE, SECRET)}
    act: dict[str, Any] = {"actor": ACTOR, "reason": "left half-way"}
    await w.ledger.append(Retract(event_id="retract", fact_id=ids["tip"], **act))
    await w.ledger.append(Forget(event_id="forget", fact_id=ids["secret"], **act))
    orphan = w.new_id()
    w.leave(orphan, "nobody")
    w.leave(ids["old"], "stray")
    return ids | {"orphan": orphan}


async def drift(w: World) -> dict[str, str]:
    """Find a store that lost an entry, one whose label is another one, and an orphan."""
    ids = {name: await w.write(name, "silver") for name in ("lost", "relabelled")}
    store, orphan = w.stores[-1], w.new_id()
    for key, entry in store.snapshot().items():
        if entry.fact_id == ids["lost"]:
            store.drop(key)
        if entry.fact_id == ids["relabelled"]:
            label = w.label(ids["relabelled"], w.ledger_id)
            await store.relabel(entry, label)
    w.leave(orphan, "nobody")
    return ids | {"orphan": orphan}


async def removed(w: World) -> dict[str, str]:
    """Find a fact that was retracted, and one whose removal nobody has seen verified."""
    ids = await chain(w)
    await w.custody.retract(ids["tip"], actor=ACTOR, reason="wrong")
    second = await w.write("5", "gold")
    for store in w.stores:
        store.faults.refuse("verify_deleted", times=2)
    await w.custody.retract(second, actor=ACTOR, reason="wrong")
    for store in w.stores:
        store.faults.allow()
    w.acknowledged -= {ids["tip"], second}
    return ids | {"second": second}


async def unlabelled(w: World) -> dict[str, str]:
    """Find two entries in one store that are nobody's."""
    for n in range(2):
        w.stores[-1].put_raw(f"to be adopted {n}")
    return {}


async def lacking(w: World) -> dict[str, str]:
    """Find a fact that the last store, which came later, does not hold."""
    w.custody = w.coordinator(w.number - 1)
    ids = {"lacking": await w.write("4", "gold")}
    w.custody = w.coordinator()
    return ids


# --- what is done ---------------------------------------------------------------------------


async def write(w: World) -> Any:
    """Write a fact."""
    return await w.custody.write(
        value="platinum", subject="acct:9", predicate="plan", space="org", actor=ACTOR
    )


async def supersede(w: World) -> Any:
    """Write a replacement."""
    return await _replace(w, "gold")


async def write_keyed(w: World) -> Any:
    """Write a fact under an idempotency key."""
    return await w.custody.write(
        value="platinum",
        subject="acct:9",
        predicate="plan",
        space="org",
        actor=ACTOR,
        idempotency_key="order-9",
    )


async def write_refused(w: World) -> Any:
    """Write what the last store refuses."""
    w.stores[-1].is_picky = True
    return await w.custody.write(value=UNWANTED, subject="a:9", predicate="is", space="org", actor=ACTOR)


async def write_racing(w: World) -> Any:
    """Write two replacements of one fact at once."""
    answers = await asyncio.gather(*(_replace(w, v) for v in ("gold", "tin")), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, Crash | asyncio.CancelledError):
            raise answer
    return answers


async def claim_and_confirm(w: World) -> Any:
    """Write a claimed replacement and confirm it."""
    claim = await w.write("4", "gold", supersedes=w.ids["old"], provenance="claimed")
    return await w.custody.confirm(claim, actor=ACTOR)


async def confirm_refused(w: World) -> Any:
    """Confirm what the last store refuses."""
    w.stores[-1].is_picky = True
    return await w.custody.confirm(w.ids["claim"], actor=ACTOR)


async def retract(w: World) -> Any:
    """Retract a replacement, which brings back what it covered."""
    return await w.custody.retract(w.ids["tip"], **WHY)


async def forget(w: World) -> Any:
    """Forget a value."""
    return await w.custody.forget(w.ids["secret"], **WHY)


async def forget_identity(w: World) -> Any:
    """Forget a value and whose it was."""
    return await w.custody.forget(w.ids["secret"], identity=True, **WHY)


async def forget_where(w: World) -> Any:
    """Forget whatever there is of somebody."""
    return await w.custody.forget_where(space=SPACE, identity=True, **WHY)


async def certify(w: World) -> Any:
    """Ask for the certificate; a space of which nothing is known any more gets none."""
    result = await forget_where(w)
    return result if result.facts else None


async def expire(w: World) -> Any:
    """Expire what is half an hour old in the spaces of users."""
    return await w.custody.expire(actor=ACTOR, windows={"user:*": "PT20M"})


async def hold_and_release(w: World) -> Any:
    """Hold a fact, be refused its erasure, and release it."""
    await w.custody.hold(w.ids["secret"], hold_id="case-1", **WHY)
    refusal = await w.call_error(w.custody.forget(w.ids["secret"], **WHY))
    assert isinstance(refusal, errors.OnHold | errors.LedgerError), f"a held fact: {refusal!r}"
    return await w.custody.release(w.ids["secret"], hold_id="case-1", **WHY)


async def repair(w: World) -> Any:
    """Sweep."""
    return await w.custody.repair(actor=ACTOR, reason="after an outage", max_removals=100)


async def reconcile(w: World) -> Any:
    """Mend whatever differs."""
    return await w.custody.reconcile(actor=ACTOR, fix="all", max_removals=100, max_puts=100)


async def reconcile_to_the_end(w: World) -> Any:
    """Mend whatever differs; what was put into a store that cannot be asked for it, only another run sees."""
    result = await reconcile(w)
    return result if result.complete else await reconcile(w)


async def adopt(w: World) -> Any:
    """Make facts of what is to be adopted."""
    return await w.custody.adopt(
        w.stores[-1].name, actor=ACTOR, space=_adoption, provenance="attested", dry_run=False
    )


def _adoption(entry: Entry) -> Adoption | None:
    return Adoption(space="org") if "to be adopted" in (entry.text or "") else None


async def backfill(w: World) -> Any:
    """Fill the last store."""
    return await w.custody.backfill(w.stores[-1].name, actor=ACTOR, dry_run=False)


async def adopt_and_fill(w: World) -> Any:
    """Adopt what is left to adopt; then every other store lacks it."""
    await adopt(w)
    for store in w.stores[:-1]:
        await w.custody.backfill(store.name, actor=ACTOR, dry_run=False)


async def verify(w: World) -> Any:
    """Ask every store again about what was removed."""
    return await w.custody.verify(actor=ACTOR)


async def recall(w: World) -> Any:
    """Search."""
    return await w.custody.recall("plan", k=5)


async def _replace(w: World, value: str) -> Any:
    return await w.custody.write(
        value=value,
        subject="acct:4",
        predicate="plan",
        space="org",
        actor=ACTOR,
        supersedes=w.ids["old"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation under test."""

    prepare: Prepare
    act: Work
    again: Work | None = None
    """Done once more after the repair: what only running it again completes."""
    erases: tuple[str, ...] = ()
    """What is in no byte of the ledger once the fact called `secret` is forgotten."""
    ends: tuple[str, ...] = ()
    """The facts that it takes out of belief, by the names that they were prepared under."""
    sweeps: bool = False
    """Whether it goes over a whole store: what it is broken off at, the next run finds, unnamed."""
    always: bool = False
    """Whether they are forgotten at the end whatever happened: before, or by doing it again."""

    @property
    def name(self) -> str:
        """What it is called."""
        return self.act.__name__


_WHO = (SECRET, WHOSE)
OPERATIONS = {
    operation.name: operation
    for operation in (
        Operation(prepare=nothing, act=write),
        Operation(prepare=target, act=supersede, ends=("old",)),
        Operation(prepare=nothing, act=write_keyed, again=write_keyed),
        Operation(prepare=nothing, act=write_refused),
        Operation(prepare=target, act=write_racing, ends=("old",)),
        Operation(prepare=target, act=claim_and_confirm, ends=("old",)),
        Operation(prepare=unwanted_claim, act=confirm_refused),
        Operation(prepare=chain, act=retract, ends=("tip",)),
        Operation(prepare=secret, act=forget, erases=(SECRET,), ends=("secret",)),
        Operation(prepare=secret, act=forget_identity, erases=_WHO, ends=("secret",)),
        Operation(
            prepare=secret,
            act=forget_where,
            again=certify,
            erases=_WHO,
            ends=("secret",),
            always=True,
        ),
        Operation(prepare=secret, act=expire, again=expire, erases=(SECRET,), ends=("secret",), always=True),
        Operation(prepare=secret, act=hold_and_release),
        Operation(
            prepare=mess, act=repair, erases=(SECRET,), ends=("tip", "secret"), always=True, sweeps=True
        ),
        Operation(prepare=drift, act=reconcile, again=reconcile_to_the_end, sweeps=True),
        Operation(prepare=unlabelled, act=adopt, again=adopt_and_fill, sweeps=True),
        Operation(prepare=lacking, act=backfill, again=backfill, sweeps=True),
        Operation(prepare=removed, act=verify),
        Operation(prepare=chain, act=recall),
    )
}
