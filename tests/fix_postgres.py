"""Fixtures of every ring that needs a real Postgres: one server a run, an empty database a test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from custody_sync.errors import MissingExtra
from custody_sync.testing.postgres import EmbeddedPostgres

GUESTS_LEAVE = """
    select pg_terminate_backend(pid, 10000) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid()
"""
# Extensions lie in a schema too.
EMPTY = """
    do $$
    declare made name;
    begin
        for made in select nspname from pg_namespace where nspname !~ '^(pg_|information_schema$)' loop
            execute format('drop schema %I cascade', made);
        end loop;
        create schema public authorization pg_database_owner;
        grant usage on schema public to public;
    end $$
"""


@pytest.fixture(scope="session")
def postgres_uri() -> Iterator[str]:
    """Run one real Postgres with pgvector for the whole run."""
    server = EmbeddedPostgres()
    try:
        uri = server.start()
    except MissingExtra as missing:
        pytest.skip(f"{missing}; that package has no wheel for every platform")
    yield uri
    server.stop()


@pytest.fixture(scope="session")
def spare_databases() -> list[str]:
    """Keep the names of databases that are empty again."""
    return []


@pytest.fixture
def database_uri(postgres_uri: str, spare_databases: list[str]) -> Iterator[str]:
    """Hand out an empty database under a name of its own; afterwards it loses its guests and all they made.

    It is emptied for the next test and not dropped: making one costs the whole server a checkpoint.
    """
    psycopg = pytest.importorskip("psycopg", reason="a Postgres test needs custody-sync[pgvector]")
    name = f"test_{uuid.uuid4().hex}"
    uri = postgres_uri.replace("/postgres?", f"/{name}?")
    with psycopg.connect(postgres_uri, autocommit=True) as connection:
        if spare_databases:
            connection.execute(f"alter database {spare_databases.pop()} rename to {name}")
        else:
            connection.execute(f"create database {name} strategy file_copy")
    yield uri
    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute(GUESTS_LEAVE)
        connection.execute(EMPTY)
    spare_databases.append(name)


@pytest.fixture
def schema_url(postgres_uri: str) -> Iterator[str]:
    """Name a schema that is not there yet, and drop it with the ledger that was made in it."""
    psycopg = pytest.importorskip("psycopg", reason="a Postgres ledger needs custody-sync[postgres]")
    name = f"ledger_{uuid.uuid4().hex}"
    yield f"{postgres_uri}&schema={name}"
    with psycopg.connect(postgres_uri, autocommit=True) as connection:
        connection.execute(f"drop schema if exists {name} cascade")
