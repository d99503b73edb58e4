"""How the command speaks: tables and sentences for people, one JSON document for programs.

Memory text is untrusted: it is never read as console markup, and what a terminal would obey or
hide (control characters, escape sequences, direction marks) is shown as an escape instead.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from enum import Enum
from typing import IO, Any, NoReturn

from rich.cells import cell_len
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from custody_sync.cli.journal import journal
from custody_sync.cli.problems import OutsideProblem
from custody_sync.cli.sentences import discreet, sentence, told, without_passwords
from custody_sync.cli.tables import print_blocks, print_table
from custody_sync.errors import CustodyError
from custody_sync.model import (
    Erasure,
    Outcome,
    format_instant,
)
from custody_sync.ports import Watch
from custody_sync.results import (
    Removal,
    Restored,
)

PIPE_WIDTH = 20_000
"""Nothing is wrapped where no terminal ends the line; a fold would break a text in two."""

_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_JOINERS = "\u200c\u200d"
"""Emoji and several scripts are spelled with these; without them a text would not be verbatim."""

_STYLES = {
    Outcome.VERIFIED.value: "green",
    Outcome.PLANNED.value: "yellow",
    Outcome.STILL_INDEXED.value: "red",
    Outcome.UNVERIFIED.value: "yellow",
    Outcome.FAILED.value: "red",
    Erasure.PENDING.value: "yellow",
    "passed": "green",
    "not_applicable": "yellow",
}


def visible(text: object) -> str:
    """Show a text on one line, with what a terminal would obey or hide written as an escape."""
    return "".join(
        char if char in _JOINERS or unicodedata.category(char) not in _HIDDEN else _escape(char)
        for char in without_passwords(str(text))
    )


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def plain(value: Any) -> Any:
    """Turn a result into what JSON can carry: records to objects, instants to UTC text."""
    if isinstance(value, datetime):
        return format_instant(value)
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(part) for part in value]
    return value


def prepare_streams() -> None:
    """Let stdout and stderr carry any text: what their encoding lacks becomes an escape, never an error.

    Raises:
        OutsideProblem: standard output is closed.
    """
    closed = sys.stdout is None
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            # Without one its number goes to the next file, and into that what was meant for a terminal.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # for good
        elif name != "stdin" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if closed:
        raise OutsideProblem(problem="standard output is closed; nothing was done")


class Output:
    """Where one command's result and remarks go.

    Without `--json` the result is for people and on stdout. With it stdout carries one JSON
    document and nothing else. Progress, remarks and errors are always on stderr, unless a log was
    asked for: then only its lines are, since sentences for people may quote what was typed.
    """

    def __init__(self, *, json: bool = False) -> None:
        self.json = json
        self.out = _console(sys.stdout)
        self.err = _console(sys.stderr)

    @property
    def seen(self) -> bool:
        """True when a person, not a log, reads stderr. Rich would also say so for FORCE_COLOR."""
        return sys.stderr.isatty() and not journal.on

    @property
    def interactive(self) -> bool:
        """True when a person can be asked: stdin and stderr are a terminal, and it is not for a program."""
        return not self.json and sys.stdin.isatty() and self.seen

    def document(self, value: Any, *, under: str = "", rows: Iterable[Any] = ()) -> None:
        """Print the JSON document, if one was asked for; where a log is written, count in it what it says.

        Args:
            value: what it says.
            under: the last name of an object, for what would need much room.
            rows: what stands there; they are taken one at a time.
        """
        said = without_passwords(plain(value))
        if journal.on:
            journal.counted(said)
        if self.json:
            with _delivering():
                for part in _document(said, under, map(without_passwords, rows)):
                    sys.stdout.write(part)
                sys.stdout.flush()

    def line(self, text: str) -> None:
        """Print one line of the result for people."""
        if not self.json:
            with _delivering():
                _print_line(self.out, text)

    def raw(self, line: str) -> None:
        """Print one line of the result as it is, neither wrapped nor escaped, unless a document is wanted."""
        if not self.json:
            with _delivering():
                sys.stdout.write(line + "\n")
                sys.stdout.flush()

    def note(self, text: str) -> None:
        """Print one sentence beside the result."""
        if not journal.on:
            _print_line(self.err, text)

    def notice(self, ledger: str, said: str) -> None:
        """Say what a ledger noticed of itself, in a log as well: it names files and places, never a fact."""
        journal.noticed(said)
        self.note(f"{ledger}: {said}.")

    def error(self, error: CustodyError, args: Sequence[str] = ()) -> None:
        """Report what went wrong: the sentence on stderr, and as the JSON document if one was asked for.

        Of the command line's arguments no URL is repeated.
        """
        self.note(discreet(sentence(error), args))
        self.document({"error": discreet({**plain(told(error)), "exit_code": error.exit_code}, args)})

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Print a table for people; every cell verbatim, never cut, and every id in one piece."""
        if not self.json:
            with _delivering():
                _print_table(self.out, title, columns, rows)

    def preview(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Print a table about what is going to happen, on stderr: it is not the result."""
        if not journal.on:
            _print_table(self.err, title, columns, rows)

    def pairs(self, rows: Iterable[tuple[str, object]]) -> None:
        """Print names and values, one pair a line, leaving out what is None or empty."""
        if not self.json:
            with _delivering():
                print_blocks(self.out, [[(name, _cell(value)) for name, value in rows]])

    def follow_up(self, removals: Sequence[Removal], restored: Sequence[Restored]) -> None:
        """Print what the stores had to give up and what they were given back."""
        if removals:
            columns = ("store", "fact", "external id", "outcome", "detail")
            rows = [(r.store, r.fact_id, r.external_id, r.outcome.value, r.detail) for r in removals]
            self.table("removed", columns, rows)
        if restored:
            self.table(
                "placed, as it is believed now",
                ("store", "fact", "external ids", "detail"),
                [(r.store, r.fact_id, ", ".join(r.external_ids), r.detail) for r in restored],
            )

    @contextmanager
    def working(self, what: str, total: int | None = None) -> Iterator[Callable[[], None]]:
        """Show progress on a terminal while the body runs; call what it yields once per piece done."""
        columns = [TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn()]
        if total is not None:
            columns.insert(2, MofNCompleteColumn())
        with Progress(*columns, console=self.err, transient=True, disable=not self.seen) as progress:
            task = progress.add_task(what, total=total)
            done = itertools.count(1)
            tell = journal.watching(lambda _step, _done, _of: progress.advance(task))
            yield lambda: tell(what, next(done), total)

    @contextmanager
    def watching(self, what: str) -> Iterator[Watch]:
        """Show on a terminal how far long work is, with an estimate once it is known how much there is."""
        columns: list[ProgressColumn] = [TextColumn("{task.description}", markup=False), BarColumn()]
        columns += [MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()]
        with Progress(*columns, console=self.err, transient=True, disable=not self.seen) as progress:
            task = progress.add_task(what, total=None)

            def watch(step: str, done: int, of: int | None) -> None:
                progress.update(task, description=step, completed=done, total=of)

            yield journal.watching(watch)


def _document(value: Any, under: str, rows: Iterable[Any]) -> Iterator[str]:
    """Yield a document in pieces; its rows stand one a line."""
    text = json.dumps(value, indent=2, allow_nan=False)
    if not under:
        yield f"{text}\n"
        return
    yield f"{text.removesuffix('}').rstrip()},\n  {json.dumps(under)}: ["
    separator = "\n"
    for row in rows:
        yield f"{separator}    {json.dumps(row, allow_nan=False)}"
        separator = ",\n"
    yield "\n  ]\n}\n"


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        # Rich would exit with 1 here, which means a finding.
        raise BrokenPipeError


def _console(stream: IO[str]) -> Console:
    width = None if stream.isatty() else PIPE_WIDTH
    return _Console(file=stream, width=width, markup=False, emoji=False, highlight=False, soft_wrap=False)


@contextmanager
def _delivering() -> Iterator[None]:
    """Say of a result that cannot be written that it was the result, not the work, that failed."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        problem = f"standard output cannot be written ({error.strerror}); what was done stays done"
        raise OutsideProblem(problem=problem) from None


def abandon(stream: IO[str]) -> None:
    """Give up a stream that takes nothing more: Python would complain once more when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _print_line(console: Console, text: str) -> None:
    shown = Text(visible(text))
    # A path that is longer than the line must be copied in one piece as well: the terminal wraps it.
    whole = any(cell_len(word) > console.width for word in shown.plain.split())
    console.print(shown, soft_wrap=whole)


def _print_table(
    console: Console, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]
) -> None:
    print_table(console, Text(visible(title)), columns, [[_cell(value) for value in row] for row in rows])


def _cell(value: object) -> Text:
    if value is None:
        return Text("")
    if isinstance(value, datetime):
        return Text(value.isoformat(timespec="seconds"))
    return Text(visible(value), style=_STYLES.get(str(value), ""))
