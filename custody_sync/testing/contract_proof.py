"""The contract's rules on recall and proof: search and verify_deleted (C-30 to C-49).

A false "gone" is the one mistake custody cannot take back, so most of these try to provoke it.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import partial

from custody_sync.errors import CustodyError, NoProof, StoreError
from custody_sync.model import Capability, Entry
from custody_sync.testing.contract_case import Case, Put, RuleBook

PROOF = RuleBook()
_rule = PROOF.rule


def _ways(put: Put) -> list[tuple[str, Entry]]:
    """Address a put's entries with the text, as a forget does, and without, as every later check does."""
    return [("with the text", e) for e in put.entries] + [("without the text", e) for e in put.blind]


async def _never_gone(case: Case, put: Put, why: str) -> None:
    for how, entry in _ways(put):
        for _ in range(case.hooks.questions):
            answer = await case.said_gone(entry)
            case.expect(answer is not True, f"never gone, asked {how}, {why}", answer)


async def _gone(case: Case, put: Put, why: str) -> None:
    for how, entry in _ways(put):
        answer = await case.proved_gone(entry)
        # A store may declare that some of its answers are NoProof; a wrong "not gone" is never excused.
        with case.partly(Capability.VERIFY_DELETED) if answer == NoProof.__name__ else nullcontext():
            case.expect(answer is True, f"gone, asked {how}, {why}", answer)


def _quotes_nothing(case: Case, put: Put, problem: CustodyError) -> None:
    case.expect((put.fact.text or "") not in str(problem), "an error that quotes no memory", str(problem))


async def _crowd(case: Case, text: str) -> list[Put]:
    return await case.put_all([case.fact(text) for _ in range(case.hooks.crowd)])


async def _near(case: Case, text: str, *, space: str | None = None) -> list[Put]:
    # Not equal: an approximate index keeps equal vectors as one candidate, and would not be crowded.
    return await case.put_all([case.fact(f"{text} {n}", space=space) for n in range(case.hooks.crowd)])


# --- recall --------------------------------------------------------------------------------


@_rule("C-30")
async def serves_what_was_put(case: Case) -> None:
    """The search serves what was put, with its label, under its own text."""
    case.needs(Capability.SEARCH)
    puts = await case.put_all([case.fact() for _ in range(5)])
    for put in puts:
        served = await case.served(put)
        case.expect(bool(served), f"{put.ids} among ten hits for its own text", "nothing of it")
        case.expect({e.external_id for e in served} <= set(put.ids), f"ids out of {put.ids}", served)
        case.expect({e.ledger_id for e in served} == {case.ledger_id}, "the ledger id on each hit", served)


@_rule("C-31")
async def serves_at_most_k(case: Case) -> None:
    """The search returns at most k hits, none twice."""
    case.needs(Capability.SEARCH)
    text = f"one of several alike {case.token}"
    puts = await case.put_all([case.fact(text) for _ in range(12)])
    await case.served(puts[-1], k=50)
    for k in (1, 3, 12):
        hits = await case.search(text, k)
        ids = [(h.entry.scope, h.entry.external_id) for h in hits]
        case.expect(0 < len(hits) <= k, f"from 1 to {k} hits", len(hits))
        case.expect(len(set(ids)) == len(ids), "no hit twice", ids)


@_rule("C-32")
async def honours_spaces(case: Case) -> None:
    """A search in some spaces serves those only; in no space, nothing; None means all."""
    case.needs(Capability.SEARCH)
    text = f"said in two places {case.token}"
    # One space is the beginning of the other: a prefix match would leak.
    here = await case.put(case.fact(text, space=f"{case.space}:a"))
    there = await case.put(case.fact(text, space=f"{case.space}:ab"))
    everywhere = await case.served(here, k=50) + await case.served(there, k=50)
    case.expect(len(everywhere) >= 2, "both when no space is named", everywhere)
    with case.partly(Capability.SEARCH):
        for put, other in ((here, there), (there, here)):
            spaces = [put.fact.space]
            served = await case.served(put, k=50, spaces=spaces)
            case.expect(bool(served), f"an entry of {spaces}", "nothing")
            hits = await case.search(text, 50, spaces)
            leaked = [hit for hit in hits if hit.entry.fact_id == other.fact.fact_id]
            case.expect(not leaked, f"nothing from outside {spaces}", leaked)
        none = await case.search(text, 50, [])
        case.expect(none == [], "nothing when the list of spaces is empty", none)


