"""Fixtures of every ring that needs a real Postgres: one server a run, one database a test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from custody_sync.errors import MissingExtra
from custody_sync.testing.postgres import EmbeddedPostgres


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


@pytest.fixture
def database_uri(postgres_uri: str) -> Iterator[str]:
    """Make an empty database for one test, and drop it with whatever is still connected."""
    psycopg = pytest.importorskip("psycopg", reason="a Postgres test needs custody-sync[pgvector]")
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_uri, autocommit=True) as connection:
        # Copied as a file, which also spares the checkpoint of its own that dropping it would wait for.
        connection.execute(f"create database {name} strategy file_copy")
    yield postgres_uri.replace("/postgres?", f"/{name}?")
    with psycopg.connect(postgres_uri, autocommit=True) as connection:
        connection.execute(f"drop database {name} with (force)")


@pytest.fixture
def schema_url(postgres_uri: str) -> Iterator[str]:
    """Name a schema that is not there yet, and drop it with the ledger that was made in it."""
    psycopg = pytest.importorskip("psycopg", reason="a Postgres ledger needs custody-sync[postgres]")
    name = f"ledger_{uuid.uuid4().hex}"
    yield f"{postgres_uri}&schema={name}"
    with psycopg.connect(postgres_uri, autocommit=True) as connection:
        connection.execute(f"drop schema if exists {name} cascade")
