"""Entries that were there before custody become facts: the ledger first, then the label, never the text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fix_custody import ACTOR, LATER, Desk, error_of, open_desk

from custody_sync import errors
from custody_sync.faultpoints import FaultPoint
from custody_sync.ledger import Repair
from custody_sync.ledger.asking import ADOPTIONS
from custody_sync.model import Capability, Entry, Fact, Limits, Provenance
from custody_sync.repair.adopting import ABSENT, CHANGED, CLAIMED, REMOVED
from custody_sync.repair.adopting import LATER as AHEAD
from custody_sync.repair.adoption import Adoption
from custody_sync.repair.given import ELSEWHERE, UNLIKE
from custody_sync.testing import MemoryStore

COFFEE = "Ada drinks her coffee black"


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    """A desk with a store that was there before, whose scopes are users."""
    async with open_desk(tmp_path, stores=lambda clock: [MemoryStore("old", clock=clock)]) as opened:
        yield opened


async def adopt(desk: Desk, store: str = "old", **more: Any) -> Any:
    """Adopt for good, unless told otherwise."""
    told = {"actor": ACTOR, "space": "user:{scope}", "dry_run": False} | more
    return await desk.custody.adopt(store, **told)


def fill(desk: Desk, count: int = 3) -> list[str]:
    """Hold texts that somebody else wrote, one a user."""
    return [desk.stores["old"].put_raw(f"{COFFEE} {n}", {"topic": "x"}, scope=f"{n}") for n in range(count)]


async def facts(desk: Desk) -> list[Fact]:
    """Return every fact the ledger has, claims too."""
    return list(await desk.ledger.as_of(include_claimed=True, limit=10_000))


async def test_an_entry_becomes_free_text(desk: Desk) -> None:
    """Subject is the space, predicate `memory`, value and text are the entry's; its text stays untouched."""
    (key,) = fill(desk, 1)
    stored_at = desk.stores["old"].snapshot()[key].created_at
    desk.clock.advance(timedelta(days=30))
    result = await adopt(desk)
    assert (result.adopted, result.labelled, result.scanned, result.complete) == (1, 1, 1, True)
    (fact,) = await facts(desk)
    assert (fact.space, fact.subject, fact.predicate) == ("user:0", "user:0", "memory")
    assert fact.value == fact.text == f"{COFFEE} 0"
    assert (fact.provenance, fact.confirmed, fact.valid_from) == (Provenance.CLAIMED, False, stored_at)
    entry = desk.stores["old"].snapshot()[key]
    assert (entry.text, entry.fact_id, entry.space) == (fact.text, fact.fact_id, "user:0")
    assert desk.stores["old"].metadata(key)["topic"] == "x"
    (event,) = await desk.ledger.history(fact.fact_id)
    assert event.data["adopted"] is True


async def test_a_dry_run_changes_nothing_and_says_no_text(desk: Desk) -> None:
    """It counts, names ids and spaces and why entries would be refused, and is what happens by default."""
    keys = fill(desk, 3)
    desk.stores["old"].put_raw("  ", scope="9")
    before = desk.stores["old"].snapshot()
    result = await desk.custody.adopt("old", actor=ACTOR, space="user:{scope}")
    assert (result.dry_run, result.adopted, result.labelled) == (True, 3, 3)
    assert [(s.external_id, s.space) for s in result.samples] == [
        (key, f"user:{n}") for n, key in enumerate(keys)
    ]
    assert result.refused == {"its text must not be empty or blank": 1}
    assert result.spaces == {"user:0": 1, "user:1": 1, "user:2": 1}
    assert COFFEE not in repr(result)
    assert (desk.stores["old"].snapshot(), (await desk.ledger.head()).seq) == (before, 0)
    done = await adopt(desk)
    assert [s.fact_id for s in done.samples] == [s.fact_id for s in result.samples]


async def test_again_finds_it_done_whatever_the_mapping(desk: Desk) -> None:
    """The fact id follows from store and entry, so that another mapping makes no second fact."""
    fill(desk)
    await adopt(desk)
    head = await desk.ledger.head()
    again = await adopt(desk, space="team:support")
    assert (again.adopted, again.ours, again.complete) == (0, 3, True)
    assert await desk.ledger.head() == head


