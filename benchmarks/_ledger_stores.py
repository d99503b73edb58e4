"""The storages side by side: how each is built, copied, and asked through its driver alone."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import ClassVar

from _ledger_appends import Again, Replay, RowsFloor
from _ledger_log import Log
from _ledger_raw import Floor, Recording, SqliteFloor, Statement, recording_sqlite

from custody_sync.ledger.storage import Storage, open_storage
from custody_sync.ledger.stored import read_stored
from custody_sync.runtime import Runtime


class Store(ABC):
    """One ledger of one storage.

    Args:
        folder: where its files are.
        server: the URL of the server, where there is one.
    """

    most: ClassVar[int] = 10**9
    """How many events it takes."""
    recording: Recording = staticmethod(recording_sqlite)

    def __init__(self, folder: Path, server: str) -> None:
        self._folder = folder
        self._server = server

    @classmethod
    def server(cls) -> AbstractContextManager[str]:
        """Run what it needs."""
        return nullcontext("")

    @property
    @abstractmethod
    def url(self) -> str:
        """The ledger that is asked."""

    @property
    def recorded_url(self) -> str:
        """The ledger whose statements are issued by hand."""
        return self.url

    async def build(self, log: Log) -> None:
        """Fill the ledger."""
        await _fill(self.url, log)

    @abstractmethod
    def floor(self) -> Floor:
        """Return the driver alone, at the same rows."""

    @contextmanager
    def single_floor(self, events: int) -> Iterator[Again]:
        """Give what does by hand what one append came down to: the same statements on a copy."""
        with self.forget_floor() as run:

            async def again(statements: list[Statement]) -> float:
                return run(statements)

            yield again

    @abstractmethod
    def append_floor(self, events: int) -> AbstractContextManager[Replay]:
        """Give what does by hand what was appended since the last time."""

    @abstractmethod
    def forget_floor(self) -> AbstractContextManager[Callable[[list[Statement]], float]]:
        """Give what does by hand what an erasure came down to, and returns the seconds."""

    def drop(self) -> None:
        """Let go of it all."""
        shutil.rmtree(self._folder, ignore_errors=True)


async def _fill(url: str, log: Log) -> None:
    storage = await _opened(url)
    for page in log.pages():
        await storage.restore(page)
    await storage.close()


async def _opened(url: str) -> Storage:
    return await open_storage(url, create=True, read_only=False, runtime=Runtime())


class SqliteStore(Store):
    """A ledger in a SQLite file, and copies of the file for the floor."""

    @property
    def _path(self) -> Path:
        return self._folder / "ledger.db"

    @property
    def url(self) -> str:
        """The file."""
        return f"sqlite:///{self._path}"

    async def build(self, log: Log) -> None:
        """Fill it without waiting for the disk each time."""
        await _fill(f"{self.url}?synchronous=off", log)

    def floor(self) -> Floor:
        """Return `sqlite3` on the same file."""
        return SqliteFloor(self._path)

    def _copy(self) -> Path:
        return Path(shutil.copy(self._path, self._folder / "copy.db"))

    @contextmanager
    def append_floor(self, events: int) -> Iterator[Replay]:
        """Write the same rows to a copy."""
        with closing(RowsFloor(self._path, self._copied(), events)) as floor:
            yield floor.replay

    def _copied(self) -> Path:
        with closing(sqlite3.connect(self._path)) as conn:
            conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return self._copy()

    @contextmanager
    def forget_floor(self) -> Iterator[Callable[[list[Statement]], float]]:
        """Issue the same statements on a copy."""
        with closing(SqliteFloor(self._copied())) as floor:
            yield floor.run


class JsonlStore(Store):
    """A ledger in a JSONL file, and the same log in a SQLite file for the floor."""

    most = 100_000

    def __init__(self, folder: Path, server: str) -> None:
        super().__init__(folder, server)
        self._beside = SqliteStore(folder, server)

    @property
    def _path(self) -> Path:
        return self._folder / "ledger.jsonl"

    @property
    def url(self) -> str:
        """The file of lines."""
        return f"jsonl:///{self._path}"

    @property
    def recorded_url(self) -> str:
        """The SQLite file."""
        return self._beside.url

    async def build(self, log: Log) -> None:
        """Fill both files with the same log."""
        await self._beside.build(Log(log.events))
        await super().build(log)

    def floor(self) -> Floor:
        """Return `sqlite3` on the SQLite file."""
        return self._beside.floor()

    @contextmanager
    def single_floor(self, events: int) -> Iterator[Again]:
        """Write the rows that a SQLite ledger would have written of the next line."""
        with self._path.open("rb") as lines, self._beside.append_floor(events) as rows:
            lines.seek(0, os.SEEK_END)

            async def again(_: list[Statement]) -> float:
                await self._write_beside([lines.readline()])
                return await rows()

            yield again

    @contextmanager
    def append_floor(self, events: int) -> Iterator[Replay]:
        """Write the rows that a SQLite ledger would have written, in the same groups."""
        with self._path.open("rb") as lines, self._beside.append_floor(events) as rows:
            lines.seek(0, os.SEEK_END)

            async def replay() -> float:
                await self._write_beside(list(lines))
                return await rows()

            yield replay

    async def _write_beside(self, lines: Sequence[bytes]) -> None:
        if new := [read_stored(json.loads(line)) for line in lines]:
            storage = await _opened(self._beside.url)
            await storage.restore(new)
            await storage.close()

    @contextmanager
    def forget_floor(self) -> Iterator[Callable[[list[Statement]], float]]:
        """Write the file anew, durably, and put it into its place."""
        copy = self._folder / "copy.jsonl"

        def replay(_: list[Statement]) -> float:
            start = time.perf_counter()
            with copy.open("wb") as file:
                file.write(self._path.read_bytes())
                file.flush()
                os.fsync(file.fileno())
            copy.replace(copy.with_suffix(".new"))
            return time.perf_counter() - start

        yield replay
