"""P8: nobody's later change of an object changes what was remembered, wrapped or by a coordinator."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from fakes.plain_index import PlainIndex
from fix_custody import open_desk
from fix_wrap import Wrap, awrapped

from custody_sync.errors import StoreWriteFailed
from custody_sync.faces.wrap import CallStore
from custody_sync.testing import MemoryStore


async def test_p8_metadata_changes_while_it_is_added(tmp_path: Path) -> None:
    """P8: the caller's dict changes while a slow `add` still runs; everyone has what was given first."""
    index, inside, go = PlainIndex(), asyncio.Event(), asyncio.Event()

    async def add(text: str, metadata: dict[str, Any]) -> Any:
        inside.set()
        await go.wait()
        return index.add(text, metadata)

    metadata: dict[str, Any] = {"tags": ["a"]}
    async with await awrapped(tmp_path, index, add=add) as memory:
        adding = asyncio.ensure_future(memory.add("a note", metadata))
        await inside.wait()
        metadata["tags"].append("b")
        metadata["more"] = True
        go.set()
        given = await adding
        for _ in range(2):
            (found,) = await memory.search("note")
            assert found.metadata == {"tags": ["a"]}
            found.metadata["tags"].append("c")
            (fact,) = await memory.custody.ledger.as_of()
            assert fact.value == {"metadata": {"tags": ["a"]}, "text": "a note"}
        assert index.rows[given][1]["tags"] == ["a"]
        assert metadata == {"tags": ["a", "b"], "more": True}
        assert (await memory.custody.ledger.verify()).intact


def test_p8_an_index_that_changes_what_it_was_given(wrapped: Wrap) -> None:
    """P8: what `add` does to its dict reaches neither ledger nor caller, also when it fails then."""
    index, given = PlainIndex(), {"tags": ["a"]}
    fails = [False]

    def add(text: str, metadata: dict[str, Any]) -> Any:
        kept = index.add(text, metadata)
        metadata["tags"].append("theirs")
        metadata.clear()
        if fails[0]:
            raise OSError
        return kept

    memory = wrapped(index, add=add)
    memory.add("a note", given)
    assert memory.search("note")[0].metadata == {"tags": ["a"]}
    fails[0] = True
    with pytest.raises(StoreWriteFailed):
        memory.add("another note", given)
    assert given == {"tags": ["a"]}


def test_p8_results_of_an_index_are_not_changed(wrapped: Wrap) -> None:
    """P8: an index that gives out its own dicts finds them as they were."""
    index = PlainIndex()
    memory = wrapped(index)
    given = memory.add("a note", {"tags": ["a"]})
    before = dict(index.rows[given][1])
    memory.search("note")[0].metadata["tags"].append("b")  # a dict of the caller's own
    assert index.rows[given][1] == before


async def test_p8_two_stores_and_every_way_to_read(tmp_path: Path) -> None:
    """P8: an instant store, a slow one, `as_of`, `recall`, `card` and `get` all keep what was given first."""
    index, inside, go = PlainIndex(), asyncio.Event(), asyncio.Event()

    async def add(text: str, metadata: dict[str, Any]) -> Any:
        inside.set()
        await go.wait()
        return index.add(text, metadata)

    slow = CallStore(search=index.search, add=add, delete=index.delete, name="slow")
    instant = MemoryStore("instant")
    value: dict[str, Any] = {"tags": ["a"]}
    async with open_desk(tmp_path, stores=[instant, slow]) as desk:  # type: ignore[list-item]  # only its name is asked for
        writing = asyncio.ensure_future(desk.write(value))
        await inside.wait()
        value["tags"].append("b")
        go.set()
        written = await writing
        answers: list[Any] = [written.fact.value]
        for _ in range(2):
            (fact,) = await desk.ledger.as_of()
            answers.append(fact.value)
            for store in ("instant", "slow"):
                (hit,) = (await desk.custody.recall("acct:42 plan", store=store, with_history=True)).hits
                answers += [hit.fact.value, hit.history[0].fact.value]
            (card,) = await desk.custody.card("acct:42", "plan")
            answers += [card.current[0].value, card.chain[0].fact.value]
            got = await desk.ledger.get(written.fact.fact_id)
            assert got is not None
            answers.append(got.value)
            assert answers == [{"tags": ["a"]}] * len(answers)
            for one in answers:
                one["tags"].append("c")
            answers.clear()
        assert (await desk.ledger.as_of())[0].value == {"tags": ["a"]}
        assert instant.value(written.placements["instant"][0]) == {"tags": ["a"]}
        assert index.texts() == ['acct:42 plan: {"tags":["a"]}']
        assert (await desk.ledger.verify()).intact
