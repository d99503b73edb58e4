"""Reading files' bytes without taking SQLite's locks from them.

A process that closes any descriptor of a file loses all of its POSIX locks on that file, those that
SQLite took through another descriptor among them (sqlite.org/howtocorrupt.html, 2.2). Another process
that closes the ledger then believes it was the last one: it removes the write-ahead log, and ours goes
on in a file without a name, so that acknowledged events are lost. SQLite spares its own connections
that, and here descriptors wait likewise until no connection of this process is left. Whatever somebody
names is read through here: it may be a ledger that is open.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader, FileIO
from pathlib import Path
from typing import NamedTuple, TypeAlias

FileId: TypeAlias = tuple[int, int]

BESIDE = "-shm"
"""What SQLite has locks on as well; the write-ahead log has none."""
_PRIVATE = 0o600
_SEARCH = 1 << 20


class Hold:
    """What a connection has while it is open: meanwhile no descriptor of its file is closed."""

    __slots__ = ("_file",)

    def __init__(self, file: FileId, path: str) -> None:
        self._file: FileId | None = file
        _open.begin(file, path)

    def release(self) -> None:
        """Let go, once the connection is closed; the last one closes the descriptors that waited."""
        if self._file is not None:
            # Nothing here waits for anybody: a finalizer may come by at any moment, on any thread.
            _open.ended.append(self._file)
            self._file = None
            _open.settle()

    def __del__(self) -> None:
        self.release()


class _Waiting(NamedTuple):
    """A descriptor that is not closed yet."""

    handle: int
    file: FileId
    spares: FileId
    """The file whose connections it waits for: its own, or the one that it lies beside."""


class _Open:
    """The connections of this process, and the descriptors that wait for them."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.ended: deque[FileId] = deque()
        """Of which files connections were closed since somebody counted."""
        self.inherited: frozenset[FileId] = frozenset()
        """Files that were open when this process was forked."""
        self._holds: dict[FileId, int] = {}
        self._paths: dict[FileId, str] = {}
        self._waiting: list[_Waiting] = []

    def begin(self, file: FileId, path: str) -> None:
        """Count one connection more."""
        with self.guard:
            self._holds[file] = self._holds.get(file, 0) + 1
            self._paths[file] = path
        self.settle()

    def settle(self) -> None:
        """Count what has ended, and close what waited for it; whoever has the guard does it for all."""
        while self.ended and self.guard.acquire(blocking=False):
            try:
                while self.ended:
                    self._end(self.ended.popleft())
            finally:
                self.guard.release()

    def _end(self, file: FileId) -> None:
        left = self._holds.get(file, 0) - 1
        if left > 0:
            self._holds[file] = left
            return
        self._holds.pop(file, None)
        self._paths.pop(file, None)
        for one in [one for one in self._waiting if one.spares == file]:
            self._waiting.remove(one)
            if _file_of(one.handle) == one.file:
                os.close(one.handle)

    def take(self, file: FileId) -> int | None:
        """Return a descriptor of a file that waits, if there is one; somebody may have closed it since."""
        with self.guard:
            for one in [one for one in self._waiting if one.file == file]:
                self._waiting.remove(one)
                if _file_of(one.handle) == file:
                    return one.handle
        return None

    def let_go(self, handle: int) -> None:
        """Close a descriptor, or keep it until that takes no lock from a connection."""
        file = _file_of(handle)
        with self.guard:
            spares = None if file is None else self._spared(file)
            if file is None or spares is None:
                os.close(handle)
            else:
                self._waiting.append(_Waiting(handle, file, spares))
        self.settle()

    def _spared(self, file: FileId) -> FileId | None:
        """Return the file with connections that a file is, or lies beside."""
        if file in self._holds:
            return file
        # It lies beside the file itself and not beside a link to it; few look, and every opening would pay.
        beside = ((held, os.path.realpath(path) + BESIDE) for held, path in self._paths.items())
        return next((held for held, path in beside if _file_at(path) == file), None)

    def begin_anew(self) -> None:
        """Have nothing in a forked child: it has none of its parent's locks, and none to lose."""
        waiting, self._waiting = self._waiting, []
        for file in self.ended:
            self._end(file)
        self.inherited |= self._holds.keys()
        self._holds, self._paths, self.ended = {}, {}, deque()
        # A thread that had the old one is not here.
        self.guard = threading.Lock()
        for one in waiting:
            if _file_of(one.handle) == one.file:
                os.close(one.handle)


_open = _Open()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_open.begin_anew)


def hold(path: Path) -> Hold | None:
    """Announce a connection to a file before it is made; None where SQLite will find none either."""
    file = _file_at(path)
    return None if file is None else Hold(file, os.path.abspath(path))


def is_inherited(path: Path) -> bool:
    """Tell whether a file was open when this process was forked.

    SQLite then believes that it has the locks on it, which a fork leaves with the parent.
    """
    return bool(_open.inherited) and _file_at(path) in _open.inherited


def create(path: Path) -> None:
    """Make an empty file that only its owner may read.

    Raises:
        FileExistsError: there is one.
        OSError: it cannot be made.
    """
    # Another thread may have connected to it before it is closed here.
    close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, _PRIVATE))


def close(handle: int) -> None:
    """Close a descriptor, as soon as that takes no lock from a connection of this process."""
    _open.let_go(handle)


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[BufferedReader[FileIO]]:
    """Open a file to read its bytes; it may be a device or a pipe.

    Raises:
        OSError: it cannot be read.
        ValueError: no file can have that name.
    """
    file = _file_at(path)
    waiting = None if file is None else _open.take(file)
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0)) if waiting is None else waiting
    try:
        with BufferedReader(_raw(handle, path)) as reader:
            if waiting is not None:
                reader.seek(0)
            yield reader
    finally:
        close(handle)


def _raw(handle: int, path: str | os.PathLike[str]) -> FileIO:
    try:
        return FileIO(handle, "rb", closefd=False)
    except OSError as error:
        # Python names the descriptor, which says nothing to anybody.
        raise type(error)(error.errno, error.strerror, os.fspath(path)) from None


def holds_any(path: Path, needles: Sequence[bytes]) -> bool:
    """Tell whether any of some byte strings is in a file."""
    overlap = max(map(len, needles), default=1) - 1
    with opened(path) as file:
        image = b""
        while piece := file.read(_SEARCH):
            image = image[max(len(image) - overlap, 0) :] + piece
            if any(needle in image for needle in needles):
                return True
    return False


def _file_of(handle: int) -> FileId | None:
    try:
        found = os.fstat(handle)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _file_at(path: str | os.PathLike[str]) -> FileId | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


__all__ = ["Hold", "close", "create", "hold", "holds_any", "is_inherited", "opened"]
