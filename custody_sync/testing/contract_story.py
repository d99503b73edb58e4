"""The contract's stories: what comes of a store behind a coordinator and a ledger (C-70 to C-89).

A rule about a method shows that it is right by itself. These show that custody comes out right:
what is verified, what is swept, and what is left alone.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from contextlib import aclosing
from functools import partial

from custody_sync.errors import StoreWriteFailed
from custody_sync.model import Capability, Leftover, Outcome
from custody_sync.results import WriteResult
from custody_sync.testing.contract_case import Case, NotApplicable, Put, RuleBook, Trouble
from custody_sync.testing.contract_stage import Stage, coordinator, staged
from custody_sync.testing.contract_trouble import quotes_nothing

STORY = RuleBook()
_rule = STORY.rule

STRANGERS = 12
"""Entries of another ledger beside those that are swept."""
ARRIVALS = 24
"""Entries that are written while a listing or a sweep is under way."""


def _ids(puts: list[Put]) -> list[str]:
    return sorted(external_id for put in puts for external_id in put.ids)


@_rule("C-70")
async def keeps_a_plain_story(case: Case) -> None:
    """After a write, a supersession, a forget and a repair the store holds exactly what is believed."""
    async with staged(case) as stage:
        first, private = await stage.write(), await stage.write()
        second = await stage.write(supersedes=first.fact.fact_id)
        proved = stage.removed(second.removals, "what is superseded")
        forgotten = await stage.forget(private)
        proved &= stage.removed(forgotten.removals, "what is forgotten")
        case.expect(forgotten.complete or not proved, "a complete forget", forgotten)
        await stage.ends_with([second], [first, private])
        lost = await stage.orphans(1) if case.offers(Capability.LIST_ENTRIES) else []
        swept = await stage.repair()
        got = sorted(r.external_id for r in swept.repaired if r.external_id in _ids(lost))
        case.expect(got == _ids(lost), f"the orphan {_ids(lost)} swept", swept.repaired)
        case.expect(swept.complete or not proved, "a complete repair", swept)
        await stage.ends_with([second], [first, private])


# --- proof in a crowd ----------------------------------------------------------------------


async def _crowd(case: Case) -> str:
    """Surround what is to be forgotten with hundreds of equal texts, and return the text."""
    case.needs(Capability.VERIFY_DELETED)
    text = f"what everybody says {case.token}"
    await case.put_all([case.fact(text) for _ in range(case.hooks.crowd)])
    case.note(f"{case.hooks.crowd:,} equal texts around it")
    return text


async def _forgotten_in_trouble(
    stage: Stage, text: str, trouble: Trouble, times: float, wanted: Outcome
) -> None:
    written = await stage.write(text)
    await stage.case.hooks.make_trouble(stage.case.store, trouble, times)
    forgotten = await stage.forget(written)
    stage.ended(forgotten.removals, wanted, f"under {trouble.value} {times:g} times")


@_rule("C-71")
async def forgets_under_a_lagging_index(case: Case) -> None:
    """A forget that the search still answers once or five times is verified; for ever, still_indexed."""
    case.needs(Capability.SEARCH)
    text = await _crowd(case)
    async with staged(case) as stage:
        for lag, wanted in (
            (1, Outcome.VERIFIED),
            (5, Outcome.VERIFIED),
            (math.inf, Outcome.STILL_INDEXED),
        ):
            await _forgotten_in_trouble(stage, text, Trouble.LAG, lag, wanted)


@_rule("C-72")
async def forgets_while_the_search_fails(case: Case) -> None:
    """A forget during which every search fails is unverified, never verified."""
    case.needs(Capability.SEARCH)
    text = await _crowd(case)
    async with staged(case) as stage:
        await _forgotten_in_trouble(stage, text, Trouble.SEARCH_FAILS, math.inf, Outcome.UNVERIFIED)


@_rule("C-73")
async def forgets_nothing_by_a_lying_delete(case: Case) -> None:
    """A forget whose deletes say yes and do nothing is never verified, nor is it later."""
    text = await _crowd(case)
    async with staged(case) as stage:
        written = await stage.write(text)
        await case.hooks.make_trouble(case.store, Trouble.LYING_DELETE, math.inf)
        forgotten = await stage.forget(written)
        # Later the text is erased, and the store can be asked by id and label only.
        asked = await stage.custody.verify(actor="ops:contract", fact_ids=[written.fact.fact_id])
        for removal in (*forgotten.removals, *asked.removals):
            case.expect(removal.outcome is not Outcome.VERIFIED, "not verified: it is still held", removal)
        case.expect(not forgotten.complete, "a forget that is not complete", forgotten)


# --- a sweep -------------------------------------------------------------------------------


async def _stranger(case: Case) -> list[str]:
    try:
        return [await case.hooks.put_unlabelled(case.store, f"written past custody {case.token}")]
    except NotApplicable:
        return []


async def _listed_while_more_arrive(stage: Stage, wanted: list[str], size: int) -> list[WriteResult]:
    """List everything while facts are written, and return those."""
    seen: Counter[str] = Counter()
    arrived: list[WriteResult] = []
    async with aclosing(stage.case.store.list_entries()) as entries:
        async for entry in entries:
            seen[entry.external_id] += 1
            if seen.total() % max(size // ARRIVALS, 1) == 0 and len(arrived) < ARRIVALS:
                arrived.append(await stage.write())
    missed = [i for i in wanted if not seen[i]]
    stage.case.expect(not missed, f"all {len(wanted)} entries", f"{len(missed)} missed")
    twice = [i for i, times in seen.items() if times > 1]
    stage.case.expect(not twice, "each entry once", f"{len(twice)} repeated")
    return arrived


@_rule("C-74")
async def sweeps_orphans_and_nothing_else(case: Case) -> None:
    """A full store is listed once each while entries arrive, and a sweep takes its orphans and no more."""
    case.needs(Capability.LIST_ENTRIES)
    size = case.hooks.many
    case.note(f"{size:,} entries, {size // 10:,} of them orphans")
    async with staged(case) as stage:
        unlabelled = await _stranger(case)
        foreign = _ids(await stage.orphans(STRANGERS, ledger_id=f"elsewhere-{case.token}"))
        believed = await stage.write_many(size - size // 10)
        lost = _ids(await stage.orphans(size // 10))
        wanted = [*stage.ids(believed), *lost, *foreign, *unlabelled]
        believed += await _listed_while_more_arrive(stage, wanted, size)
        swept, arrived = await asyncio.gather(
            stage.repair(max_removals=len(lost)), stage.write_many(ARRIVALS)
        )
        got = sorted(repaired.external_id for repaired in swept.repaired)
        case.expect(got == lost, f"the {len(lost)} orphans swept, each once", f"{len(got)} others or fewer")
        proved = stage.removed(swept.repaired, "the orphans")
        case.expect(swept.complete or not proved, "a complete repair", swept)
        await stage.ends_with([*believed, *arrived])
        left = Counter(entry.external_id for entry in await case.listed())
        touched = [i for i in (*foreign, *unlabelled) if left[i] != 1]
        case.expect(not touched, "other ledgers' and unlabelled entries as they were", touched)


# --- a write in doubt ----------------------------------------------------------------------


async def _written_again(case: Case, trouble: Trouble) -> None:
    async with staged(case) as stage:
        before = await stage.write()
        await case.hooks.make_trouble(case.store, trouble, 1)
        proposed = case.fact()
        told = {"text": proposed.text, "idempotency_key": f"key-{case.token}"}
        try:
            await stage.write(**told)
        except StoreWriteFailed as problem:
            quotes_nothing(case, problem, proposed)
        written = await stage.write(**told)
        facts = await stage.ledger.as_of(space=case.space)
        believed = sorted(fact.fact_id for fact in facts if fact.value == proposed.text)
        case.expect(believed == [written.fact.fact_id], "one believed fact", believed)
        swept = await stage.repair()
        case.expect(not swept.unrecorded, "every entry accounted for", swept.unrecorded)
        await stage.ends_with([before, written])
        # What arrived without its label would be nobody's, and stay for ever.
        copies = {entry.external_id for entry in await case.listed() if entry.text == proposed.text}
        case.expect(copies <= set(stage.ids([written])), "no other copy of the text", copies)


@_rule("C-75")
async def writes_once_though_the_reply_is_lost(case: Case) -> None:
    """A keyed write whose reply was lost, sent again, is one believed fact, and one entry after a repair."""
    case.needs(Capability.LIST_ENTRIES)
    await _written_again(case, Trouble.LOST_REPLY)


@_rule("C-76")
async def writes_once_though_it_is_answered_with_an_error(case: Case) -> None:
    """A keyed write committed but answered with 500, sent again, is one fact and, once swept, one entry."""
    case.needs(Capability.LIST_ENTRIES)
    await _written_again(case, Trouble.FAILS_AFTER)


# --- scopes --------------------------------------------------------------------------------


async def _leaks_nothing(case: Case, text: str, here: WriteResult, there: WriteResult) -> None:
    for mine, other in ((here, there), (there, here)):

        async def ask(space: str = mine.fact.space) -> set[str | None]:
            return {hit.entry.fact_id for hit in await case.search(text, 50, [space])}

        served = await case.eventually(ask, partial(_has, mine.fact.fact_id))
        with case.partly(Capability.SEARCH):
            case.expect(mine.fact.fact_id in served, f"the fact of {mine.fact.space}", served)
        case.expect(other.fact.fact_id not in served, f"nothing from outside {mine.fact.space}", served)


def _has(wanted: str, served: set[str | None]) -> bool:
    return wanted in served


@_rule("C-77")
async def keeps_spaces_apart(case: Case) -> None:
    """Of two spaces that say the same nothing leaks, a forget in one leaves the other, and both are swept."""
    text = f"said in two places {case.token}"
    spaces = [f"{case.space}:a", f"{case.space}:ab"]
    async with staged(case) as stage:
        here, there = [await stage.write(text, space=space) for space in spaces]
        if case.offers(Capability.SEARCH):
            await _leaks_nothing(case, text, here, there)
        stage.removed((await stage.forget(here)).removals, "what is forgotten in one space")
        await stage.ends_with([there], [here])
        if not case.offers(Capability.LIST_ENTRIES):
            return
        lost = [put for space in spaces for put in await stage.orphans(1, space=space)]
        swept = await stage.repair()
        got = sorted(repaired.external_id for repaired in swept.repaired)
        case.expect(got == _ids(lost), "the orphans of both spaces swept", got)
        await stage.ends_with([there], [here])


@_rule("C-78")
async def is_known_again_in_another_process(case: Case) -> None:
    """An adapter in another process lists, forgets and sweeps what this one put, in every space."""
    case.needs(Capability.LIST_ENTRIES)
    async with staged(case) as stage:
        spaces = [f"{case.space}:{n}" for n in range(3)]
        kept, private = [await stage.write(space=space) for space in spaces[:2]]
        lost = [put for space in spaces for put in await stage.orphans(1, space=space)]
        other = await case.hooks.reopened(case.store)
        async with coordinator(case, stage.ledger, stage.clock, other) as custody:
            forgotten = await custody.forget(private.fact.fact_id, actor="ops:contract", reason="asked to")
            stage.removed(forgotten.removals, "what another process forgot")
            swept = await stage.repair(custody)
        got = sorted(r.external_id for r in swept.repaired if r.kind is not Leftover.PENDING)
        case.expect(got == _ids(lost), f"the orphans of {len(spaces)} spaces swept", got)
        await stage.ends_with([kept], [private])
