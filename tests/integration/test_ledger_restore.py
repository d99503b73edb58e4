"""A log that somebody made by hand, hashes and all, is taken over only if a ledger could have written it."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from fix_ledger import START, Book, answers_of, open_book

from custody_sync.errors import LedgerBroken
from custody_sync.ledger.jsonl_lines import header_line
from custody_sync.ledger.moving import FileSource, event_line, take_over
from custody_sync.model import Erasure, EventKind, Outcome, Provenance, Standing

Log = list[dict[str, Any]]
GENESIS = "0" * 64
SECRET = "hunter2"
NONE = "0" * 64


async def write_all_kinds(book: Book) -> None:
    """Append events of every kind; each fact's story stands in the names of `PLACES`."""
    old = await book.add(value={"n": [1.5, 1e20, None]}, held=[("memories", "m-1")])
    new = await book.add(value="free", supersedes=old, held=[("memories", "m-2")])
    await book.append(book.hold(new, "court", "a letter came"))
    await book.append(book.release(new, "court"))
    await book.append(book.remove(old, "memories", "m-1", Outcome.FAILED, detail="refused"))
    await book.append(book.retract(new, "a mistake"))
    await book.append(book.place(old, [("memories", "m-3")]))
    waiting = await book.add("claim", provenance=Provenance.CLAIMED)
    await book.append(book.confirm(waiting, [("memories", "m-4")], reason="checked"))
    await book.append(book.repair("f-orphan", "memories", "m-9", scope="org", stored_at=START))
    gone = await book.add("gone", value=SECRET, held=[("memories", "m-5")])
    await book.append(book.forget(gone, book.ledger.digest("x", "sha256"), reason="asked"))
    other = await book.add("other", value=SECRET, held=[("memories", "m-6")])
    await book.append(book.forget(other, identity=True))
    await book.append(book.remove(other, "memories", "m-6", stored_at=START))


PLACES = {
    name: seq
    for seq, name in enumerate(
        ("old", "new", "hold", "release", "remove", "retract", "place", "claim", "confirm", "repair", "gone",
         "forget", "other", "forget identity", "removed"),
        1,
    )
}  # fmt: skip


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A log with events of every kind, as a ledger exports it, in JSON."""

    async def write() -> str:
        source = await open_book(tmp_path_factory.mktemp("source") / "source.db")
        await write_all_kinds(source)
        log = await source.export()
        await source.ledger.close()
        assert {row["event"]["kind"] for row in log} == {kind.value for kind in EventKind}
        return json.dumps(log)

    return asyncio.run(write())


@pytest.fixture
def log(written: str) -> Log:
    """That log, to be altered."""
    read: Log = json.loads(written)
    return read


def seal(log: Sequence[dict[str, Any]]) -> None:
    """Give altered events hashes that fit, as a forger would."""
    prev = GENESIS
    for row in log:
        event = row["event"]
        for name in row["sealed"].keys() & event["sealed"].keys():
            section = row["sealed"][name]
            form = bytes.fromhex(section["salt"]) + rfc8785.dumps(section["body"])
            event["sealed"][name] = hashlib.sha256(form).hexdigest()
        event["prev"] = prev
        row["hash"] = prev = hashlib.sha256(rfc8785.dumps(event)).hexdigest()


async def problem_with(book: Book, log: Log, seq: int) -> str:
    """Take over a log that is broken at a place, see that nothing was written, and return what was said."""
    with pytest.raises(LedgerBroken) as caught:
        await book.ledger.restore(log)
    assert caught.value.seq == seq
    assert SECRET not in str(caught.value)
    assert (await book.ledger.head()).seq == 0
    assert await book.export() == []
    assert await book.ledger.known(["f1"]) == {"f1": Standing.UNKNOWN}
    problem: str = caught.value.problem
    return problem


async def test_a_log_with_every_kind_is_taken_over_in_pages_of_any_size(tmp_path: Path, log: Log) -> None:
    """Where a page ends changes no answer; a page goes in whole."""
    answers = []
    for size in (1, 3, 100):
        book = await open_book(tmp_path / f"{size}.db")
        for first in range(0, len(log), size):
            await book.ledger.restore(log[first : first + size])
        answers.append(await answers_of(book.ledger))
        if size > len(log):
            assert await book.ledger.notes("erasure") == [], "nothing of it was there to be erased"
        assert await book.ledger.erase() is Erasure.DONE
        await book.ledger.close()
    assert answers[0] == answers[1] == answers[2]
    assert answers[0]["log"] == log


Change = Callable[[dict[str, Any]], Any]


def data(**fields: Any) -> Change:
    """Return what sets fields of an event's data."""
    return lambda row: row["event"]["data"].update(fields)


