"""The contract's rules on trouble, second part: proof, listings and deletes that never end (C-60 to C-69)."""

from __future__ import annotations

import math

from custody_sync.errors import StoreError
from custody_sync.model import Capability, Entry
from custody_sync.testing.contract_case import Case, NotApplicable, RuleBook, Trouble
from custody_sync.testing.contract_trouble import proved, tried

TROUBLE_PROOF = RuleBook()
_rule = TROUBLE_PROOF.rule

LAGS = (1, 5)
"""For how many searches a deleted entry is still served: once, and almost as long as anybody asks."""


async def _never(case: Case, entries: tuple[Entry, ...], why: str) -> None:
    for entry in entries:
        for _ in range(case.hooks.questions):
            answer = await case.said_gone(entry)
            case.expect(answer is not True, f"never gone, {why}", answer)


def _needs_proof(case: Case) -> None:
    case.needs(Capability.VERIFY_DELETED)
    case.needs(Capability.SEARCH)


@_rule("C-60")
async def waits_for_a_lagging_index(case: Case) -> None:
    """`verify_deleted` is not True while the search still serves the entry, and True once it does not."""
    _needs_proof(case)
    for lag in LAGS:
        put = await case.put()
        case.expect(bool(await case.served(put)), "the entry before its delete", "nothing")
        await case.hooks.make_trouble(case.store, Trouble.LAG, lag)
        await case.delete(put)
        for entry in put.entries:
            first = await case.said_gone(entry)
            said = f"not gone: the search serves what is deleted for {lag} more questions"
            case.expect(len(put.entries) > 1 or first is not True, said, first)
            await proved(case, entry, f"after a lag of {lag} searches")
        hits = await case.search(put.fact.text or "", 50)
        left = [hit.entry.external_id for hit in hits if hit.entry.external_id in put.ids]
        case.expect(not left, "nothing served of what was called gone", left)


@_rule("C-61")
async def never_trusts_an_index_that_lags_for_ever(case: Case) -> None:
    """`verify_deleted` is never True while the text is known and the search goes on serving the entry."""
    _needs_proof(case)
    put = await case.put()
    case.expect(bool(await case.served(put)), "the entry before its delete", "nothing")
    await case.hooks.make_trouble(case.store, Trouble.LAG, math.inf)
    await case.delete(put)
    await _never(case, put.entries, "while the search still serves it")


@_rule("C-62")
async def takes_no_failed_search_for_an_absence(case: Case) -> None:
    """A search answered with an error is neither an empty answer nor a proof; the next good one is."""
    _needs_proof(case)
    held, gone = await case.put(), await case.put()
    await case.served(held)
    await case.delete(gone)
    await case.hooks.make_trouble(case.store, Trouble.SEARCH_FAILS, 1)
    hits, problem = await tried(
        case, lambda: case.search(held.fact.text or ""), held.fact, may=StoreError, what="search"
    )
    case.expect(problem is not None or bool(hits), "a StoreError, or what the next try serves", hits)
    await case.search(held.fact.text or "")
    for entry in gone.entries:
        await proved(case, entry, "once the search works again")
    await case.hooks.make_trouble(case.store, Trouble.SEARCH_FAILS, math.inf)
    await _never(case, (*gone.entries, *held.entries, *held.blind), "while every search fails")


@_rule("C-63")
async def never_trusts_a_lying_delete(case: Case) -> None:
    """`verify_deleted` is never True when the service says that it deleted and did not."""
    case.needs(Capability.VERIFY_DELETED)
    put = await case.put()
    await case.hooks.make_trouble(case.store, Trouble.LYING_DELETE, math.inf)
    await tried(case, lambda: case.delete(put), put.fact, what="a delete")
    case.expect(bool(await case.held(put)), "the fixture to keep what is deleted", "the entry is gone")
    await _never(case, (*put.entries, *put.blind), "after a delete that did nothing")


@_rule("C-64")
async def takes_no_pending_delete_for_a_deletion(case: Case) -> None:
    """What a delete that is never carried out leaves is never called gone."""
    case.needs(Capability.VERIFY_DELETED)
    put = await case.put()
    await case.hooks.make_trouble(case.store, Trouble.PENDING, math.inf)
    await tried(case, lambda: case.delete(put), put.fact, what="a pending delete")
    if not await case.held(put):
        raise NotApplicable("deletes are carried out at once here")
    await _never(case, (*put.entries, *put.blind), "while its delete is pending")


# --- listings ------------------------------------------------------------------------------


async def _listed_once(case: Case, wanted: list[str], entries: list[Entry]) -> None:
    got = sorted(entry.external_id for entry in entries if entry.ledger_id == case.ledger_id)
    case.expect(len(set(got)) == len(got), "no entry twice", f"{len(got) - len(set(got))} repeated")
    missing = len(set(wanted) - set(got))
    case.expect(got == wanted, f"all {len(wanted)} entries", f"{len(got)}, {missing} missing")


@_rule("C-65")
async def lists_each_once_though_pages_repeat(case: Case) -> None:
    """A listing yields each entry once although its pages overlap."""
    case.needs(Capability.LIST_ENTRIES)
    puts = await case.put_all([case.fact() for _ in range(case.hooks.bulk)])
    await case.hooks.make_trouble(case.store, Trouble.REPEATS, math.inf)
    with case.partly(Capability.LIST_ENTRIES):
        await _listed_once(case, sorted(i for put in puts for i in put.ids), await case.listed())


@_rule("C-66")
async def misses_no_row_in_silence(case: Case) -> None:
    """A listing whose pages skip a row yields it all the same, or raises; it is never silently short."""
    case.needs(Capability.LIST_ENTRIES)
    puts = await case.put_all([case.fact() for _ in range(case.hooks.bulk)])
    wanted = sorted(i for put in puts for i in put.ids)
    await case.hooks.make_trouble(case.store, Trouble.SKIPS, 1)
    entries, problem = await tried(case, case.listed, may=StoreError, what="list_entries")
    case.note("it listed everything" if problem is None else f"it raised {type(problem).__name__}")
    with case.partly(Capability.LIST_ENTRIES):
        if problem is None:
            await _listed_once(case, wanted, entries)
    await _listed_once(case, wanted, await case.listed())
