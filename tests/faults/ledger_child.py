"""A process of its own that works on a ledger file; run by the tests with a job and a URL.

It says `ready`, waits for a line on stdin, does its job, and prints one JSON document.
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import random
import resource
import signal
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from unhurried import run

from custody_sync.errors import CustodyError, OutcomeUnknown, Refused
from custody_sync.ledger import Assert, Forget, Ledger, Repair
from custody_sync.ledger import jsonl as _loaded_while_it_may_be_too  # noqa: F401
from custody_sync.ledger import sqlite as _loaded_while_it_may_be  # noqa: F401
from custody_sync.model import Fact, Placement, Provenance
from custody_sync.notebook import StoreNotebook, needing
from custody_sync.runtime import Runtime

CONCURRENCY = 16


def stated(ledger: Ledger, fact_id: str, event_id: str, value: str = "v", **more: Any) -> Assert:
    """Return a plain assert with one placement that was stored just now."""
    now = ledger.now()
    fact = Fact(
        fact_id=fact_id,
        space="org",
        subject="s",
        predicate="p",
        value=value,
        text="s p: v",
        actor="racer",
        provenance=Provenance.ATTESTED,
        valid_from=now,
        **more,
    )
    held = Placement(
        store="m", external_id=f"{fact_id}.{event_id}", fact_id=fact_id, scope=None, stored_at=now
    )
    return Assert(event_id=event_id, fact=fact, placements=(held,))


async def race(ledger: Ledger, me: str, count: str) -> dict[str, Any]:
    """Claim every id of a list, even processes by assert, odd ones by repair, each in an order of its own."""
    ids = [f"f{i:04d}" for i in range(int(count))]
    random.Random(int(me)).shuffle(ids)
    gate = asyncio.Semaphore(CONCURRENCY)
    won: list[str] = []
    lost: Counter[str] = Counter()

    async def claim(fact_id: str) -> None:
        event_id = f"{me}-{fact_id}"
        async with gate:
            try:
                if int(me) % 2:
                    await ledger.append(Repair(event_id=event_id, fact_id=fact_id, actor="racer"))
                else:
                    await ledger.append(stated(ledger, fact_id, event_id))
            except CustodyError as error:
                lost[error.code] += 1
            else:
                won.append(fact_id)

    await asyncio.gather(*map(claim, ids))
    return {"won": won, "lost": lost}


async def supersede(ledger: Ledger, me: str, rounds: str) -> dict[str, Any]:
    """Supersede whatever is believed, again and again; losing to another process is part of it."""
    done = lost = 0
    while done < int(rounds):
        (believed,) = await ledger.as_of(subject="s")
        made = stated(ledger, f"{me}-{done}-{lost}", f"e-{me}-{done}-{lost}", supersedes=believed.fact_id)
        try:
            await ledger.append(made)
        except Refused as refusal:
            if refusal.code not in ("already_covered", "starts_too_early"):
                raise
            lost += 1
        else:
            done += 1
    return {"done": done, "lost": lost}


async def acknowledge(ledger: Ledger, me: str) -> dict[str, Any]:
    """Append until killed, and say what was acknowledged."""
    i = 0
    while True:
        drafts = [stated(ledger, f"{me}-{i + n}", f"e-{me}-{i + n}") for n in range(8)]
        for event in await asyncio.gather(*map(ledger.append, drafts)):
            print(event.fact_id, event.hash, flush=True)
        i += 8


async def append(ledger: Ledger, me: str, count: str) -> dict[str, Any]:
    """Append so many facts, four at a time, and return what was acknowledged in order."""
    gate = asyncio.Semaphore(4)
    done: list[tuple[int, str]] = []

    async def one(i: int) -> None:
        async with gate:
            event = await ledger.append(stated(ledger, f"{me}-{i}", f"e-{me}-{i}"))
            done.append((event.seq, event.hash))

    await asyncio.gather(*map(one, range(int(count))))
    return {"done": sorted(done)}


WRITES = ("pwrite", "write", "fsync", "ftruncate", "replace", "unlink")
"""The calls that change files."""


async def die(ledger: Ledger, work: str, where: str, secret: str) -> dict[str, Any]:
    """Be killed in the middle of an append or a forget: half way in its n-th write, after it, or at a point.

    What was acknowledged before is said; who lives on says how many writes there were.
    """
    if "." in where:
        storage: Any = ledger._storage
        storage._runtime = replace(storage._runtime, reach=lambda point: point == where and kill_self())
    writes = deadly_writes(*where.split(":")) if ":" in where else []
    if work == "append":
        drafts = [stated(ledger, f"new-{i}", f"e-new-{i}", "x" * 300) for i in range(3)]
        events = await asyncio.gather(*map(ledger.append, drafts))
    else:
        fact_id = next(fact.fact_id for fact in await ledger.as_of(limit=100) if fact.value == secret)
        events = [await ledger.append(Forget(event_id="e-forget", fact_id=fact_id, actor="racer"))]
    return {"writes": len(writes), "acknowledged": [event.hash for event in events]}


def kill_self() -> None:
    """End as a process does that is killed."""
    os.kill(os.getpid(), signal.SIGKILL)


def deadly_writes(when: str, number: str) -> list[str]:
    """Make the n-th call that changes a file the last one, and return the list of those made."""
    made: list[str] = []

    def deadly(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            made.append(name)
            last = len(made) == int(number)
            if last and when == "half":
                if name.endswith("write"):
                    handle, data, *at = arguments
                    call(handle, data[: len(data) // 2], *at)
                kill_self()
            try:
                return call(*arguments, **options)
            finally:
                if last:
                    kill_self()

        return run

    for name in WRITES:
        setattr(os, name, deadly(name, getattr(os, name)))
    return made


async def look(ledger: Ledger) -> dict[str, Any]:
    """Read, and try to append."""
    try:
        await ledger.append(stated(ledger, "f-new", "e-new"))
        appended = "ok"
    except CustodyError as error:
        appended = error.code
    page = await ledger.as_of(limit=10)
    history = await ledger.history(page[0].fact_id)
    return {
        "writable": ledger.writable,
        "appended": appended,
        "values": [fact.value for fact in page],
        "history": [event.kind for event in history],
    }


async def note(ledger: Ledger, me: str, count: str) -> dict[str, Any]:
    """Claim every key of a store's notebook for itself, in an order of its own, and say what stands."""
    book = StoreNotebook(ledger, "memories", Runtime())
    keys = [f"user:{i}" for i in range(int(count))]
    random.Random(int(me)).shuffle(keys)
    with needing(f"space {me}"):
        stands = {key: await book.claim(key, me) for key in keys}
    return {"stands": stands}


