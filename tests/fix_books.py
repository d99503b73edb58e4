"""A ledger's log read by plain SQL, or line by line: three storages, none of the ledger's own code."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import psycopg
import rfc8785
from psycopg import sql

SECTIONS = ("content", "identity", "refs")
LOG = (
    "select e.seq, body, hash, content, content_salt, identity, identity_salt, refs, refs_salt "
    "from {0}events e left join {0}sealed s on s.seq = e.seq order by e.seq"
)
LEDGER_TABLES = (
    *("settings", "head", "events", "sealed", "claims", "facts"),
    *("placements", "owed", "holds", "notes", "blocks"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One event as it is stored: what was hashed, and each section that is left with its salt."""

    seq: int
    body: str
    digest: str
    sealed: dict[str, tuple[str | None, bytes | None]]


class Book(Protocol):
    """Where a ledger is, and how it is read without it."""

    @property
    def files(self) -> list[Path]:
        """Every file that the ledger owns here."""
        ...

    def rows(self) -> list[Row]:
        """Return the log."""
        ...

    def head(self) -> tuple[int, str, int] | None:
        """Return seq, hash and count that are kept beside the log, where they are."""
        ...

    def ledger_id(self) -> str:
        """Return the id that stands in the labels."""
        ...

    def ask(self, query: str) -> list[tuple[Any, ...]] | None:
        """Return what one of the derived tables answers; None where they are in no file."""
        ...

    def topics(self) -> set[str]:
        """Return the topics of the notes."""
        ...

    def says(self, needle: str) -> list[str]:
        """Return where a text stands."""
        ...


@dataclass(frozen=True, slots=True)
class _Folder:
    folder: Path

    @property
    def files(self) -> list[Path]:
        """Return every file of the ledger's folder."""
        return sorted(path for path in self.folder.rglob("*") if path.is_file())

    def says(self, needle: str) -> list[str]:
        """Return the names of the files that have a text."""
        return [path.name for path in self.files if needle.encode() in bytes_of(path)]


@dataclass(frozen=True, slots=True)
class SqliteBook(_Folder):
    """A SQLite ledger called `custody.db`."""

    def rows(self) -> list[Row]:
        """Return the log."""
        return list(read_rows(self.ask(LOG.format(""))))

    def head(self) -> tuple[int, str, int] | None:
        """Return what the table `head` has."""
        ((seq, digest, count),) = self.ask("select seq, hash, count from head")
        return seq, digest, count

    def ledger_id(self) -> str:
        """Return the setting."""
        ((raw,),) = self.ask("select value from settings where name = 'ledger_id'")
        return bytes(raw).decode()

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        """Ask the file, without writing to it."""
        return ask_file(self.folder / "custody.db", query)

    def topics(self) -> set[str]:
        """Return the topics of the notes."""
        return {topic for (topic,) in self.ask("select distinct topic from notes")}


@dataclass(frozen=True, slots=True)
class JsonlBook(_Folder):
    """A JSONL ledger called `custody.jsonl`; what follows from its log is in nobody's file."""

    def lines(self) -> list[dict[str, Any]]:
        """Return the header and the events; an unfinished last line is none."""
        whole, _, _ = (self.folder / "custody.jsonl").read_bytes().rpartition(b"\n")
        return [json.loads(line) for line in whole.split(b"\n")]

    def rows(self) -> list[Row]:
        """Return the log, each part in the form that was hashed."""
        found = []
        for line in self.lines()[1:]:
            sealed: dict[str, tuple[str | None, bytes | None]] = {
                name: (form_of(part["body"]), bytes.fromhex(part["salt"]))
                for name, part in line["sealed"].items()
            }
            event = line["event"]
            found.append(Row(seq=event["seq"], body=form_of(event), digest=line["hash"], sealed=sealed))
        return found

    def head(self) -> tuple[int, str, int] | None:
        """Return nothing: the last line is the head."""
        return None

    def ledger_id(self) -> str:
        """Return what the first line says."""
        return str(self.lines()[0]["ledger_id"])

    def ask(self, query: str) -> list[tuple[Any, ...]] | None:
        """Return nothing."""
        return None

    def topics(self) -> set[str]:
        """Return the topics of the notes beside it."""
        notes = ask_file(self.folder / "custody.jsonl-notes", "select distinct topic from notes")
        return {topic for (topic,) in notes}


@dataclass(frozen=True, slots=True)
class PostgresBook:
    """A Postgres ledger in a schema, asked over a connection of one's own in autocommit mode."""

    conn: psycopg.Connection[Any] = field(repr=False)
    schema: str

    @property
    def files(self) -> list[Path]:
        """The server's are not the ledger's."""
        return []

    def rows(self) -> list[Row]:
        """Return the log."""
        return list(read_rows(self._ask(LOG.format(f"{self.schema}."))))

    def head(self) -> tuple[int, str, int] | None:
        """Return what the table `head` has."""
        ((seq, digest, count),) = self._ask(f"select seq, hash, count from {self.schema}.head")
        return seq, digest, count

    def ledger_id(self) -> str:
        """Return the setting."""
        query = f"select value from {self.schema}.settings where name = 'ledger_id'"
        ((raw,),) = self._ask(query)
        return bytes(raw).decode()

    def ask(self, query: str) -> list[tuple[Any, ...]] | None:
        """Ask a table by its bare name."""
        before, _, after = query.partition(" from ")
        return self._ask(f"{before} from {self.schema}.{after}")

    def topics(self) -> set[str]:
        """Return the topics of the notes."""
        return {topic for (topic,) in self._ask(f"select distinct topic from {self.schema}.notes")}

    def says(self, needle: str) -> list[str]:
        """Return the names of the tables that have a text."""
        look = "select count(*) from {}.{} t where strpos(t::text, {}) > 0"
        found = []
        for table in LEDGER_TABLES:
            parts = (sql.Identifier(self.schema), sql.Identifier(table), sql.Literal(needle))
            row = self.conn.execute(sql.SQL(look).format(*parts)).fetchone()
            if row is not None and row[0]:
                found.append(table)
        return found

    def _ask(self, query: str) -> list[tuple[Any, ...]]:
        return self.conn.execute(query.encode()).fetchall()


def bytes_of(path: Path) -> bytes:
    """Return what a file has; one that was put into another one's place meanwhile is read there."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def ask_file(path: Path, query: str) -> list[tuple[Any, ...]]:
    """Ask a SQLite file one question."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as conn:
        return conn.execute(query).fetchall()


def read_rows(found: Iterable[tuple[Any, ...]]) -> Iterator[Row]:
    """Read the columns of a log."""
    for seq, body, digest, *parts in found:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        sealed = {
            name: (text, None if salt is None else bytes(salt))
            for name, (text, salt) in zip(SECTIONS, pairs, strict=True)
        }
        yield Row(seq=seq, body=body, digest=digest, sealed=sealed)


def form_of(document: Any) -> str:
    """Return the form of a document that is hashed."""
    return rfc8785.dumps(document).decode()