async def test_what_is_recorded_and_not_labelled_is_labelled_next_time(desk: Desk) -> None:
    """No sweep touches it meanwhile, and the next run writes the label and no second fact."""
    (key,) = fill(desk, 1)
    desk.stores["old"].faults.refuse("relabel", times=1)
    first = await adopt(desk)
    assert (first.adopted, first.labelled, first.complete) == (1, 0, False)
    assert sum(first.unlabelled.values()) == 1
    desk.clock.advance(LATER)
    assert (await desk.repair()).repaired == ()
    planned = await adopt(desk, dry_run=True)
    assert (planned.adopted, planned.adopted_before, planned.labelled) == (0, 1, 1)
    second = await adopt(desk)
    assert (second.adopted, second.adopted_before, second.labelled) == (0, 1, 1)
    assert (second.complete, len(await facts(desk))) == (True, 1)
    assert desk.stores["old"].snapshot()[key].fact_id is not None


async def test_a_lost_reply_is_a_label(desk: Desk) -> None:
    """A label that was written and not confirmed shows in what the store holds."""
    fill(desk, 1)
    desk.stores["old"].faults.lose_reply("relabel")
    result = await adopt(desk)
    assert (result.labelled, result.complete) == (1, True)


async def test_somebody_elses_are_left(desk: Desk) -> None:
    """Entries of other ledgers are left and counted, as is what custody wrote."""
    await desk.orphan("old")
    other = {"source": "custody-sync", "ledger_id": "other", "fact_id": "f", "space": "org"}
    foreign = desk.stores["old"].put_raw("theirs", other)
    before = desk.stores["old"].snapshot()
    result = await adopt(desk)
    assert (result.ours, result.foreign, result.adopted, result.complete) == (1, 1, 0, True)
    assert desk.stores["old"].snapshot()[foreign] == before[foreign]


def mapped(entry: Entry) -> Adoption | str | None:
    """A mapping as an operator would write it."""
    text = entry.text or ""
    if "skip" in text:
        return None
    if "space only" in text:
        return "org"
    if "broken" in text:
        raise ValueError(text)
    return Adoption(space="org", subject="acct:42", predicate="plan", value={"tier": text})


async def test_a_mapping_by_a_function(desk: Desk) -> None:
    """It chooses subject, predicate, value and space, or leaves an entry; its errors stop only that one."""
    for text in ("pro", "skip me", "broken canary", "space only", "team"):
        desk.stores["old"].put_raw(text)
    result = await adopt(desk, space=mapped)
    assert (result.adopted, result.skipped) == (3, 1)
    assert result.refused == {"the mapping raised ValueError": 1}
    assert "canary" not in repr(result)
    found = [(f.subject, f.predicate, f.value, f.text) for f in await facts(desk)]
    assert ("acct:42", "plan", {"tier": "pro"}, "pro") in found
    assert ("org", "memory", "space only", "space only") in found


async def test_a_mapping_may_wait(desk: Desk) -> None:
    """A coroutine function is awaited, and an answer that is no adoption is refused by its type."""
    fill(desk, 2)

    async def slow(entry: Entry) -> Any:
        await asyncio.sleep(0)
        return Adoption(space="org") if entry.scope == "0" else 42

    result = await adopt(desk, space=slow)
    assert (result.adopted, result.refused) == (1, {"the mapping returned int, not an Adoption": 1})


async def test_what_a_store_serves_is_valid_now(desk: Desk) -> None:
    """A mapping may date a fact back, and not ahead: the entry is there and served already."""
    fill(desk, 2)
    now = desk.clock.now()

    def dated(entry: Entry) -> Adoption:
        days = timedelta(days=30 if entry.scope == "0" else -30)
        return Adoption(space="org", valid_from=now + days)

    result = await adopt(desk, space=dated)
    assert (result.adopted, list(result.refused)) == (1, [AHEAD])
    assert [fact.valid_from for fact in await facts(desk)] == [now - timedelta(days=30)]


@pytest.mark.parametrize(
    ("space", "problem"),
    [
        ("user:{user_id}", "names 'user_id'"),
        ("user:{scope", "names 'user:{scope'"),
        ("", "must not be empty"),
        (42, "must be a template"),
        ("user:{scope.upper}", "names 'scope.upper'"),
    ],
)
async def test_a_template_that_cannot_be(desk: Desk, space: Any, problem: str) -> None:
    """It is refused before the store is asked."""
    error = await error_of(adopt(desk, space=space), errors.InvalidInput)
    assert problem in str(error)
    assert await desk.untouched()


