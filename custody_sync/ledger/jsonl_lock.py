"""The lock of a JSONL ledger: one writer at a time, over processes, and never held by a reader.

The lock file also says how far the log is committed. A reader needs that only while somebody
writes: what stands behind it may yet be taken back, when the disk is full.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from custody_sync.errors import LedgerBusy
from custody_sync.ledger.sqlite_errors import ledger_errors

PATIENCE = 30.0
"""Seconds that a commit waits for another process."""
FIRST_PAUSE, LONGEST_PAUSE = 0.0005, 0.02
_MARK = 64

FileId = tuple[int, int]
"""Device and inode."""


def give(handle: int, like: os.stat_result | None) -> None:
    """Give a new file to those whose another one is: what root made would lock its owner out."""
    if like is not None:
        with contextlib.suppress(PermissionError):
            os.fchown(handle, like.st_uid, like.st_gid)
        os.fchmod(handle, like.st_mode & 0o777)


class Lock:
    """The lock file beside a ledger.

    Args:
        path: where it is.
        name: what errors call the ledger.
        like: the log: who may use one may use the other. None where it is yet to be made.
    """

    def __init__(self, path: Path, name: str, like: os.stat_result | None) -> None:
        self._path, self._name, self._like = path, name, like
        self._held: int | None = None

    @contextmanager
    def held(self, tell: Callable[[], None], patience: float | None = None) -> Iterator[None]:
        """Hold the lock; `tell` is called before it is waited for.

        Raises:
            LedgerBusy: somebody else kept it for too long.
        """
        with ledger_errors(self._name):
            handle = self._take(tell, PATIENCE if patience is None else patience)
        self._held = handle
        try:
            yield
        finally:
            self._held = None
            # Said outright: a child that was forked meanwhile has the handle too.
            fcntl.flock(handle, fcntl.LOCK_UN)
            os.close(handle)

    def _take(self, tell: Callable[[], None], patience: float) -> int:
        until, pause = time.monotonic() + patience, FIRST_PAUSE
        while True:
            handle = self._open()
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._is_there(handle):
                    return handle
            except BlockingIOError:
                tell()
                if time.monotonic() > until:
                    os.close(handle)
                    raise LedgerBusy(name=self._name) from None
                threading.Event().wait(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)

    def _open(self) -> int:
        with contextlib.suppress(FileNotFoundError):
            return os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        give(handle, self._like)
        return handle

    def _is_there(self, handle: int) -> bool:
        """Tell whether the file that was locked still is the one that others would lock."""
        try:
            there, mine = os.stat(self._path), os.fstat(handle)
        except FileNotFoundError:
            return False
        return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)

    def mark(self, file: FileId, size: int) -> None:
        """Say, while the lock is held, how much of a file is committed."""
        assert self._held is not None  # noqa: S101  # only a holder knows
        os.pwrite(self._held, f"{file[0]} {file[1]} {size}".ljust(_MARK - 1).encode() + b"\n", 0)

    def marked(self, file: FileId) -> int:
        """Return, while the lock is held, how much of a file its writers have marked as committed."""
        assert self._held is not None  # noqa: S101  # only a holder asks
        return self._marked(self._held, file, 0)

    def settled(self, file: FileId, size: int) -> tuple[int, bool]:
        """Return how much of a file is committed for sure, and whether nobody is at work on more."""
        try:
            handle = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            # Writers make this file: where there is none, nobody writes.
            return size, True
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return min(self._marked(handle, file, size), size), False
        finally:
            os.close(handle)
        return size, True

    def _marked(self, handle: int, file: FileId, otherwise: int) -> int:
        try:
            device, inode, marked = map(int, os.pread(handle, _MARK, 0).split())
        except (OSError, ValueError):
            return otherwise
        return marked if (device, inode) == file else otherwise
