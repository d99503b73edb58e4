"""The ledger as agent-memory-integrity sees a memory store: seeded through its API, edited behind its back.

It runs where that package is installed, beside custody-sync. It compares nothing: what `verify` returns
is what `Ledger.verify` found, or the error that the ledger could not be opened with. The head that was kept,
and the witness, lie outside of the folder that a snapshot copies.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
import tempfile
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from agmi.adapters.base import MemoryAdapter, Record

from custody_sync.errors import CustodyError
from custody_sync.ledger import Assert, Ledger
from custody_sync.model import Fact, Head, Provenance, format_instant

OURS, OTHERS = "user:ada", "user:bob"
SECTIONS = ("content", "identity", "refs")
COLUMNS = ("event_id", "fact_id", "tx_time", "hash", "body")
Fields = dict[str, Any]
Work = Callable[[Ledger], Coroutine[Any, Any, Any]]


def dump(document: object) -> str:
    """Write JSON as the ledger writes it."""
    return json.dumps(document, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


class LedgerAdapter(MemoryAdapter, ABC):
    """What is the same for every storage: a record is an event with its sections and salts, as texts."""

    scheme = ""
    detection_point = "audit"
    supports_replay = supports_metadata = supports_snapshot = True
    keeps_head = True
    """Whether the audit is given a head that was kept, or goes by the witness alone."""

    def setup(self) -> None:
        """Create a ledger in a folder of its own."""
        self.root = Path(tempfile.mkdtemp(prefix="custody-integrity-"))
        self.folder = self.root / "ledger"
        self.folder.mkdir()
        self.path = self.folder / "custody.db"
        self.kept: Head | None = None
        self._with_ledger(_nothing, create=True)

    def teardown(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.root, ignore_errors=True)

    @property
    def url(self) -> str:
        """Where the ledger is."""
        return f"{self.scheme}:///{self.path}"

    # --- through the ledger's own API -------------------------------------------------------

    def _with_ledger(
        self, work: Callable[[Ledger], Coroutine[Any, Any, Any]], *, create: bool = False
    ) -> Any:
        async def run() -> Any:
            async with await Ledger.open(self.url, create=create) as ledger:
                return await work(ledger)

        return asyncio.run(run())

    def _write(self, space: str, values: list[str]) -> None:
        async def write(ledger: Ledger) -> None:
            for value in values:
                await ledger.append(Assert(event_id=str(uuid.uuid4()), fact=_fact(space, value)))
            self.kept = await ledger.head()

        self._with_ledger(write)

    def seed(self, n: int) -> None:
        """Write facts of one space."""
        self._write(OURS, [f"ada prefers number {i}" for i in range(n)])

    def seed_other(self, n: int) -> None:
        """Write facts of another space."""
        self._write(OTHERS, [f"bob prefers number {i}" for i in range(n)])

    def append_genuine(self) -> None:
        """Write one more fact."""
        self._write(OURS, ["ada has moved to Oslo"])

    def reload(self) -> None:
        """Open the ledger again, as a restart would; it is not open between two calls."""

    def verify(self) -> bool:
        """Return what the ledger says of itself."""
        head = self.kept if self.keeps_head else None
        try:
            found = self._with_ledger(lambda ledger: ledger.verify(head=head))
        except CustodyError as error:
            self.verify_detail = f"{error.code}: {error}"
            return False
        self.verify_detail = "; ".join(filter(None, (found.problem, found.missing, *found.inconsistent)))
        return bool(found.passed)

    # --- behind its back --------------------------------------------------------------------

    @abstractmethod
    def _read(self) -> list[Fields]:
        """Return all events as they lie there."""

    @abstractmethod
    def _put(self, place: int, fields: Fields) -> None:
        """Put an event in a place, new or over the one that is there."""

    @abstractmethod
    def delete_raw(self, seq: int) -> None:
        """Remove the event in a place."""

    def _in_space(self, space: str) -> list[Record]:
        records = enumerate(self._read())
        return [Record(place, fields) for place, fields in records if _space(fields) == space]

    def read_all_raw(self) -> list[Record]:
        """Return the events of our space."""
        return self._in_space(OURS)

    def read_other_raw(self) -> list[Record]:
        """Return the events of the other space."""
        return self._in_space(OTHERS)

    def write_raw(self, record: Record) -> None:
        """Write an event into a place."""
        self._put(record.seq, record.fields)

    def mutate_payload(self, record: Record) -> Record:
        """Change a value and its text; salt, commitment and hash stay."""
        content = json.loads(record.fields["content"])
        content["value"] = content["text"] = content["value"] + ", since yesterday"
        record.fields["content"] = dump(content)
        return record

    def forge_record(self, template: Record) -> Record:
        """Make up an event behind another one: in its place, linked to it, later, with ids of its own."""
        body = json.loads(template.fields["body"])
        later = datetime.fromisoformat(body["tx_time"]) + timedelta(microseconds=1)
        own = {
            "event_id": str(uuid.uuid4()),
            "fact_id": str(uuid.uuid4()),
            "tx_time": format_instant(later),
        }
        body |= own | {"seq": body["seq"] + 1, "prev": template.fields["hash"]}
        return self.mutate_payload(Record(template.seq + 1, template.fields | own | {"body": dump(body)}))

    def replay_onto(self, victim_seq: int, donor: Record) -> None:
        """Put an event's content, its own salt with it, in the place of another one's."""
        fields = self._read()[victim_seq]
        fields |= {name: donor.fields[name] for name in ("content", "content_salt")}
        self._put(victim_seq, fields)

    def identity_of(self, record: Record) -> str:
        """Return an event's id."""
        return str(json.loads(record.fields["body"])["event_id"])

    def payload_of(self, record: Record) -> str:
        """Return what an event states."""
        return str(record.fields["content"])

    def owner_of(self, record: Record) -> str | None:
        """Return whom an event is about."""
        return _space(record.fields)

    # --- a copy of the whole folder ---------------------------------------------------------

    def snapshot_store(self) -> object:
        """Copy the ledger's folder with everything in it."""
        return self._copy_store(self.folder)

    def restore_store(self, token: object) -> None:
        """Put the copy back."""
        self._restore_store(str(token), self.folder)