async def test_a_label_of_a_namespace(desk: Desk) -> None:
    """Where a scope is a list of labels, a template may name one of them; too few refuse the entry."""
    store = desk.stores["old"]
    store.put_raw("one", scope='["memories","ada"]')
    store.put_raw("two", scope='["memories"]')
    store.put_raw("three", scope="memories")
    store.put_raw("four")
    result = await adopt(desk, space="user:{scope[1]}")
    assert result.spaces == {"user:ada": 1}
    assert result.refused == {
        "its scope has no label number 1": 2,
        "it has no scope, and the template asks for one": 1,
    }


async def test_unknown_stores_and_blind_ones(tmp_path: Path) -> None:
    """A store that is not configured, or cannot list, is refused in a sentence."""
    async with open_desk(tmp_path, stores=[MemoryStore("a", without=[Capability.LIST_ENTRIES])]) as desk:
        assert "a are" in str(await error_of(adopt(desk, "b"), errors.InvalidInput))
        assert "cannot list" in str(await error_of(adopt(desk, "a"), errors.InvalidInput))


async def test_texts_that_no_fact_can_have(tmp_path: Path) -> None:
    """Too long for a configured store, blank, or what no ledger can keep: refused, each by a reason."""
    stores = [MemoryStore("old"), MemoryStore("small", limits=Limits(text_chars=10))]
    async with open_desk(tmp_path, stores=stores) as desk:
        for text in ("short", "much too long for it", " \n", "a\x00b", "\ud800"):
            desk.stores["old"].put_raw(text)
        result = await adopt(desk, space="org")
        assert (result.adopted, sum(result.refused.values())) == (1, 4)
        assert result.refused["its text is longer than the 10 characters that store 'small' takes"] == 1
        assert {left.external_id for left in result.refusals} == {f"raw-{n}" for n in range(2, 6)}
        assert not result.complete


async def test_validators_decide_as_for_a_write(tmp_path: Path) -> None:
    """What they refuse is refused, without their words; a rewritten text is not adopted."""

    async def validator(fact: Fact, view: Any) -> Fact:
        if "secret" in (fact.text or ""):
            raise errors.InvalidInput(field="value", problem=f"quotes {fact.text}")
        if "upper" in (fact.text or ""):
            return replace(fact, value=str(fact.value).upper())
        return fact

    async with open_desk(tmp_path, stores=[MemoryStore("old")], validators=[validator]) as desk:
        for text in ("fine", "a secret", "to upper"):
            desk.stores["old"].put_raw(text)
        result = await adopt(desk, space="org")
        assert result.refused == {
            "its value is refused (invalid_input)": 1,
            "a validator rewrites its text, which adopting leaves as it is": 1,
        }
        assert ("a secret" not in repr(result), result.adopted) == (True, 1)


async def test_a_text_that_changes_before_the_label(desk: Desk) -> None:
    """What changed between listing and labelling keeps no label of the old text, and is named."""
    (key,) = fill(desk, 1)
    store = desk.stores["old"]
    relabel = store.relabel

    async def late(entry: Entry, label: Any) -> None:
        store._held[key] = replace(store._held[key], text="she takes milk now")
        await relabel(entry, label)

    store.relabel = late  # type: ignore[method-assign]  # the moment in between
    result = await adopt(desk)
    assert (result.labelled, result.complete) == (0, False)
    assert [left.external_id for left in result.without_label] == [key]
    assert store.snapshot()[key].fact_id is None
    store.relabel = relabel  # type: ignore[method-assign]
    again = await adopt(desk)
    assert again.unlabelled == {CHANGED: 1}


async def test_an_entry_that_goes_before_the_label(desk: Desk) -> None:
    """What was deleted in between is named, and nothing is written in its place."""
    (key,) = fill(desk, 1)
    desk.call_next(FaultPoint.RECORDED, lambda: desk.stores["old"].drop(key))
    result = await adopt(desk)
    assert (result.adopted, result.labelled, result.complete) == (1, 0, False)
    assert desk.stores["old"].snapshot() == {}


async def test_two_adopts_at_once(desk: Desk) -> None:
    """Every entry becomes one fact, whoever was first."""
    fill(desk, 40)
    one, two = await asyncio.gather(adopt(desk), adopt(desk, space="team:{scope}"))
    assert one.adopted + two.adopted == 40
    assert (one.complete, two.complete) == (True, True)
    assert (len(await facts(desk)), len(desk.held())) == (40, 40)