def event(**fields: Any) -> Change:
    """Return what sets fields of an event."""
    return lambda row: row["event"].update(fields)


def body(section: str, **fields: Any) -> Change:
    """Return what sets fields of a sealed section."""
    return lambda row: row["sealed"][section]["body"].update(fields)


def placement(**fields: Any) -> Change:
    """Return what sets fields of the first placement."""
    return lambda row: row["sealed"]["refs"]["body"]["placements"][0].update(fields)


def unrecorded(stored_at: str | None) -> Change:
    """Return what makes a removal one of an entry that no event placed, of a fact that is believed."""

    def change(row: dict[str, Any]) -> None:
        row["event"]["fact_id"] = "f3"
        row["event"]["data"]["stored_at"] = stored_at
        row["sealed"]["refs"]["body"]["external_id"] = "m-77"

    return change


def without(*path: str) -> Change:
    """Return what takes something out."""

    def take_out(row: dict[str, Any]) -> None:
        inner = row
        for name in path[:-1]:
            inner = inner[name]
        del inner[path[-1]]

    return take_out


def nested(levels: int) -> list[Any]:
    """Return a list of lists."""
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


OTHER_FORM = "its data are not those of such an event"
SECTIONS = "it commits to other sections than such an event"
UNREADABLE = "its fields cannot be read"
HALF = "its external_id store and external_id are given together or not at all"
UNSEALED = "its sealed sections are not those it commits to"

