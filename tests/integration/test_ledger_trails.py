"""Where entries lead along their chains, and the chains themselves: the same on every storage."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from fix_ledger import Book, day

from custody_sync.errors import InvalidInput
from custody_sync.ledger.asking import ADOPTIONS
from custody_sync.ledger.questions import Instants
from custody_sync.model import Entry, Fact, Provenance
from custody_sync.recalled import Belief, Followed, Link

B = Belief
ODD = ("", " ", "f1\x00", "\ud800", "x" * 5000, "'; --", "%s", "ü\u2028")


def entry(fact_id: str | None, external_id: str = "m1", **more: Any) -> Entry:
    """Return an entry as a store shows it."""
    return Entry(store="memories", external_id=external_id, fact_id=fact_id, **more)


async def chain(book: Book, *values: str, **more: Any) -> list[str]:
    """Write facts that supersede each other, an hour apart, and return their ids."""
    ids: list[str] = []
    for value in values:
        ids.append(await book.add("acct:42", "plan", value, supersedes=ids[-1] if ids else None, **more))
        book.later(hours=1)
    return ids


async def latest(book: Book) -> datetime:
    """Return the time of the last event."""
    tx_time = (await book.ledger.head()).tx_time
    assert tx_time is not None
    return tx_time


async def led(book: Book, *fact_ids: str, **when: Any) -> list[tuple[Belief, Any]]:
    """Return where entries of facts lead: how each fact stands, and the value that is believed instead."""
    _, found = await book.ledger.follow([entry(fact_id) for fact_id in fact_ids], **when)
    assert [one.owner for one in found] == list(fact_ids)
    return [(one.belief, None if one.fact is None else one.fact.value) for one in found]


async def told(book: Book, fact_id: str, **when: Any) -> list[tuple[Belief, Any]]:
    """Return a fact's chain: how each link stands, and its value."""
    _, (links,) = await book.ledger.links([fact_id], **when)
    return [(link.belief, link.fact.value) for link in links]


async def test_every_link_of_a_chain_leads_to_the_last(book: Book) -> None:
    """A hit on what was superseded leads to what took its place, as the whole fact that `get` returns."""
    ids = await chain(book, "a", "b", "c")
    assert await led(book, *ids) == [(B.SUPERSEDED, "c"), (B.SUPERSEDED, "c"), (B.BELIEVED, "c")]
    _, found = await book.ledger.follow([entry(ids[0])])
    assert found == [Followed(B.SUPERSEDED, ids[0], await book.ledger.get(ids[2]))]
    assert await told(book, ids[1]) == [(B.SUPERSEDED, "a"), (B.SUPERSEDED, "b"), (B.BELIEVED, "c")]


async def test_a_retracted_middle_changes_nothing_and_a_retracted_end_brings_back(book: Book) -> None:
    """Retract the middle and the last is believed; retract the last and what it covered is again."""
    a, b, c = await chain(book, "a", "b", "c")
    before = await latest(book)
    await book.append(book.retract(b))
    assert await led(book, a, b, c) == [(B.SUPERSEDED, "c"), (B.RETRACTED, "c"), (B.BELIEVED, "c")]
    await book.append(book.retract(c))
    assert await led(book, a, b, c) == [(B.BELIEVED, "a"), (B.RETRACTED, "a"), (B.RETRACTED, "a")]
    assert await told(book, a) == [(B.BELIEVED, "a"), (B.RETRACTED, "b"), (B.RETRACTED, "c")]
    await book.append(book.retract(a))
    assert await led(book, a, b, c) == [(B.RETRACTED, None)] * 3
    # As the ledger knew it before any of that.
    assert await led(book, a, b, c, tx_at=before) == [(B.SUPERSEDED, "c")] * 2 + [(B.BELIEVED, "c")]


async def test_a_forgotten_link_covers_what_it_covered(book: Book) -> None:
    """A forgotten end leads nowhere, and never back to an older value; a forgotten middle is passed over."""
    a, b, c = await chain(book, "a", "b", "c")
    before = await latest(book)
    await book.append(book.forget(b))
    assert await led(book, a, b, c) == [(B.SUPERSEDED, "c"), (B.FORGOTTEN, "c"), (B.BELIEVED, "c")]
    await book.append(book.forget(c))
    assert await led(book, a, b, c) == [(B.SUPERSEDED, None), (B.FORGOTTEN, None), (B.FORGOTTEN, None)]
    assert await told(book, a) == [(B.SUPERSEDED, "a"), (B.FORGOTTEN, None), (B.FORGOTTEN, None)]
    _, (then,) = await book.ledger.follow([entry(a)], tx_at=before)
    assert then.fact is not None
    assert (then.fact.fact_id, then.fact.forgotten, then.fact.value) == (c, True, None)