async def test_a_writer_beside_it(desk: Desk) -> None:
    """Writes go on, and what they put is no entry without a label."""
    fill(desk, 20)

    async def write() -> None:
        for n in range(10):
            await desk.write(n, subject=f"acct:{n}")

    result, _ = await asyncio.gather(adopt(desk), write())
    assert (result.adopted, result.complete) == (20, True)
    desk.clock.advance(LATER)
    assert (await desk.repair()).repaired == ()
    assert len(await desk.current()) == 10


async def test_a_limit(desk: Desk) -> None:
    """It adopts so many at most, says whether that was all, and the next run goes on."""
    fill(desk, 5)
    for adopted, more in ((2, True), (2, True), (1, False)):
        result = await adopt(desk, limit=2)
        assert (result.adopted, result.more, result.complete) == (adopted, more, not more)
    assert "limit" in str(await error_of(adopt(desk, limit=0), errors.InvalidInput))


async def test_attested_is_believed_at_once(desk: Desk) -> None:
    """The operator may vouch for what a store holds; the facts are then read by default and held."""
    fill(desk, 2)
    await adopt(desk, provenance="attested")
    assert len(await desk.judge_clean()) == 2
    assert "claimed or attested" in str(await error_of(adopt(desk, provenance="sure"), errors.InvalidInput))


async def test_claims_wait_and_are_confirmed_together(desk: Desk) -> None:
    """Quarantined until confirmed, many at once; nothing is put twice and the labels follow."""
    fill(desk, 3)
    await adopt(desk, space="user:ada")
    assert await desk.current() == []
    planned = await desk.custody.confirm_many(actor=ACTOR, space="user:*")
    assert (planned.confirmed, planned.dry_run, await desk.current()) == (3, True, [])
    result = await desk.custody.confirm_many(actor=ACTOR, space="user:ada", dry_run=False)
    assert (result.claimed, result.confirmed, result.complete) == (3, 3, True)
    assert len(await desk.judge_clean()) == 3
    assert desk.stores["old"].calls["put"] == 0
    assert '"provenance":"attested"' in str(desk.stores["old"].metadata("raw-1")["custody"])


async def test_no_claims_at_all_are_not_confirmed(desk: Desk) -> None:
    """An empty list is a mistake and no success: nothing that was asked for is complete."""
    empty = desk.custody.confirm_many(fact_ids=[], actor=ACTOR, dry_run=False)
    assert "at least one" in str(await error_of(empty, errors.InvalidInput))


async def test_a_retraction_takes_an_adopted_entry(desk: Desk) -> None:
    """It is removed and verified as any other, and its id is not adopted again."""
    (key,) = fill(desk, 1)
    (sample,) = (await adopt(desk)).samples
    assert (await desk.retract(sample.fact_id)).complete
    assert desk.stores["old"].snapshot() == {}
    desk.stores["old"]._held[key] = _raw(desk, key)
    again = await adopt(desk)
    assert again.refused == {REMOVED: 1}


def _raw(desk: Desk, key: str) -> Any:
    made = desk.stores["old"].put_raw("new words", scope="0")
    held = desk.stores["old"]._held.pop(made)
    return replace(held, external_id=key)


async def test_what_was_forgotten_is_not_adopted_again(desk: Desk) -> None:
    """An erasure of identity takes the id; an entry that came back under it is refused, not learned anew."""
    (key,) = fill(desk, 1)
    (sample,) = (await adopt(desk)).samples
    assert (await desk.forget(sample.fact_id, identity=True)).complete
    desk.stores["old"]._held[key] = _raw(desk, key)
    again = await adopt(desk)
    assert again.refused == {"it was a fact before, which was retracted or forgotten since": 1}


async def claim(desk: Desk, keys: list[str], count: int) -> None:
    """Have repairs claim the first ids that adopting would give entries."""
    for key in keys:
        for fact_id in desk.ledger.adopted_ids("old", key)[:count]:
            await desk.ledger.append(
                Repair(event_id=fact_id, fact_id=fact_id, actor=ACTOR, reason="unknown outcome")
            )


async def test_an_entry_whose_ids_are_all_claimed_is_refused(desk: Desk) -> None:
    """Under another id it would not be known again; the others are adopted."""
    keys = fill(desk, 2)
    await claim(desk, keys[:1], ADOPTIONS)
    for dry_run in (True, False):
        result = await adopt(desk, dry_run=dry_run)
        assert (result.adopted, result.refused, result.complete) == (1, {CLAIMED: 1}, False)
    (fact,) = await facts(desk)
    assert fact.text == f"{COFFEE} 1"


