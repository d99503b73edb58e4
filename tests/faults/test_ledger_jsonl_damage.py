"""A damaged JSONL file: it opens with every whole event, or is refused by place and left as it is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from fix_ledger import files_of, open_book

from custody_sync.errors import LedgerBroken, LedgerDamaged, LedgerError, LedgerTooNew
from custody_sync.ledger.chain import GENESIS
from custody_sync.ledger.jsonl import NOTES_ANEW, open_jsonl
from custody_sync.ledger.jsonl_lines import read_line
from custody_sync.ledger.state import Position
from custody_sync.ledger.stored import problem_of
from custody_sync.testing import testing_runtime

NAMES = {"l.jsonl", "l.jsonl-lock", "l.jsonl-notes"}


async def make(folder: Path) -> bytes:
    """Make a small ledger with events of several kinds and return its file."""
    path = folder / "l.jsonl"
    book = await open_book(path, url=f"jsonl:///{path}")
    first = await book.add("user:7", "city", "Zürich \u2028 \u0085", held=[("memories", "m1")])
    await book.append(book.hold(first, "h1", "a reason"))
    await book.append(book.release(first, "h1"))
    gone = await book.add("user:8", "city", "gone")
    await book.append(book.forget(gone))
    await book.append(book.retract(first, "wrong"))
    await book.add(value=1e20)
    await book.add("s", "p", "v", space="x", text="t")
    await book.ledger.close()
    return path.read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a small ledger."""
    return asyncio.run(make(tmp_path_factory.mktemp("whole")))


@dataclass
class Opened:
    """What opening a file came to."""

    lines: list[bytes]
    notices: tuple[str, ...]
    error: LedgerError | None


@dataclass
class Bench:
    """A place to put damaged files to and to open them."""

    folder: Path

    async def open(self, data: bytes, *, read_only: bool = False) -> Opened:
        """Open a file with nothing beside it and export it as lines."""
        for path in self.folder.iterdir():
            path.unlink()
        path = self.folder / "l.jsonl"
        path.write_bytes(data)
        runtime = testing_runtime()
        try:
            storage = await open_jsonl(
                f"{path}?synchronous=off", create=False, read_only=read_only, runtime=runtime
            )
        except LedgerError as error:
            return Opened([], (), error)
        rows = await storage.events(1000, 0)
        await storage.close()
        lines = [json.dumps(row["event"]["event_id"]).encode() for row in rows]
        # That nothing lies beside it is said as well, and is not what this is about.
        return Opened(lines, tuple(said for said in storage.notices if said != NOTES_ANEW), None)

    def left(self) -> bytes:
        """Return what the file is now."""
        return (self.folder / "l.jsonl").read_bytes()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """An empty folder."""
    folder = tmp_path / "bench"
    folder.mkdir()
    return Bench(folder)


def events_of(data: bytes) -> list[bytes]:
    """Return the lines of a file's events."""
    return data.split(b"\n")[1:-1]


def names_of(lines: list[bytes]) -> list[bytes]:
    """Return the ids of events, as JSON."""
    return [json.dumps(json.loads(line)["event"]["event_id"]).encode() for line in lines]


def position_after(lines: list[bytes]) -> Position:
    """Return where a log stands after some lines."""
    if not lines:
        return Position(0, None, GENESIS)
    last = read_line(lines[-1])
    return Position(last.seq, last.tx_time, last.hash)


def is_taken(line: bytes, after: Position) -> bool:
    """Tell whether a line passes for the event that follows a position."""
    try:
        return problem_of(read_line(line), after) is None
    except ValueError:
        return False


def test_no_line_that_was_cut_passes_for_a_whole_one(whole: bytes) -> None:
    """At whatever byte; only its end may be missing."""
    lines = events_of(whole)
    for at in range(len(lines) - 3, len(lines)):
        after = position_after(lines[:at])
        assert is_taken(lines[at], after)
        assert not any(is_taken(lines[at][:cut], after) for cut in range(len(lines[at])))