async def test_an_erased_identity_stays_a_link_without_names(book: Book) -> None:
    """Its neighbours are still led along the chain; of itself nothing but its place is shown."""
    a, b, c = await chain(book, "a", "b", "c")
    await book.append(book.forget(b, identity=True))
    assert await led(book, a, b, c) == [(B.SUPERSEDED, "c"), (B.FORGOTTEN, "c"), (B.BELIEVED, "c")]
    _, (links,) = await book.ledger.links([a])
    assert [link.fact.fact_id for link in links] == [a, b, c]
    gone = links[1].fact
    assert (gone.space, gone.subject, gone.predicate, gone.value, gone.text) == ("", "", "", None, None)


async def test_a_claim_leads_to_the_link_it_would_replace_until_it_is_confirmed(book: Book) -> None:
    """Unless claims are asked for: then it leads to itself, and the others still to what is believed."""
    a = await book.add(value="a")
    claim = await book.add(value="b", supersedes=a, provenance=Provenance.CLAIMED)
    alone = await book.add("acct:7", "plan", "c", provenance=Provenance.CLAIMED)
    assert await led(book, a, claim, alone) == [(B.BELIEVED, "a"), (B.CLAIMED, "a"), (B.CLAIMED, None)]
    waiting = [(B.BELIEVED, "a"), (B.CLAIMED, "b"), (B.CLAIMED, "c")]
    assert await led(book, a, claim, alone, include_claimed=True) == waiting
    before = await latest(book)
    book.later(hours=1)
    await book.append(book.confirm(claim))
    assert await led(book, a, claim) == [(B.SUPERSEDED, "b"), (B.BELIEVED, "b")]
    _, (one,) = await book.ledger.follow([entry(claim)])
    assert one.fact is not None
    assert one.fact.confirmed
    assert await led(book, a, claim, tx_at=before) == [*waiting[:1], (B.CLAIMED, "a")]
    assert await led(book, a, claim, tx_at=before, include_claimed=True) == waiting[:2]
    assert await told(book, claim, tx_at=before) == [(B.BELIEVED, "a"), (B.CLAIMED, "b")]


async def test_claims_that_were_dropped_or_are_not_valid_lead_nowhere(book: Book) -> None:
    """Asking for claims serves those that wait and are valid, and no others."""
    over = await book.add(value="a", provenance=Provenance.CLAIMED, valid_to=book.clock.now() + timedelta(1))
    dropped = await book.add(value="b", provenance=Provenance.CLAIMED)
    erased = await book.add(value="c", provenance=Provenance.CLAIMED)
    await book.append(book.retract(dropped))
    await book.append(book.forget(erased))
    book.later(days=2)
    found = await led(book, over, dropped, erased, include_claimed=True)
    assert found == [(B.CLAIMED, None), (B.RETRACTED, None), (B.FORGOTTEN, None)]


async def test_validity_decides_at_the_asked_instant(book: Book) -> None:
    """What begins later leads to what holds until then; what has ended leads nowhere, covered or not."""
    a = await book.add(value="a", valid_from=day(1))
    b = await book.add(value="b", valid_from=day(10), valid_to=day(20), supersedes=a)
    assert await led(book, a, b, valid_at=day(1) - timedelta(microseconds=1)) == [(B.LATER, None)] * 2
    assert await led(book, a, b, valid_at=day(9)) == [(B.BELIEVED, "a"), (B.LATER, "a")]
    assert await led(book, a, b, valid_at=day(10)) == [(B.SUPERSEDED, "b"), (B.BELIEVED, "b")]
    assert await led(book, a, b, valid_at=day(20)) == [(B.SUPERSEDED, None), (B.ENDED, None)]
    c = await book.add(value="c", valid_from=day(25), supersedes=b)
    assert await led(book, a, b, c, valid_at=day(26)) == [(B.SUPERSEDED, "c")] * 2 + [(B.BELIEVED, "c")]
    assert await told(book, b, valid_at=day(22)) == [(B.SUPERSEDED, "a"), (B.ENDED, "b"), (B.LATER, "c")]


