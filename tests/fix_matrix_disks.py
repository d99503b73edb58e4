"""Where the crash matrix keeps its ledgers: put back for every case, and left as `kill -9` leaves them.

At the instant of a death the files are copied in memory, whatever tidying the unwinding process does
afterwards is undone by putting that copy back; a server's connections are cut, and waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pytest
from fix_custody import Crash

from custody_sync.ledger import Ledger
from custody_sync.runtime import Runtime

Image = dict[str, bytes]
TABLES = (
    "head",
    "events",
    "sealed",
    "claims",
    "facts",
    "placements",
    "owed",
    "holds",
    "notes",
    "blocks",
)
BACKENDS = "select count(*) from pg_stat_activity where pid = any(%s)"
TRIES = 30_000
RENEW_AFTER = 40
"""So many cases leave so many dead rows that truncating is cheaper."""


class Disk(Protocol):
    """One ledger's bytes, whatever keeps them."""

    async def make(self, runtime: Runtime) -> Ledger:
        """Open a new, empty ledger."""
        ...

    async def keep(self, ledger: Ledger) -> None:
        """Let go of a ledger and keep it as it is: the template of the cases to come."""
        ...

    def put_back(self) -> None:
        """Make the template the ledger again; nobody has it open."""
        ...

    async def open(self, runtime: Runtime) -> Ledger:
        """Open the ledger in a new process."""
        ...

    def stop(self, ledger: Ledger) -> None:
        """Cut a process off from the ledger, now."""
        ...

    async def bury(self, ledger: Ledger) -> None:
        """Take away what a dead process has in memory; what it had written stays."""
        ...

    async def release(self, ledger: Ledger) -> None:
        """Let go of a ledger whose process ends well."""
        ...

    def state(self) -> bytes:
        """Return a digest of all that the ledger is, while nobody has it open."""
        ...

    def says(self, secret: bytes) -> list[str]:
        """Return where in the ledger's bytes something stands."""
        ...


class Gone:
    """What a dead process's ledger is to it: whatever it asks, it does not go on."""

    def __getattr__(self, name: str) -> Any:
        raise Crash


class Files:
    """A ledger in files of one folder."""

    def __init__(self, folder: Path, scheme: str) -> None:
        self._folder, self._path = folder, folder / "custody"
        # A process that is killed loses nothing that it has written, synchronised or not.
        self._url = f"{scheme}:///{self._path}?synchronous=off"
        self._template: Image = {}
        self._left: Image = {}
        self._dead: Any = None

    async def make(self, runtime: Runtime) -> Ledger:
        """Open a new ledger in an empty folder."""
        for path in self._folder.iterdir():
            path.unlink()
        return await Ledger.open(self._url, create=True, runtime=runtime, witness=False)

    async def keep(self, ledger: Ledger) -> None:
        """Close the ledger and read its files."""
        await ledger.close()
        self._template = self._image()

    def put_back(self) -> None:
        """Write the template's files."""
        self._write(self._template)

    async def open(self, runtime: Runtime) -> Ledger:
        """Open the files."""
        return await Ledger.open(self._url, runtime=runtime, witness=False)

    def stop(self, ledger: Ledger) -> None:
        """Copy the files as they are at this instant."""
        self._left, self._dead = self._image(), ledger._storage
        ledger._storage = Gone()

    async def bury(self, ledger: Ledger) -> None:
        """Let the files be what they were when the process died."""
        await self._dead.close()
        self._write(self._left)

    async def release(self, ledger: Ledger) -> None:
        """Close the files."""
        await ledger.close()

    async def close(self) -> None:
        """Keep nothing open."""

    def state(self) -> bytes:
        """Digest the files, but for the lock's, which names the number of another one."""
        image = self._image()
        return _digest(name.encode() + image[name] for name in sorted(image) if not name.endswith("-lock"))

    def says(self, secret: bytes) -> list[str]:
        """Search every file."""
        return [name for name, data in self._image().items() if secret in data]

    def _image(self) -> Image:
        # The index of the write-ahead log is rebuilt by whoever opens it first after a death.
        paths = [path for path in self._folder.iterdir() if not path.name.endswith("-shm")]
        return {path.name: path.read_bytes() for path in paths}

    def _write(self, image: Image) -> None:
        """Write files in place: a ledger goes by its file's number as well."""
        for path in self._folder.iterdir():
            if path.name not in image:
                path.unlink()
        for name, data in image.items():
            handle = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.write(handle, data)
                if os.fstat(handle).st_size != len(data):
                    os.ftruncate(handle, len(data))
            finally:
                os.close(handle)


