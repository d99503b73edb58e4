"""A plan: what a sweep would remove, in a file that somebody can read before it is carried out.

JSON lines without any text: a header, a line for each entry, and a last line that says how many, so
that a file that was cut short is known for one.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any

from custody_sync.errors import CustodyError, InvalidInput
from custody_sync.ledger import Ledger
from custody_sync.model import Entry, Head, Leftover, format_instant, read_instant
from custody_sync.rawfiles import opened
from custody_sync.repair.listing import Candidate
from custody_sync.repair.selection import Selection
from custody_sync.repair.spool import to_json
from custody_sync.results import Repaired

FORM = 1
MARK = "custody_sync_plan"
"""The first name of the first line: what a plan is known by."""
MAX_LINE = 1_000_000
_TEXTS = {"store", "external_id", "fact_id"}


@dataclass(frozen=True, slots=True)
class Line:
    """One removal of a plan; `owed` if the ledger itself knew that it was to be made."""

    candidate: Candidate
    owed: bool


class PlanWriter:
    """Writes a plan, line by line.

    Args:
        file: where to.
    """

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._lines = 0

    def write_owed(self, item: Repaired) -> None:
        """Write a removal that the ledger knows to be owed."""
        said = {"store": item.store, "external_id": item.external_id, "fact_id": item.fact_id}
        self._write({**said, "scope": None, "stored_at": None, "kind": item.kind.value, "owed": True})

    def write(self, candidate: Candidate) -> None:
        """Write an entry that a listing showed."""
        self._write({**to_json(candidate), "owed": False})

    def _write(self, said: dict[str, object]) -> None:
        self._lines += 1
        self._file.write(json.dumps(said) + "\n")

    def end(self) -> None:
        """Write how many there were."""
        self._file.write(json.dumps({"lines": self._lines}) + "\n")


@contextmanager
def writing(
    path: os.PathLike[str] | str, ledger: Ledger, head: Head, selection: Selection, cutoff: datetime
) -> Iterator[PlanWriter]:
    """Write a plan; without its last line if anything goes wrong.

    Raises:
        InvalidInput: the file cannot be written, is the ledger's, or holds something that is no plan.
    """
    _check_target(path, ledger)
    header = {
        MARK: FORM,
        "ledger_id": ledger.ledger_id,
        "head": {"seq": head.seq, "hash": head.hash},
        "time": format_instant(ledger.now()),
        "cutoff": format_instant(cutoff),
        "selection": selection.to_json(),
    }
    try:
        with open(path, "w", encoding="utf-8", newline="\n", opener=_private) as file:
            file.write(json.dumps(header) + "\n")
            writer = PlanWriter(file)
            yield writer
            writer.end()
    except OSError as error:
        raise _problem("plan", path, f"cannot be used: {error.strerror or type(error).__name__}") from None


def _check_target(path: os.PathLike[str] | str, ledger: Ledger) -> None:
    """Refuse to write a plan over anything but an older one: what was there would be lost."""
    _check_path("plan", path)
    where = Path(os.path.realpath(path))
    if where in {Path(os.path.realpath(file)) for file in ledger.files}:
        raise _problem("plan", path, "is a file of the ledger itself")
    if not where.is_file():
        return
    try:
        with opened(where) as file:
            began = file.read(len(MARK) + 2)
    except OSError as error:
        raise _problem("plan", path, f"cannot be used: {error.strerror or type(error).__name__}") from None
    if began not in (b"", f'{{"{MARK}'.encode()):
        raise _problem("plan", path, "is there and is no plan; name a new file, or an older plan")


def _private(path: str, flags: int) -> int:
    """Open a file that is made for its owner alone, whatever the umask: ids and scopes may name people."""
    handle = os.open(path, flags, 0o600)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        # An older plan, or an empty file, has the mode that it was made with.
        os.fchmod(handle, 0o600)
    return handle


def _check_path(field: str, path: os.PathLike[str] | str) -> None:
    try:
        good = "\0" not in os.fspath(path) and bool(os.fsencode(path))
    except (TypeError, UnicodeEncodeError):
        good = False
    if not good:
        raise InvalidInput(field=field, problem="must be the path of a file")


def check_plan(path: os.PathLike[str] | str, ledger: Ledger) -> int:
    """Read a plan to its end, and return how many lines it has; nothing of it is done before that.

    Raises:
        InvalidInput: it is damaged, cut short, no plan, or one of another ledger.
    """
    return sum(1 for _ in read_plan(path, ledger))


def read_plan(path: os.PathLike[str] | str, ledger: Ledger) -> Iterator[Line]:
    """Yield the lines of a plan of this ledger."""
    _check_path("apply", path)
    try:
        with opened(path) as raw, TextIOWrapper(raw, "utf-8") as file:
            yield from _lines(path, file, ledger)
    except OSError as error:
        raise _problem("apply", path, f"cannot be used: {error.strerror or type(error).__name__}") from None
    except UnicodeDecodeError:
        raise _problem("apply", path, "is no plan: it is not UTF-8") from None


def _lines(path: os.PathLike[str] | str, file: IO[str], ledger: Ledger) -> Iterator[Line]:
    header = _document(path, 1, file.readline(MAX_LINE))
    if header.get(MARK) != FORM:
        raise _problem("apply", path, "is no plan that this version can read")
    if header.get("ledger_id") != ledger.ledger_id:
        raise _problem("apply", path, "is a plan of another ledger")
    count = 0
    while raw := file.readline(MAX_LINE):
        said = _document(path, count + 2, raw)
        if "lines" in said:
            if said["lines"] != count or file.readline(1):
                break
            return
        count += 1
        yield _line(path, count + 1, said)
    raise _problem("apply", path, "is cut short, or something was added or taken out")


def _document(path: os.PathLike[str] | str, number: int, raw: str) -> dict[str, Any]:
    try:
        said = json.loads(raw)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise _problem("apply", path, f"is damaged in line {number}")
    return said


def _line(path: os.PathLike[str] | str, number: int, said: dict[str, Any]) -> Line:
    texts = all(isinstance(said.get(name), str) and said[name] for name in _TEXTS)
    scope = said.get("scope")
    try:
        if not texts or not isinstance(scope, str | None):
            raise ValueError
        entry = Entry(
            store=said["store"],
            external_id=said["external_id"],
            fact_id=said["fact_id"],
            scope=scope,
            stored_at=read_instant(said.get("stored_at")),
        )
        candidate = Candidate(entry, Leftover(str(said.get("kind"))), said.get("recorded") is True)
    except ValueError:
        raise _problem("apply", path, f"is damaged in line {number}") from None
    return Line(candidate, said.get("owed") is True)


def _problem(field: str, path: os.PathLike[str] | str, problem: str) -> CustodyError:
    return InvalidInput(field=field, problem=f"{os.fspath(path)} {problem}")


__all__ = ["Line", "PlanWriter", "check_plan", "read_plan", "writing"]