FORGERIES: list[tuple[str, Change, str]] = [
    # Types that only look right, and forms that no ledger writes.
    ("old", event(seq=True), "event 1 is missing or out of its place"),
    ("old", event(v=True), "it is of an unknown event format, and this version knows 1"),
    ("old", event(v="1\x1b[31m"), "it is of an unknown event format, and this version knows 1"),
    ("new", event(v=2), "it is of event format 2, and this version knows 1"),
    ("new", event(tx_time="2026-09-01T02:00:00.000001+02:00"), "its time cannot be read"),
    ("new", event(tx_time="2026-09-01 00:00:00.000001"), "its time cannot be read"),
    ("new", event(tx_time=5), "its time cannot be read"),
    (
        "new",
        event(tx_time="2026-09-01T00:00:00.000000Z"),
        "its time is not later than that of the event before it",
    ),
    ("removed", event(tx_time="9999-06-01T00:00:00.000000Z"), "its time is where the calendar ends"),
    ("new", event(kind=SECRET), UNREADABLE),
    ("new", event(kind=["assert"]), UNREADABLE),
    ("new", event(data=[SECRET]), UNREADABLE),
    ("new", event(fact_id=5), "its fact_id must be a string, not int"),
    ("new", event(fact_id={"a": 1}), "its fact_id must be a string, not dict"),
    ("hold", event(fact_id=None), "its fact_id must be a string, not NoneType"),
    ("new", event(event_id=["e"]), "its event_id must be a string, not list"),
    ("new", event(actor=""), "its actor must not be empty or blank"),
    ("new", event(receipt_id=0), "its receipt_id must be a string, not int"),
    ("new", data(valid_from="2026-09-01"), UNREADABLE),
    ("new", data(valid_from="2026-09-01T00:00:00Z"), OTHER_FORM),
    ("new", data(valid_to="2026-08-01T00:00:00.000000Z"), "its valid_to must be later than valid_from"),
    ("new", data(provenance=SECRET), UNREADABLE),
    ("new", data(kept="memories"), OTHER_FORM),
    ("new", data(kept=[["memories"]]), "its kept must be a string, not list"),
    ("new", data(stores="memories"), OTHER_FORM),
    ("new", data(stores=["elsewhere"]), OTHER_FORM),
    ("new", data(stores=[]), OTHER_FORM),
    ("other", data(stores="memories"), OTHER_FORM),
    ("other", data(stores=["memories", "memories"]), OTHER_FORM),
    ("other", data(stores=[5]), "its stores must be a string, not int"),
    ("other", data(stores=5), UNREADABLE),
    ("other", data(stores={}), OTHER_FORM),
    ("new", data(note="more"), OTHER_FORM),
    ("retract", data(note="more"), OTHER_FORM),
    ("new", without("event", "data", "kept"), UNREADABLE),
    ("new", without("event", "data", "valid_to"), UNREADABLE),
    ("hold", data(hold_id=7), "its hold_id must be a string, not int"),
    ("forget", data(identity=1), "its identity must be true or false"),
    ("forget", data(digest="none"), UNREADABLE),
    ("forget", data(digest={"alg": "none", "hex": "00", "more": 1}), OTHER_FORM),
    ("remove", data(outcome="planned"), "its outcome must be what became of a removal"),
    ("remove", data(detail=None), "its detail must be a string, not NoneType"),
    ("remove", data(store=""), "its store must not be empty or blank"),
    ("repair", data(store=None), HALF),
    ("repair", data(stored_at=1790812800), OTHER_FORM),
    # Sections that are not those of their kind, or not in their one form.
    ("new", body("content", note="more"), "its content is not that of such an event"),
    ("new", body("content", text=None), "its text must not be empty or blank"),
    ("new", body("content", text="nul \x00"), "its text has a NUL character, which no database stores"),
    ("new", body("content", value=nested(150)), "its value is nested more than 100 levels deep"),
    ("new", body("content", evidence={"source": "s"}), UNREADABLE),
    ("new", body("content", evidence=SECRET), UNREADABLE),
    ("new", body("content", request=5), "its request must be a string, not int"),
    ("new", body("identity", space=" "), "its space must not be empty or blank"),
    ("new", body("identity", subject=["acct:42"]), "its subject must be a string, not list"),
    ("new", body("identity", reason="because"), "its identity is not that of such an event"),
    ("hold", body("identity", reason=None), "its identity is not that of such an event"),
    ("hold", body("identity", space="org"), "its identity is not that of such an event"),
    ("new", body("refs", more=1), "its refs is not that of such an event"),
    ("new", body("refs", placements=[]), OTHER_FORM),
    ("new", body("refs", placements={"store": 1}), UNREADABLE),
    ("new", placement(more=1), "its refs is not that of such an event"),
    ("new", placement(external_id="erased~1"), "its external_id must not begin with erased~"),
    ("new", placement(external_id=7), "its external_id must be a string, not int"),
    ("new", placement(scope=["org"]), "its scope must be a string, not list"),
    ("new", placement(stored_at="yesterday"), "its refs is not that of such an event"),
    ("new", placement(stored_at=None), "it breaks a rule (stale_placement)"),
    ("new", lambda row: row["event"]["sealed"].update(more=NONE), UNSEALED),
    ("new", lambda row: row["event"].update(sealed={}), UNSEALED),
    ("other", lambda row: row["event"]["sealed"].update(content=5), UNREADABLE),
    ("other", lambda row: row["event"]["sealed"].update(content={"value": SECRET}), UNREADABLE),
    ("other", lambda row: row["event"]["sealed"].update(content="short"), UNSEALED),
    ("other", without("event", "sealed", "identity"), SECTIONS),
    ("other", without("event", "sealed", "refs"), SECTIONS),
    ("retract", lambda row: row["event"]["sealed"].update(content=NONE), SECTIONS),
    ("place", lambda row: row["event"]["sealed"].update(identity=NONE), SECTIONS),
    ("repair", without("sealed", "refs"), HALF),
    ("remove", without("event", "sealed", "refs"), UNSEALED),
    # What the rules forbid, one by one, wherever the clock is not asked.
    ("new", event(event_id="e2"), "it breaks a rule (duplicate_event)"),
    ("new", event(fact_id="f1"), "it breaks a rule (duplicate_fact)"),
    ("new", data(supersedes="f-orphan"), "it breaks a rule (unknown_fact)"),
    ("new", body("identity", subject="acct:43"), "it breaks a rule (other_statement)"),
    ("new", data(valid_from="2026-08-01T00:00:00.000000Z"), "it breaks a rule (starts_too_early)"),
    ("new", placement(external_id="m-1"), "it breaks a rule (shared_entry)"),
    ("claim", event(fact_id="f1"), "it breaks a rule (duplicate_fact)"),
    ("claim", data(supersedes="f3"), "it breaks a rule (already_retracted)"),
    ("confirm", event(fact_id="f1"), "it breaks a rule (already_confirmed)"),
    ("repair", event(fact_id="f1"), "it breaks a rule (asserted_id)"),
    ("gone", event(fact_id="f-orphan"), "it breaks a rule (repaired_id)"),
    ("forget", event(fact_id="f-orphan"), "it breaks a rule (repaired_id)"),
    ("hold", event(fact_id="f-none"), "it breaks a rule (unknown_fact)"),
    ("remove", event(fact_id="f-none"), "it breaks a rule (unknown_fact)"),
    ("removed", event(fact_id="f-none"), "it breaks a rule (unknown_fact)"),
    ("removed", event(fact_id="f-orphan"), "it breaks a rule (repaired_id)"),
    ("remove", unrecorded(stored_at=None), "it breaks a rule (still_believed)"),
    ("remove", unrecorded(stored_at="2026-08-31T23:50:01.000000Z"), "it breaks a rule (still_believed)"),
    ("release", data(hold_id="other"), "it breaks a rule (no_such_hold)"),
    ("retract", event(fact_id="f10"), "it breaks a rule (unknown_fact)"),
]  # fmt: skip