class SqlAdapter(LedgerAdapter):
    """A ledger in tables. Its `facts` are what questions are answered from: metadata are changed there."""

    @abstractmethod
    def _run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement behind the ledger's back and return its rows."""

    def _read(self) -> list[Fields]:
        salted = [f"s.{name}" for name in _section_names()]
        query = (
            f"SELECT {', '.join([f'e.{name}' for name in COLUMNS] + salted)}, f.space, f.provenance "
            "FROM events e JOIN sealed s USING (seq) LEFT JOIN facts f USING (seq) ORDER BY seq"
        )
        names = (*COLUMNS, *_section_names(), "fact_space", "fact_provenance")
        rows = [dict(zip(names, row, strict=True)) for row in self._run(query)]
        for row in rows:
            row |= {f"{name}_salt": (row[f"{name}_salt"] or b"").hex() for name in SECTIONS}
        return rows

    def _put(self, place: int, fields: Fields) -> None:
        seq, ids = place + 1, (fields["event_id"], fields["tx_time"])
        self._run("DELETE FROM events WHERE seq = ? OR event_id = ? OR tx_time = ?", seq, *ids)
        self._run("DELETE FROM sealed WHERE seq = ?", seq)
        salts = {f"{name}_salt": bytes.fromhex(fields[f"{name}_salt"]) or None for name in SECTIONS}
        self._insert("events", {"seq": seq} | {name: fields[name] for name in COLUMNS})
        self._insert("sealed", {"seq": seq} | {name: fields[name] for name in SECTIONS} | salts)

    def _insert(self, table: str, row: Fields) -> None:
        marks = ", ".join("?" * len(row))
        self._run(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", *row.values())

    def delete_raw(self, seq: int) -> None:
        """Delete an event's rows."""
        for table in ("events", "sealed", "facts"):
            self._run(f"DELETE FROM {table} WHERE seq = ?", seq + 1)

    def read_meta(self, seq: int) -> Fields:
        """Return whose a fact is and how far it is believed."""
        fields = self._read()[seq]
        return {name: fields[f"fact_{name}"] for name in ("space", "provenance")}

    def write_meta(self, seq: int, meta: Fields) -> None:
        """Give a fact to somebody else and call it verified, in the row that questions are answered from."""
        self._run("UPDATE facts SET space = ?, provenance = 'verified' WHERE seq = ?", OTHERS, seq + 1)


class SqliteAdapter(SqlAdapter):
    """A SQLite ledger, and whoever else may write its file."""

    name = "custody-sync, SQLite, a head kept elsewhere"
    scheme = "sqlite"

    def _run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as conn:
            return conn.execute(statement, values).fetchall()


class PostgresAdapter(SqlAdapter):
    """A Postgres ledger in a database of its own, and whoever else may write its tables."""

    name = "custody-sync, Postgres, a head kept elsewhere"

    def setup(self) -> None:
        """Create a database, and a ledger in it."""
        self.server = os.environ["CUSTODY_SYNC_INTEGRITY_POSTGRES"]
        self.database = f"integrity_{uuid.uuid4().hex}"
        self._admin(f"CREATE DATABASE {self.database}")
        super().setup()

    def teardown(self) -> None:
        """Drop the databases."""
        for name in (self.database, f"{self.database}_copy"):
            self._admin(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        super().teardown()

    @property
    def url(self) -> str:
        """Where the ledger is."""
        return self.server.replace("/postgres?", f"/{self.database}?")

    def _admin(self, statement: str) -> None:
        import psycopg

        with psycopg.connect(self.server, autocommit=True) as conn:
            conn.execute(statement)

    def _run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as conn:
            conn.execute("SET search_path TO custody_sync")
            cursor = conn.execute(statement.replace("?", "%s"), values)
            return cursor.fetchall() if cursor.description else []

    def snapshot_store(self) -> object:
        """Copy the whole database."""
        self._admin(f"CREATE DATABASE {self.database}_copy TEMPLATE {self.database}")
        return f"{self.database}_copy"

    def restore_store(self, token: object) -> None:
        """Put the copy in the database's place."""
        self._admin(f"DROP DATABASE {self.database} WITH (FORCE)")
        self._admin(f"CREATE DATABASE {self.database} TEMPLATE {token}")


class JsonlAdapter(LedgerAdapter):
    """A JSONL ledger: a header and a line an event; metadata are changed in the line."""

    name = "custody-sync, JSONL, a head kept elsewhere"
    scheme = "jsonl"

    def _lines(self) -> list[str]:
        return self.path.read_text("utf-8").split("\n")[:-1]

    def _save(self, lines: list[str]) -> None:
        self.path.write_text("".join(f"{line}\n" for line in lines), "utf-8")

    def _read(self) -> list[Fields]:
        return [_fields(json.loads(line)) for line in self._lines()[1:]]

    def _put(self, place: int, fields: Fields) -> None:
        there = [name for name in SECTIONS if fields[name] is not None]
        sealed = {name: {"body": json.loads(fields[name]), "salt": fields[f"{name}_salt"]} for name in there}
        line = dump({"event": json.loads(fields["body"]), "hash": fields["hash"], "sealed": sealed})
        lines = self._lines()
        lines[place + 1 : place + 2] = [line]
        self._save(lines)

    def delete_raw(self, seq: int) -> None:
        """Remove a line."""
        lines = self._lines()
        del lines[seq + 1]
        self._save(lines)

    def read_meta(self, seq: int) -> Fields:
        """Return who stated a fact and how far it is believed."""
        body = json.loads(self._read()[seq]["body"])
        return {"actor": body["actor"], "provenance": body["data"]["provenance"]}

    def write_meta(self, seq: int, meta: Fields) -> None:
        """Say that somebody else stated a fact and that it was verified."""
        fields = self._read()[seq]
        body = json.loads(fields["body"])
        body["actor"], body["data"]["provenance"] = "auditor", "verified"
        self._put(seq, fields | {"body": dump(body)})


class WitnessedSqliteAdapter(SqliteAdapter):
    """A SQLite ledger whose owner kept nothing: its witness is asked."""

    name = "custody-sync, SQLite, its witness alone"
    keeps_head = False


class WitnessedPostgresAdapter(PostgresAdapter):
    """A Postgres ledger whose owner kept nothing: its witness is asked."""

    name = "custody-sync, Postgres, its witness alone"
    keeps_head = False


class WitnessedJsonlAdapter(JsonlAdapter):
    """A JSONL ledger whose owner kept nothing: its witness is asked."""

    name = "custody-sync, JSONL, its witness alone"
    keeps_head = False


async def _nothing(ledger: Ledger) -> None:
    return None


def _fact(space: str, value: str) -> Fact:
    return Fact(
        fact_id=str(uuid.uuid4()),
        space=space,
        subject=space,
        predicate="memory",
        value=value,
        text=value,
        actor="agent:test",
        provenance=Provenance.ATTESTED,
        valid_from=datetime.now(UTC),
    )


def _section_names() -> list[str]:
    return [name for section in SECTIONS for name in (section, f"{section}_salt")]


def _fields(row: Fields) -> Fields:
    event, sealed = row["event"], row["sealed"]
    fields: Fields = {"hash": row["hash"], "body": dump(event)} | dict.fromkeys(_section_names())
    for name, section in sealed.items():
        fields |= {name: dump(section["body"]), f"{name}_salt": section["salt"]}
    return fields


def _space(fields: Fields) -> str:
    return str(json.loads(fields["identity"])["space"])
