"""Broken ledger files: read whole or refused in our words, and never altered by being looked at."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from fix_fuzz import CHANGES, GRAFTS, changed, fuzzed, grafted, refused
from hypothesis import strategies as st

from custody_sync.canonical import canonical, parse
from custody_sync.errors import CustodyError
from custody_sync.ledger import Ledger
from custody_sync.ledger.moving import FileSource, export_lines, take_over
from custody_sync.testing import testing_runtime

GOLDEN = Path(__file__).parents[1] / "golden" / "ledger-4.jsonl"
LINES = GOLDEN.read_bytes().split(b"\n")[:-1]
ROWS: list[dict[str, Any]] = [json.loads(line) for line in LINES[1:]]
CANARY = "canary-Zq7-coffee"
"""Stands in values of the files below; no error may quote it."""
GENESIS = "0" * 64


def seal(log: Sequence[Any]) -> None:
    """Give altered events hashes that fit, as a forger would, as far as they have the shape for it."""
    prev = GENESIS
    for row in log:
        try:
            event = row["event"]
            for name in row["sealed"].keys() & event["sealed"].keys():
                section = row["sealed"][name]
                form = bytes.fromhex(section["salt"]) + rfc8785.dumps(section["body"])
                event["sealed"][name] = hashlib.sha256(form).hexdigest()
            event["prev"] = prev
            row["hash"] = prev = hashlib.sha256(rfc8785.dumps(event)).hexdigest()
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
            return


def marked(count: int) -> list[dict[str, Any]]:
    """Return the first rows of the golden log with a canary in every value, sealed."""
    log: list[dict[str, Any]] = json.loads(json.dumps(ROWS[:count]))
    for row in log:
        content = row["sealed"].get("content", {}).get("body", {})
        if "text" in content:
            content["text"] = f"{content['text']} {CANARY}"
    seal(log)
    return log


def written(log: Sequence[object]) -> bytes:
    """Return a log as the file of a ledger."""
    return b"\n".join([LINES[0], *map(rfc8785.dumps, log)]) + b"\n"  # type: ignore[arg-type]  # JSON, whatever it is


SMALL = marked(12)
FILE = written(SMALL)


class Shelf:
    """A folder for ledgers that are read, and a loop that is there for all of them."""

    def __init__(self, folder: Path, runner: asyncio.Runner) -> None:
        self.folder = folder
        self.path = folder / "custody.jsonl"
        self._runner = runner

    def clear(self) -> None:
        """Remove what an earlier example left."""
        for file in self.folder.iterdir():
            file.unlink()

    def opened(self, *, write: bool) -> list[bytes] | CustodyError:
        """Open the file as a ledger and return what it exports, or how it was refused."""
        return self._runner.run(self._opened(write))

    async def _opened(self, write: bool) -> list[bytes] | CustodyError:
        url = f"jsonl:///{self.path}?synchronous=off"
        try:
            ledger = await Ledger.open(url, read_only=not write, runtime=testing_runtime(), witness=False)
        except CustodyError as error:
            return error
        async with ledger:
            try:
                found = await ledger.verify(witness=False)
                lines = [line async for line in export_lines(ledger)]
            except CustodyError as error:
                return error
        assert found.intact or found.problem, "it is not intact, and does not say why"
        return lines

    def taken(self, data: bytes) -> tuple[list[bytes] | CustodyError, list[bytes]]:
        """Import a file into a new ledger; return how it ended and what is there."""
        return self._runner.run(self._taken(data))

    async def _taken(self, data: bytes) -> tuple[list[bytes] | CustodyError, list[bytes]]:
        lines = [line + b"\n" for line in data.split(b"\n")]
        lines[-1] = lines[-1].removesuffix(b"\n")
        url = f"jsonl:///{self.path}?synchronous=off"
        async with await Ledger.open(url, create=True, runtime=testing_runtime(), witness=False) as target:
            try:
                await take_over(FileSource("export.jsonl", filter(None, lines)), target)
            except CustodyError as error:
                return error, [line async for line in export_lines(target)]
            found = [line async for line in export_lines(target)]
            return found, found


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    """One folder and one loop for all examples."""
    with asyncio.Runner() as runner:
        yield Shelf(tmp_path_factory.mktemp("fuzz"), runner)


@fuzzed(50, changes=CHANGES, write=st.booleans())
def test_a_broken_ledger_file_is_read_whole_or_refused(shelf: Shelf, changes: list[Any], write: bool) -> None:
    """What is opened says the very lines of the file; what is refused is left as it was, byte for byte."""
    shelf.clear()
    data = changed(FILE, changes)
    shelf.path.write_bytes(data)
    found = shelf.opened(write=write)
    left = shelf.path.read_bytes()
    if isinstance(found, CustodyError):
        refused(found, CANARY)
        assert left == data
        return
    said = b"".join(found)
    whole, rest = said.removesuffix(b"\n"), data[len(said) - 1 :]
    assert data.startswith(whole), "it says what the file does not"
    # Of the last line the end may lack, or be another byte; its hash says that nothing else does.
    assert rest[:1] == b"\n" or len(rest) <= 1, "a part of a line was taken for all of it"
    if write:
        assert left == said, "the file is not what the ledger says"
    else:
        assert left == data
        assert {file.name for file in shelf.folder.iterdir()} <= {"custody.jsonl", "custody.jsonl-lock"}
    assert data.count(b"\n") in (said.count(b"\n"), said.count(b"\n") - 1), "a whole line is missing"


@fuzzed(40, changes=CHANGES)
def test_a_broken_export_is_taken_over_whole_or_refused(shelf: Shelf, changes: list[Any]) -> None:
    """An import ends with what the file says, or in our words; half a page of it is never there."""
    shelf.clear()
    data = changed(FILE, changes)
    found, there = shelf.taken(data)
    if isinstance(found, CustodyError):
        refused(found, CANARY)
        assert len(there) in (1, data.count(b"\n")), "a part of a page was taken over"
        return
    rows = [line for line in data.split(b"\n")[1:] if line]
    assert there[1:] == [canonical(parse(row)) + b"\n" for row in rows]


@fuzzed(50, grafts=GRAFTS)
def test_a_forged_log_is_taken_over_whole_or_refused(shelf: Shelf, grafts: list[Any]) -> None:
    """Fields removed, retyped and added under hashes that fit: only what a ledger could have written."""
    shelf.clear()
    log: Any = grafted(SMALL, grafts)
    seal(log if isinstance(log, list) else [])
    try:
        data = written(log)
    except (RecursionError, TypeError, ValueError, rfc8785.CanonicalizationError):
        # What has no canonical form is written as whoever else would.
        data = b"\n".join([LINES[0], *(json.dumps(row).encode() for row in _rows(log))]) + b"\n"
    found, there = shelf.taken(data)
    if isinstance(found, CustodyError):
        refused(found, CANARY)
        assert len(there) in (1, data.count(b"\n"))
        return
    assert there[1:] == [canonical(parse(line)) + b"\n" for line in data.split(b"\n")[1:-1]]
    shelf.clear()
    shelf.path.write_bytes(b"".join(there))
    assert shelf.opened(write=False) == there, "what was taken over is no ledger"


def _rows(log: object) -> list[object]:
    return log if isinstance(log, list) else [log]
