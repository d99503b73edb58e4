"""Plain and asynchronous callables, threads and loops, generators: all are taken as they are."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fakes.plain_index import PlainIndex
from fix_wrap import Wrap, awrapped, told

from custody_sync.errors import (
    ClosedError,
    InsideEventLoop,
    InvalidStore,
    StoreUnavailable,
    SupersedeConflict,
)
from custody_sync.faces.wrap import AsyncWrapped, CallStore, Found, wrap
from custody_sync.runtime import Runtime
from custody_sync.sync import Coordinator


class AsyncIndex:
    """A plain index behind asynchronous calls, which know the loop they belong to."""

    def __init__(self, index: PlainIndex) -> None:
        self.index = index
        self.loops: set[asyncio.AbstractEventLoop] = set()

    async def _turn(self) -> None:
        self.loops.add(asyncio.get_running_loop())
        await asyncio.sleep(0)

    async def search(self, query: str, k: int) -> list[Any]:
        """Return results."""
        await self._turn()
        return self.index.search(query, k)

    async def stream(self, query: str, k: int) -> AsyncIterator[Any]:
        """Yield results for ever: more than were asked for."""
        while True:
            for result in self.index.search(query, 100):
                await self._turn()
                yield result

    async def add(self, text: str, metadata: dict[str, Any]) -> Any:
        """Add."""
        await self._turn()
        return self.index.add(text, metadata)

    async def delete(self, given: Any) -> None:
        """Delete."""
        await self._turn()
        self.index.delete(given)

    async def get(self, given: Any) -> Any:
        """Look up."""
        await self._turn()
        return self.index.get(given)

    async def entries(self) -> AsyncIterator[Any]:
        """Yield everything."""
        for one in self.index.entries():
            await self._turn()
            yield one


def calls_of(index: AsyncIndex, how: str) -> dict[str, Any]:
    """Return asynchronous callables, bare or dressed up so that nobody can tell before they are called."""
    verbs = {name: getattr(index, name) for name in ("search", "add", "delete", "get", "entries")}
    if how == "partial":
        return {name: partial(verb) for name, verb in verbs.items()}
    if how == "lambda":
        return {name: lambda *args, verb=verb: verb(*args) for name, verb in verbs.items()}
    return verbs


@pytest.mark.parametrize("how", ["bare", "partial", "lambda"])
async def test_asynchronous_callables_run_in_the_callers_loop(tmp_path: Path, how: str) -> None:
    """They are awaited where the client lives, whatever they are dressed up as, and all of them work."""
    index = AsyncIndex(PlainIndex())
    async with await awrapped(tmp_path, index.index, **calls_of(index, how)) as memory:
        given = await memory.add("a note", {"page": 3})
        assert await memory.search("note") == [
            Found(given, "a note", pytest.approx(0.7071, abs=1e-3), {"page": 3})
        ]
        assert (await memory.recall("note")).facts[0].text == "a note"
        assert (await memory.repair()).scanned == {"memories": 1}
        assert await memory.delete(given) is True
        assert index.loops == {asyncio.get_running_loop()}
        assert index.index.texts() == []
    with pytest.raises(ClosedError):
        await memory.search("note")


async def test_asynchronous_code_may_wrap_plain_callables(tmp_path: Path) -> None:
    """They run in a thread, so the loop goes on meanwhile."""
    index = PlainIndex()
    async with await awrapped(tmp_path, index, runtime=Runtime()) as memory:
        given = await memory.add("a note")
        assert [found.id for found in await memory.within("memories").acting_as("ana").search("note")] == [
            given
        ]
        assert await memory.delete(given)
    assert threading.current_thread().name not in index.threads


def test_plain_code_may_wrap_asynchronous_callables(wrapped: Wrap) -> None:
    """They run in the coordinator's own loop."""
    index = AsyncIndex(PlainIndex())
    memory = wrapped(index.index, **calls_of(index, "bare"))
    given = memory.add("a note")
    assert [found.text for found in memory.search("note")] == ["a note"]
    assert memory.delete(given)
    assert len(index.loops) == 1


async def test_a_blocking_face_names_its_twin_inside_a_loop(tmp_path: Path) -> None:
    """A running loop is never blocked: the error says what to await."""
    with pytest.raises(InsideEventLoop, match=r"wrap blocks .* use `await awrap\(...\)` there"):
        wrap(**told(tmp_path, PlainIndex()))
    memory = await asyncio.to_thread(lambda: wrap(**told(tmp_path, PlainIndex())))
    with pytest.raises(InsideEventLoop, match=r"AsyncWrapped, which `await awrap\(...\)` makes"):
        memory.search("note")
    await asyncio.to_thread(memory.close)


async def test_one_coordinator_serves_several_loops(tmp_path: Path) -> None:
    """Over a `Coordinator` the awaited face works in any loop, since its thread does the work."""
    index = PlainIndex()
    store = CallStore(search=index.search, add=index.add, delete=index.delete)
    url = f"sqlite:///{tmp_path}/custody.db"
    custody = await asyncio.to_thread(lambda: Coordinator(url, create=True, stores=[store]))
    memory = AsyncWrapped[Found](custody, store)
    await memory.add("a note")
    there = await asyncio.to_thread(lambda: asyncio.run(memory.search("note")))
    assert [found.text for found in there] == [found.text for found in await memory.search("note")]
    await memory.aclose()
    await asyncio.to_thread(custody.close)


