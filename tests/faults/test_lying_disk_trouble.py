"""A disk that is full, a ledger that is taken away, a permission that is lost, in the middle of each path.

The coordinator works over stores in memory and a real ledger on each storage. Whatever fails is one
error of ours; what was acknowledged stays; once the trouble is over everything can be done, and one
repair leaves the stores with exactly what is believed.
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from fix_custody import ACTOR, LATER, Desk

from custody_sync.coordinator import AsyncCoordinator
from custody_sync.errors import CustodyError, LedgerError
from custody_sync.faultpoints import FaultPoint
from custody_sync.ledger import Ledger
from custody_sync.testing import FaultPlan, ManualClock, MemoryStore, testing_runtime

STORAGES = ("sqlite", "jsonl", "postgres")
LAPSED = timedelta(minutes=6)
Call = Callable[[], Awaitable[Any]]


@asynccontextmanager
async def open_on(url: str, *, create: bool = True) -> AsyncIterator[Desk]:
    """Open a desk over a ledger on any storage."""
    clock, plan = ManualClock(), FaultPlan()
    runtime = testing_runtime(clock=clock, reach=plan)
    stores = [MemoryStore("memories", clock=clock), MemoryStore("agent", own_ids=True, clock=clock)]
    async with AsyncExitStack() as stack:
        ledger = await stack.enter_async_context(await Ledger.open(url, create=create, runtime=runtime))
        custody = await stack.enter_async_context(
            AsyncCoordinator(ledger, stores=stores, runtime=runtime, settle_tries=2)
        )
        by_name = {store.name: store for store in stores}
        yield Desk(Path("of no desk"), clock, plan, runtime, ledger, by_name, custody)


@dataclass
class Paths:
    """One call of each kind that writes to the ledger, on facts of its own."""

    desk: Desk
    ids: dict[str, str] = field(default_factory=dict)
    hold_id: str = "a lawsuit"

    @classmethod
    async def prepare(cls, desk: Desk) -> Paths:
        """Write what the calls work on."""
        paths = cls(desk)
        for name in ("supersede", "retract", "forget", "hold", "release"):
            paths.ids[name] = await desk.written(name, subject=f"s:{name}")
        paths.ids["confirm"] = await desk.written("claim", subject="s:confirm", provenance="claimed")
        await desk.custody.hold(paths.ids["release"], actor=ACTOR, hold_id=paths.hold_id)
        return paths

    def calls(self) -> dict[str, Call]:
        """Return the calls by name."""
        desk, ids = self.desk, self.ids
        return {
            "write": lambda: desk.write("x" * 3000, subject="s:write"),
            "write_keyed": lambda: desk.write("x" * 3000, subject="s:keyed", idempotency_key="k"),
            "supersede": lambda: desk.write("y" * 3000, subject="s:supersede", supersedes=ids["supersede"]),
            "claim": lambda: desk.write("x" * 3000, subject="s:claim", provenance="claimed"),
            "confirm": lambda: desk.confirm(ids["confirm"]),
            "retract": lambda: desk.retract(ids["retract"]),
            "forget": lambda: desk.forget(ids["forget"]),
            "hold": lambda: desk.custody.hold(ids["hold"], actor=ACTOR, reason="x" * 3000),
            "release": lambda: desk.custody.release(ids["release"], actor=ACTOR, hold_id=self.hold_id),
        }


async def attempt(call: Call) -> CustodyError | None:
    """Make a call; return the error of ours that it ended with."""
    try:
        await call()
    except CustodyError as error:
        return error
    return None


async def check_healed(desk: Desk) -> None:
    """Past the repair age one repair is complete, and the stores hold what is believed."""
    desk.clock.advance(LATER)
    result = await desk.repair(max_removals=1000)
    assert result.complete, result
    await desk.judge_clean()
    found = await desk.ledger.verify(witness=False)
    assert not found.found, found


# --- a full disk ------------------------------------------------------------------------------


@dataclass
class SmallDisk:
    """A file system of few megabytes, and a ledger's URL on it."""

    folder: Path
    url: str

    def fill(self) -> None:
        """Take all room that is left."""
        with (self.folder / "ballast").open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError:
                return

    def free(self) -> None:
        """Give the room back."""
        (self.folder / "ballast").unlink()


