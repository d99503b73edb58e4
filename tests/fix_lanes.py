"""Lanes to kill processes in: both real stores' tables, a ledger on any storage, a parent of victims."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from fix_books import LEDGER_TABLES, Book, JsonlBook, PostgresBook, SqliteBook
from fix_oracle import Oracle
from fix_world import DIMENSIONS, INDEX
from langgraph.store.postgres import PostgresStore

STORAGES = ("sqlite", "jsonl", "postgres")
TABLES = ("store", "store_vectors", "memories")
PATIENCE = 120.0
BACKENDS = "select 1 from pg_stat_activity where application_name = %s"
PGVECTOR = f"""
    create table memories (
        key text collate "C" primary key, fact_id text, ledger_id text, space text, stored_at timestamptz,
        custody text, text text, embedding vector({DIMENSIONS}), created_at timestamptz not null default now()
    );
    create index memories_fact_id_idx on memories (fact_id);
    create index memories_space_idx on memories (space);
"""

STRANGE = """
    insert into store (prefix, key, value) values
        ('memories.org', 'foreign', '{"source": "custody-sync", "v": 1, "ledger_id": "another",
            "space": "org", "fact_id": "019a0000-0000-7000-8000-000000000001", "text": "acct:4 plan: bronze",
            "stored_at": "2026-01-01T00:00:00.000000Z", "custody": "{}"}'),
        ('memories.org', 'strange', '{"text": "acct:4 plan: bronze"}');
    insert into memories (key, fact_id, ledger_id, space, stored_at, custody, text) values
        ('foreign', '019a0000-0000-7000-8000-000000000001', 'another', 'org', '2026-01-01T00:00:00Z', '{}',
            'acct:4 plan: bronze'),
        ('strange', null, null, null, null, null, 'acct:4 plan: bronze');
"""
"""Entries that are not of the ledger under test: another one's, and some without a label."""


