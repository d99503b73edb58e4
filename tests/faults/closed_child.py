"""An unprivileged process whose ledger is closed to it while it works; it says how each path ended."""

from __future__ import annotations

import json
import os
import pwd
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from unhurried import run

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.errors import CustodyError
from custody_sync.ledger import jsonl, sqlite
from custody_sync.testing import ManualClock, MemoryStore, testing_runtime

LOADED = (jsonl, sqlite)
"""Imported while it may be: an unprivileged process cannot enter every folder."""
ACTOR = "agent:clerk"


def drop_privileges(folder: Path) -> None:
    """Become `nobody` where this is root, who may write whatever the modes say; the ledger goes along."""
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        for path in (folder, *folder.iterdir()):
            os.chown(path, nobody.pw_uid, nobody.pw_gid)
        os.setgroups([])
        os.setgid(nobody.pw_gid)
        os.setuid(nobody.pw_uid)


def set_modes(folder: Path, files: int, own: int) -> None:
    """Set the modes of a folder and of what is in it."""
    folder.chmod(0o700)
    for path in folder.iterdir():
        path.chmod(files)
    folder.chmod(own)


async def attempt(call: Callable[[], Awaitable[Any]]) -> str:
    """Make a call; return the code of what it ended with, or nothing."""
    try:
        await call()
    except CustodyError as error:
        return error.code
    return ""


async def open_and_write(url: str) -> str:
    """Open the ledger anew and write; return the code of what that ended with."""

    async def write() -> None:
        async with await Ledger.open(url) as ledger, AsyncCoordinator(ledger) as custody:
            await custody.write(value="v", space="org", actor=ACTOR)

    return await attempt(write)


async def make(url: str) -> None:
    """Make the ledger, and do once what is done later: an unprivileged process may not read every library."""
    async with (
        await Ledger.open(url, create=True) as ledger,
        AsyncCoordinator(ledger, stores=[MemoryStore("memories")]) as custody,
    ):
        fact_id = (await custody.write(value="before", space="org", actor=ACTOR)).fact.fact_id
        await custody.hold(fact_id, actor=ACTOR, hold_id="h")
        await custody.release(fact_id, actor=ACTOR, hold_id="h")
        await custody.retract(fact_id, actor=ACTOR, reason="a mistake")
        await custody.forget(fact_id, actor=ACTOR, reason="asked to", identity=True)
        await custody.repair(actor=ACTOR, reason="before")


async def work(url: str) -> dict[str, Any]:
    """Write, lose the permissions, try each path, get them back, and try again."""
    folder = Path(url.partition(":///")[2]).parent
    clock = ManualClock()
    clock.set(datetime.now(UTC))
    store, runtime = MemoryStore("memories", clock=clock), testing_runtime(clock=clock)
    async with (
        await Ledger.open(url, runtime=runtime) as ledger,
        AsyncCoordinator(ledger, stores=[store], runtime=runtime) as custody,
    ):
        told: dict[str, Any] = {"space": "org", "actor": ACTOR}
        ids = [(await custody.write(value=f"value {n}", **told)).fact.fact_id for n in range(3)]
        calls: dict[str, Callable[[], Awaitable[Any]]] = {
            "write": lambda: custody.write(value="new", **told),
            "retract": lambda: custody.retract(ids[0], actor=ACTOR, reason="a mistake"),
            "forget": lambda: custody.forget(ids[1], actor=ACTOR, reason="asked to", identity=True),
            "hold": lambda: custody.hold(ids[2], actor=ACTOR),
        }
        set_modes(folder, 0o444, 0o555)
        closed = {name: await attempt(call) for name, call in calls.items()}
        new = await open_and_write(url)
        set_modes(folder, 0o600, 0o700)
        opened = {name: await attempt(call) for name, call in calls.items() if closed[name]}
        opened["write again"] = await attempt(lambda: custody.write(value="again", **told))
        clock.advance(11 * 60.0)
        result = await custody.repair(actor=ACTOR, reason="after that", max_removals=100)
        believed = {fact.fact_id for fact in await ledger.as_of(limit=100)}
        held = {entry.fact_id for entry in store.snapshot().values()}
    return {"closed": closed, "new": new, "open": opened, "healed": result.complete and believed == held}


def main(url: str) -> None:
    """Make a ledger, become unprivileged, and work on it."""
    folder = Path(url.partition(":///")[2]).parent
    os.mkdir(folder, 0o700)
    os.environ["CUSTODY_SYNC_WITNESS"] = "off"
    run(make(url))
    drop_privileges(folder)
    print(json.dumps(run(work(url))))


if __name__ == "__main__":
    main(sys.argv[1])
