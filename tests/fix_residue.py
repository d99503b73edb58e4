"""Looking for what an erasure left: the forms a value can lie about in, and where a ledger's bytes are."""

from __future__ import annotations

import base64
import json
import random
import re
import sqlite3
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from custody_sync.ledger import Ledger

SIZE = 24
"""How long a piece of a value has to be to count as found."""
WHOLE = 100
"""A longer value is looked for in pieces: it may be spread over pages."""


def forms_of(secret: str) -> set[bytes]:
    """Return the forms in which a value could lie about: as it is, escaped, in UTF-16, base64 and hex."""
    raw = secret.encode()
    forms = {
        raw,
        *(json.dumps(secret, ensure_ascii=ascii)[1:-1].encode() for ascii in (True, False)),
        secret.encode("utf-16-le"),
        secret.encode("utf-16-be"),
        raw.hex().encode(),
        raw.hex().upper().encode(),
    }
    # Base64 depends on where the value starts within three bytes; the ends are cut off.
    return forms | {base64.b64encode(b"x" * shift + raw)[4:-4] for shift in range(3)}


def pieces_of(secret: str) -> set[bytes]:
    """Return pieces of a long random value, so that a torn copy is found as well."""
    return {secret[i : i + SIZE].encode() for i in range(0, len(secret) - SIZE + 1, SIZE)}


def random_value(rnd: random.Random, size: int) -> str:
    """Return a value that occurs nowhere else."""
    return "".join(rnd.choices("abcdefghijkmnpqrstuvwxyz23456789", k=size))


def grams_of(everything: Iterable[bytes]) -> set[bytes]:
    """Return every piece of text of that length that looks like one of a random value."""
    runs = re.findall(rb"[a-z2-9]{%d,}" % SIZE, b"\n".join(everything))
    return {run[i : i + SIZE] for run in runs for i in range(len(run) - SIZE + 1)}


def packed_grams_of(everything: Iterable[bytes]) -> set[bytes]:
    """Return what looks like pieces of a value that Postgres packed: after eight letters stands a tag."""
    pairs = re.findall(rb"(?=([a-z2-9]{8})[\x00-\xff]([a-z2-9]{8}))", b"\n".join(everything))
    return {first + second for first, second in pairs}


def left_in(files: Mapping[str, bytes], secrets: Iterable[str]) -> set[str]:
    """Return the secrets of which any form is in any file; of a long one, any piece."""
    found, grams, packed = set(), grams_of(files.values()), packed_grams_of(files.values())
    for secret in secrets:
        needles, pieces = forms_of(secret), pieces_of(secret)
        if len(secret) > WHOLE:
            ends = (secret[:SIZE], secret[len(secret) // 2 :][:SIZE], secret[-SIZE:])
            needles = {form for end in ends for form in forms_of(end)}
        raw = secret.encode()
        torn = not pieces.isdisjoint(grams) or any(raw[i : i + 16] in packed for i in range(len(raw) - 15))
        if torn or any(needle in data for needle in needles for data in files.values()):
            found.add(secret)
    return found


@dataclass(frozen=True)
class Disk:
    """Where a ledger's bytes are, and how somebody else comes to be in the middle of reading them."""

    url: str
    folder: Path
    blocks: bool = True
    """Whether a reader keeps what it reads on the disk."""

    def files(self) -> dict[str, bytes]:
        """Return every file of the ledger with its bytes."""
        return {str(path): path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Be in the middle of a read."""
        with closing(sqlite3.connect(self.folder / "custody.db", isolation_level=None)) as conn:
            conn.execute("BEGIN")
            conn.execute("SELECT count(*) FROM events").fetchone()
            yield


class JsonlDisk(Disk):
    """A JSONL ledger: who reads it has the old file open, which has no name any more."""

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Have read all of it, and keep it open."""
        async with await Ledger.open(self.url, read_only=True) as other:
            await other.head()
            yield


_FIRST_FILE = 16384
"""Files of tables, their indexes and what stands outside of rows; smaller numbers are the catalogs'."""
_TABLES = ("events", "sealed", "facts", "placements", "notes")


class PostgresDisk(Disk):
    """A ledger in a schema of a database on this machine, and all that this database keeps on its disk."""

    def files(self) -> dict[str, bytes]:
        """Return every file that is not a catalog, and the statistics; autovacuum may gather those."""
        import psycopg

        with psycopg.connect(self.server, autocommit=True) as conn:
            tables = [
                f"{self.schema}.{table}" for table in ("events", "sealed", "facts", "placements", "notes")
            ]
            conn.execute(f"ANALYZE {', '.join(tables)}")
            conn.execute("CHECKPOINT")
            query = (
                "SELECT current_setting('data_directory') || '/' || pg_relation_filepath(oid) FROM pg_class "
                "WHERE oid = 'pg_statistic'::regclass OR oid = (SELECT reltoastrelid FROM pg_class "
                "WHERE oid = 'pg_statistic'::regclass)"
            )
            statistics = [Path(path) for (path,) in conn.execute(query)]
        numbered = [(path, re.match(r"\d+", path.name)) for path in statistics[0].parent.iterdir()]
        ours = [path for path, number in numbered if number and int(number[0]) >= _FIRST_FILE]
        return {str(path): path.read_bytes() for path in (*ours, *statistics)}

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Hold a snapshot from before."""
        import psycopg

        with psycopg.connect(self.server) as conn:
            conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            conn.execute(f"SELECT count(*) FROM {self.schema}.events")
            yield

    @property
    def server(self) -> str:
        """The database's URL without what is ours in it."""
        return self.url.partition("&schema=")[0]

    @property
    def schema(self) -> str:
        """Where in the database the ledger is."""
        return self.url.partition("&schema=")[2]


@pytest.fixture
def disk(storage: str, ledger_url: str, tmp_path: Path) -> Disk:
    """Where the bytes of the test's ledger are."""
    if storage == "postgres":
        return PostgresDisk(ledger_url, tmp_path)
    if storage == "jsonl":
        return JsonlDisk(ledger_url, tmp_path / "ledger", blocks=False)
    return Disk(ledger_url, tmp_path / "ledger")
