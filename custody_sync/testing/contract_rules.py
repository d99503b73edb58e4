"""The contract's rules on holding: names, puts, deletes, labels, finding and listing (C-01 to C-29)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from custody_sync.model import Capability, Entry, Json, Level, Limits, Support
from custody_sync.testing.contract_case import Case, NotApplicable, Put, RuleBook

HOLDING = RuleBook()
_rule = HOLDING.rule

SPACES = (
    "org",
    "user:Jürgen Müller-Lüdenscheidt",
    "team:पूछताछ",
    "user:שלום עולם",
    "user:👩‍👩‍👧‍👦🇺🇳",
    "user:e\u0301 decomposed",
    "user:\u00e9 composed",
    "a.b/c\\d%e_f'g\"h;--{i}[j]$k",
    "user:with  two spaces",
    "USER:CASE",
    "user:case",
    "langgraph",
)
"""Spaces that a store must keep apart and give back as they are: ids come from users."""

TEXTS = (
    "cafe\u0301 (decomposed) is not café (composed)",
    "a \u202eright-to-left\u202c שלום עולם مرحبا",
    "family 👩‍👩‍👧‍👦, flag 🇺🇳, skin 👍🏽",
    "tabs\tand\nnewlines\r\nand  double  spaces",
    "'quotes' \"double\" `back` \\ backslash % percent _ under {brace} $dollar; -- comment",
    "zero\u200bwidth, no\u00a0break, line\u2028separator",
)
"""Texts that must come back to the byte."""

ACTORS = ("agent:Ünïcøde", "agent:שלום", "agent:\"quoted\" \\ 'single' {x}", "agent:🤖")


@_rule("C-01")
async def keeps_one_name(case: Case) -> None:
    """The name is a non-empty string that does not change."""
    name = case.store.name
    case.expect(isinstance(name, str) and bool(name.strip()), "a non-empty name", name)
    await case.put()
    case.expect(case.store.name == name, f"the name {name!r} again", case.store.name)


@_rule("C-02")
async def returns_ids(case: Case) -> None:
    """A put returns at least one external id, each a non-empty string, none twice."""
    ids: list[Any] = list((await case.put()).ids)
    case.expect(bool(ids), "at least one external id", ids)
    case.expect(all(isinstance(i, str) and i for i in ids), "ids that are non-empty strings", ids)
    case.expect(len(set(ids)) == len(ids), "no id twice", ids)


@_rule("C-03")
async def gives_facts_their_own_ids(case: Case) -> None:
    """Two facts never share an external id in one scope."""
    one, two = await case.put(), await case.put()
    shared = {(e.scope, e.external_id) for e in one.entries} & {(e.scope, e.external_id) for e in two.entries}
    case.expect(not shared, "no shared id", shared)


@_rule("C-04")
async def takes_a_retry_without_adding(case: Case) -> None:
    """A retried put adds nothing where we choose the key; elsewhere the second entry is shown too."""
    first = await case.put()
    again = await case.put(first.fact, first.label)
    shown = sorted(entry.external_id for entry in await case.held(first))
    if case.hooks.own_keys:
        case.expect(shown == sorted(first.ids), f"exactly {first.ids} after the retry", shown)
        case.expect(sorted(again.ids) == sorted(first.ids), f"the ids {first.ids} again", again.ids)
    else:
        case.expect(shown == sorted({*first.ids, *again.ids}), "every entry of both puts, each once", shown)


@_rule("C-05")
async def keeps_generations_apart(case: Case) -> None:
    """A new generation of a fact is an entry of its own: deleting the older one leaves the newer."""
    older = await case.put()
    newer = await case.put(older.fact)
    case.expect(not set(older.ids) & set(newer.ids), "new ids for a new generation", newer.ids)
    await case.delete(older)
    shown = sorted(entry.external_id for entry in await case.held(newer))
    case.expect(shown == sorted(newer.ids), f"only {newer.ids}", shown)


@_rule("C-06")
async def deletes(case: Case) -> None:
    """What is deleted is no longer held, whichever way one looks."""
    put = await case.put()
    case.expect(bool(await case.held(put)), "the entry before its delete", "nothing")
    await case.delete(put)
    left = await case.held(put)
    case.expect(not left, "nothing after the delete", left)
    if case.offers(Capability.LIST_ENTRIES):
        left = [entry for entry in await case.listed() if entry.fact_id == put.fact.fact_id]
        case.expect(not left, "nothing in the listing", left)


@_rule("C-07")
async def takes_a_second_delete(case: Case) -> None:
    """Deleting what is already gone is success, one after the other or at once."""
    put = await case.put()
    await case.delete(put)
    try:
        await case.delete(put)
        await asyncio.gather(case.delete(put), case.delete(put))
    except Exception as problem:
        case.expect(False, "success", f"{type(problem).__name__}")


@_rule("C-08")
async def deletes_nothing_else(case: Case) -> None:
    """A delete removes only its own entry."""
    puts = await case.put_all([case.fact(space=f"{case.space}:{n % 3}") for n in range(9)])
    await case.delete(puts[4])
    for n, put in enumerate(puts):
        shown = sorted(entry.external_id for entry in await case.held(put))
        wanted = [] if n == 4 else sorted(put.ids)
        case.expect(shown == wanted, f"{wanted} of fact {n}", shown)


@_rule("C-09")
async def keeps_equal_texts_apart(case: Case) -> None:
    """The same text in two facts is two entries, and deleting one leaves the other."""
    text = f"the very same sentence {case.token}"
    for other in (case.space, f"{case.space}:other"):
        one, two = await case.put(case.fact(text)), await case.put(case.fact(text, space=other))
        await case.delete(one)
        shown = sorted(entry.external_id for entry in await case.held(two))
        case.expect(shown == sorted(two.ids), f"{two.ids} still held in {other!r}", shown)


def _check_label(case: Case, way: str, put: Put, entries: list[Entry]) -> None:
    shown = sorted(e.external_id for e in entries)
    case.expect(shown == sorted(put.ids), f"{put.ids} by {way} in {put.fact.space!r}", shown)
    for entry in entries:
        got = (entry.store, entry.fact_id, entry.space, entry.ledger_id)
        wanted = (case.store.name, put.fact.fact_id, put.label.space, put.label.ledger_id)
        case.expect(got == wanted, f"store, fact, space and ledger {wanted} by {way}", got)


@_rule("C-10")
async def gives_labels_back(case: Case) -> None:
    """Spaces and actors of any script come back as they went in, by every way the store offers."""
    facts = [case.fact(space=space, actor=ACTORS[n % len(ACTORS)]) for n, space in enumerate(SPACES)]
    for put in await case.put_all(facts):
        for way, entries in (await case.readings(put)).items():
            _check_label(case, way, put, entries)


@_rule("C-11")
async def keeps_text_to_the_byte(case: Case) -> None:
    """Where a store gives text back, it is byte-equal: nothing trimmed, composed or re-encoded."""
    shown = 0
    texts = [f"{text} {case.token}" for text in TEXTS] + [f"  padded {case.token} \n"]
    for put in await case.put_all([case.fact(text) for text in texts]):
        for way, entries in (await case.readings(put)).items():
            for entry in entries:
                shown += entry.text is not None
                case.expect(entry.text in (None, put.fact.text), f"{put.fact.text!r} by {way}", entry.text)
    if not shown:
        raise NotApplicable("the store gives no text back")


@_rule("C-12")
async def keeps_stored_at_exact(case: Case) -> None:
    """`stored_at` comes back to the microsecond, and every instant of an entry is aware."""
    for micro in (0, 1, 999_999, 123_456):
        at = datetime.now(UTC).replace(microsecond=micro)
        fact = case.fact()
        put = await case.put(fact, case.label(fact, stored_at=at))
        for way, entries in (await case.readings(put)).items():
            case.expect(bool(entries), f"the entry by {way}", entries)
            for entry in entries:
                case.expect(entry.stored_at == at, f"stored_at {at.isoformat()} by {way}", entry.stored_at)
                aware = entry.created_at is None or entry.created_at.tzinfo is not None
                case.expect(aware, f"an aware created_at by {way}", entry.created_at)


@_rule("C-13")
async def keeps_other_ledgers_ids(case: Case) -> None:
    """An entry of another ledger is shown with that ledger's id, never with ours."""
    mine = await case.put()
    fact = case.fact()
    other = await case.put(fact, case.label(fact, ledger_id=f"elsewhere-{case.token}"))
    for put in (mine, other):
        for way, entries in (await case.readings(put)).items():
            _check_label(case, way, put, entries)


