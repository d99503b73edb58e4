"""The contract's rules on trouble: what an adapter makes of a service that misbehaves (C-50 to C-59).

Each needs `StoreHooks.make_trouble`, and is left out with the fixture's reason where that trouble
cannot happen. A service's trouble may make a call fail; it may never make an answer wrong.
"""

from __future__ import annotations

import asyncio
import math
import traceback
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from custody_sync.errors import CustodyError, NoProof, StoreThrottled, StoreUnavailable
from custody_sync.model import Capability, Entry, Fact
from custody_sync.stores import Deadlines
from custody_sync.testing.contract_case import Case, Put, RuleBook, Trouble

TROUBLE = RuleBook()
_rule = TROUBLE.rule

SECONDS = Deadlines().put
"""How long the coordinator waits for a put: an adapter has to give up on its vendor before that."""


def quotes_nothing(case: Case, problem: BaseException, *facts: Fact) -> None:
    """Raise a violation if what a log would print of an error, its causes included, has a fact's text."""
    logged = "".join(traceback.format_exception(problem))
    quoted = any(fact.text and fact.text in logged for fact in facts)
    case.expect(not quoted, "an error that quotes no memory, nor brings along one that does", str(problem))


async def tried(
    case: Case,
    call: Callable[[], Awaitable[Any]],
    *facts: Fact,
    may: type[CustodyError] = StoreUnavailable,
    what: str,
) -> tuple[Any, CustodyError | None]:
    """Call the store, and return its answer or the one error it may raise."""
    try:
        return await call(), None
    except may as problem:
        quotes_nothing(case, problem, *facts)
        return None, problem
    except Exception as problem:
        quotes_nothing(case, problem, *facts)
        case.expect(False, f"{may.__name__} or success from {what}", f"{type(problem).__name__}: {problem}")
        raise


async def _shown(case: Case, put: Put) -> list[Entry]:
    return await case.eventually(lambda: case.held(put), bool)


async def _removable(case: Case, put: Put, shown: list[Entry]) -> None:
    """Take away what is shown, as the coordinator does with a write that failed."""
    for entry in shown:
        await case.store.delete(entry)
    left = await case.eventually(lambda: case.held(put), lambda entries: not entries)
    case.expect(not left, "nothing once what was shown is deleted", left)


async def proved(case: Case, entry: Entry, why: str) -> None:
    """Raise a violation unless the entry is called gone in the end; `NoProof` may be declared."""
    answer = await case.proved_gone(entry)
    with case.partly(Capability.VERIFY_DELETED) if answer == NoProof.__name__ else nullcontext():
        case.expect(answer is True, f"gone in the end, {why}", answer)


# --- writes of which nobody knows ----------------------------------------------------------


async def _put_in_doubt(case: Case, trouble: Trouble) -> None:
    # The first put into a place may create it; the trouble is to meet the memory itself.
    await case.put()
    fact = case.fact()
    label = case.label(fact)
    await case.hooks.make_trouble(case.store, trouble, 1)
    ids, problem = await tried(
        case, lambda: case.store.put(fact, label), fact, what=f"a put that took effect ({trouble.value})"
    )
    # Which of the two it was also tells a reader whether the fixture made the trouble at all.
    case.note("it settled itself" if problem is None else f"it raised {type(problem).__name__}")
    put = case.confirmed(fact, label, ids or ())
    shown = await _shown(case, put)
    got = sorted(entry.external_id for entry in shown)
    if problem is None:
        case.expect(bool(ids) and got == sorted(put.ids), f"the ids {put.ids}, as they are shown", got)
    case.expect(bool(shown), "what took effect to be shown by its fact id", "nothing")
    labels = {(entry.fact_id, entry.ledger_id, entry.generation) for entry in shown}
    wanted = {(fact.fact_id, label.ledger_id, label.generation)}
    case.expect(labels == wanted, f"fact, ledger and generation {wanted}", labels)
    await _removable(case, put, shown)


@_rule("C-50")
async def admits_a_put_answered_with_an_error(case: Case) -> None:
    """A put committed and answered with 500 raises `StoreUnavailable` or settles itself; it is shown."""
    await _put_in_doubt(case, Trouble.FAILS_AFTER)