@_rule("C-33")
async def filters_before_it_cuts(case: Case) -> None:
    """A small space is served although a crowd elsewhere is nearer: the filter comes before the cut."""
    case.needs(Capability.SEARCH)
    text = f"what everybody says {case.token}"
    await _near(case, text, space=f"{case.space}:crowd")
    rare = await case.put(case.fact(f"{text} and once more", space=f"{case.space}:rare"))

    async def ask() -> set[str | None]:
        return {hit.entry.fact_id for hit in await case.search(text, 5, [rare.fact.space])}

    got = await case.eventually(ask, lambda ids: rare.fact.fact_id in ids)
    with case.partly(Capability.SEARCH):
        case.expect(
            rare.fact.fact_id in got, "the one entry of the small space", f"{len(got)} hits without it"
        )


@_rule("C-34")
async def serves_past_deleted_neighbours(case: Case) -> None:
    """Deleted entries do not crowd out the living: what remains is served."""
    case.needs(Capability.SEARCH)
    text = f"what was said too often {case.token}"
    crowd = await _near(case, text)
    left = await case.put(case.fact(f"{text} and once more"))
    await case.delete(*crowd)

    async def ask() -> set[str | None]:
        return {hit.entry.fact_id for hit in await case.search(text, 10, None)}

    gone = {put.fact.fact_id for put in crowd}
    got = await case.eventually(ask, lambda ids: left.fact.fact_id in ids and not ids & gone)
    with case.partly(Capability.SEARCH):
        case.expect(left.fact.fact_id in got, "the entry that remains", f"{len(got)} hits without it")
    case.expect(not got & gone, "no deleted entry", f"{len(got & gone)} of them")


@_rule("C-35")
async def stops_serving_the_deleted(case: Case) -> None:
    """What is deleted is no longer served by the search, and its neighbour still is."""
    case.needs(Capability.SEARCH)
    put, neighbour = await case.put(), await case.put()
    case.expect(bool(await case.served(put)), "the entry before its delete", "nothing")
    await case.delete(put)

    async def ask() -> list[Entry]:
        hits = await case.search(put.fact.text or "", 50)
        return [hit.entry for hit in hits if hit.entry.external_id in put.ids]

    left = await case.eventually(ask, lambda entries: not entries)
    case.expect(not left, "the deleted entry no more", left)
    case.expect(bool(await case.served(neighbour)), "its neighbour", "nothing")


@_rule("C-36")
async def raises_when_its_search_fails(case: Case) -> None:
    """A search that fails raises a `StoreError` which quotes nothing; it never answers an empty list."""
    case.needs(Capability.SEARCH)
    put = await case.put()
    await case.hooks.break_search(case.store)
    try:
        hits = await case.search(put.fact.text or "")
    except StoreError as problem:
        _quotes_nothing(case, put, problem)
    except Exception as problem:
        case.expect(False, "a StoreError", type(problem).__name__)
    else:
        case.expect(False, "a StoreError", hits)


# --- proof ---------------------------------------------------------------------------------


@_rule("C-40")
async def never_calls_the_held_gone(case: Case) -> None:
    """`verify_deleted` is never True while the entry is held, with and without its text."""
    case.needs(Capability.VERIFY_DELETED)
    await _never_gone(case, await case.put(), "while it is held")


@_rule("C-41")
async def proves_a_deletion(case: Case) -> None:
    """`verify_deleted` is True once the entry is deleted, with and without its text."""
    case.needs(Capability.VERIFY_DELETED)
    put = await case.put()
    await case.put()
    await case.delete(put)
    await _gone(case, put, "after its delete")


@_rule("C-42")
async def never_trusts_a_silent_delete(case: Case) -> None:
    """`verify_deleted` is never True when the delete said yes and did nothing."""
    case.needs(Capability.VERIFY_DELETED)
    put = await case.put()
    await case.hooks.break_delete(case.store)
    await case.delete(put)
    case.expect(bool(await case.held(put)), "break_delete() to make deletes do nothing", "the entry is gone")
    await _never_gone(case, put, "after a delete that did nothing")