async def test_an_id_that_a_repair_claimed(desk: Desk) -> None:
    """Where an outcome was settled by claiming the id, the entry gets its next one."""
    fill(desk, 1)
    planned = (await adopt(desk, dry_run=True)).samples[0].fact_id
    await desk.ledger.append(Repair(event_id="e", fact_id=planned, actor=ACTOR, reason="unknown outcome"))
    result = await adopt(desk)
    assert (result.adopted, result.complete) == (1, True)
    assert result.samples[0].fact_id != planned


async def test_one_id_in_two_scopes(desk: Desk) -> None:
    """A ledger knows an entry by its id; the second of two that share one is refused, and stays as it was."""
    store = desk.stores["old"]
    real = store.list_entries

    async def twice() -> AsyncIterator[Entry]:
        async for entry in real():
            yield entry
            yield Entry(store="old", external_id=entry.external_id, scope="elsewhere", text="another")

    fill(desk, 1)
    store.list_entries = twice  # type: ignore[method-assign]
    for _ in range(2):
        result = await adopt(desk)
        assert sum(result.refused.values()) == 1, result
        assert len(await facts(desk)) == 1


async def test_a_listing_that_fails(desk: Desk) -> None:
    """What came before is adopted, the result says why it stopped, and the next run goes on."""
    fill(desk, 3)
    desk.stores["old"].faults.list_breaks_after = 2
    result = await adopt(desk)
    assert (result.adopted, result.complete) == (2, False)
    assert str(result.stopped).startswith("old: cannot list")
    desk.stores["old"].faults.list_breaks_after = None
    assert (await adopt(desk)).adopted == 1


async def test_where_no_label_can_be_written(tmp_path: Path) -> None:
    """The facts are placed all the same, the reason is said, and running it again changes nothing."""
    async with open_desk(tmp_path, stores=[MemoryStore("old", without=[Capability.RELABEL])]) as desk:
        fill(desk, 2)
        result = await adopt(desk)
        assert (result.adopted, result.labelled, result.complete) == (2, 0, True)
        assert result.no_labels == "this memory store was built without it"
        again = await adopt(desk)
        assert (again.adopted, again.adopted_before, again.complete) == (0, 2, True)
        (fact, other) = await facts(desk)
        confirmed = await desk.confirm(fact.fact_id)
        assert [r.done for r in confirmed.relabelled] == [False]
        assert (await desk.retract(fact.fact_id)).complete
        assert (await desk.forget(other.fact_id)).complete
        assert desk.stores["old"].snapshot() == {}


async def test_scopes_that_recall_would_not_ask(tmp_path: Path) -> None:
    """Entries that lie where new facts of their space would not are counted."""
    async with open_desk(tmp_path, stores=[MemoryStore("old", scope="{space}")]) as desk:
        desk.stores["old"].put_raw("a", scope="user:1")
        desk.stores["old"].put_raw("b", scope="2")
        assert (await adopt(desk, space="{scope}")).elsewhere == 0
        desk.stores["old"].put_raw("c", scope="3")
        assert (await adopt(desk)).elsewhere == 1


async def test_given_entries_alone_are_adopted(desk: Desk) -> None:
    """Entries that the caller was just shown are adopted without listing the store; others are left."""
    keys = fill(desk, 3)
    store = desk.stores["old"]
    shown = store.snapshot()
    given = [shown[keys[0]], shown[keys[2]]]
    store.calls.clear()
    result = await adopt(desk, entries=given)
    assert (result.scanned, result.adopted, result.labelled, result.complete) == (2, 2, 2, True)
    assert store.calls["list_entries"] == 0
    assert {fact.text for fact in await facts(desk)} == {f"{COFFEE} 0", f"{COFFEE} 2"}
    again = await adopt(desk, entries=given)
    assert (again.adopted, again.adopted_before) == (0, 2)
    rest = await adopt(desk)
    assert (rest.adopted, rest.ours) == (1, 2)


async def test_given_entries_need_no_listing(tmp_path: Path) -> None:
    """A store that cannot list what it holds still has what it showed adopted; odd entries are refused."""
    async with open_desk(
        tmp_path, stores=lambda clock: [MemoryStore("old", clock=clock, without=[Capability.LIST_ENTRIES])]
    ) as desk:
        (key,) = fill(desk, 1)
        entry = desk.stores["old"].snapshot()[key]
        result = await adopt(desk, entries=[entry, replace(entry, external_id="other", text=None)])
        assert (result.adopted, sum(result.refused.values())) == (1, 1)
        assert (await adopt(desk, entries=[])).scanned == 0
        await error_of(adopt(desk), errors.InvalidInput)