class Server:
    """A ledger in a schema of a Postgres. Who ends well leaves the next process its connections."""

    def __init__(self, admin: psycopg.Connection[Any], url: str, schema: str) -> None:
        self._admin, self._url, self._schema = admin, url, schema
        self._kept = f"{schema}_kept"
        self._connections: list[Any] = []
        self._ledger: Ledger | None = None
        self._dead: Any = None
        self._cut: list[int] = []
        self._used = 0

    def connected(self, connection: Any) -> None:
        """Note a connection of the process that is at work."""
        self._connections.append(connection)

    async def make(self, runtime: Runtime) -> Ledger:
        """Empty the ledger's tables, or make them."""
        await self.close()
        ledger = await self.open(runtime)
        emptied = ", ".join(f"{self._schema}.{table}" for table in TABLES if table != "head")
        self._admin.execute(
            f"truncate {emptied}; "
            f"update {self._schema}.head set seq = 0, tx_time = null, hash = repeat('0', 64), count = 0"
        )
        return ledger

    async def keep(self, ledger: Ledger) -> None:
        """Copy the tables to another schema."""
        self._admin.execute(
            f"drop schema if exists {self._kept} cascade; create schema {self._kept}; "
            + "; ".join(
                f"create table {self._kept}.{table} as select * from {self._schema}.{table}"
                for table in TABLES
            )
        )
        self._used = RENEW_AFTER

    def put_back(self) -> None:
        """Fill the tables anew."""
        self._used += 1
        if self._used > RENEW_AFTER:
            self._used = 0
            tables = ", ".join(f"{self._schema}.{table}" for table in TABLES)
            emptied = f"truncate {tables}; "
        else:
            emptied = "".join(f"delete from {self._schema}.{table}; " for table in TABLES)
        filled = "; ".join(
            f"insert into {self._schema}.{table} select * from {self._kept}.{table}" for table in TABLES
        )
        self._admin.execute(f"begin; {emptied}{filled}; commit")

    async def open(self, runtime: Runtime) -> Ledger:
        """Connect, or go on with the handle of a process that ended well."""
        if self._ledger is None:
            self._ledger = await Ledger.open(self._url, create=True, runtime=runtime, witness=False)
        return self._ledger

    def stop(self, ledger: Ledger) -> None:
        """Cut the process's connections: what the server had been sent it still does."""
        storage: Any = ledger._storage
        self._dead, self._ledger, self._cut = storage, None, []
        for connection in self._connections:
            if not connection.closed:
                self._cut.append(connection.info.backend_pid)
                with socket.socket(fileno=os.dup(connection.fileno())) as wire:
                    wire.shutdown(socket.SHUT_RDWR)
        self._connections.clear()
        storage._pool.getconn = storage._pool.check = _dead
        ledger._storage = Gone()

    async def bury(self, ledger: Ledger) -> None:
        """Wait until the server has seen the last of the process."""
        # Closing waits for what the dead process had under way, which was cancelled with it.
        with contextlib.suppress(Crash, psycopg.Error, asyncio.CancelledError):
            await self._dead.close()
        for _ in range(TRIES):
            if not self._cut or self._admin.execute(BACKENDS, (self._cut,)).fetchone() == (0,):
                return
            await asyncio.sleep(0.001)
        raise AssertionError(f"backends {self._cut} go on without the process that they worked for")

    async def release(self, ledger: Ledger) -> None:
        """Let a commit that nobody waits for end, and keep the connections for the next process."""
        storage: Any = ledger._storage
        if storage._group._worker is not None:
            await asyncio.wait([storage._group._worker])

    async def close(self) -> None:
        """End the last process."""
        if self._ledger is not None:
            await self._ledger.close()
        self._ledger = None

    def state(self) -> bytes:
        """Digest the rows."""
        whole = "select md5(coalesce(string_agg(t::text, ' ' order by t::text), ''))"
        rows = " union all ".join(f"{whole} from {self._schema}.{table} t" for table in TABLES)
        return _digest(str(found).encode() for (found,) in self._admin.execute(rows).fetchall())

    def says(self, secret: bytes) -> list[str]:
        """Search every page of the ledger's tables, indexes and what is stored beside them."""
        found = self._admin.execute(
            "with ours as (select oid, relname, reltoastrelid from pg_class "
            "where relnamespace = %s::regnamespace and relkind in ('r', 'i')), "
            "searched as (select oid, relname from ours union all select t.oid, t.relname "
            "from pg_class t join ours on t.oid = ours.reltoastrelid) "
            "select relname from searched, generate_series(0, pg_relation_size(oid) / 8192 - 1) as page "
            "where position(%s in get_raw_page(oid::regclass::text, page)) > 0",
            (self._schema, secret),
        )
        return sorted({str(name) for (name,) in found.fetchall()})


@contextmanager
def open_disk(storage: str, folder: Path, server: Callable[[], str]) -> Iterator[Files | Server]:
    """Make room for the ledgers of one storage.

    Args:
        storage: `sqlite`, `jsonl` or `postgres`.
        folder: where files may be made.
        server: starts a Postgres, if it does not run, and returns its URI.
    """
    if storage != "postgres":
        made = folder / f"ledger-{uuid.uuid4().hex}"
        made.mkdir()
        yield Files(made, storage)
        return
    uri, schema = server(), f"matrix_{uuid.uuid4().hex}"
    with psycopg.connect(uri, autocommit=True) as admin, pytest.MonkeyPatch.context() as patch:
        # Whatever still held a lock would be a fault of these tests; waiting for it would hide that.
        admin.execute("set lock_timeout = '30s'")
        admin.execute("create extension if not exists pageinspect")
        disk = Server(admin, f"{uri}&schema={schema}", schema)
        watch_connections(patch, disk.connected)
        yield disk
        admin.execute(f"drop schema if exists {schema}, {schema}_kept cascade")


def _digest(parts: Iterable[bytes]) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()


async def _dead(*args: Any, **more: Any) -> Any:
    raise Crash


def watch_connections(patch: Any, told: Callable[[Any], None]) -> None:
    """Tell of every connection that is made from now on."""
    connect = psycopg.AsyncConnection.connect.__func__  # type: ignore[attr-defined]

    async def connected(cls: Any, *args: Any, **more: Any) -> Any:
        connection = await connect(cls, *args, **more)
        told(connection)
        return connection

    patch.setattr(psycopg.AsyncConnection, "connect", classmethod(connected))


__all__ = ["Disk", "Files", "Server", "open_disk"]
