"""The files of a JSONL ledger: the log, and beside it its lock, its notes and a rewrite under way.

The log alone is the ledger: a copy of it is a whole one. Everything that writes here is done
under the lock, and leaves the log as it was or as it should be, whenever the process dies.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from custody_sync import errors, rawfiles
from custody_sync.errors.base import throw
from custody_sync.ledger.jsonl_lines import END, read_header
from custody_sync.ledger.jsonl_lock import FileId, give
from custody_sync.ledger.sqlite_errors import ledger_errors
from custody_sync.ledger.sqlite_files import Location, exists, sync_folder

CHUNK = 1 << 18
_HEADER = 4096
_TAIL = 256
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_TWO_NAMES = "an erasure would reach only one of them"
MOVED = "its file was moved or replaced; open it again"

State = tuple[int, int]
"""Size and time of change."""


@dataclass(frozen=True, slots=True)
class Files:
    """Where a ledger's files are: beside the log itself, not beside a link to it."""

    name: str
    log: Path
    lock: Path
    notes: Path
    fresh: Path
    """A rewrite that is not yet the log."""
    durable: bool

    @classmethod
    def of(cls, location: Location) -> Files:
        """Name the files of a location."""
        log = os.path.realpath(location.path)
        lock, notes, fresh = (Path(f"{log}{end}") for end in ("-lock", "-notes", "-rewrite"))
        return cls(location.name, Path(log), lock, notes, fresh, location.synchronous != "off")

    def sync(self, handle: int) -> None:
        """Make what was written to a file survive a power cut."""
        if not self.durable:
            return
        if hasattr(fcntl, "F_FULLFSYNC"):
            # On macOS alone an fsync does not reach the disk.
            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
        else:
            os.fsync(handle)

    def sync_folder(self) -> None:
        """Make a new name survive a power cut."""
        if self.durable:
            sync_folder(self.log.parent)

    def replace_log(
        self, pieces: Iterable[bytes], like: os.stat_result | None, ready: Callable[[], None]
    ) -> int:
        """Put a new file into the log's place, whole or not at all, and return it open.

        `ready` is called when it is durable and not yet in its place.
        """
        self.drop_rewrite()
        handle = os.open(self.fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            give(handle, like)
            for piece in pieces:
                write_all(handle, piece)
            self.sync(handle)
            ready()
            os.replace(self.fresh, self.log)
        except BaseException:
            os.close(handle)
            self.drop_rewrite()
            raise
        return handle

    def drop_rewrite(self) -> None:
        """Remove what a rewrite that was cut off has left."""
        self.fresh.unlink(missing_ok=True)


def is_there(location: Location) -> bool:
    """Tell whether a log is there; refuse a folder, a device, and one file under two names."""
    try:
        return exists(location, _TWO_NAMES)
    except OSError as error:
        problem = f"it cannot be looked at ({type(error).__name__})"
        throw(errors.LedgerError(name=location.name, problem=problem))


def write_all(handle: int, data: bytes) -> None:
    """Write all of something, however many calls it takes."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


class Log:
    """An open log, and how far it was read.

    Raises:
        LedgerDamaged: it does not begin as a ledger does.
        LedgerTooNew: a later version wrote it.
    """

    def __init__(self, files: Files, handle: int) -> None:
        self._files, self._handle = files, handle
        start = os.pread(handle, _HEADER, 0)
        header = start[: start.find(END) + 1]
        self.ledger_id = read_header(header, files.name)
        self.header = header
        self.file: FileId = (os.fstat(handle).st_dev, os.fstat(handle).st_ino)
        self.read = 0
        """How many bytes of it are known."""
        self._durable = 0
        self._tail = b""
        self.took(header)

    @classmethod
    def open(cls, files: Files, *, write: bool) -> Log:
        """Open the log that is there now."""
        with rawfiles.opened(files.log) as file:
            # Looked at first: what is none may be a ledger of another storage, which is open in this process.
            start = file.read(_HEADER)
        read_header(start[: start.find(END) + 1], files.name)
        handle = os.open(files.log, (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC)
        try:
            return cls(files, handle)
        except BaseException:
            rawfiles.close(handle)
            raise

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)

    def state(self) -> State:
        """Return what changes whenever somebody writes to it."""
        found = os.fstat(self._handle)
        return found.st_size, found.st_mtime_ns

    def is_in_place(self) -> bool:
        """Tell whether the file of that name is still this one."""
        try:
            found = os.stat(self._files.log)
        except OSError:
            throw(errors.LedgerError(name=self._files.name, problem=MOVED))
        return (found.st_dev, found.st_ino) == self.file

    def is_as_known(self) -> bool:
        """Tell whether what was read last still stands there: an append may have been taken back."""
        return os.pread(self._handle, len(self._tail), self.read - len(self._tail)) == self._tail

    def lines(self, upto: int) -> bytes:
        """Return the next whole lines, as many as fit a chunk; nothing where there is none."""
        size = CHUNK
        while True:
            size = min(size, upto - self.read)
            data = os.pread(self._handle, size, self.read)
            if (end := data.rfind(END)) >= 0:
                return data[: end + 1]
            if size == upto - self.read:
                return b""
            size *= 2

    def rest(self, upto: int) -> bytes:
        """Return everything that was not read."""
        return os.pread(self._handle, upto - self.read, self.read)

    def took(self, data: bytes) -> None:
        """Count what was read or written as known."""
        self.read += len(data)
        self._tail = (self._tail + data[-_TAIL:])[-_TAIL:]

    def took_all(self) -> None:
        """Count all of it as known."""
        self.read = os.fstat(self._handle).st_size
        start = max(0, self.read - _TAIL)
        self._tail = os.pread(self._handle, self.read - start, start)
        self._durable = self.read

    # --- under the lock ---------------------------------------------------------------------

    def append(self, data: bytes) -> None:
        """Append lines durably, or leave the log as it was.

        Raises:
            LedgerError: nothing was appended; LedgerFull where there was no room.
            OutcomeUnknown: what was written could neither be completed nor taken back.
        """
        before = self.read
        try:
            self._put(data, before)
            self._files.sync(self._handle)
            self._durable = before + len(data)
        except OSError as error:
            self._take_back(before)
            if error.errno in _NO_ROOM:
                throw(errors.LedgerFull(name=self._files.name))
            with ledger_errors(self._files.name):
                raise

    def secure(self, marked: int) -> None:
        """Make lines that were taken over durable, unless their writer marked that they are.

        One that died before its fsync left lines that a power cut would take. At first no mark is
        believed either: a file that was put back into its place keeps the mark of another one.
        """
        if self._durable == 0 or self.read > max(self._durable, marked):
            self._files.sync(self._handle)
        self._durable = self.read

    def _put(self, data: bytes, at: int) -> None:
        rest = memoryview(data)
        while rest:
            written = os.pwrite(self._handle, rest, at)
            rest, at = rest[written:], at + written

    def _take_back(self, size: int) -> None:
        try:
            self.cut(size)
        except OSError:
            throw(errors.OutcomeUnknown(name=self._files.name))

    def cut(self, size: int) -> None:
        """Cut off what stands behind a whole line."""
        os.ftruncate(self._handle, size)
        self._files.sync(self._handle)

    def finish(self, line: bytes) -> None:
        """Give a line the end that it lacks."""
        self._put(END, self.read + len(line))
        self._files.sync(self._handle)

    def rewrite(self, pieces: Iterable[bytes], ready: Callable[[], None]) -> Log:
        """Put a new log into this one's place and return it; what is nowhere in it is gone from the folder.

        Raises:
            LedgerError: the log is as it was; LedgerFull where there was no room.
            OutcomeUnknown: nobody knows whether the new name survives a power cut.
        """
        try:
            handle = self._files.replace_log(pieces, os.fstat(self._handle), ready)
        except OSError as error:
            if error.errno in _NO_ROOM:
                throw(errors.LedgerFull(name=self._files.name))
            with ledger_errors(self._files.name):
                raise
        try:
            self._files.sync_folder()
            return Log(self._files, handle)
        except OSError:
            os.close(handle)
            throw(errors.OutcomeUnknown(name=self._files.name))