@pytest.mark.parametrize("read_only", [False, True])
async def test_a_file_cut_in_its_last_events_keeps_every_whole_one(
    whole: bytes, bench: Bench, read_only: bool
) -> None:
    """What is whole is there, without its line's end as well; the rest is cut off by a writer, and said."""
    lines = events_of(whole)
    start = len(whole) - sum(len(line) + 1 for line in lines[-3:])
    base = len(lines) - 3
    ends = [start - 1 + sum(len(line) + 1 for line in lines[base : base + n]) for n in range(4)]
    for cut in range(start, len(whole) + 1):
        # Where inside of a line it was cut makes no difference to a file; about an end it does.
        if cut % 47 and min(abs(cut - end) for end in ends) > 3:
            continue
        data = whole[:cut]
        kept = base + max(n for n in range(4) if cut >= ends[n])
        opened = await bench.open(data, read_only=read_only)
        assert opened.error is None
        assert opened.lines == names_of(lines[:kept])
        assert bool(opened.notices) == (not data.endswith(b"\n")), cut
        there = whole[: ends[kept - base] + 1]
        assert bench.left() == (data if read_only else there)


async def test_what_was_mended_is_said_once_and_in_words(whole: bytes, bench: Bench) -> None:
    """By the writer that mended it, and by a reader that left it out."""
    cases = {
        (whole[:-1], False): "event 8 lacked the end of its line, which was added",
        (whole[:-1], True): "event 8 lacks the end of its line",
        (whole[:-9], False): "an unfinished line of {} bytes after event 7 was cut off",
        (whole[:-9], True): "an unfinished line of {} bytes after event 7 is left out",
    }
    for (data, read_only), said in cases.items():
        rest = len(data) - data.rfind(b"\n") - 1
        opened = await bench.open(data, read_only=read_only)
        assert opened.notices == (said.format(rest),)
    assert (await bench.open(whole)).notices == ()


def flips(line: bytes, start: int = 0) -> Iterator[bytes]:
    """Yield a line with each of its bits flipped, those of its end included."""
    for at in range(start, len(line)):
        for bit in range(8):
            yield line[:at] + bytes([line[at] ^ 1 << bit]) + line[at + 1 :]


def test_every_flipped_bit_of_an_event_is_found(whole: bytes) -> None:
    """Whether it is one of its fields or of its end, and whether it makes two lines of one."""
    _, line, rest = whole.split(b"\n", 2)
    start = position_after([])
    assert is_taken(line, start)
    for changed in flips(line + b"\n"):
        first = (changed + rest).split(b"\n", 1)[0]
        assert not is_taken(first, start), changed


async def test_a_flipped_bit_of_an_event_is_found_at_its_place(whole: bytes, bench: Bench) -> None:
    """The event is named and the file stays as it is, whether the bit is one of its fields or of its end."""
    header, line, rest = whole.split(b"\n", 2)
    # Every bit of an end, and of the rest of a line each of the eight in turn.
    all_of_them = list(flips(line + b"\n"))
    for changed in [*all_of_them[:-8:61], *all_of_them[-8:]]:
        data = header + b"\n" + changed + rest
        opened = await bench.open(data, read_only=True)
        assert isinstance(opened.error, LedgerBroken)
        assert opened.error.seq == 1
        assert "(line 2)" in str(opened.error)
        assert bench.left() == data


async def test_a_flipped_bit_at_the_end_of_the_file_costs_no_event(whole: bytes, bench: Bench) -> None:
    """A last line whose end was damaged is no unfinished one: it is mended, never cut off."""
    last = events_of(whole)[-1] + b"\n"
    start = whole[: -len(last)]
    for changed in flips(last, len(last) - 40):
        opened = await bench.open(start + changed)
        if changed[:-1] == last[:-1]:
            assert opened.lines == names_of(events_of(whole))
            assert opened.notices == ("event 8 lacked the end of its line, which was added",)
            assert bench.left() == whole
        else:
            assert isinstance(opened.error, LedgerBroken)
            assert opened.error.seq == 8
            assert bench.left() == start + changed


