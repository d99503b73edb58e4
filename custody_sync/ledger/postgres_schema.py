"""Finding, making and upgrading a ledger in a Postgres database.

Nothing is made unless asked for. Of several processes that make or upgrade a ledger at once, one
does it and the others find it done: each works under an advisory lock, in one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib import resources
from typing import Any

import psycopg
from psycopg import AsyncConnection

from custody_sync import errors
from custody_sync.errors.base import throw
from custody_sync.ledger.postgres_errors import ledger_errors, translate
from custody_sync.ledger.postgres_notes import Notes
from custody_sync.ledger.postgres_sql import read_script, statements
from custody_sync.ledger.postgres_url import Location
from custody_sync.ledger.storage import Identity, Mark, Way
from custody_sync.runtime import Runtime

Settings = dict[str, bytes]

# Every question has an index for its answer. A plan made while the tables were small would read
# them from end to end, and would be kept when they no longer are.
SESSION = (
    "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off; "
    # What an index gives in order is not to be gathered and sorted.
    "SET enable_bitmapscan = off; "
    "SET plan_cache_mode = force_generic_plan; SET lock_timeout = '30s'; "
    # Under the lock each statement has to see what the lock's last holder left.
    "SET default_transaction_isolation = 'read committed'; "
    "SET idle_in_transaction_session_timeout = '60s'"
)


@dataclass(frozen=True, slots=True)
class Met:
    """A ledger of this version: what it was given when it was made, and whether this role may append."""

    settings: Settings = field(repr=False)
    writable: bool


def steps() -> tuple[str, ...]:
    """Return the scripts that lead from nothing to the newest schema, one for each version."""
    folder = resources.files("custody_sync.ledger").joinpath("sql", "postgres")
    return tuple(sorted(file.name for file in folder.iterdir() if file.name[:4].isdecimal()))


async def connect(location: Location) -> AsyncConnection[Any]:
    """Connect to the database of a ledger that is there.

    Raises:
        LedgerNotFound: there is no such database.
        LedgerUnreachable: nobody answers, or not to us.
    """
    conn = await _connect(location, create=False)
    try:
        with ledger_errors(location.name):
            await prepare_session(conn)
    except BaseException:
        await conn.close()
        raise
    return conn


async def meet(location: Location, *, create: bool) -> tuple[AsyncConnection[Any], Met | None]:
    """Connect, and look whether a ledger of this version is there: one message asks all that opening asks.

    Raises:
        LedgerNotFound: there is no such database.
        LedgerUnreachable: nobody answers, or not to us.
        LedgerTooNew: a newer version made it.
    """
    conn = await _connect(location, create=create)
    try:
        with ledger_errors(location.name):
            encoding = conn.info.parameter_status("server_encoding")
            if encoding != "UTF8":
                problem = f"its database is encoded in {encoding}, which cannot hold every text; UTF8 can"
                raise errors.LedgerError(name=location.name, problem=problem)
            return conn, await _meet(conn, location)
    except BaseException:
        await conn.close()
        raise


async def _connect(location: Location, *, create: bool) -> AsyncConnection[Any]:
    try:
        return await AsyncConnection.connect(autocommit=True, **location.parameters)
    except (psycopg.Error, OSError) as error:
        throw(_unconnected(error, location, create))


async def _meet(conn: AsyncConnection[Any], location: Location) -> Met | None:
    try:
        asked = await conn.execute(f"{SESSION}; {_sql(location)['meet']}".encode())
    except psycopg.ProgrammingError as error:
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            raise
        # There is no such table, or one of somebody else; what was set went with the question.
        await prepare_session(conn)
        return None
    while asked.nextset():
        pass
    found, writable = await asked.fetchone() or (None, False)
    settings = {name: bytes.fromhex(value) for name, value in (found or {}).items()}
    return Met(settings, bool(writable)) if _version(settings, location) == len(steps()) else None


def _unconnected(error: BaseException, location: Location, create: bool) -> errors.LedgerError:
    # A server that refuses a connection sends no SQLSTATE through libpq.
    if f'database "{location.parameters.get("dbname")}" does not exist' not in str(error):
        return translate(error, location.name)
    if not create:
        return errors.LedgerNotFound(name=location.name)
    return errors.LedgerError(name=location.name, problem="its database does not exist; create it first")


async def prepare_session(conn: AsyncConnection[Any]) -> None:
    """Set what every connection of ours needs."""
    await conn.execute(SESSION)


async def find(
    conn: AsyncConnection[Any],
    location: Location,
    *,
    create: bool,
    write: bool,
    make: Identity,
    now: datetime,
) -> Met:
    """Return the ledger that is there, made or upgraded where that was asked for.

    The connection is for this alone, since it may keep a lock until it is closed.

    Raises:
        LedgerNotFound: there is none.
        LedgerTooNew: a newer version made it.
        LedgerDamaged: the schema is of something else.
    """
    with ledger_errors(location.name):
        found = await _settings(conn, location)
        if found is not None and _version(found, location) == len(steps()):
            return await _found(conn, location)
        if found is None and not create:
            raise errors.LedgerNotFound(name=location.name)
        if not write:
            problem = "its schema is of an older version; open it once for writing, which upgrades it"
            raise errors.LedgerError(name=location.name, problem=problem)
        await conn.execute(_sql(location)["alone"].encode(), {"schema": location.schema})
        async with conn.transaction():
            # Somebody else may have been first.
            found = await _settings(conn, location)
            done = 0 if found is None else _version(found, location)
            if found is None:
                await _make_schema(conn, location)
            await _advance(conn, location, steps()[done:])
            if found is None:
                await _set(conn, location, ledger_id=make.ledger_id.encode(), secret=make.secret)
                if make.arrives_from is not None:
                    notes = Notes(location.schema)
                    await notes.set_mark(conn, None, Mark(Way.FROM, make.arrives_from), now)
            await _set(conn, location, version=str(len(steps())).encode())
        return await _found(conn, location)


async def _found(conn: AsyncConnection[Any], location: Location) -> Met:
    met = await _meet(conn, location)
    assert met is not None  # noqa: S101  # it was just made, or seen
    return met


def identity_of(settings: Settings, name: str) -> Identity:
    """Return what makes a ledger this one."""
    try:
        return Identity(settings["ledger_id"].decode(), settings["secret"])
    except (KeyError, UnicodeDecodeError):
        throw(errors.LedgerDamaged(name=name, cause="its settings are incomplete"))


def new_identity(runtime: Runtime, identity: Identity | None) -> Identity:
    """Return the identity that a new ledger gets."""
    return identity or Identity.new(runtime)


def _sql(location: Location) -> dict[str, str]:
    return statements("setup.sql", location.schema)


async def _settings(conn: AsyncConnection[Any], location: Location) -> Settings | None:
    sql = _sql(location)
    (there,) = await (await conn.execute(sql["has_settings"].encode())).fetchone() or (False,)
    if not there:
        return None
    rows = await (await conn.execute(sql["settings"].encode())).fetchall()
    return {str(name): bytes(value) for name, value in rows}


def _version(settings: Settings, location: Location) -> int:
    written = settings.get("version", b"").decode(errors="replace")
    if not written.isdecimal() or int(written) < 1:
        raise errors.LedgerDamaged(name=location.name, cause="its schema holds other tables")
    if int(written) > len(steps()):
        raise errors.LedgerTooNew(name=location.name, found=int(written), known=len(steps()))
    return int(written)


async def _make_schema(conn: AsyncConnection[Any], location: Location) -> None:
    asked = await conn.execute(_sql(location)["has_schema"].encode(), {"schema": location.schema})
    (there,) = await asked.fetchone() or (False,)
    if not there:
        # The name is a plain identifier, and asking first lets a role work that may make no schema.
        await conn.execute(f"CREATE SCHEMA {location.schema}".encode())


async def _advance(conn: AsyncConnection[Any], location: Location, scripts: Sequence[str]) -> None:
    try:
        for script in scripts:
            await conn.execute(read_script(script, location.schema).encode())
    except psycopg.errors.DuplicateTable:
        throw(errors.LedgerDamaged(name=location.name, cause="its schema holds other tables"))


async def _set(conn: AsyncConnection[Any], location: Location, **values: bytes) -> None:
    for name, value in values.items():
        await conn.execute(_sql(location)["set"].encode(), {"name": name, "value": value})