async def test_a_forgery_with_hashes_that_fit_is_refused_with_its_place(book: Book, written: str) -> None:
    """Every field has one type and form, each section its kind, every event the rules; nothing is written."""
    said = []
    for place, change, _ in FORGERIES:
        log: Log = json.loads(written)
        change(log[PLACES[place] - 1])
        seal(log)
        said.append(await problem_with(book, log, PLACES[place]))
    assert said == [problem for _, _, problem in FORGERIES]


UNREAD: list[Callable[[dict[str, Any]], Any]] = [
    lambda row: [row],
    lambda row: None,
    lambda row: {**row, "more": 1},
    lambda row: {name: row[name] for name in ("event", "hash")},
    lambda row: {name: row[name] for name in ("event", "sealed")},
    lambda row: {**row, "event": {**row["event"], "more": 1}},
    lambda row: {**row, "event": {name: row["event"][name] for name in row["event"] if name != "actor"}},
    lambda row: {**row, "event": list(row["event"])},
    lambda row: {**row, "hash": None},
    lambda row: {**row, "sealed": None},
    lambda row: {**row, "sealed": [["content", {}]]},
    lambda row: {**row, "event": {**row["event"], "sealed": ["content", "identity"]}},
    lambda row: {**row, "event": {**row["event"], "actor": "lone \ud800"}},
    lambda row: {**row, "event": {**row["event"], "seq": float("nan")}},
    lambda row: {**row, "event": {**row["event"], "data": {"deep": nested(5000)}}},
    lambda row: {**row, "event": {**row["event"], "data": {5: 1}}},
    lambda row: {**row, "event": {**row["event"], "data": {"whole": 2**53}}},
    *[
        lambda row, section=section: {**row, "sealed": {**row["sealed"], "content": section}}
        for section in (
            None,
            {},
            {"body": {}, "salt": ""},
            {"body": {}, "salt": "00" * 15},
            {"body": {}, "salt": "00" * 17},
            {"body": {}, "salt": "AA" * 16},
            {"body": {}, "salt": "00 " * 16},
            {"body": {}, "salt": 5},
            {"body": [SECRET], "salt": "00" * 16},
            {"body": {"value": float("inf")}, "salt": "00" * 16},
            {"body": {"value": nested(5000)}, "salt": "00" * 16},
            {"body": {"value": "lone \ud800"}, "salt": "00" * 16},
            {"body": {"value": 2**53}, "salt": "00" * 16},
            {"body": {"text": SECRET, "value": 1}, "salt": "00" * 16, "more": 1},
        )
    ],
]


async def test_what_is_no_exported_event_is_refused_with_its_place(book: Book, log: Log) -> None:
    """Whatever stands in a file ends as one error with the place, and never as one of Python's."""
    for change in UNREAD:
        altered = [log[0], change(log[1]), *log[2:]]
        assert await problem_with(book, altered, 2) in ("is no exported event", UNREADABLE, UNSEALED)


async def test_a_log_is_read_as_numbers_are_written(book: Book, log: Log) -> None:
    """`1.0` is `1` and `-0.0` is `0` in the form that is hashed, and from then on everywhere."""
    log[0]["event"]["seq"] = 1.0
    log[0]["sealed"]["content"]["body"]["value"] = {"n": [-0.0, 3.0, 1e20]}
    seal(log)
    await book.ledger.restore(log)
    (first, *_) = await book.export()
    assert json.dumps(first["event"]["seq"]) == "1"
    assert json.dumps(first["sealed"]["content"]["body"]["value"]) == '{"n": [0, 3, 1e+20]}'


@pytest.mark.parametrize(
    "change",
    [
        lambda log: log.pop(3),
        lambda log: log.insert(3, copy.deepcopy(log[3])),
        lambda log: log.insert(3, log.pop(4)),
        lambda log: log[3].update(hash=NONE),
        lambda log: log[3]["event"].update(prev=NONE),
        lambda log: log[3]["event"].update(actor="someone else"),
    ],
)
async def test_a_log_that_was_only_edited_is_refused_at_the_first_event_that_shows(
    book: Book, log: Log, change: Callable[[Log], Any]
) -> None:
    """Dropped, doubled, swapped, relinked or altered without new hashes: the chain tells where."""
    before = copy.deepcopy(log)
    change(log)
    first = next(seq for seq, (old, new) in enumerate(zip(before, log, strict=False), 1) if old != new)
    await problem_with(book, log, first)


