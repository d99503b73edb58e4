"""What fuzzing found, each in its smallest form: a value of ours or an error of ours, and never Python's."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from custody_sync.adapters import _call_results, _cognee_recall, _cognee_rows, _langchain_calls, _mem0_rows
from custody_sync.adapters._failures import retry_after
from custody_sync.adapters._langgraph_namespaces import read as read_namespace
from custody_sync.adapters._zep_graphs import _scope_in
from custody_sync.errors import InvalidInput, InvalidStore, LedgerDamaged, StoreThrottled
from custody_sync.faces._mem0_shape import read_start
from custody_sync.ledger import Ledger
from custody_sync.ledger.jsonl_lines import read_header, read_line
from custody_sync.repair.plan import check_plan
from custody_sync.settings import load_settings, open_stores
from custody_sync.testing import testing_runtime
from custody_sync.throttling import seconds_of

GOLDEN = Path(__file__).parents[1] / "golden" / "ledger-4.jsonl"
DEEP = "[" * 100_000
VAST = 10**400
"""More than a float can be."""
PASSWORD = "s3cret-pw-7Q"
URL = f"postgresql://u:{PASSWORD}@db.invalid/led"
EARLY = "0001-01-01T00:00:00+12:00"
"""Before the calendar begins in UTC."""


@pytest.mark.parametrize(
    "value", [b"9" * 5000, b"[" * 5000 + b"]" * 5000, b"{a=" * 3000 + b"1" + b"}" * 3000]
)
def test_settings_that_python_cannot_parse_are_no_toml(tmp_path: Path, value: bytes) -> None:
    """A number of 5,000 digits and a nesting without end are refused as any other slip."""
    path = tmp_path / "custody.toml"
    path.write_bytes(b"ledger = " + value)
    with pytest.raises(InvalidInput, match="not valid TOML"):
        load_settings(path, environ={}, cwd=tmp_path)


async def _use(path: Path) -> None:
    settings = load_settings(path, environ={}, cwd=path.parent)
    settings.forget_key({})
    async with open_stores(settings):
        raise AssertionError("there are no such stores")


@pytest.mark.parametrize(
    "misplaced", [f'[retention]\nledger = "{URL}"', f'factory = "{URL}"', f'forget_key_env = "{PASSWORD}"']
)
async def test_a_secret_under_a_wrong_key_is_not_repeated(tmp_path: Path, misplaced: str) -> None:
    """A line that slipped is refused in a sentence that does not show what it says."""
    path = tmp_path / "custody.toml"
    path.write_text(misplaced)
    with pytest.raises(InvalidInput) as refused:
        await _use(path)
    assert PASSWORD not in f"{refused.value}{refused.value.to_dict()}"


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="this system has no /dev/zero")
def test_settings_have_an_end(tmp_path: Path) -> None:
    """A device is not read until memory is full."""
    with pytest.raises(InvalidInput, match="too large"):
        load_settings("/dev/zero", environ={}, cwd=tmp_path)


@pytest.mark.parametrize("name", ["a\0b", "a" * 5000])
def test_settings_that_no_file_can_be_called_are_missing(tmp_path: Path, name: str) -> None:
    """A name that the system refuses is a file that is not there."""
    with pytest.raises(InvalidInput):
        load_settings(name, environ={}, cwd=tmp_path)
    assert load_settings(name, environ={}, cwd=tmp_path, missing_ok=True).config is None


@pytest.mark.parametrize("scheme", ["sqlite", "jsonl"])
async def test_half_a_character_in_a_path_is_refused(tmp_path: Path, scheme: str) -> None:
    """The system cannot be asked for such a name."""
    with pytest.raises(InvalidInput, match="no file can have that name"):
        await Ledger.open(f"{scheme}:///{tmp_path}/\ud800", create=True)


@pytest.mark.parametrize("path", ["\ud800", "", "a\0b"])
def test_a_plan_that_no_file_can_be_is_refused(path: str) -> None:
    """Neither to write it nor to carry it out is anything asked of the system."""
    ledger: Any = SimpleNamespace(ledger_id="l", files=())
    with pytest.raises(InvalidInput, match="must be the path of a file"):
        check_plan(path, ledger)


def test_half_a_character_in_a_header_is_damage() -> None:
    """A ledger id that no file can hold is none."""
    line = b'{"custody-sync":"ledger","format":1,"ledger_id":"\\ud800"}\n'
    with pytest.raises(LedgerDamaged):
        read_header(line, "custody.jsonl")


def test_half_a_character_in_a_hash_is_said_in_our_words() -> None:
    """What is wrong with a line is a sentence of ours, whatever Python calls it."""
    row = json.loads(GOLDEN.read_bytes().split(b"\n")[1])
    with pytest.raises(ValueError, match=r"^its line is not in the form it was written in$"):
        read_line(json.dumps({**row, "hash": "\ud800"}).encode())


class Throttled(Exception):
    """What a vendor raises for 429, with whatever its server sent."""

    status_code = 429

    def __init__(self, wait: str) -> None:
        super().__init__()
        self.headers = {"Retry-After": wait}


@pytest.mark.parametrize(
    "wait", ["Mon, 01 Jan 99999999999999999999 00:00:00 GMT", "Mon, 01 Jan 2026 00:00:00 +99999999999999999"]
)
def test_a_date_to_retry_after_that_is_none_names_no_time(wait: str) -> None:
    """It is still an answer of 429, and is waited out as one that names nothing."""
    assert retry_after(Throttled(wait)) is None


@pytest.mark.parametrize("wait", [VAST, -VAST, float("nan"), True, "1"])
def test_a_time_to_wait_that_is_no_number_of_seconds_is_none(wait: Any) -> None:
    """An adapter of somebody else's may have put anything there."""
    assert seconds_of(StoreThrottled(store="s", operation="put", cause="429", retry_after=wait)) is None