async def fill(ledger: Ledger, limit: str) -> dict[str, Any]:
    """Append until the disk is full, under a limit on the size of files; return what was acknowledged."""
    if limit != "0":
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
    done: list[str] = []
    while True:
        draft = stated(ledger, f"f{len(done)}", f"e{len(done)}", "x" * 2000)
        try:
            await ledger.append(draft)
        except OutcomeUnknown as error:
            return {"done": done, "error": error.code, "said": str(error), "open": draft.fact_id}
        except CustodyError as error:
            return {"done": done, "error": error.code, "said": str(error), "open": None}
        done.append(draft.fact_id)


async def fork(ledger: Ledger) -> dict[str, Any]:
    """Use the ledger in a forked child, then in the parent; return what both were told."""
    into, out = os.pipe()
    child = os.fork()
    if child == 0:
        said: list[str] = []
        for call in (ledger.as_of(), ledger.append(stated(ledger, "f1", "e1")), ledger.erase()):
            try:
                await call
            except CustodyError as error:
                said.append(str(error))
        os.write(out, json.dumps(said).encode())
        os._exit(0)
    reap(child)
    await ledger.append(stated(ledger, "f2", "e2"))
    return {"child": json.loads(os.read(into, 10_000)), "parent": len(await ledger.as_of())}


async def reopen(ledger: Ledger, before: str) -> dict[str, Any]:
    """Open this ledger, and one that was closed before the fork, in a forked child; say what came of it."""
    async with await Ledger.open(before, create=True):
        pass
    into, out = os.pipe()
    child = os.fork()
    if child == 0:
        urls = (f"sqlite:///{ledger.name}", before)
        with ThreadPoolExecutor() as threads:
            os.write(out, json.dumps(list(threads.map(opened, urls))).encode())
        os._exit(0)
    reap(child)
    await ledger.append(stated(ledger, "f1", "e1"))
    return {"child": json.loads(os.read(into, 10_000)), "parent": len(await ledger.as_of())}


def opened(url: str) -> str:
    """Open a ledger and write to it in an event loop of its own; return what that was refused for."""

    async def write() -> None:
        async with await Ledger.open(url) as ledger:
            await ledger.append(stated(ledger, "f0", "e0"))

    try:
        run(write())
    except CustodyError as error:
        return str(error)
    return ""


def reap(child: int) -> None:
    """Wait for a forked child's end."""
    os.waitpid(child, 0)


def drop_privileges() -> None:
    """Become `nobody` where this is root: root may read and write whatever the modes say."""
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.setgroups([])
        os.setgid(nobody.pw_gid)
        os.setuid(nobody.pw_uid)


JOBS = {
    job.__name__: job for job in (race, supersede, acknowledge, append, die, look, note, fill, fork, reopen)
}


def wait_for_the_word() -> None:
    """Say that everything is ready, and wait until told to begin."""
    print("ready", flush=True)
    sys.stdin.readline()


async def main(job: str, url: str, *arguments: str) -> None:
    """Open, wait for the word, work, report."""
    *options, name = job.split("-")
    if "unprivileged" in options:
        drop_privileges()
    # Racers open first: an open takes longer than a whole race, and they have to meet.
    meets = name in ("race", "append", "supersede", "note") and "create" not in options
    if not meets:
        wait_for_the_word()
    try:
        async with await Ledger.open(url, create="create" in options) as ledger:
            if meets:
                wait_for_the_word()
            print(json.dumps(await JOBS[name](ledger, *arguments)), flush=True)
    except CustodyError as error:
        print(json.dumps({"error": error.code, "said": str(error)}), flush=True)


if __name__ == "__main__":
    run(main(*sys.argv[1:]))