@_rule("C-51")
async def admits_a_put_without_a_reply(case: Case) -> None:
    """A put whose reply is lost raises `StoreUnavailable` or settles itself; what took effect is shown."""
    await _put_in_doubt(case, Trouble.LOST_REPLY)


@_rule("C-52")
async def admits_a_put_with_an_empty_answer(case: Case) -> None:
    """A put that is answered with no body raises `StoreUnavailable` or settles itself; it makes up no ids."""
    await _put_in_doubt(case, Trouble.EMPTY_BODY)


@_rule("C-53")
async def admits_a_batch_without_a_reply(case: Case) -> None:
    """A `put_many` whose reply is lost raises `StoreUnavailable` or returns the ids that are shown."""
    case.needs(Capability.PUT_MANY)
    await case.put()
    pairs = [(fact, case.label(fact)) for fact in (case.fact() for _ in range(6))]
    await case.hooks.make_trouble(case.store, Trouble.LOST_REPLY, 1)
    answers, problem = await tried(
        case, lambda: case.store.put_many(pairs), *(fact for fact, _ in pairs), what="a batch"
    )
    case.note("it settled itself" if problem is None else f"it raised {type(problem).__name__}")
    if problem is None:
        case.expect(len(answers) == len(pairs), f"{len(pairs)} answers", len(answers))
    landed = 0
    for n, (fact, label) in enumerate(pairs):
        put = case.confirmed(fact, label, answers[n] if problem is None else ())
        shown = await (_shown(case, put) if problem is None else case.held(put))
        got = sorted(entry.external_id for entry in shown)
        landed += bool(shown)
        case.expect(problem is not None or got == sorted(put.ids), f"{put.ids}, as they are shown", got)
        case.expect({e.generation for e in shown} <= {label.generation}, "our generation on each", shown)
        await _removable(case, put, shown)
    case.expect(landed > 0, "what took effect of the batch to be shown", "nothing")


async def _deleted_in_doubt(case: Case, trouble: Trouble) -> None:
    put, neighbour = await case.put(), await case.put()
    for entry in put.entries:
        await case.hooks.make_trouble(case.store, trouble, 1)
        _, problem = await tried(
            case,
            partial(case.store.delete, entry),
            put.fact,
            what=f"a delete that was carried out ({trouble.value})",
        )
        case.note("it settled itself" if problem is None else f"it raised {type(problem).__name__}")
        # As the coordinator does with a delete that failed: the entry is gone, which is success.
        await case.store.delete(entry)
    left = await case.held(put)
    case.expect(not left, "nothing left", left)
    case.expect(bool(await case.held(neighbour)), "its neighbour", "nothing")
    if case.offers(Capability.VERIFY_DELETED):
        for entry in put.entries:
            await proved(case, entry, f"after a delete in doubt ({trouble.value})")


@_rule("C-54")
async def takes_up_a_delete_answered_with_an_error(case: Case) -> None:
    """A delete carried out and answered with 500 is at most `StoreUnavailable`; the next one succeeds."""
    await _deleted_in_doubt(case, Trouble.FAILS_AFTER)


@_rule("C-55")
async def takes_up_a_delete_without_a_reply(case: Case) -> None:
    """A delete whose reply is lost is at most `StoreUnavailable`; the next one succeeds."""
    await _deleted_in_doubt(case, Trouble.LOST_REPLY)


@_rule("C-56")
async def takes_an_empty_answer_for_a_delete(case: Case) -> None:
    """A delete that is answered with 204 and no body is success."""
    put = await case.put()
    for entry in put.entries:
        await case.hooks.make_trouble(case.store, Trouble.EMPTY_BODY, 1)
        try:
            await case.store.delete(entry)
        except Exception as problem:
            case.expect(False, "success", f"{type(problem).__name__}: {problem}")
    left = await case.held(put)
    case.expect(not left, "nothing left", left)


# --- calls that are turned away ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Call:
    """One operation of the store, and whether its answer is right."""

    operation: str
    ask: Callable[[], Awaitable[Any]]
    is_right: Callable[[Any], Awaitable[bool]]
    writes: bool = False


