"""P8: nobody's later change of an object changes what was remembered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fix_custody import open_desk

from custody_sync.model import Fact, Label
from custody_sync.testing import MemoryStore


async def test_p8_callers_object_changes_during_the_write(tmp_path: Path) -> None:
    """P8: the caller's dict changes while a slow store still writes; everyone has what was given first."""
    inside, go = asyncio.Event(), asyncio.Event()

    class Slow(MemoryStore):
        async def put(self, fact: Fact, label: Label) -> Sequence[str]:
            inside.set()
            await go.wait()
            return await super().put(fact, label)

    value: dict[str, Any] = {"tags": ["a"]}
    async with open_desk(tmp_path, stores=[MemoryStore("instant"), Slow("slow")]) as desk:
        writing = asyncio.ensure_future(desk.write(value))
        await inside.wait()
        value["tags"].append("b")
        go.set()
        written = await writing
        fact_id = written.fact.fact_id
        written.fact.value["tags"].append("c")  # type: ignore[index,call-overload,union-attr]  # it is a dict
        for read in (await desk.ledger.as_of())[0], await desk.ledger.get(fact_id):
            assert read is not None
            assert read.value == {"tags": ["a"]}
            read.value["tags"].append("d")  # type: ignore[index,call-overload,union-attr]  # it is a dict
        (event,) = await desk.ledger.history(fact_id)
        content: Any = event.sealed["content"]
        assert content["value"] == {"tags": ["a"]}
        content["value"]["tags"].append("e")
        again = (await desk.ledger.history(fact_id))[0].sealed["content"]
        assert again["value"] == {"tags": ["a"]}
        assert (await desk.ledger.as_of())[0].value == {"tags": ["a"]}
        for name, store in desk.stores.items():
            assert store.value(written.placements[name][0]) == {"tags": ["a"]}
            assert written.fact.text == 'acct:42 plan: {"tags":["a"]}'


async def test_p8_event_of_an_append_is_its_own(tmp_path: Path) -> None:
    """What an append answers with shares nothing with the fact that was appended."""
    async with open_desk(tmp_path, stores=[]) as desk:
        seen: list[Any] = []
        append = desk.ledger.append

        async def watched(draft: Any) -> Any:
            event = await append(draft)
            seen.append(event.sealed["content"]["value"])
            return event

        desk.ledger.append = watched  # type: ignore[method-assign]  # watched from outside
        written = await desk.write({"tags": ["a"]})
        seen[0]["tags"].append("b")
        assert written.fact.value == {"tags": ["a"]}
