"""An oracle that knows none of the project's code: it reads both sides' tables with plain SQL.

What is believed is worked out again from the ledger's log alone, then held against the ledger's
derived tables and against every row of the stores.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from fix_books import Book, SqliteBook

AGENT, MEMORIES = "agent", "memories"
Key = tuple[str, str]

_HELD = {
    AGENT: "select key, value->>'fact_id', value->>'ledger_id' from store",
    MEMORIES: "select key, fact_id, ledger_id from memories",
}
_ROWS = {
    AGENT: "select s::text from store s where value->>'ledger_id' is distinct from %s order by 1",
    MEMORIES: "select m::text from memories m where ledger_id is distinct from %s order by 1",
}
_SAYS = {
    AGENT: "select count(*) from store where strpos(store::text, %s) > 0",
    MEMORIES: "select count(*) from memories where strpos(memories::text, %s) > 0",
}
_LEFT_OVER_VECTORS = """
    select count(*) from store_vectors v
    where not exists (select 1 from store s where s.prefix = v.prefix and s.key = v.key)
"""


@dataclass(frozen=True)
class Logged:
    """One event as it stands in the log, with the sections that nothing has erased."""

    seq: int
    kind: str
    fact_id: str
    data: Mapping[str, Any]
    sealed: Mapping[str, Mapping[str, Any]]


@dataclass
class Told:
    """What the log says, fact by fact."""

    asserted: dict[str, Logged] = field(default_factory=dict)
    effective: set[str] = field(default_factory=set)
    retracted: set[str] = field(default_factory=set)
    forgotten: set[str] = field(default_factory=set)
    repaired: set[str] = field(default_factory=set)
    placed: dict[Key, str] = field(default_factory=dict)
    removed: dict[Key, str] = field(default_factory=dict)
    """The last outcome said of a removal."""

    def take(self, event: Logged) -> None:
        """Go one event further."""
        if event.kind == "assert":
            self.asserted[event.fact_id] = event
            if event.data["provenance"] != "claimed":
                self.effective.add(event.fact_id)
        elif event.kind == "confirm":
            self.effective.add(event.fact_id)
        elif event.kind == "retract":
            self.retracted.add(event.fact_id)
        elif event.kind == "forget":
            self.forgotten.add(event.fact_id)
        elif event.kind == "repair":
            self.repaired.add(event.fact_id)
        refs = event.sealed.get("refs", {})
        for placement in refs.get("placements", ()):
            self.placed[placement["store"], placement["external_id"]] = event.fact_id
        if event.kind == "remove" and "external_id" in refs:
            self.removed[event.data["store"], refs["external_id"]] = event.data["outcome"]

    def believed(self, now: str) -> set[str]:
        """Return what is believed at an instant, by L4: a later link covers unless it was retracted."""
        covering = [
            fact_id
            for fact_id in self.effective - self.retracted
            if self.asserted[fact_id].data["valid_from"] <= now
        ]
        covered: set[str] = set()
        for fact_id in covering:
            below = self.asserted[fact_id].data["supersedes"]
            while below is not None:
                covered.add(below)
                below = self.asserted[below].data["supersedes"]
        return {
            fact_id
            for fact_id in self.effective - self.retracted - self.forgotten - covered
            if self.asserted[fact_id].data["valid_from"] <= now
            and (self.asserted[fact_id].data["valid_to"] or "9") > now
        }

    def root(self, fact_id: str) -> str:
        """Return the first link of a fact's chain."""
        while (below := self.asserted[fact_id].data["supersedes"]) is not None:
            fact_id = below
        return fact_id


def read_log(book: Book | Path) -> list[Logged]:
    """Return the log, each hash, link and commitment checked on the way; a folder is a SQLite ledger's."""
    if isinstance(book, Path):
        book = SqliteBook(book)
    events, prev = [], "0" * 64
    rows = book.rows()
    for row in rows:
        said, seq = json.loads(row.body), row.seq
        assert hashlib.sha256(row.body.encode()).hexdigest() == row.digest, (
            f"event {seq} does not match its hash"
        )
        assert (said["prev"], said["seq"]) == (prev, seq), f"event {seq} is not linked to the one before"
        prev, sealed = row.digest, {}
        for name, (text, salt) in row.sealed.items():
            assert (text is None) == (salt is None), f"event {seq}: {name} went without its salt"
            if text is not None and salt is not None:
                sealed[name] = json.loads(text)
                commitment = hashlib.sha256(salt + text.encode()).hexdigest()
                assert commitment == said["sealed"][name], f"event {seq}: {name} was altered"
        events.append(Logged(seq, said["kind"], said["fact_id"], said["data"], sealed))
    head = book.head()
    assert head in (None, (len(rows), prev, len(rows))), "the head is not the last event"
    return events


