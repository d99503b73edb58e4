"""Five ways in which LangChain's indexing and its store part, and the same five through custody-sync.

Both sides work on one Postgres and in one table, LangChain's own `langchain_pg_embedding`: theirs
through `langchain_postgres.PGVector` and `SQLRecordManager`, ours through `PgVectorStore` mapped onto
the table and a Postgres ledger. A fault is made in the database, with the same statement for both.
Afterwards each side does what its user can do about it, and plain SQL counts the rows that are wrong.

LangChain's packages pin another pgvector than ours, so they live in a virtual environment of their
own, which the first run makes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from _bench import Bound, conclude  # noqa: E402 (the folder above is not on the path of this script)
from _worker import Worker  # noqa: E402

from custody_sync.testing.postgres import EmbeddedPostgres  # noqa: E402

VENV = HERE / ".venv-langchain"
PACKAGES = ("langchain-classic>=1.0", "langchain-core>=1.0", "langchain-postgres>=0.0.15", "psycopg[binary]")
TABLE = "langchain_pg_embedding"
EMBEDDING_SECONDS = 0.3
FIRST = "first"
SECOND = "second"

_TABLES = """
create extension if not exists vector;
create or replace function cut_off() returns trigger language plpgsql as
    $$ begin perform pg_terminate_backend(pg_backend_pid()); perform pg_sleep(5); return null; end $$;
create or replace function do_nothing() returns trigger language plpgsql as $$ begin return null; end $$;
create or replace function wait_a_while() returns trigger language plpgsql as
    $$ begin
        if current_setting('application_name') = 'second' then perform pg_sleep(2); end if;
        return null;
    end $$;
"""

_SLEEPS = """
select query_start from pg_stat_activity where application_name = 'second' and wait_event = 'PgSleep'
"""


# --- the two sides ----------------------------------------------------------------------------


@dataclass
class Side:
    """LangChain or custody-sync: its processes, and what differs in talking to them.

    Args:
        command: interpreter and script.
        uri: the database.
        is_ours: which of the two it is.
    """

    command: Sequence[str]
    uri: str
    is_ours: bool
    workers: list[Worker] = field(default_factory=list)

    def worker(self, number: int) -> Worker:
        """Return a process, started when it is first needed; the second is called second."""
        while len(self.workers) <= number:
            name = SECOND if len(self.workers) == 1 else FIRST
            self.workers.append(Worker(self.command, self.uri, name, EMBEDDING_SECONDS))
        return self.workers[number]

    def start(self, place: Place, source: str, texts: Sequence[str], number: int = 0, **more: Any) -> Worker:
        """Have a process index what a source says, and clean up after it."""
        if self.is_ours:
            told = {"do": "index", "collection": place.collection, "cleanup": more.pop("cleanup", True)}
        else:
            told = {"cleanup": "full" if more.pop("cleanup", True) else None, "batch": more.pop("batch", 100)}
        worker = self.worker(number)
        worker.tell(place=place.name, source=source, texts=list(texts), **told)
        return worker

    def index(self, *what: Any, **more: Any) -> dict[str, Any]:
        """The same, and wait for the answer."""
        return self.start(*what, **more).hear()

    def ask(self, verb: str, place: Place) -> Any:
        """Have the first process do one thing that only ours has."""
        self.worker(0).tell(do=verb, place=place.name, collection=place.collection)
        return self.worker(0).hear()["said"]

    def place(self, store: Store, name: str) -> Place:
        """Make a collection and the records of its name, both empty."""
        if self.is_ours:
            place = Place(name, store.collection(name), is_ours=True)
            self.index(place, "shop", [])
            return place
        self.index(Place(name, "", is_ours=False), "shop", [])
        return Place(name, store.collection(name), is_ours=False)

    def close(self) -> None:
        """Let the processes end."""
        for worker in self.workers:
            worker.close()


@dataclass(frozen=True)
class Place:
    """Where one side's rows of one hole lie: a collection of the table, and the records of that name."""

    name: str
    collection: str
    is_ours: bool


@dataclass
class Told:
    """What one side came to in one hole."""

    during: str
    """Entries, records, and what was reported while the fault was there."""
    after: str
    wrong: int
    """Rows that should not be there and rows that are missing; for embeddings those made for nothing."""


# --- the store, past both sides -----------------------------------------------------------------