# --- threads ----------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 4])
def test_calls_run_at_once_only_as_far_as_allowed(wrapped: Wrap, threads: int) -> None:
    """One call at a time unless more are allowed: few objects are made for threads."""
    index, lock, inside, most = PlainIndex(), threading.Lock(), 0, 0
    full = threading.Event()

    def search(query: str, k: int) -> list[Any]:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
            if inside == threads:
                full.set()
        full.wait(5)
        with lock:
            inside -= 1
        return index.search(query, k)

    memory = wrapped(index, search=search, threads=threads, runtime=Runtime())
    memory.add("a note")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: memory.search("note"), range(8)))
    assert [len(answer) for answer in answers] == [1] * 8
    assert most == threads


def test_many_threads_remember_and_forget_side_by_side(wrapped: Wrap) -> None:
    """Each thread finds and deletes its own, and in the end index and ledger agree."""
    index = PlainIndex()
    memory = wrapped(index, threads=4, runtime=Runtime())

    def work(n: int) -> bool:
        mine = memory.within(f"user:{n}").acting_as(f"user:{n}")
        kept, gone = mine.add(f"note {n} to keep"), mine.add(f"note {n} to drop")
        done = mine.delete(gone)
        return done and [found.id for found in mine.search(f"note {n}", 5)] == [kept]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(6))) == [True] * 6
    assert sorted(index.texts()) == sorted(f"note {n} to keep" for n in range(6))
    believed = memory.custody.as_of(limit=100)
    assert sorted(fact.text or "" for fact in believed) == sorted(index.texts())


def test_of_two_replacements_at_once_one_wins(wrapped: Wrap) -> None:
    """The other is told so, and only the winner is found."""
    memory = wrapped(PlainIndex(), threads=2, runtime=Runtime())
    first = memory.add("I live in Lyon")

    def replace(city: str) -> bool:
        try:
            memory.add(f"I live in {city}", supersedes=first)
        except SupersedeConflict:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        won = list(pool.map(replace, ["Paris", "Rome"]))
    found = memory.search("I live", 5)
    assert (sum(won), len(found)) == (1, 1)
    assert ("Paris", "Rome")[won.index(True)] in str(found)


def test_results_are_shown_in_the_callers_thread(wrapped: Wrap) -> None:
    """`show` is the caller's own code, and may do whatever may be done there, a search included."""
    memory: Any = None

    def show(found: Found) -> tuple[str, int]:
        return threading.current_thread().name, len(memory.recall("note").hits)

    memory = wrapped(PlainIndex(), show=show)
    memory.add("a note")
    assert memory.search("note") == [(threading.current_thread().name, 1)]


# --- generators -------------------------------------------------------------------------------


def test_a_generator_is_asked_for_no_more_than_is_needed(wrapped: Wrap) -> None:
    """An endless search ends, its generator is closed in the thread that ran it, and everything is found."""
    index, ended = PlainIndex(), list[str]()

    def search(query: str, k: int) -> Iterator[Any]:
        try:
            while True:
                yield from index.search(query, 100)
        finally:
            ended.append(threading.current_thread().name)

    memory = wrapped(index, search=search, runtime=Runtime())
    texts = [f"note {n}" for n in range(12)]
    for text in texts:
        memory.add(text)
    assert [found.text in texts for found in memory.search("note", 3)] == [True] * 3
    assert set(ended) == {"custody-memories_0"}


async def test_an_asynchronous_generator_is_too(tmp_path: Path) -> None:
    """An endless stream ends as well."""
    index = AsyncIndex(PlainIndex())
    async with await awrapped(tmp_path, index.index, search=index.stream) as memory:
        for n in range(12):
            await memory.add(f"note {n}")
        assert len(await memory.search("note", 3)) == 3


def breaks(error: BaseException) -> Any:
    """Return a search that breaks off."""

    def search(query: str, k: int) -> Iterator[Any]:
        yield (1, "a note")
        raise error

    return search


def test_a_generator_that_breaks_off_is_no_answer(wrapped: Wrap) -> None:
    """What came before the break is not taken for all there is."""
    memory = wrapped(PlainIndex(), search=breaks(OSError("secret")))
    with pytest.raises(StoreUnavailable, match="OSError") as failed:
        memory.search("note")
    assert "secret" not in str(failed.value)


def test_a_stray_stop_iteration_does_not_hang(wrapped: Wrap) -> None:
    """`next()` on nothing inside a callable is an error like any other."""

    def search(query: str, k: int) -> list[Any]:
        return [next(iter(()))]

    with pytest.raises(StoreUnavailable, match="StopIteration"):
        wrapped(PlainIndex(), search=search, runtime=Runtime()).search("note")


async def test_an_answer_that_never_fits_is_named_when_it_is_awaited(tmp_path: Path) -> None:
    """A coroutine that gives None is refused as a plain None is."""

    async def search(query: str, k: int) -> None:
        return None

    async with await awrapped(tmp_path, PlainIndex(), search=search) as memory:
        with pytest.raises(InvalidStore, match="it gave None"):
            await memory.search("note")