async def _calls(case: Case) -> list[_Call]:
    """Return every operation the store offers, on entries of their own that are already served."""
    held, doomed, fresh = await case.put(), await case.put(), case.fact()
    gone = await case.put()
    await case.delete(gone)
    if case.offers(Capability.SEARCH):
        await case.served(held)
    label = case.label(fresh)

    async def put_once(ids: Any) -> bool:
        shown = await _shown(case, case.confirmed(fresh, label, ids))
        return sorted(entry.external_id for entry in shown) == sorted(ids)

    async def nothing_left(_: Any) -> bool:
        return not await case.held(doomed)

    async def has_held(entries: list[Entry]) -> bool:
        ids = [entry.external_id for entry in entries if entry.fact_id == held.fact.fact_id]
        return sorted(ids) == sorted(held.ids)

    async def served(hits: Any) -> bool:
        return bool({hit.entry.external_id for hit in hits} & set(held.ids))

    async def not_gone(answer: Any) -> bool:
        return answer is not True

    async def any_answer(_: Any) -> bool:
        return True

    store, text, fact_id = case.store, held.fact.text or "", held.fact.fact_id
    calls = [
        (Capability.FIND, _Call("find", lambda: store.find(fact_id), has_held)),
        (Capability.LIST_ENTRIES, _Call("list_entries", case.listed, has_held)),
        (Capability.SEARCH, _Call("search", lambda: case.search(text, 50), served)),
        (
            Capability.VERIFY_DELETED,
            _Call("verify_deleted", lambda: store.verify_deleted(held.entries[0]), not_gone),
        ),
        (
            Capability.VERIFY_DELETED,
            _Call("verify_deleted of what is gone", lambda: _verdict(store, gone.entries[0]), any_answer),
        ),
    ]
    return [
        *(call for capability, call in calls if case.offers(capability)),
        _Call("put", lambda: store.put(fresh, label), put_once, writes=True),
        _Call("delete", lambda: case.delete(doomed), nothing_left, writes=True),
    ]


async def _verdict(store: Any, entry: Entry) -> Any:
    """Ask about an entry that is gone; a store that has doubts of its own may say that it proves nothing."""
    try:
        return await store.verify_deleted(entry)
    except NoProof:
        return NoProof.__name__


async def _turned_away(case: Case, trouble: Trouble, may: type[CustodyError]) -> None:
    calls = await _calls(case)
    for call in calls:
        await case.hooks.make_trouble(case.store, trouble, 1)
        answer, problem = None, None
        for _ in range(case.hooks.questions):
            answer, problem = await tried(case, call.ask, may=may, what=call.operation)
            if problem is None:
                break
        case.expect(
            problem is None, f"{call.operation} to work again after one {trouble.value} call", str(problem)
        )
        case.expect(await call.is_right(answer), f"the right answer of {call.operation}, done once", answer)
    late = await _calls(case)
    await case.hooks.make_trouble(case.store, trouble, math.inf)
    for call in late:
        answer, problem = await tried(case, call.ask, may=may, what=call.operation)
        said = f"{may.__name__} from {call.operation} while every call is turned away ({trouble.value})"
        case.expect(problem is not None, said, answer)


@_rule("C-57")
async def says_when_it_is_throttled(case: Case) -> None:
    """A call answered with 429 raises `StoreThrottled` or succeeds: never empty, nothing done twice."""
    await _turned_away(case, Trouble.THROTTLED, StoreThrottled)


@_rule("C-58")
async def says_when_its_connection_is_reset(case: Case) -> None:
    """A call that is reset raises `StoreUnavailable` or succeeds: never empty, nothing done twice."""
    await _turned_away(case, Trouble.RESET, StoreUnavailable)


# --- writes that never end -----------------------------------------------------------------


@_rule("C-59")
async def confirms_no_pending_put(case: Case) -> None:
    """A put that is accepted and never carried out raises `StoreUnavailable` in time, and returns no ids."""
    await case.put()
    await case.hooks.make_trouble(case.store, Trouble.PENDING, math.inf)
    fact = case.fact()
    label = case.label(fact)
    try:
        async with asyncio.timeout(SECONDS):
            ids, problem = await tried(case, lambda: case.store.put(fact, label), fact, what="a pending put")
    except TimeoutError:
        case.expect(False, f"StoreUnavailable before the coordinator's {SECONDS:g} s are over", "no answer")
        raise
    case.expect(problem is not None, "StoreUnavailable, no ids of what is not there", ids)