@pytest.mark.parametrize("score", [VAST, float("nan"), float("inf")])
def test_a_score_that_cannot_be_compared_is_none(score: Any) -> None:
    """In no adapter's answer does it keep the row from being read."""
    row = _mem0_rows.read_row({"id": "a", "score": score, "score_details": {"semantic_score": score}})
    assert row is not None
    assert (row.score, row.similarity) == (None, None)
    calls = _call_results.Results("notes", _call_results.Ids("notes"), None)
    assert calls.found(("a", "text", score)).score is None
    assert _langchain_calls._number(score) is None
    assert _cognee_recall._distance({"score": score}) == float("inf")


def test_an_id_that_has_no_text_is_refused() -> None:
    """Python writes no number of 5,000 digits."""
    with pytest.raises(InvalidStore, match="an id must be"):
        _call_results.Ids("notes").write(10**5000)


def test_what_is_nested_without_end_is_no_scope() -> None:
    """Neither a namespace nor the mark of a graph."""
    assert read_namespace(DEEP) is None
    assert _scope_in(f"mark {DEEP}") is None


def test_a_time_before_the_calendar_is_none() -> None:
    """An offset may lead out of the years that there are."""
    row = _cognee_rows.read_row({"id": "d", "createdAt": EARLY})
    assert row is not None
    assert row.created_at is None
    with pytest.raises(InvalidInput, match="must be an instant"):
        read_start({"created_at": EARLY}, testing_runtime().clock.now())


async def test_a_place_in_the_log_is_a_whole_number(tmp_path: Path) -> None:
    """Anything else is refused, and a number beyond every log is the place of no event."""
    url = f"sqlite:///{tmp_path}/custody.db"
    odd: Any
    async with await Ledger.open(url, create=True, witness=False, runtime=testing_runtime()) as ledger:
        for odd in (None, "1", 1.0, True):
            with pytest.raises(InvalidInput):
                await ledger.stored(odd)
        assert [await ledger.stored(seq) for seq in (0, 1, 2**64)] == [None, None, None]
        for odd in ("x", 2**64, -1):
            with pytest.raises(InvalidInput):
                await anext(ledger.export(after=odd))


async def test_a_witness_that_is_nested_without_end_is_one_that_cannot_be_read(tmp_path: Path) -> None:
    """It fails nobody, and is named as what it is."""
    url = f"sqlite:///{tmp_path}/custody.db"
    async with await Ledger.open(url, create=True, witness=tmp_path, runtime=testing_runtime()) as ledger:
        assert ledger.witness.path is not None
        ledger.witness.path.write_text(DEEP)
        assert await ledger.witness.read() is None
        assert "cannot be read" in str(ledger.witness.problem)