async def test_no_hand_made_log_makes_two_links_believed_at_once(book: Book, log: Log) -> None:
    """A second replacement of one fact is refused, with an identity or with one said to be erased."""
    rival = copy.deepcopy(log[1])
    rival["event"].update(seq=3, event_id="rival", fact_id="rival", tx_time="2026-09-01T00:00:00.000002Z")
    rival["sealed"]["refs"]["body"]["placements"][0]["external_id"] = "m-rival"
    del log[2:]
    log.append(rival)
    for erased in ((), ("identity",), ("identity", "content", "refs")):
        for name in erased:
            rival["sealed"].pop(name, None)
        seal(log)
        assert await problem_with(book, log, 3) == "it breaks a rule (already_covered)"


async def test_a_page_that_breaks_leaves_the_pages_before_it(book: Book, log: Log) -> None:
    """Each page goes in whole or not at all, and the place counts from the log's beginning."""
    await book.ledger.restore(log[:4])
    before = await answers_of(book.ledger)
    log[6]["event"]["actor"] = ""
    seal(log)
    with pytest.raises(LedgerBroken) as caught:
        await book.ledger.restore(log[4:])
    assert caught.value.seq == 7
    assert await answers_of(book.ledger) == before
    with pytest.raises(LedgerBroken) as caught:
        await book.ledger.restore([log[4], "no event"])
    assert caught.value.seq == 6
    assert await answers_of(book.ledger) == before


async def test_a_log_follows_only_where_it_was_cut(book: Book, log: Log) -> None:
    """Events are taken over right after this ledger's own head, never on top of others."""
    await book.add()
    with pytest.raises(LedgerBroken) as caught:
        await book.ledger.restore(log)
    assert caught.value.seq == 2
    assert (await book.ledger.head()).seq == 1


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize("identity", [False, True])
async def test_what_a_later_page_forgets_is_erased_where_it_was_taken_over(
    book: Book, tmp_path: Path, identity: bool, size: int
) -> None:
    """A log read page by page may show a value whose forget comes later: the value goes all the same."""
    source = await open_book(tmp_path / "source.db")
    draft = source.state(value=SECRET, space="user:ada", held=[("memories", "m-secret")])
    await source.append(draft)
    await source.append(source.hold(draft.fact_id, "h", reason="ada wrote"))
    await source.append(source.release(draft.fact_id, "h"))
    before = await source.export()
    await source.append(source.forget(draft.fact_id, identity=identity, reason="asked"))
    await source.append(source.remove(draft.fact_id, "memories", "m-secret"))
    log = [*before, *(await source.export())[len(before) :]]
    for first in range(0, len(log), size):
        await book.ledger.restore(log[first : first + size])
    assert SECRET not in json.dumps(await book.export())
    assert ("ada" in json.dumps(await book.export())) is not identity
    assert await book.ledger.erase() is Erasure.DONE
    if not identity:
        assert await answers_of(book.ledger) == await answers_of(source.ledger)
    await source.ledger.close()


@pytest.mark.damages
@pytest.mark.parametrize("section", ["content", "identity", "refs"])
async def test_what_is_gone_without_a_forget_is_named_at_the_end(book: Book, log: Log, section: str) -> None:
    """A page cannot tell, since a forget may follow; so whoever takes over a whole log has it checked."""
    del log[0]["sealed"][section]
    lines = [header_line("other"), *map(event_line, log)]
    with pytest.raises(LedgerBroken) as caught:
        await take_over(FileSource("export.jsonl", lines), book.ledger)
    assert caught.value.seq == 1
    found = await book.ledger.verify(witness=False)
    assert (found.intact, found.first_bad) == (False, 1)
    assert not found.passed


async def test_a_whole_log_is_taken_over_and_checked(book: Book, log: Log) -> None:
    """What forgets explain may be gone: the new ledger is intact, and consistent with its log."""
    lines = [header_line("other"), *map(event_line, log)]
    moved = await take_over(FileSource("export.jsonl", lines), book.ledger)
    assert (moved.before, moved.added) == (0, len(log))
    found = await book.ledger.verify(moved.head, witness=False)
    assert found.passed, found
