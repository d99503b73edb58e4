"""After a forget: what is made from then on, files, notes and figures, has nothing of what was erased."""

from __future__ import annotations

import io
import json
import logging
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from fix_ledger import ACTOR, Book, files_of
from fix_residue import Disk, PostgresDisk, left_in, random_value

from custody_sync import AsyncCoordinator
from custody_sync.ledger.exporting import export_file, export_lines
from custody_sync.ledger.storage import NOTEBOOK
from custody_sync.model import Erasure
from custody_sync.repair import plan
from custody_sync.signals.metrics import render
from custody_sync.testing import MemoryStore, testing_runtime

TOPICS = (
    "backoff", "erasure", "lease", "place", "reconcile-last", "reconcile-otherwise", "reconcile-pile",
    "reservation", "sweep-last", "sweep-run", "sweep-seen", "sweep-spool", "verify", *NOTEBOOK,
)  # fmt: skip
"""Under which notes stand beside the log."""


class Office:
    """A ledger with two stores, of which one does not delete, and everything that one fact says."""

    def __init__(self, book: Book, custody: AsyncCoordinator, folder: Path) -> None:
        self.book, self.custody, self.folder = book, custody, folder
        rnd = random.Random()
        # Not seeded: a database may hold what another test wrote.
        self.value, self.text, self.space, self.subject, self.reason = (
            random_value(rnd, 40) for _ in range(5)
        )
        self.fact_id = ""

    async def write(self) -> None:
        """Write the fact, so that the store that does not delete has it."""
        named = {"subject": self.subject, "predicate": "plan", "space": self.space, "actor": ACTOR}
        wrote = await self.custody.write(value=self.value, text=self.text, **named)
        self.fact_id = wrote.fact.fact_id

    async def made(self) -> dict[str, bytes]:
        """Make everything that can be made of a ledger, and return it by name."""
        custody, ledger = self.custody, self.book.ledger
        drawn = self.folder / "plan.jsonl"
        drawn.unlink(missing_ok=True)
        file = io.BytesIO()
        await export_file(ledger, file)
        found: dict[str, Any] = {
            "export": b"".join([line async for line in export_lines(ledger)]),
            "export file": file.getvalue(),
            "plan": repr(await custody.repair(actor=ACTOR, reason="look", plan=drawn)),
            "reconciliation": repr(await custody.reconcile(actor=ACTOR)),
            "verification": repr(await custody.verify(actor=ACTOR)),
            "status": repr(status := await custody.status()),
            "metrics": render(status),
            "notes": repr([await ledger.notes(topic) for topic in TOPICS]),
        }
        where = {"space": self.space, "subject": self.subject}
        certificate = await custody.forget_where(**where, actor=ACTOR, identity=True)
        # It names what it was asked about.
        found["certificate"] = repr(replace(certificate, space="", subject=""))
        found["plan file"] = drawn.read_bytes()
        assert plan.check_plan(drawn, ledger) >= 0
        return {name: said if isinstance(said, bytes) else said.encode() for name, said in found.items()}


@pytest.mark.parametrize("identity", [False, True], ids=["content", "identity"])
async def test_nothing_made_after_a_forget_has_what_was_erased(
    book: Book, disk: Disk, tmp_path: Path, caplog: pytest.LogCaptureFixture, identity: bool
) -> None:
    """Exports, plans, certificates, verifications, figures, notes and lines of the log, on each storage."""
    caplog.set_level(logging.DEBUG)
    stuck = MemoryStore("agent", clock=book.clock)
    stores = [MemoryStore("memories", clock=book.clock), stuck]
    async with AsyncCoordinator(
        book.ledger, stores=stores, runtime=testing_runtime(clock=book.clock)
    ) as custody:
        office = Office(book, custody, tmp_path)
        await office.write()
        before = {"export": b"".join([line async for line in export_lines(book.ledger)])}
        goes = [office.value, office.text, *([office.space, office.subject] if identity else [])]
        assert left_in(before, goes) == set(goes), "the search finds what is there"
        stuck.faults.refuse("delete", RuntimeError(office.value))
        forgotten = await custody.forget(office.fact_id, actor=ACTOR, reason=office.reason, identity=identity)
        assert not forgotten.complete
        assert forgotten.erasure is Erasure.DONE
        made = await office.made()
        assert b'"owed": true' in made["plan file"], "the plan says nothing"
        made |= {"forget": repr(forgotten).encode(), "log": caplog.text.encode(), **disk.files()}
        made["records"] = repr([vars(record) for record in caplog.records]).encode()
        found = {name for name, said in made.items() if left_in({name: said}, goes)}
    assert found == set()


@pytest.mark.storages("postgres")
async def test_what_postgres_keeps_in_its_log_is_said(book: Book, disk: Disk) -> None:
    """Its write-ahead log cannot be erased from here and does have the value; the result says so."""
    assert isinstance(disk, PostgresDisk)
    value = random_value(random.Random(), 60)
    fact_id = await book.add(value=value)
    await book.append(book.forget(fact_id))
    assert await book.ledger.erase() is Erasure.DONE
    assert left_in(disk.files(), [value]) == set()
    with psycopg.connect(disk.server) as conn:
        (where,) = conn.execute("SELECT current_setting('data_directory')").fetchone() or ("",)
    assert any(value.encode() in part for part in files_of(Path(where, "pg_wal")).values())
    assert "write-ahead log" in json.dumps(book.ledger.remains)