@_rule("C-14")
async def finds_every_generation(case: Case) -> None:
    """Find returns all generations of a fact, however many, and nothing of another fact."""
    case.needs(Capability.FIND)
    fact = case.fact()
    puts = await case.put_all([fact] * 25)
    await case.put_all([case.fact(fact.text) for _ in range(5)])
    found = await case.store.find(fact.fact_id)
    got, wanted = sorted(e.external_id for e in found), sorted(i for put in puts for i in put.ids)
    case.expect(got == wanted, f"the {len(wanted)} entries of the fact, each once", got)
    case.expect({e.fact_id for e in found} == {fact.fact_id}, "entries of that fact only", found)
    unknown = await case.store.find(case.fact().fact_id)
    case.expect(unknown == [], "an empty list for an unknown fact", unknown)


@_rule("C-15")
async def lists_each_once(case: Case) -> None:
    """A listing yields every entry exactly once, across pages and across spaces."""
    case.needs(Capability.LIST_ENTRIES)
    half = case.hooks.bulk // 6
    facts = [case.fact(space=f"{case.space}:{max(n - half, 0)}") for n in range(case.hooks.bulk)]
    wanted = sorted(i for put in await case.put_all(facts) for i in put.ids)
    got = sorted(e.external_id for e in await case.listed() if e.ledger_id == case.ledger_id)
    case.expect(len(set(got)) == len(got), "no entry twice", f"{len(got) - len(set(got))} repeated")
    missing = sorted(set(wanted) - set(got))
    case.expect(got == wanted, f"all {len(wanted)} entries", f"{len(got)}, {len(missing)} missing")