async def test_an_entry_of_a_later_fact_leads_to_what_the_ledger_knew_then(book: Book) -> None:
    """A store that holds only the correction still answers for the time before it."""
    a, b = await chain(book, "a", "b")
    before = (await book.ledger.history(a))[0].tx_time
    assert await led(book, a, b, tx_at=before) == [(B.BELIEVED, "a"), (B.LATER, "a")]
    assert await told(book, b, tx_at=before) == [(B.BELIEVED, "a")]
    alone = await book.add("acct:7", "plan", "c")
    assert await led(book, alone, tx_at=before) == [(B.LATER, None)]
    assert await told(book, alone, tx_at=before) == []
    assert await led(book, a, b, tx_at=day(1, month=8)) == [(B.LATER, None)] * 2


async def test_an_unlabelled_entry_belongs_to_the_fact_that_is_on_record_for_it(book: Book) -> None:
    """By store, external id and scope, the latest placement that was not seen gone."""
    draft = book.state("acct:42", "plan", "a", provenance=Provenance.CLAIMED)
    await book.append(draft)
    await book.append(book.confirm(draft.fact_id, held=[("memories", "m1"), ("archive", "m1")]))
    other = await book.add("acct:7", "plan", "b")
    await book.append(book.place(other, [("memories", "m2")], scope="user/7"))
    asked = [
        entry(None),
        entry(None, "m2"),
        entry(None, "m2", scope="user/7"),
        entry(None, "m2", scope="user/8"),
        entry(None, "m3"),
        Entry(store="elsewhere", external_id="m1"),
        entry("nobody", "m1"),
    ]
    _, found = await book.ledger.follow(asked)
    assert [one.owner for one in found] == [draft.fact_id, None, other, None, None, None, "nobody"]
    assert [one.belief for one in found] == [B.BELIEVED, B.UNKNOWN, B.BELIEVED, *[B.UNKNOWN] * 4]
    await book.append(book.retract(other))
    await book.append(book.remove(other, "memories", "m2", scope="user/7"))
    assert (await book.ledger.follow(asked[2:3]))[1] == [Followed(B.RETRACTED, other, None)]


async def test_an_unlabelled_entry_that_has_to_go_is_still_its_facts(book: Book) -> None:
    """Also once it was seen gone: what comes back from a backup is what had to go."""
    fact_id = await book.add("acct:42", "plan", "a", held=[("memories", "m1")])
    await book.append(book.retract(fact_id))
    await book.append(book.repair("f-orphan", "memories", "m2"))
    asked = [entry(None), entry(None, "m2")]
    _, found = await book.ledger.follow(asked)
    assert found == [Followed(B.RETRACTED, fact_id, None), Followed(B.REPAIRED, "f-orphan", None)]
    await book.append(book.remove(fact_id, "memories", "m1"))
    await book.append(book.remove("f-orphan", "memories", "m2"))
    assert (await book.ledger.follow(asked))[1] == found


async def test_what_comes_back_under_an_id_is_its_facts_unless_its_text_is_another(book: Book) -> None:
    """A text on record tells an application's new entry apart; that of a forgotten fact cannot."""
    kept = await book.add("acct:1", "plan", "a", text="old", held=[("memories", "m1")])
    erased = await book.add("acct:2", "plan", "b", text="old", held=[("memories", "m2")])
    await book.append(book.retract(kept))
    await book.append(book.forget(erased))
    for fact_id, external_id in ((kept, "m1"), (erased, "m2")):
        await book.append(book.remove(fact_id, "memories", external_id))
    for text, owners in (("old", [kept, erased]), (None, [kept, erased]), ("new", [None, erased])):
        asked = [entry(None, "m1", text=text), entry(None, "m2", text=text)]
        _, found = await book.ledger.follow(asked)
        assert [one.owner for one in found] == owners
        assert found[1] == Followed(B.FORGOTTEN, erased, None)