class Servant:
    """The parent of the victims: a fresh interpreter that forks one process an order.

    Args:
        program: reads orders and writes answers, a line of JSON each.
        errors: the file that it complains into.
    """

    def __init__(self, program: Path, errors: Path) -> None:
        paths = [str(program.parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._errors = errors.open("wb")
        self._process = subprocess.Popen(
            [sys.executable, str(program)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def order(self, **order: Any) -> dict[str, Any]:
        """Have an order obeyed by a process of its own, and return what is said of it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the parent of the victims has died"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def dismiss(self) -> None:
        """Let the parent end."""
        try:
            self._process.communicate(timeout=60)
        finally:
            self._process.kill()
            self._errors.close()


@dataclass(frozen=True)
class Answer:
    """How a victim ended and what it had said by then."""

    ended: int
    said: list[dict[str, Any]]

    def all(self, name: str) -> list[Any]:
        """Return everything said under a name."""
        return [said[name] for said in self.said if name in said]

    def checked(self) -> Answer:
        """Refuse a victim that was to live and did not."""
        assert self.ended == 0, f"the child ended with {self.ended} and said {self.said}"
        return self


@dataclass
class Lane:
    """One database schema for the stores, one for a ledger, and one parent of victims, all for one case."""

    schema: str
    uri: str
    folder: Path
    stores: psycopg.Connection[Any]
    servant: Servant
    cases: int = 0
    made: set[str] = field(default_factory=set)

    def restore(self, template: str, folder: Path, storage: str) -> Path:
        """Bring the stores and a ledger to where an operation begins; return the ledger's folder."""
        self.cases += 1
        self.stores.execute(f"truncate {', '.join(TABLES)}")
        for table in TABLES:
            self.stores.execute(f"insert into {table} select * from {template}.{table}")
        if storage == "postgres":
            self.put_ledger(template)
        fresh = self.folder / f"{template}-{self.schema}-{self.cases}"
        shutil.copytree(folder, fresh)
        return fresh

    def keep(self, template: str, storage: str) -> None:
        """Keep what is there now as a template."""
        self.stores.execute(f"create schema {template}")
        for table in TABLES:
            self.stores.execute(f"create table {template}.{table} as select * from {table}")
        if storage == "postgres":
            for table in LEDGER_TABLES:
                self.stores.execute(
                    f"create table {template}.{table} as select * from {self.ledger_schema}.{table}"
                )

    def put_ledger(self, template: str) -> None:
        """Put a Postgres ledger back to what a template has."""
        names = ", ".join(f"{self.ledger_schema}.{table}" for table in LEDGER_TABLES)
        self.stores.execute(f"truncate {names}")
        for table in LEDGER_TABLES:
            # Later versions append columns; a copy has them in the same order.
            self.stores.execute(f"insert into {self.ledger_schema}.{table} select * from {template}.{table}")

    @property
    def ledger_schema(self) -> str:
        """The schema of this lane's Postgres ledger."""
        return f"{self.schema}_ledger"

    def drop_ledger(self) -> None:
        """Drop this lane's Postgres ledger, so that the next one is new."""
        self.stores.execute(f"drop schema if exists {self.ledger_schema} cascade")

    def url(self, storage: str, folder: Path, application: str) -> str:
        """Return the URL of a ledger; a server's connections are known by a name."""
        if storage == "postgres":
            return f"{self.uri}&application_name={application}&schema={self.ledger_schema}"
        return f"{storage}:///{folder / ('custody.db' if storage == 'sqlite' else 'custody.jsonl')}"

    def book(self, storage: str, folder: Path) -> Book:
        """Return what reads a ledger by plain SQL."""
        if storage == "postgres":
            return PostgresBook(self.stores, self.ledger_schema)
        return SqliteBook(folder) if storage == "sqlite" else JsonlBook(folder)

    def oracle(self, storage: str, folder: Path) -> Oracle:
        """Return who judges a case."""
        return Oracle(folder, self.stores, self.book(storage, folder))

    def order(
        self, storage: str, folder: Path, more: Mapping[str, Any], servant: Servant | None = None
    ) -> dict[str, Any]:
        """Have one step done, and wait until Postgres has seen the last of the process."""
        self.cases += 1
        name = f"victim-{self.schema}-{self.cases}"
        answer = (servant or self.servant).order(
            uri=f"{self.uri}&application_name={name}",
            ledger=self.url(storage, folder, name),
            witness=str(folder / "witness"),
            **more,
        )
        if "ended" in answer:
            self.settle(name)
        return answer

    def settle(self, name: str) -> None:
        """Wait for the backends of a killed process: what it had sent may still be under way in them."""
        until = time.monotonic() + PATIENCE
        while self.stores.execute(BACKENDS, (name,)).fetchone():
            assert time.monotonic() < until, f"{name} is still connected"
            time.sleep(0.005)


@contextmanager
def open_lane(program: Path, number: int, uri: str, folder: Path) -> Iterator[Lane]:
    """Make a schema with both stores' empty tables, and a parent of victims."""
    schema = f"lane_{number}"
    mine = f"{uri}&options=-c%20search_path%3D{schema}%2Cpublic"
    with psycopg.connect(mine, autocommit=True) as stores:
        stores.execute(f"create schema {schema}")
        with PostgresStore.from_conn_string(mine, index=INDEX) as raw:
            raw.setup()
        stores.execute(PGVECTOR)
        servant = Servant(program, folder / f"{schema}.stderr")
        try:
            yield Lane(schema, mine, folder, stores, servant)
        finally:
            servant.dismiss()


@contextmanager
def open_lanes(
    program: Path, postgres_uri: str, database: str, folder: Path, count: int
) -> Iterator[list[Lane]]:
    """Make a database with so many lanes, and drop it."""
    with psycopg.connect(postgres_uri, autocommit=True) as connection:
        connection.execute(f"create database {database}")
        uri = postgres_uri.replace("/postgres?", f"/{database}?")
        with psycopg.connect(uri, autocommit=True) as first:
            first.execute("create extension vector")
        with ExitStack() as stack:
            yield [stack.enter_context(open_lane(program, n, uri, folder)) for n in range(count)]
        connection.execute(f"drop database {database} with (force)")