@_rule("C-16")
async def lists_under_change(case: Case) -> None:
    """A listing during which entries come and go yields what stayed exactly once."""
    case.needs(Capability.LIST_ENTRIES)
    puts = await case.put_all([case.fact() for _ in range(case.hooks.bulk)])
    by_id = {i: put for put in puts for i in put.ids}
    seen: list[str] = []
    removed: set[str] = set()
    async with aclosing(case.store.list_entries()) as entries:
        async for entry in entries:
            if entry.ledger_id != case.ledger_id:
                continue
            seen.append(entry.external_id)
            # Taking away what was just read is what a sweep does, and what shifts offsets.
            if len(seen) % 2 and entry.external_id in by_id:
                gone = by_id[entry.external_id]
                removed.update(gone.ids)
                await case.delete(gone)
            if len(seen) % 10 == 0 and len(seen) <= case.hooks.bulk:
                await case.put()
    stayed = set(by_id) - removed
    missed, twice = stayed - set(seen), {i for i in seen if seen.count(i) > 1}
    case.expect(not missed, "every entry that stayed", f"{len(missed)} of {len(stayed)} missed")
    case.expect(not twice, "no entry twice", f"{len(twice)} repeated")


@_rule("C-17")
async def shows_unlabelled_entries(case: Case) -> None:
    """An entry that somebody else wrote is listed, without a fact id or a ledger id."""
    case.needs(Capability.LIST_ENTRIES)
    external_id = await case.hooks.put_unlabelled(case.store, f"written past custody {case.token}")
    ours = await case.put()
    listed = await case.listed()
    shown = [entry for entry in listed if entry.external_id == external_id]
    case.expect(len(shown) == 1, f"{external_id!r} once in the listing", shown)
    got = (shown[0].fact_id, shown[0].ledger_id, shown[0].space, shown[0].stored_at)
    case.expect(got == (None,) * 4, "no fact, ledger, space or stored_at", got)
    case.expect(any(e.fact_id == ours.fact.fact_id for e in listed), "our own entry beside it", "missing")


@_rule("C-18")
async def takes_puts_at_once(case: Case) -> None:
    """Fifty puts at the same time are all held."""
    facts = [case.fact(space=f"{case.space}:{n % 7}") for n in range(50)]
    puts = await asyncio.gather(*(case.put(fact) for fact in facts))
    ids = [(e.scope, e.external_id) for put in puts for e in put.entries]
    case.expect(len(set(ids)) == len(ids), "ids of their own", f"{len(ids) - len(set(ids))} shared")
    missing = [put.ids for put in puts if {e.external_id for e in await case.held(put)} != set(put.ids)]
    case.expect(not missing, "all fifty held", f"{len(missing)} missing")


@_rule("C-19")
async def keeps_its_own_copy(case: Case) -> None:
    """Changing the fact's value after a put changes nothing that the store shows."""
    value: dict[str, Json] = {"plan": "pro", "seats": [1, 2, 3]}
    fact = case.fact(f"plan of {case.token}", value=value)
    put = await case.put(fact)
    before = {way: repr(entries) for way, entries in (await case.readings(put)).items()}
    value["plan"] = "changed behind the store's back"
    value["seats"] = []
    after = {way: repr(entries) for way, entries in (await case.readings(put)).items()}
    case.expect(before == after, f"{before} as before", after)
    wanted = {"plan": "pro", "seats": [1, 2, 3]}
    held = [await case.hooks.value_of(case.store, entry) for entry in put.entries]
    case.expect(all(v is None or v == wanted for v in held), f"{wanted} inside the store", held)