@contextmanager
def mounted(folder: Path, megabytes: int, owner: int | None = None) -> Iterator[Path]:
    """Mount a small file system."""
    folder.mkdir()
    mount = shutil.which("mount")
    options = f"size={megabytes}m" + ("" if owner is None else f",uid={owner},mode=700")
    told = [mount or "", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if mount is None or subprocess.run(told, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system is not allowed here; test_matrix fails full disks by name")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(params=STORAGES)
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallDisk]:
    """A small disk, with a place for a ledger of each storage on it."""
    if request.param != "postgres":
        with mounted(tmp_path / "disk", 2) as folder:
            yield SmallDisk(folder, f"{request.param}:///{folder / 'custody'}")
        return
    uri = str(request.getfixturevalue("postgres_uri"))
    if os.geteuid() != 0:
        pytest.skip("the server's user has to own the small file system, which root alone can see to")
    folder, name = Path("/tmp", f"custody-{uuid.uuid4().hex}"), f"small_{uuid.uuid4().hex}"
    with (
        psycopg.connect(uri, autocommit=True) as conn,
        mounted(folder, 16, pwd.getpwnam("nobody").pw_uid),
    ):
        conn.execute(f"create tablespace {name} location '{folder}'")
        try:
            conn.execute(f"create database {name} tablespace {name} strategy file_copy")
            yield SmallDisk(folder, uri.replace("/postgres?", f"/{name}?"))
        finally:
            (folder / "ballast").unlink(missing_ok=True)
            conn.execute(f"drop database if exists {name} with (force)")
            conn.execute(f"drop tablespace {name}")
    folder.rmdir()


@pytest.mark.timeout(300)
async def test_a_full_disk_refuses_each_path_by_name_and_loses_nothing(small: SmallDisk) -> None:
    """What was not recorded says so, and each path goes its way once there is room."""
    async with open_on(small.url) as desk:
        paths = await Paths.prepare(desk)
        small.fill()
        kept: list[str] = []
        error: CustodyError | None = None
        while error is None:
            assert len(kept) < 500, "the disk does not fill"
            fact_id = desk.runtime.ids.fact_id(desk.clock.now())
            error = await attempt(lambda n=fact_id: desk.write("x" * 3000, subject=f"s:{n}"))
            kept.append(fact_id)
        assert error.code == "ledger_full"
        failed = {}
        for name, call in paths.calls().items():
            error = await attempt(call)
            if error is not None:
                assert error.code == "ledger_full", (name, error.to_dict())
                failed[name] = call
        assert {"write", "supersede", "claim"} <= failed.keys()
        await desk.judge()
        small.free()
        for name, call in failed.items():
            assert await attempt(call) is None, name
        await check_healed(desk)
        assert len(await desk.current()) == len(kept) - 1 + 6


# --- a ledger that is taken away --------------------------------------------------------------


@dataclass
class Removable:
    """A ledger that can be taken away under whoever has it open, and put back."""

    url: str
    take: Callable[[], None]
    put: Callable[[], None]


@pytest.fixture(params=STORAGES)
def removable(request: pytest.FixtureRequest, tmp_path: Path) -> Removable:
    """A ledger of each storage: its files in a folder that is moved, or its schema."""
    if request.param != "postgres":
        here, there = tmp_path / "ledger", tmp_path / "elsewhere"
        here.mkdir()
        return Removable(
            f"{request.param}:///{here / 'custody'}",
            lambda: os.rename(here, there),
            lambda: os.rename(there, here),
        )
    url, uri = str(request.getfixturevalue("schema_url")), str(request.getfixturevalue("postgres_uri"))
    schema = url.rpartition("schema=")[2]

    def rename(old: str, new: str) -> None:
        with psycopg.connect(uri, autocommit=True) as conn:
            conn.execute(f"alter schema {old} rename to {new}")

    return Removable(url, lambda: rename(schema, f"{schema}_gone"), lambda: rename(f"{schema}_gone", schema))


STORES_FIRST = ("write", "write_keyed", "supersede", "confirm")


@pytest.mark.parametrize("point", [FaultPoint.VALIDATED, FaultPoint.STORED, FaultPoint.RECORDED])
async def test_a_ledger_that_is_taken_away_between_two_steps_is_missed(
    removable: Removable, point: FaultPoint
) -> None:
    """A write whose ledger went names what it left; a call after it does not go into the void."""
    async with open_on(removable.url) as desk:
        paths = await Paths.prepare(desk)
        for name in STORES_FIRST:
            call, before = paths.calls()[name], desk.held().keys()
            desk.call_next(point, removable.take)
            error = await attempt(call)
            if point is FaultPoint.RECORDED:
                # It is recorded: nothing raises any more, and what could not be finished is due.
                assert error is None, (name, error)
            else:
                assert isinstance(error, LedgerError), (name, error)
                named = {entry["store"] for entry in error.fields.get("entries", ())}
                named |= set(error.fields.get("left", ()))
                assert {store for store, _ in desk.held().keys() - before} <= named, (name, error)
            for other in ("retract", "forget", "hold"):
                assert isinstance(await attempt(paths.calls()[other]), LedgerError), other
            removable.put()
            await desk.judge(left=desk.stores)
            # What was reserved for a key and could not be given back lapses by itself.
            desk.clock.advance(LAPSED)
            if error is not None:
                assert await attempt(call) is None, name
        await check_healed(desk)


# --- a permission that is lost ----------------------------------------------------------------


@pytest.fixture
def role(postgres_uri: str, schema_url: str) -> Iterator[tuple[str, str]]:
    """A role that may do no more than it was given, and its URL of a ledger's schema."""
    name = f"clerk_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_uri, autocommit=True) as conn:
        conn.execute(f"create role {name} login")
        conn.execute(f"grant create on database postgres to {name}")
        yield name, schema_url.replace("postgres@", f"{name}@")
        conn.execute(f"drop owned by {name} cascade")
        conn.execute(f"drop role {name}")


async def test_a_server_that_takes_back_a_permission_is_named(
    role: tuple[str, str], postgres_uri: str
) -> None:
    """Each path is refused by name, reading goes on, and with the permission back all of it works."""
    name, url = role
    schema = url.rpartition("schema=")[2]
    tables = f"all tables in schema {schema}"
    async with open_on(url) as desk:
        paths = await Paths.prepare(desk)
        with psycopg.connect(postgres_uri, autocommit=True) as conn:
            conn.execute(f"revoke insert, update, delete on {tables} from {name}")
            for what, call in paths.calls().items():
                error = await attempt(call)
                assert error is not None, what
                assert error.code in ("ledger_read_only", "ledger_unavailable"), (what, error)
            await desk.judge(left=desk.stores)
            conn.execute(f"grant insert, update, delete on {tables} to {name}")
        for what, call in paths.calls().items():
            assert await attempt(call) is None, what
        await check_healed(desk)


@pytest.mark.parametrize("engine", ["sqlite", "jsonl"])
def test_a_file_whose_permissions_go_under_an_unprivileged_process_loses_nothing(engine: str) -> None:
    """Every path is acknowledged or refused by name; with the permissions back the log is whole."""
    child = Path(__file__).with_name("closed_child.py")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o777)
        url = f"{engine}:///{folder / 'ledger' / 'custody'}"
        told = [sys.executable, str(child), url]
        done = subprocess.run(told, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert asyncio.run(is_whole(url))
    said = json.loads(done.stdout)
    allowed = {"", "ledger_error", "ledger_read_only", "ledger_unavailable"}
    assert set(said["closed"].values()) <= allowed, said
    assert said["new"] == "ledger_read_only", "a process that opens it now may not write"
    if engine == "jsonl":
        assert said["closed"]["forget"], "a rewrite needs the folder"
    assert set(said["open"].values()) == {""}, said
    assert said["healed"] is True, said


async def is_whole(url: str) -> bool:
    """Tell whether a ledger verifies."""
    async with await Ledger.open(url, read_only=True, witness=False) as ledger:
        return not (await ledger.verify()).found