@pytest.fixture
async def plain(tmp_path: Path) -> AsyncIterator[Desk]:
    """A desk whose store writes no labels."""
    stores = [MemoryStore("old", without=[Capability.RELABEL])]
    async with open_desk(tmp_path, stores=stores) as opened:
        yield opened


@pytest.mark.parametrize("provenance", ["claimed", "attested"])
async def test_a_text_that_changes_where_no_labels_are(plain: Desk, provenance: str) -> None:
    """Who is told to run adopt is told by it what is wrong, and what to do; what is as it was is done."""
    keys = fill(plain, 2)
    store = plain.stores["old"]
    await adopt(plain, provenance=provenance)
    assert (await adopt(plain)).complete
    store._held[keys[0]] = replace(store._held[keys[0]], text="she takes milk now")
    for dry_run in (True, False):
        again = await adopt(plain, dry_run=dry_run)
        assert (again.adopted, again.adopted_before, again.unlabelled) == (0, 2, {CHANGED: 1})
        assert [left.external_id for left in again.without_label] == keys[:1]
        assert not again.complete


@pytest.mark.parametrize("claimed", [0, ADOPTIONS - 1])
async def test_what_was_forgotten_and_comes_back_is_shown_to_nobody(plain: Desk, claimed: int) -> None:
    """A store restored from a backup serves it without a label; the ledger knows it all the same."""
    keys = fill(plain, 2)
    await claim(plain, keys, claimed)
    store = plain.stores["old"]
    backup = dict(store._held)
    await adopt(plain, provenance="attested")
    now = plain.clock.now()
    for fact, identity in zip(await plain.ledger.as_of(limit=2), (False, True), strict=True):
        done = await plain.custody.forget(fact.fact_id, actor=ACTOR, reason="asked", identity=identity)
        assert done.complete
    plain.clock.advance(LATER)
    store._held |= backup
    for asked in ({}, {"tx_at": now}, {"valid_at": now}):
        found = await plain.custody.recall(COFFEE, unlabelled="show", **asked)
        assert (found.hits, found.unlabelled, sum(found.dropped.values())) == ((), (), len(keys))
        assert not any("adopt" in note for note in found.notes)


async def test_given_entries_are_the_stores_own_and_count_once(desk: Desk) -> None:
    """One of another store, or two that contradict each other, would put on record what nobody showed."""
    keys = fill(desk, 3)
    one, two, three = (desk.stores["old"].snapshot()[key] for key in keys)
    given = [one, one, replace(two, store="new"), three, replace(three, text="forged")]
    for dry_run in (True, False):
        result = await adopt(desk, entries=iter(given), dry_run=dry_run)
        assert (result.scanned, result.adopted, result.complete) == (3, 1, False)
        assert result.refused == {ELSEWHERE: 1, UNLIKE: 1}
    assert (await adopt(desk, entries={one, two})).adopted == 1


@pytest.mark.parametrize("entries", ["abc", b"abc", {"a": 1}, 7])
async def test_what_holds_no_entries_is_refused(desk: Desk, entries: Any) -> None:
    """In a sentence, before anything is done."""
    assert "entries" in str(await error_of(adopt(desk, entries=entries), errors.InvalidInput))
    assert await desk.untouched()


async def test_given_entries_are_seen_before_they_are_believed(tmp_path: Path) -> None:
    """Where no label shows that they are there, the store is asked; if it cannot be, the result says so."""
    blind = [Capability.RELABEL, Capability.VERIFY_DELETED, Capability.LIST_ENTRIES]
    stores = [MemoryStore("plain", without=blind[:1]), MemoryStore("blind", without=blind)]
    async with open_desk(tmp_path, stores=stores) as desk:
        for name in ("plain", "blind"):
            desk.stores[name].put_raw("as it is")
            desk.stores[name].put_raw("as it was")
        one, two = desk.stores["plain"].snapshot().values()
        result = await adopt(desk, "plain", space="org", entries=[one, replace(two, text="forged")])
        assert (result.adopted, result.refused, result.unseen) == (1, {ABSENT: 1}, 0)
        assert [fact.text for fact in await facts(desk)] == ["as it is"]
        result = await adopt(desk, "blind", space="org", entries=desk.stores["blind"].snapshot().values())
        assert (result.adopted, result.unseen, result.complete) == (2, 2, False)