@_rule("C-20")
async def takes_a_big_text(case: Case) -> None:
    """A text of exactly the stated limit, or of 20,000 characters where none is stated, is held whole."""
    limits = getattr(case.store, "limits", None) or Limits()
    size = limits.text_chars if limits.text_chars is not None else 20_000
    if limits.text_bytes is not None:
        size = min(size, limits.text_bytes)
    text = (f"{case.token} " + "a long story " * (size // 13 + 1))[:size]
    put = await case.put(case.fact(text))
    for entry in await case.held(put):
        got = f"{len(entry.text or '')} characters"
        case.expect(entry.text is None or entry.text == text, f"{size} characters", got)
    case.expect(bool(await case.held(put)), "the entry", "nothing")


@_rule("C-21")
async def declares_what_it_has(case: Case) -> None:
    """Declared capabilities match the methods: nothing is promised that is not there."""
    declared = getattr(case.store, "capabilities", None) or {}
    case.expect(isinstance(declared, Mapping), "a mapping of capabilities", type(declared).__name__)
    for capability, support in declared.items():
        known = capability in set(Capability)
        case.expect(known and isinstance(support, Support), "Capability to Support", (capability, support))
        there = callable(getattr(case.store, Capability(capability).value, None))
        promised = support.level is not Level.NONE
        case.expect(there or not promised, f"a method {capability}() for that level", "no such method")


@_rule("C-22")
async def gives_reasons(case: Case) -> None:
    """Whatever is not fully supported says why, in words an operator can read."""
    for capability, support in case.supports.items():
        fine = support.level is Level.FULL or bool(support.reason.strip())
        case.expect(fine, f"a reason for {capability.value} = {support.level.value}", support)


@_rule("C-23")
async def places_where_it_says(case: Case) -> None:
    """Every reading shows the scope that `scope_of` names, and a delete in another scope does nothing."""
    if not callable(getattr(case.store, "scope_of", None)):
        raise NotApplicable("the store has no scopes")
    put = await case.put(case.fact(space=f"{case.space}:one"))
    for way, entries in (await case.readings(put)).items():
        got, wanted = {e.scope for e in entries}, {e.scope for e in put.entries}
        case.expect(got == wanted, f"scope {wanted} by {way}", got)
    other = case.store.scope_of(case.fact(space=f"{case.space}:two"))
    if other == put.entries[0].scope:
        return
    for entry in put.entries:
        await case.store.delete(replace(entry, scope=other))
    case.expect(bool(await case.held(put)), "the entry after a delete in another scope", "nothing")


@_rule("C-24")
async def survives_a_cancelled_put(case: Case) -> None:
    """A put that is cancelled leaves the store usable, whether or not it took effect."""
    task = asyncio.ensure_future(case.put())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    put = await case.put()
    shown = sorted(entry.external_id for entry in await case.held(put))
    case.expect(shown == sorted(put.ids), f"{put.ids} after a cancelled put", shown)


@_rule("C-25")
async def takes_many_at_once(case: Case) -> None:
    """`put_many` holds every fact and returns the ids of each in the order given."""
    case.needs(Capability.PUT_MANY)
    facts = [case.fact(space=f"{case.space}:{n % 3}") for n in range(12)]
    pairs = [(fact, case.label(fact)) for fact in facts]
    answers = await case.store.put_many(pairs)
    case.expect(len(answers) == len(pairs), f"{len(pairs)} answers", len(answers))
    for (fact, label), ids in zip(pairs, answers, strict=True):
        put = case.confirmed(fact, label, ids)
        shown = sorted(entry.external_id for entry in await case.held(put))
        case.expect(bool(shown) and shown == sorted(put.ids), f"{put.ids} held", shown)


@_rule("C-26")
async def relabels(case: Case) -> None:
    """`relabel` changes the label of an entry and leaves its id and text alone."""
    case.needs(Capability.RELABEL)
    put, neighbour = await case.put(), await case.put()
    label = replace(put.label, ledger_id=f"moved-{case.token}")
    for entry in put.entries:
        await case.store.relabel(entry, label)
    for way, entries in (await case.readings(put)).items():
        _check_label(case, way, replace(put, label=label), entries)
        case.expect({e.text for e in entries} <= {None, put.fact.text}, f"the same text by {way}", entries)
    for way, entries in (await case.readings(neighbour)).items():
        _check_label(case, way, neighbour, entries)