@pytest.mark.parametrize("claimed", [0, 1, ADOPTIONS - 1])
async def test_an_adopted_entry_is_known_after_its_identity_was_erased(book: Book, claimed: int) -> None:
    """The ledger has not even its id any more, but knows it again, also if repairs claimed some before."""
    for taken in book.ledger.adopted_ids("memories", "m1")[:claimed]:
        await book.append(book.repair(taken))
    fact_id = book.ledger.adopted_ids("memories", "m1")[claimed]
    kept = book.ledger.adopted_ids("memories", "m2")[claimed]
    await book.add("acct:1", "plan", "a", fact_id=fact_id, held=[("memories", "m1")])
    await book.add("acct:2", "plan", "b", fact_id=kept)
    await book.append(book.place(kept, [("memories", "m2")], scope="user/1"))
    await book.append(book.forget(fact_id, identity=True))
    await book.append(book.remove(fact_id, "memories", "m1"))
    assert (await book.ledger.placements(fact_id))[0].external_id != "m1"
    asked = [entry(None, text="a"), entry(None, "m2"), entry(None, "m3")]
    asked += [entry("nobody", "m1")] * 2
    assert (await book.ledger.follow(asked))[1] == [
        Followed(B.FORGOTTEN, fact_id, None),
        *[Followed(B.UNKNOWN, None, None)] * 2,
        *[Followed(B.UNKNOWN, "nobody", None)] * 2,
    ]


@pytest.mark.parametrize("state", ["held", "kept", "due", "gone"])
async def test_another_text_under_an_id_is_somebody_elses(book: Book, state: str) -> None:
    """Whatever became of the fact on record for it; with a label, the label alone says whose it is."""
    old = await book.add("acct:1", "plan", "a", text="old", held=[("memories", "m1")])
    believed = old
    if state != "held":
        draft = book.state("acct:1", "plan", "b", text="new", supersedes=old)
        await book.append(replace(draft, kept=("memories",) if state == "kept" else ()))
        believed = draft.fact_id
    if state == "gone":
        await book.append(book.remove(old, "memories", "m1"))
    assert [row.state.value for row in await book.ledger.placements(old)] == [state]
    texts = ("old", None, "mine")
    _, found = await book.ledger.follow([entry(None, text=text) for text in texts])
    assert [one.owner for one in found] == [old, old, None]
    assert found[2] == Followed(B.UNKNOWN, None, None)
    assert [one.fact and one.fact.fact_id for one in found] == [believed, believed, None]
    _, found = await book.ledger.follow([entry(old, text=text) for text in texts])
    assert [one.owner for one in found] == [old] * 3


async def test_what_is_no_fact_leads_nowhere(book: Book) -> None:
    """A repaired id, one repaired later, and one that nobody has heard of."""
    await book.append(book.repair("f-orphan", "memories", "m1"))
    then = await latest(book)
    book.later(hours=1)
    await book.append(book.repair("f-other", "memories", "m2"))
    assert await led(book, "f-orphan", "f-other", "f-9") == [(B.REPAIRED, None)] * 2 + [(B.UNKNOWN, None)]
    asked = await led(book, "f-orphan", "f-other", "f-9", tx_at=then)
    assert asked == [(B.REPAIRED, None), (B.LATER, None), (B.UNKNOWN, None)]
    assert (await book.ledger.links(["f-orphan", "f-9"]))[1] == [(), ()]


async def test_odd_strings_are_unknown_and_harm_nothing(book: Book) -> None:
    """What no ledger can hold is nobody's, also where it begins like an id that there is."""
    assert await book.add("acct:42", "plan", "a", fact_id="f1", held=[("memories", "m1")]) == "f1"
    assert await led(book, *ODD, "f1") == [(B.UNKNOWN, None)] * len(ODD) + [(B.BELIEVED, "a")]
    assert (await book.ledger.links([*ODD]))[1] == [()] * len(ODD)
    for odd in ("m1\x00", "\ud800", "x" * 5000, ""):
        asked = [entry(None, odd), entry(None, scope=odd), Entry(store=odd, external_id="m1"), entry(None)]
        _, found = await book.ledger.follow(asked)
        assert [one.owner for one in found] == [None, None, None, "f1"]


async def test_answers_come_in_the_order_asked_and_as_often(book: Book) -> None:
    """Nothing asked is nothing answered; what is asked twice is answered twice."""
    a, b = await chain(book, "a", "b")
    head = await book.ledger.head()
    assert await book.ledger.follow([]) == (Instants(head, book.clock.now()), [])
    assert await book.ledger.links([]) == (Instants(head, book.clock.now()), [])
    assert [fact for _, fact in await led(book, b, "x", a, b)] == ["b", None, "b", "b"]
    _, chains = await book.ledger.links([b, "x", a, b])
    assert [len(links) for links in chains] == [2, 0, 2, 2]
    assert chains[0] == chains[2] == chains[3]


