"""What people and programs type: durations, times, values, plans, templates, heads, lines to import."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from fix_fuzz import CHANGES, JSONS, NAUGHTY, NESTED, TEXTS, changed, fuzzed, nested, refused
from hypothesis import strategies as st

from custody_sync.canonical import canonical, check_name, check_value, parse
from custody_sync.cli.ledger import _heads  # what `--head` is read by
from custody_sync.cli.lines import FIELDS, read_lines
from custody_sync.cli.options import instant, json_value
from custody_sync.durations import read_duration
from custody_sync.errors import CustodyError
from custody_sync.ledger.witness import head_line
from custody_sync.model import Entry, Head, Leftover, Provenance, format_instant, read_instant
from custody_sync.repair.adoption import Adoption, Mapping, NotMapped
from custody_sync.repair.listing import Candidate
from custody_sync.repair.plan import MARK, PlanWriter, check_plan, read_plan
from custody_sync.retention import read_windows

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
CANARY = "canary-Zq7-coffee"
R = TypeVar("R")


def attempt(work: Callable[[], R], *never: str) -> R | None:
    """Return what comes of it; None where it is refused in our words."""
    try:
        return work()
    except CustodyError as error:
        refused(error, *never)
        return None


PARTS = st.sampled_from([*"PTYMWDHS0123456789-+., :Z", "P1", "PT", "99999999", "٣", "½", "\u2212"])
AMOUNTS = st.lists(st.tuples(st.integers(0, 12), st.sampled_from("YMWDTHMS")), min_size=1, max_size=3)
DURATIONS = (
    AMOUNTS.map(lambda amounts: "P" + "".join(f"{n}{unit}" if unit != "T" else unit for n, unit in amounts))
    | st.lists(PARTS, max_size=10).map("".join)
    | TEXTS
    | JSONS
)


@fuzzed(150, text=DURATIONS)
def test_a_duration_is_what_was_typed_or_refused(text: Any) -> None:
    """It lies in the past of any instant, and a longer one never later than a shorter one."""
    read = attempt(lambda: read_duration(text))
    if read is not None:
        assert read.text == text
        assert read == read_duration(read.text)
        assert read.before(NOON) < NOON
        assert read.before(datetime.min.replace(tzinfo=UTC)) == datetime.min.replace(tzinfo=UTC)


DIGITS = st.sampled_from(
    [*"0123456789-+:.TZtz W,", "2026-11-30", "T12:00", "+23:59", "-24:00", "٢٠٢٦", "9999-12-31", "0001-01-01"]
)
TIMES = (
    st.lists(DIGITS, max_size=8).map("".join)
    | st.datetimes(timezones=st.timezones() | st.none()).map(datetime.isoformat)
    | NAUGHTY
)  # fmt: skip


@fuzzed(150, text=TIMES)
def test_a_time_is_an_instant_or_refused(text: str) -> None:
    """What is read is aware, in UTC, and the same after it was written and read again."""
    read = attempt(lambda: instant("--valid-at", text))
    if read is not None:
        assert read.tzinfo is UTC
        assert read_instant(format_instant(read)) == read
        assert len(format_instant(read)) == len("2026-11-30T12:00:00.000000Z")


@fuzzed(60, said=st.dictionaries(TEXTS | NAUGHTY, DURATIONS, max_size=3) | JSONS)
def test_windows_are_read_whole_or_refused(said: Any) -> None:
    """No window of a table is left out, and each has the length that stands there."""
    read = attempt(lambda: read_windows(said))
    if read is not None:
        assert {pattern: window.text for pattern, window in read.by_pattern.items()} == said


# --- JSON ------------------------------------------------------------------------------------


def alike(one: Any, other: Any) -> bool:
    """Tell whether two values are one JSON value: 1 and 1.0 are, True and 1 are not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    return bool(one == other)


@fuzzed(200, one=JSONS, other=JSONS)
def test_a_value_has_one_form_and_a_form_one_value(one: Any, other: Any) -> None:
    """What has a form reads back as itself, and two values share a form only if they are one."""
    forms = [attempt(lambda value=value: canonical(value)) for value in (one, other)]
    kept = attempt(lambda: check_value(one))
    if kept is not None:
        assert alike(kept, one), "the copy is another value"
    if forms[0] is not None:
        assert alike(parse(forms[0]), one)
        assert canonical(parse(forms[0])) == forms[0]
    if None not in forms:
        assert (forms[0] == forms[1]) == alike(one, other)


@fuzzed(80, text=JSONS.map(json.dumps) | TEXTS | NAUGHTY | NESTED.map(nested), changes=CHANGES)
def test_typed_json_is_a_value_or_refused(text: str, changes: list[Any]) -> None:
    """Whatever it says, it is JSON or no value; nothing that cannot be kept gets past the check."""
    raw = changed(text.encode("utf-8", "surrogatepass"), changes).decode("utf-8", "surrogateescape")
    read = attempt(lambda: (json_value("--value", raw),))
    if read is not None and (kept := attempt(lambda: (check_value(read[0]),))) is not None:
        assert alike(parse(canonical(kept[0])), kept[0])


# --- lines to import -------------------------------------------------------------------------

STATED = [
    {"value": "dark", "space": "user:1", "subject": "user:1", "predicate": "theme", "ref": "a"},
    {"value": {"n": [1.5, None]}, "space": "user:1", "subject": "user:1", "predicate": "theme",
     "supersedes_ref": "a", "valid_from": "2026-01-31T12:00:00Z", "actor": "me", "text": "a text"},
    {"value": CANARY, "space": "org", "provenance": "claimed", "idempotency_key": "k", "receipt_id": "r"},
]  # fmt: skip
IMPORTED = b"".join(json.dumps(line).encode() + b"\n" for line in STATED)


