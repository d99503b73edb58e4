"""Reading a SQLite file's bytes beside SQLite, without taking its locks from it.

A process that closes any descriptor of a file loses all of its POSIX locks on that file, those that
SQLite took through another descriptor among them (sqlite.org/howtocorrupt.html, 2.2). Another process
that closes the ledger then believes it was the last one: it removes the write-ahead log, and ours goes
on in a file without a name, so that acknowledged events are lost. SQLite spares its own connections
that, and here descriptors wait likewise until no connection of this process is left.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import TypeAlias

FileId: TypeAlias = tuple[int, int]

_PRIVATE = 0o600
_SEARCH = 1 << 20


class Hold:
    """What a connection has while it is open: meanwhile no descriptor of its file is closed."""

    __slots__ = ("__weakref__", "_file")

    def __init__(self, file: FileId) -> None:
        self._file = file
        with _registry.guard:
            _registry.holds.setdefault(file, weakref.WeakSet()).add(self)

    def release(self) -> None:
        """Let go, once the connection is closed; the last one closes the descriptors that waited."""
        with _registry.guard:
            if self._file in _registry.holds:
                _registry.holds[self._file].discard(self)
            _registry.close_idle()


class _Registry:
    """The connections of this process, and the descriptors that wait for them, by file."""

    def __init__(self) -> None:
        self.renew_guard()
        self.holds: dict[FileId, weakref.WeakSet[Hold]] = {}
        self.waiting: dict[FileId, list[int]] = {}

    def renew_guard(self) -> None:
        """Make a new lock: a thread that held the old one is not in a forked child."""
        # Reentrant: a finalizer that closes a ledger may run at any moment in here.
        self.guard = threading.RLock()

    def close_idle(self) -> None:
        """Close what waited for connections that are gone, closed or merely dropped."""
        for file in [file for file, holds in list(self.holds.items()) if not holds]:
            self.holds.pop(file, None)
            for handle in self.waiting.pop(file, ()):
                os.close(handle)


_registry = _Registry()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_registry.renew_guard)


def hold(path: Path) -> Hold | None:
    """Announce a connection to a file before it is made; None where SQLite will find none either."""
    try:
        found = path.stat()
    except OSError:
        return None
    return Hold((found.st_dev, found.st_ino))


def create(path: Path) -> None:
    """Make an empty file that only its owner may read.

    Raises:
        FileExistsError: there is one.
        OSError: it cannot be made.
    """
    _let_go(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, _PRIVATE))


@contextmanager
def opened(path: Path) -> Iterator[FileIO]:
    """Open a file to read its bytes.

    Raises:
        OSError: it cannot be read.
    """
    handle = _take(path)
    try:
        with FileIO(handle, "rb", closefd=False) as file:
            file.seek(0)
            yield file
    finally:
        _let_go(handle)


def holds_any(path: Path, needles: list[bytes]) -> bool:
    """Tell whether any of some byte strings is in a file."""
    overlap = max(map(len, needles), default=1) - 1
    with opened(path) as file:
        image = b""
        while piece := file.read(_SEARCH):
            image = image[len(image) - overlap :] + piece if len(image) > overlap else image + piece
            if any(needle in image for needle in needles):
                return True
    return False


def _take(path: Path) -> int:
    found = path.stat()
    with _registry.guard:
        waiting = _registry.waiting.get((found.st_dev, found.st_ino))
        if waiting:
            return waiting.pop()
    return os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))


def _let_go(handle: int) -> None:
    """Close a descriptor, or keep it until that takes no lock from a connection."""
    with _registry.guard:
        _registry.close_idle()
        found = os.fstat(handle)
        file = (found.st_dev, found.st_ino)
        if file in _registry.holds:
            _registry.waiting.setdefault(file, []).append(handle)
        else:
            os.close(handle)


__all__ = ["Hold", "create", "hold", "holds_any", "opened"]