async def test_an_empty_ledger_leads_nowhere(book: Book) -> None:
    """It answers at its clock, before its first event."""
    at, found = await book.ledger.follow([entry("f1"), entry(None)])
    assert found == [Followed(B.UNKNOWN, "f1", None), Followed(B.UNKNOWN, None, None)]
    assert (at.head.seq, at.head.hash, at.valid_at) == (0, "0" * 64, book.clock.now())
    assert await book.ledger.links(["f1"]) == (at, [()])


async def test_the_instants_are_those_of_as_of(book: Book) -> None:
    """Now is the later of the clock and the head; a moment between two events is at the earlier one."""
    a, _ = await chain(book, "a", "b")
    first, head = (await book.ledger.history(a))[0], await book.ledger.head()
    book.at(day(1, month=8))
    at, _ = await book.ledger.follow([entry(a)])
    assert at == (await book.ledger.links([a]))[0] == Instants(head, head.tx_time or day(1))
    between = first.tx_time + timedelta(minutes=30)
    for asked in (book.ledger.follow([entry(a)], tx_at=between), book.ledger.links([a], tx_at=between)):
        at, _ = await asked
        assert (at.head.seq, at.valid_at) == (1, first.tx_time)
        assert at.head == (await book.ledger.as_of(tx_at=between)).head
    at, _ = await book.ledger.follow([], valid_at=day(3), tx_at=between)
    assert at.valid_at == day(3)


@pytest.mark.storages("sqlite")
async def test_an_instant_without_a_zone_is_refused(book: Book) -> None:
    """As in every other question; an instant in another zone is the same one."""
    (a,) = await chain(book, "a")
    for name in ("valid_at", "tx_at"):
        naive: Any = {name: datetime(2026, 9, 1)}
        for ask in (book.ledger.follow([], **naive), book.ledger.links([], **naive)):
            with pytest.raises(InvalidInput, match=name):
                await ask
    elsewhere = (await latest(book)).astimezone(timezone(timedelta(hours=9)))
    assert await led(book, a, tx_at=elsewhere) == [(B.BELIEVED, "a")]


@pytest.mark.storages("sqlite")
async def test_ids_that_are_no_strings_are_refused(book: Book) -> None:
    """In one sentence, before anything is asked."""
    wrong: Any
    for wrong in ([1], None, "abc", 7):
        with pytest.raises(InvalidInput, match="fact_ids"):
            await book.ledger.links(wrong)
        with pytest.raises(InvalidInput, match="ids"):
            await book.ledger.known(wrong)
    for wrong in (["x"], None, "abc", 7, [None]):
        with pytest.raises(InvalidInput, match="entries"):
            await book.ledger.follow(wrong)


async def test_ten_thousand_entries_at_once(book: Book) -> None:
    """One question, however many: each is answered in its place."""
    facts = [await chain(book, "a", "b", "c"), await chain(book, "d")]
    known: dict[str, Fact | None] = {a: await book.ledger.get(ids[-1]) for ids in facts for a in ids}
    ids = [[*known, f"nobody-{n}"][n % 5] for n in range(10_000)]
    entries = [entry(None, f"m{n}") if n % 1000 == 7 else entry(ids[n]) for n in range(10_000)]
    _, found = await book.ledger.follow(entries)
    assert [one.fact for one in found] == [known.get(one.fact_id or "") for one in entries]
    _, chains = await book.ledger.links(ids)
    assert {(fact_id in known, len(links)) for fact_id, links in zip(ids, chains, strict=True)} == {
        (True, 3),
        (True, 1),
        (False, 0),
    }


async def test_chains_do_not_mix(book: Book) -> None:
    """Two facts on one property that are no corrections of each other are two chains."""
    a, b = await chain(book, "a", "b")
    c = await book.add("acct:42", "plan", "c")
    assert await led(book, a, c) == [(B.SUPERSEDED, "b"), (B.BELIEVED, "c")]
    _, (first, second) = await book.ledger.links([b, c])
    assert [link.fact.fact_id for link in first] == [a, b]
    assert second == (Link((await book.ledger.as_of())[1], B.BELIEVED),)