@pytest.mark.parametrize("damage", ["dropped", "swapped", "doubled"])
async def test_a_line_dropped_swapped_or_doubled_is_found_at_its_place(
    whole: bytes, bench: Bench, damage: str
) -> None:
    """Only the loss of the last line leaves a log that is whole in itself: that is what a witness is for."""
    lines = whole.split(b"\n")[:-1]
    for at in range(len(lines)):
        if damage == "dropped":
            changed = lines[:at] + lines[at + 1 :]
        elif damage == "doubled":
            changed = lines[: at + 1] + lines[at:]
        elif at + 1 < len(lines):
            changed = [*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]
        else:
            continue
        data = b"".join(line + b"\n" for line in changed)
        opened = await bench.open(data)
        if damage == "dropped" and at == len(lines) - 1:
            assert opened.lines == names_of(lines[1:-1])
            continue
        assert bench.left() == data
        if at == 0 and damage != "doubled":
            assert isinstance(opened.error, LedgerDamaged)
            continue
        assert isinstance(opened.error, LedgerBroken)
        assert opened.error.seq == at + (damage == "doubled")


@pytest.mark.parametrize(
    ("start", "error"),
    [
        (b"", LedgerDamaged),
        (b"\n", LedgerDamaged),
        (b"{}\n", LedgerDamaged),
        (b"[1]\n", LedgerDamaged),
        (b"some other file\nwith lines\n", LedgerDamaged),
        (b"SQLite format 3\x00" + b"\x00" * 200, LedgerDamaged),
        (b"\xff\xfe\n", LedgerDamaged),
        (b"[" * 4000 + b"\n", LedgerDamaged),
        (b"x" * 10_000, LedgerDamaged),
        (b'\xef\xbb\xbf{"custody-sync":"ledger","format":1,"ledger_id":"a"}\n', LedgerDamaged),
        (b'{"custody-sync":"ledger","format":1,"ledger_id":"a"}\r\n', LedgerDamaged),
        (b'{"custody-sync":"ledger","format":1,"ledger_id":"a"}', LedgerDamaged),
        (b'{"custody-sync":"ledger","format":1,"ledger_id":7}\n', LedgerDamaged),
        (b'{"custody-sync":"ledger", "format":1,"ledger_id":"a"}\n', LedgerDamaged),
        (b'{"custody-sync":"ledger","format":true,"ledger_id":"a"}\n', LedgerDamaged),
        (b'{"custody-sync":"ledger","format":2,"ledger_id":"a","more":[]}\n', LedgerTooNew),
    ],
)
async def test_a_file_of_another_kind_is_refused_and_nothing_is_left_beside_it(
    bench: Bench, start: bytes, error: type[LedgerError]
) -> None:
    """By what its first line says; a later format is told from none."""
    opened = await bench.open(start)
    assert type(opened.error) is error
    assert files_of(bench.folder) == {"l.jsonl": start}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"hash":"', b'"hash": "'),
        (b'{"event":', b'{"more":1,"event":'),
        (b'"v":1}', b'"v":1.0}'),
        (b'"v":1}', b'"v":2}'),
        (b'"seq":8,', b'"seq":9,'),
        (b'"kind":"assert"', b'"kind":"attest"'),
        (b'"kind":"assert"', b'"kind":"\\u0061ssert"'),
        (b'"sealed":{"content":{"body"', b'"sealed":{"content":{"text"'),
        (b'"value":"v"', b'"value":"\\ud800"'),
        (b'"value":"v"', b'"value":"w"'),
        (b"}}\n", b"}}\r\n"),
        (b"}}\n", b"}} \n"),
        (b"}}\n", b"}}\n\n"),
        (b"}}\n", b"}}\nx\n"),
        (b"}}\n", b"}}\n" + b"[" * 5000 + b"\n"),
    ],
)
async def test_a_line_that_says_the_same_in_another_form_is_refused_as_well(
    whole: bytes, bench: Bench, old: bytes, new: bytes
) -> None:
    """One form of a line is what makes two files comparable; the message holds nothing of the line."""
    start, line = whole[: -len(events_of(whole)[-1]) - 1], events_of(whole)[-1] + b"\n"
    assert old in line
    data = start + new.join(line.rsplit(old, 1))
    opened = await bench.open(data)
    assert isinstance(opened.error, LedgerBroken)
    assert opened.error.seq in (8, 9)
    assert len(str(opened.error)) < 300
    assert opened.error.__cause__ is opened.error.__context__ is None
    assert bench.left() == data