@_rule("C-43")
async def is_not_fooled_by_a_crowd(case: Case) -> None:
    """`verify_deleted` is never True for a held entry that hundreds of equal texts crowd out of the hits."""
    case.needs(Capability.VERIFY_DELETED)
    text = f"the same words {case.token}"
    half = case.hooks.crowd // 2
    before = await case.put_all([case.fact(text) for _ in range(half)])
    put = await case.put(case.fact(text))
    after = await case.put_all([case.fact(text) for _ in range(case.hooks.crowd - half)])
    await _never_gone(case, put, f"among {len(before) + len(after)} equal texts")


@_rule("C-44")
async def is_not_fooled_by_a_crowd_after_a_silent_delete(case: Case) -> None:
    """A delete that did nothing is not taken for a proof in a crowd of equal texts either."""
    case.needs(Capability.VERIFY_DELETED)
    text = f"again the same words {case.token}"
    half = case.hooks.crowd // 2
    await case.put_all([case.fact(text) for _ in range(half)])
    put = await case.put(case.fact(text))
    await case.put_all([case.fact(text) for _ in range(case.hooks.crowd - half)])
    await case.hooks.break_delete(case.store)
    await case.delete(put)
    await _never_gone(case, put, f"among {case.hooks.crowd} equal texts, after a delete that did nothing")


@_rule("C-45")
async def proves_nothing_when_its_search_fails(case: Case) -> None:
    """While the text is known, `verify_deleted` raises when the search fails; a held entry is never gone."""
    case.needs(Capability.VERIFY_DELETED)
    case.needs(Capability.SEARCH)
    held, deleted = await case.put(), await case.put()
    await case.delete(deleted)
    await case.hooks.break_search(case.store)
    await _never_gone(case, held, "while its search fails")
    for entry in deleted.entries:
        try:
            answer = await case.store.verify_deleted(entry)
        except CustodyError as problem:
            _quotes_nothing(case, deleted, problem)
        except Exception as problem:
            case.expect(False, "a CustodyError such as NoProof", type(problem).__name__)
        else:
            case.expect(False, "NoProof or another error while the search fails", answer)


@_rule("C-46")
async def tells_equal_texts_apart(case: Case) -> None:
    """Another fact with the same text does not keep a deletion from being proved."""
    case.needs(Capability.VERIFY_DELETED)
    text = f"said by two people {case.token}"
    gone = await case.put(case.fact(text))
    other = await case.put(case.fact(text, space=f"{case.space}:other"))
    await case.delete(gone)
    await _gone(case, gone, "while another fact says the same")
    await _never_gone(case, other, "while only its equal was deleted")


@_rule("C-47")
async def tells_generations_apart(case: Case) -> None:
    """A newer entry of the same fact does not keep the removal of the older from being proved."""
    case.needs(Capability.VERIFY_DELETED)
    older = await case.put()
    newer = await case.put(older.fact)
    await case.delete(older)
    await _gone(case, older, "while a newer generation is held")
    await _never_gone(case, newer, "while only an older generation was deleted")


@_rule("C-48")
async def proves_a_deletion_in_a_crowd(case: Case) -> None:
    """A deleted entry is proved gone, or admitted to be unprovable, in a crowd of equal texts."""
    case.needs(Capability.VERIFY_DELETED)
    text = f"what many still say {case.token}"
    put = await case.put(case.fact(text))
    await _crowd(case, text)
    await case.delete(put)
    for how, entry in _ways(put):
        answer = await case.eventually(partial(case.said_gone, entry), lambda said: said is True)
        case.expect(answer in (True, "NoProof"), f"gone or NoProof, asked {how}", answer)


@_rule("C-49")
async def knows_nothing_of_an_id_alone(case: Case) -> None:
    """An external id that is still held is never called gone, whichever fact is asked about."""
    case.needs(Capability.VERIFY_DELETED)
    put = await case.put()
    other = await case.put()
    for entry in put.entries:
        claimed = replace(entry, fact_id=other.fact.fact_id, text=None)
        answer = await case.said_gone(claimed)
        case.expect(answer is not True, "not gone: the id is still held", answer)
