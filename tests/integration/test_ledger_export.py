"""L7: anyone can check the log from its export, before and after an erasure."""

from __future__ import annotations

import copy
import hashlib
import json
from datetime import timedelta
from typing import Any

import pytest
import rfc8785
from fix_ledger import START, Book

from custody_sync.model import EventKind, Outcome, Provenance


def faults_of(log: list[dict[str, Any]]) -> list[str]:
    """Check an exported log with nothing but SHA-256 and RFC 8785; return what is wrong with it."""
    found = []
    prev = "0" * 64
    for place, row in enumerate(log, 1):
        event = row["event"]
        digest = hashlib.sha256(rfc8785.dumps(event)).hexdigest()
        if digest != row["hash"]:
            found.append(f"{place}: hash")
        if (event["prev"], event["seq"]) != (prev, place):
            found.append(f"{place}: chain")
        for name, section in row["sealed"].items():
            form = bytes.fromhex(section["salt"]) + rfc8785.dumps(section["body"])
            if hashlib.sha256(form).hexdigest() != event["sealed"].get(name):
                found.append(f"{place}: {name}")
        prev = digest
    return found


async def write_everything(book: Book) -> str:
    """Append every kind of event, with every section, and return the fact that was erased."""
    fact_id = await book.add(value={"n": 1e20, "t": "\u2028 \U0001f600"}, held=[("memories", "m-1")])
    await book.append(book.hold(fact_id, "court", "a letter came"))
    await book.append(book.release(fact_id, "court"))
    new = await book.add(value="free", supersedes=fact_id, held=[("memories", "m-2")])
    await book.append(book.remove(fact_id, "memories", "m-1", Outcome.FAILED, detail="refused"))
    await book.append(book.retract(new, "a mistake"))
    await book.append(book.place(fact_id, [("memories", "m-3")]))
    waiting = await book.add("claim", provenance=Provenance.CLAIMED)
    await book.append(book.confirm(waiting, [("memories", "m-4")], reason="checked"))
    await book.append(book.repair("f-orphan", "memories", "m-9", scope="org", stored_at=START))
    await book.append(book.forget(fact_id, book.ledger.digest("x", "sha256"), reason="asked", identity=True))
    return fact_id


async def test_l7_every_hash_follows_from_the_export(book: Book) -> None:
    """The export holds all it takes: bodies, hashes, sections and salts, as JSON."""
    await write_everything(book)
    log = json.loads(json.dumps(await book.export()))
    assert {row["event"]["kind"] for row in log} == {kind.value for kind in EventKind}
    assert faults_of(log) == []
    head = await book.ledger.head()
    assert (log[-1]["hash"], log[-1]["event"]["seq"], len(log)) == (head.hash, head.seq, head.seq)


async def test_l7_the_chain_holds_after_an_erasure(book: Book) -> None:
    """A forget takes sections and salts, and not one hash."""
    keep = await book.add("keep")
    gone = await book.add("gone")
    before = await book.export()
    await book.append(book.forget(gone))
    after = await book.export()
    assert [row["hash"] for row in after[:2]] == [row["hash"] for row in before]
    assert faults_of(after) == []
    by_fact = {row["event"]["fact_id"]: row["sealed"] for row in after if row["event"]["kind"] == "assert"}
    assert set(by_fact[keep]) == {"content", "identity"}
    assert set(by_fact[gone]) == {"identity"}
    await book.append(book.forget(gone, identity=True, reason="all of it"))
    last = await book.export()
    assert faults_of(last) == []
    assert last[1]["sealed"] == {}
    assert last[-1]["sealed"]["identity"]["body"] == {"reason": "all of it"}


async def test_l7_any_change_to_the_log_shows(book: Book) -> None:
    """An altered field, section or salt, a dropped, doubled or swapped event is found."""
    await write_everything(book)
    log = await book.export()
    for place, row in enumerate(log):
        for name in row["event"]:
            altered = copy.deepcopy(log)
            altered[place]["event"][name] = {"other": 1}
            assert faults_of(altered), (place, name)
        for name in row["sealed"]:
            for change in ({"body": {"other": 1}}, {"salt": "00" * 16}):
                altered = copy.deepcopy(log)
                altered[place]["sealed"][name].update(change)
                assert faults_of(altered) == [f"{place + 1}: {name}"]
        assert place == len(log) - 1 or faults_of(log[:place] + log[place + 1 :])
        assert faults_of([*log[: place + 1], *log[place:]])
    swapped = [log[1], log[0], *log[2:]]
    assert faults_of(swapped)


async def test_l7_a_forgotten_value_cannot_be_guessed_from_what_is_left(book: Book) -> None:
    """Without its salt a commitment can be tried against no list of candidates."""
    fact_id = await book.add(value="123-45-6789", text="ssn")
    (row,) = await book.export()
    content = row["sealed"]["content"]
    form = rfc8785.dumps({"text": "ssn", "value": "123-45-6789"})
    assert content["body"] == {"text": "ssn", "value": "123-45-6789"}
    await book.append(book.forget(fact_id))
    left = json.dumps(await book.export())
    assert content["salt"] not in left
    assert hashlib.sha256(form).hexdigest() not in left


async def test_the_history_shows_reasons_until_the_identity_goes(book: Book) -> None:
    """With `identity` earlier reasons go; the forget's own stays, saying why nothing else is left."""
    fact_id = await book.add()
    await book.append(book.retract(fact_id, "she asked us to"))
    await book.append(book.forget(fact_id, reason="erasure request 7", identity=True))
    history = await book.ledger.history(fact_id)
    assert [event.reason for event in history] == [None, None, "erasure request 7"]
    fact = await book.ledger.get(fact_id)
    assert fact is not None
    assert (fact.space, fact.subject, fact.predicate, fact.value, fact.forgotten) == ("", "", "", None, True)


async def test_ids_and_scopes_of_an_erased_identity_leave_with_the_last_entry(book: Book) -> None:
    """External ids are kept until their entries are gone, and then they are nowhere."""
    draft = book.state(value="pro")
    held = book.held(draft.fact_id, [("memories", "m-secret")], scope="user/ada")
    await book.append(type(draft)(event_id=draft.event_id, fact=draft.fact, placements=held))
    await book.append(book.forget(draft.fact_id, identity=True))
    (due,) = await book.ledger.pending()
    assert (due.external_id, due.scope) == ("m-secret", "user/ada")
    await book.append(book.remove(draft.fact_id, "memories", "m-secret", scope="user/ada"))
    (gone,) = await book.ledger.removed()
    assert (gone.erased, gone.scope, gone.fact_id) == (True, None, draft.fact_id)
    left = json.dumps(await book.export())
    assert "m-secret" not in left
    assert "user/ada" not in left
    assert faults_of(await book.export()) == []


@pytest.mark.parametrize("page", [1, 2, 1000])
async def test_l9_an_export_of_any_page_size_is_the_same(book: Book, page: int) -> None:
    """No event is lost or doubled at a page's edge."""
    for _ in range(5):
        await book.add()
        book.clock.advance(timedelta(seconds=1))
    rows = [row async for row in book.ledger.export(page=page)]
    assert [row["event"]["seq"] for row in rows] == [1, 2, 3, 4, 5]