class Store:
    """The database, by plain SQL.

    Args:
        uri: its address.
    """

    def __init__(self, uri: str) -> None:
        self._conn = psycopg.connect(uri, autocommit=True)
        self._conn.execute(_TABLES)

    def close(self) -> None:
        """Let go of the connection."""
        self._conn.close()

    def ask(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Ask the database."""
        return self._conn.execute(query.encode(), parameters).fetchall()

    def collection(self, name: str) -> str:
        """Return the id of a collection, which is made if it is not there."""
        made = "insert into langchain_pg_collection (uuid, name) select %s, %s where not exists "
        made += "(select from langchain_pg_collection where name = %s)"
        self._conn.execute(made.encode(), (uuid.uuid4(), name, name))
        return str(self.ask("select uuid from langchain_pg_collection where name = %s", name)[0][0])

    def documents(self, place: Place) -> list[str]:
        """Return every text that lies in a collection, as often as it lies there."""
        query = f"select document from {TABLE} where collection_id = %s"
        return [text for (text,) in self.ask(query, place.collection)]

    def wrong(self, place: Place, wanted: Sequence[str]) -> int:
        """Count the rows that are too many and the texts that are missing."""
        held = self.documents(place)
        return len(held) - len(set(held)) + len(set(held) ^ set(wanted))

    def records(self, place: Place) -> int:
        """Count what the side's own record believes to be in the store."""
        if not place.is_ours:
            return int(
                self.ask("select count(*) from upsertion_record where namespace = %s", place.name)[0][0]
            )
        facts = sql.Identifier(place.name, "facts").as_string(self._conn)
        return int(self.ask(f"select count(*) from {facts} where live")[0][0])

    def counts(self, place: Place) -> str:
        """Show entries and records."""
        return f"{len(self.documents(place))} entries, {self.records(place)} records"

    def empty(self) -> None:
        """Lose every vector, of both sides."""
        self._conn.execute(f"truncate {TABLE}")

    @contextmanager
    def fault(
        self, place: Place, *, on: str, event: str, does: str, each: str = "statement"
    ) -> Iterator[None]:
        """Make a table's statements fail, do nothing or take long while the block runs."""
        table = sql.Identifier(*self._table(place, on))
        made = "create trigger fault before {} on {} for each {} execute function public.{}()"
        self._conn.execute(sql.SQL(made).format(sql.SQL(event), table, sql.SQL(each), sql.Identifier(does)))
        try:
            yield
        finally:
            self._conn.execute(sql.SQL("drop trigger fault on {}").format(table))

    def _table(self, place: Place, on: str) -> tuple[str, ...]:
        if on == "vectors":
            return (TABLE,)
        return (place.name, "events") if place.is_ours else ("upsertion_record",)

    def wait_for_sleep(self, times: int) -> None:
        """Wait until the second process has begun to wait so many times."""
        seen = set[tuple[Any, ...]]()
        while len(seen) < times:
            seen |= set(self.ask(_SLEEPS))


# --- the five -------------------------------------------------------------------------------------


def texts(place: Place, word: str, count: int) -> list[str]:
    """Return sentences that no other source says, nor any other place: LangChain's ids follow from them."""
    return [f"{place.name} {word}: item {number} is on the shelf" for number in range(count)]


def mended(side: Side, place: Place, *steps: str) -> str:
    """Have an operator of ours do what the guide says, and show what came of it."""
    if not side.is_ours:
        return ""
    return "".join(f"; {step}: {shown(side.ask(step, place))}" for step in steps)


def shown(said: Mapping[str, Any]) -> str:
    """Show a side's own words, leaving out what is zero."""
    return ", ".join(f"{key} {value}" for key, value in said.items() if value not in (0, {})) or "nothing"


def record_lost(store: Store, side: Side, place: Place) -> Told:
    """The record's connection is cut after the store took the write; then the source changes."""
    with store.fault(place, on="records", event="insert", does="cut_off"):
        said = side.index(place, "shop", texts(place, "old", 10))["said"]
    during = f"{store.counts(place)}; said: {shown(said)}"
    said = side.index(place, "shop", texts(place, "new", 10))["said"]
    after = f"said: {shown(said)}{mended(side, place, 'repair', 'verify')}"
    return Told(during, f"{store.counts(place)}; {after}", store.wrong(place, texts(place, "new", 10)))


def nothing_deleted(store: Store, side: Side, place: Place) -> Told:
    """A delete is acknowledged and deletes nothing, as behind a rule, a trigger or a lagging replica."""
    side.index(place, "shop", texts(place, "old", 10))
    with store.fault(place, on="vectors", event="delete", does="do_nothing", each="row"):
        said = side.index(place, "shop", texts(place, "new", 10))["said"]
    during = f"{store.counts(place)}; said: {shown(said)}"
    said = side.index(place, "shop", texts(place, "new", 10))["said"]
    after = f"said: {shown(said)}{mended(side, place, 'repair', 'verify')}"
    return Told(during, f"{store.counts(place)}; {after}", store.wrong(place, texts(place, "new", 10)))


def store_emptied(store: Store, side: Side, place: Place) -> Told:
    """The store lost everything; the source is indexed again."""
    side.index(place, "shop", texts(place, "old", 10))
    store.empty()
    during = store.counts(place)
    said = side.index(place, "shop", texts(place, "old", 10))["said"]
    after = f"said: {shown(said)}{mended(side, place, 'reconcile', 'repair')}"
    return Told(during, f"{store.counts(place)}; {after}", store.wrong(place, texts(place, "old", 10)))


def two_cleanups(store: Store, side: Side, place: Place) -> Told:
    """Two writers index 200 texts each again and clean up; the record of the second is slow."""
    mine, yours = texts(place, "mine", 200), texts(place, "yours", 200)
    side.index(place, "one", mine, cleanup=False)
    side.index(place, "two", yours, 1, cleanup=False)
    with store.fault(place, on="records", event="insert", does="wait_a_while"):
        second = side.start(place, "two", yours, 1, batch=50)
        if not side.is_ours:
            store.wait_for_sleep(
                2
            )  # its second batch was found to be on record, and is about to be noted again
        said = [side.index(place, "one", mine)["said"], second.hear()["said"]]
    during = f"{store.counts(place)}; said: {' / '.join(map(shown, said))}"
    said = [side.index(place, "one", mine, cleanup=False)["said"]]
    said += [side.index(place, "two", yours, 1, cleanup=False)["said"]]
    after = f"said: {' / '.join(map(shown, said))}{mended(side, place, 'repair')}"
    return Told(during, f"{store.counts(place)}; {after}", store.wrong(place, [*mine, *yours]))


def all_at_once(store: Store, side: Side, place: Place) -> Told:
    """Four writers index the same 100 texts at the same time."""
    same = texts(place, "same", 100)
    for number in range(4):
        side.worker(number)
    workers = [side.start(place, "shop", same, number, cleanup=False) for number in range(4)]
    answers = [worker.hear() for worker in workers]
    embedded = sum(answer["embedded"] for answer in answers)
    during = f"{store.counts(place)}; said: {' / '.join(shown(answer['said']) for answer in answers)}"
    wrong = embedded - len(same) + store.wrong(place, same)
    return Told(during, f"{store.counts(place)}; {embedded} embeddings", wrong)


HOLES = {
    "record lost after the store's write": record_lost,
    "a delete that does nothing": nothing_deleted,
    "the store emptied": store_emptied,
    "two writers clean up": two_cleanups,
    "four index the same": all_at_once,
}
BOUND: Bound = {
    **{f"theirs wrong {number}": {"least": 1} for number in range(1, len(HOLES) + 1)},
    **{f"ours wrong {number}": {"most": 0} for number in range(1, len(HOLES) + 1)},
}


# --- running --------------------------------------------------------------------------------------


def interpreter(venv: Path, *, upgrade: bool) -> Path:
    """Return the interpreter of the peer's environment, which is made if it is not there."""
    python = venv / "bin" / "python"
    if upgrade or not python.exists():
        print(f"making {venv} with {', '.join(PACKAGES)}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        quiet = ("--quiet", "--disable-pip-version-check", "--upgrade")
        subprocess.run([str(python), "-m", "pip", "install", *quiet, *PACKAGES], check=True)
    return python


def run(python: Path) -> int:
    """Show the five, side by side."""
    figures: dict[str, float | None] = {}
    with EmbeddedPostgres(max_connections=200) as uri, ExitStack() as ends:
        store = Store(uri)
        ends.callback(store.close)
        theirs = Side([str(python), str(HERE / "_langchain_side.py")], uri, is_ours=False)
        ours = Side([sys.executable, str(HERE / "_custody_side.py")], uri, is_ours=True)
        for side in (theirs, ours):
            ends.callback(side.close)
        versions = theirs.worker(0).versions
        print("theirs:", ", ".join(f"{name} {number}" for name, number in versions.items()))
        for number, (title, hole) in enumerate(HOLES.items(), 1):
            print(f"\n{number}. {title}: {hole.__doc__}")
            for name, side in (("theirs", theirs), ("ours", ours)):
                told = hole(store, side, side.place(store, f"hole_{number}_{name}"))
                figures[f"{name} wrong {number}"] = told.wrong
                print(f"   {name:7}with the fault: {told.during}\n   {'':7}in the end:     {told.after}")
                print(f"   {'':7}wrong:          {told.wrong}", flush=True)
    return judge(figures, versions)


def judge(figures: Mapping[str, float | None], versions: Mapping[str, str]) -> int:
    """Say which holes are there, and which this LangChain has not."""
    for number, title in enumerate(HOLES, 1):
        if not figures[f"theirs wrong {number}"]:
            said = ", ".join(f"{name} {version}" for name, version in versions.items())
            print(f"\n{said}: no longer shows hole {number}, {title}; the page that says so is out of date")
    return conclude("langchain_holes", figures, BOUND, enforced=True)


def main() -> int:
    """Read the arguments, make the peer's environment and show the five."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--venv", type=Path, default=VENV, help="the peer's virtual environment")
    parser.add_argument("--upgrade", action="store_true", help="take the newest LangChain")
    told = parser.parse_args()
    return run(interpreter(told.venv.absolute(), upgrade=told.upgrade))


if __name__ == "__main__":
    sys.exit(main())