@dataclass(frozen=True)
class Oracle:
    """Judges one ledger folder and the two stores of one search path.

    Args:
        folder: everything the ledger owns; its file is called `custody.db`.
        stores: a connection with the stores' search path, in autocommit mode.
        book: the ledger, where it is another one than the SQLite file of the folder.
    """

    folder: Path
    stores: psycopg.Connection[Any]
    book: Book | None = None

    @property
    def ledger(self) -> Book:
        """Where the ledger is."""
        return self.book or SqliteBook(self.folder)

    # --- what there is ----------------------------------------------------------------------

    def told(self) -> Told:
        """Return what the log says."""
        told = Told()
        for event in read_log(self.ledger):
            told.take(event)
        return told

    def ledger_id(self) -> str:
        """Return the id that stands in the labels."""
        return self.ledger.ledger_id()

    def held(self) -> dict[Key, str | None]:
        """Return every row of either store that carries this ledger's label: its key, and whose it is."""
        mine = self.ledger_id()
        return {
            (store, key): fact_id
            for store, query in _HELD.items()
            for key, fact_id, ledger_id in self.stores.execute(query)
            if ledger_id == mine
        }

    def strangers(self) -> dict[str, list[str]]:
        """Return every row, to the last column, that is not this ledger's."""
        mine = self.ledger_id()
        return {
            store: [row for (row,) in self.stores.execute(query, (mine,))] for store, query in _ROWS.items()
        }

    def says(self, needle: str) -> list[str]:
        """Return where a text stands: the ledger's files by name, the stores by theirs."""
        found = self.ledger.says(needle)
        for store, query in _SAYS.items():
            row = self.stores.execute(query, (needle,)).fetchone()
            if row is not None and row[0]:
                found.append(store)
        return found

    def files(self) -> list[Path]:
        """Return every file of the ledger's folder."""
        return self.ledger.files

    # --- what has to hold -------------------------------------------------------------------

    def judge(self, now: datetime, *, kept: Iterable[str] = ()) -> set[str]:
        """Check I1, I2 and I4 after a repair, and return the ids of the facts believed.

        Args:
            now: the repair's clock.
            kept: facts whose write was acknowledged; a claimed one waits in the ledger alone.
        """
        told, instant = self.told(), _instant(now)
        believed = told.believed(instant)
        expected = {
            key: fact_id
            for key, fact_id in told.placed.items()
            if fact_id in believed and key not in told.removed
        }
        held = self.held()
        assert held == expected, (
            f"held and not placed: {held.items() - expected.items()}; "
            f"placed and not held: {expected.items() - held.items()}"
        )
        for fact_id in believed:
            stores = sorted(store for (store, _), held in expected.items() if held == fact_id)
            assert stores == [AGENT, MEMORIES], f"{fact_id} is believed and held by {stores}"
        assert not believed & told.repaired, "a repaired id is believed"
        assert not told.asserted.keys() & told.repaired, "one id is asserted and repaired"
        roots = [told.root(fact_id) for fact_id in believed]
        assert len(roots) == len(set(roots)), "two links of a chain are believed"
        assert set(told.removed.values()) <= {"verified"}, "a removal is not finished"
        self._check_tables(told, believed, expected, instant)
        for fact_id in kept:
            waits = fact_id in told.asserted and fact_id not in told.effective
            ended = fact_id in told.retracted | told.forgotten or self._is_covered(told, fact_id)
            assert fact_id in believed or waits or ended, f"the acknowledged {fact_id} is lost"
        (vectors,) = self.stores.execute(_LEFT_OVER_VECTORS).fetchone() or (0,)
        assert vectors == 0, "a vector was left behind"
        return believed

    def _is_covered(self, told: Told, fact_id: str) -> bool:
        return any(
            event.data["supersedes"] == fact_id and later in told.effective
            for later, event in told.asserted.items()
        )

    def _check_tables(self, told: Told, believed: set[str], expected: dict[Key, str], now: str) -> None:
        """Hold the ledger's derived tables against its log, where they are in a file."""
        lasting = {"reservation", "notebook", "notebook use", "notebook used"}
        lasting |= {"place", "sweep-last", "reconcile-last"}
        topics = self.ledger.topics()
        assert topics <= lasting, f"a note is left: {sorted(topics - lasting)}"
        live = self.ledger.ask(
            "select fact_id from facts where effect_seq is not null and retract_seq is null "
            f"and forget_seq is null and valid_from <= '{now}' and coalesce(valid_to, '9') > '{now}' "
            f"and coalesce(covered_from, '9') > '{now}'"
        )
        if live is None:
            return
        assert {fact_id for (fact_id,) in live} == believed, "the facts table believes something else"
        claims = dict(self._rows("select fact_id, standing from claims"))
        said = dict.fromkeys(told.asserted, "asserted") | dict.fromkeys(told.repaired, "repaired")
        assert claims == said, "the claims table says something else"
        states: dict[str, dict[Key, str]] = {}
        for store, key, fact_id, state in self._rows(
            "select store, external_id, fact_id, state from placements"
        ):
            states.setdefault(state, {})[store, key] = fact_id
        assert states.pop("held", {}) == expected, "the placements table holds something else"
        assert set(states) <= {"gone"}, f"placements are left {sorted(states)}"
        assert self._rows(f"select fact_id, store from owed where due_at <= '{now}'") == [], (
            "something is owed"
        )

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.ledger.ask(query) or []


def _instant(now: datetime) -> str:
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