@fuzzed(120, changes=CHANGES)
def test_lines_are_imported_all_or_none(changes: list[Any]) -> None:
    """Every line that is not blank becomes a fact to write, or the file is refused naming the lines."""
    raw = changed(IMPORTED, changes)
    read = attempt(lambda: read_lines(raw, actor="me", provenance=Provenance.ATTESTED))
    if read is not None:
        physical = raw.removeprefix(b"\xef\xbb\xbf").split(b"\n")
        assert [line.number for line in read] == [n for n, line in enumerate(physical, 1) if line.strip()]
        for line in read:
            assert set(line.arguments) <= set(FIELDS)
            canonical(dict(line.arguments)["value"])


# --- plans -----------------------------------------------------------------------------------

LEDGER: Any = SimpleNamespace(ledger_id="ledger-1", files=())
NAMES = TEXTS.filter(bool)
CANDIDATES = st.builds(
    Candidate,
    st.builds(
        Entry,
        store=NAMES,
        external_id=NAMES,
        fact_id=NAMES,
        scope=st.none() | TEXTS,
        stored_at=st.none() | st.datetimes(timezones=st.just(UTC)),
    ),
    st.sampled_from(Leftover),
    st.booleans(),
)


def plan_of(candidates: list[Candidate]) -> str:
    """Return a plan as a sweep writes it."""
    file = io.StringIO()
    file.write(json.dumps({MARK: 1, "ledger_id": LEDGER.ledger_id}) + "\n")
    writer = PlanWriter(file)
    for candidate in candidates:
        writer.write(candidate)
    writer.end()
    return file.getvalue()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a file under test lies."""
    return tmp_path_factory.mktemp("fuzz") / "file"


@fuzzed(60, candidates=st.lists(CANDIDATES, max_size=3))
def test_a_plan_says_what_the_sweep_found(file: Path, candidates: list[Candidate]) -> None:
    """Whatever the ids and scopes look like, they come back from the file as they were."""
    file.write_text(plan_of(candidates), encoding="utf-8", newline="\n")
    assert [line.candidate for line in read_plan(file, LEDGER)] == candidates
    assert check_plan(file, LEDGER) == len(candidates)


SOUND = [
    Candidate(
        Entry(store="memories", external_id=f"m-{n}", fact_id="f", scope=None, stored_at=NOON),
        Leftover.ORPHAN, False,
    )
    for n in range(3)
]  # fmt: skip


@fuzzed(100, changes=CHANGES)
def test_a_broken_plan_is_carried_out_whole_or_not_at_all(file: Path, changes: list[Any]) -> None:
    """It is read to its end with the count it states, or refused before anything of it is done."""
    raw = changed(plan_of(SOUND).encode(), changes)
    file.write_bytes(raw)
    count = attempt(lambda: check_plan(file, LEDGER))
    if count is not None:
        lines = list(read_plan(file, LEDGER))
        assert len(lines) == count
        assert json.loads(raw.decode().splitlines()[-1])["lines"] == count
        assert all(line.candidate.entry.external_id and line.candidate.entry.store for line in lines)


# --- templates -------------------------------------------------------------------------------

PIECES = st.sampled_from(
    ["user:", "{scope}", "{scope[0]}", "{scope[1]}", "{scope[9999]}", "{scope[-1]}", "{store}",
     "{external_id}", "{{", "}}", "{", "}", "{}", "{0}", "{scope!r}", "{scope:99999999}", "{scope.__class__}",
     "{scope[x]}", "{store:{scope}}", "{external_id:>9999999999}", " ", "\x00", "\ud800"]
)  # fmt: skip
ENTRIES = st.builds(
    Entry,
    store=NAMES,
    external_id=NAMES,
    scope=st.none() | TEXTS | st.lists(JSONS, max_size=2).map(json.dumps) | NESTED.map(nested),
    text=st.just(CANARY),
)


async def _mapped(mapping: Mapping, entry: Entry) -> Adoption | str:
    try:
        found = await mapping.of(entry)
    except NotMapped as reason:
        return str(reason)
    assert isinstance(found, Adoption)
    return found


@fuzzed(120, template=st.lists(PIECES, max_size=4).map("".join) | TEXTS, entry=ENTRIES)
def test_a_template_gives_a_space_or_a_reason(template: str, entry: Entry) -> None:
    """It reaches nothing but the entry's own names, and no width makes it long."""
    mapping = attempt(lambda: Mapping(template))
    if mapping is None:
        return
    found = asyncio.run(_mapped(mapping, entry))
    if not isinstance(found, Adoption):
        assert CANARY not in found
        return
    assert "<" not in found.space or "<" in f"{template}{entry}", "it shows an object of Python"
    most = len(template) * max(len(entry.scope or ""), len(entry.external_id), len(entry.store), 1)
    assert len(found.space) <= len(template) + most
    attempt(lambda: check_name(found.space, "space"))


# --- heads -----------------------------------------------------------------------------------

HEADS = "".join(head_line("ledger-1", Head(seq, NOON, f"{seq:064x}")) + "\n" for seq in (1, 2, 9)).encode()


@fuzzed(80, changes=CHANGES)
def test_a_file_of_heads_is_read_whole_or_refused(file: Path, changes: list[Any]) -> None:
    """Every line is the head of an event, or the file is no witness of anything."""
    raw = changed(HEADS, changes)
    file.write_bytes(raw)
    read = attempt(lambda: list(_heads(str(file))))
    if read is not None:
        assert all(len(head.hash) == 64 and head.seq >= 0 and whose for whose, head in read)
        assert len(read) <= raw.count(b"\n") + raw.count(b"\r") + 1
