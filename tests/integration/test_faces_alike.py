"""What all faces do alike when one is put over a store."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.errors import InvalidInput
from custody_sync.faces._options import OPTIONS
from custody_sync.faces.langchain import CustodyVectorStore
from custody_sync.faces.langgraph import CustodyStore
from custody_sync.faces.mem0 import AsyncMemory, Memory
from custody_sync.faces.wrap import WrapOptions, awrap, wrap
from custody_sync.model import Erasure
from custody_sync.testing import MemoryStore

CALLS: dict[str, Any] = {
    "search": lambda query, k: [],
    "add": lambda text, metadata: "1",
    "delete": lambda key: None,
}


@pytest.mark.parametrize("made", [CustodyStore.over, CustodyVectorStore.over, Memory.over, wrap])
@pytest.mark.parametrize("name", ["bogus", "patiense"])
def test_an_unknown_option_is_named_and_nothing_is_opened(made: Any, name: str, tmp_path: Path) -> None:
    """One sentence names it and the options there are, before a ledger is made."""
    ledger = f"sqlite:///{tmp_path / 'custody.db'}"
    given: dict[str, Any] = {name: 1}
    with pytest.raises(InvalidInput, match=f"{name}: is no option here.*patience") as refused:
        made(ledger=ledger, **given, **(CALLS if made is wrap else {"original": object()}))
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("made", [CustodyStore.aover, CustodyVectorStore.aover, AsyncMemory.aover, awrap])
async def test_an_unknown_option_is_named_where_it_is_awaited(made: Any, tmp_path: Path) -> None:
    """What is awaited refuses it as what is called."""
    ledger = f"sqlite:///{tmp_path / 'custody.db'}"
    with pytest.raises(InvalidInput, match="bogus"):
        await made(ledger=ledger, bogus=1, **(CALLS if made is awrap else {"original": object()}))
    assert os.listdir(tmp_path) == []


def test_the_options_that_a_type_checker_knows_are_all_there_are() -> None:
    """What a coordinator takes, `wrap` takes by its type as well as when it runs."""
    assert set(OPTIONS) <= WrapOptions.__annotations__.keys()


async def test_a_deletion_is_told_of_while_the_ledgers_files_have_the_text(tmp_path: Path) -> None:
    """Every store has let go of it: while a reader keeps the erased bytes, each deletion says so."""
    told: list[Any] = []
    path = tmp_path / "custody.db"
    async with (
        await Ledger.open(f"sqlite:///{path}", create=True, witness=False) as ledger,
        AsyncCoordinator(ledger, stores=[MemoryStore()]) as custody,
    ):
        items = CustodyStore(custody, on_pending=told.append)
        memory = AsyncMemory(custody, actor="app", on_pending=told.append)
        await items.aput(("n",), "k", {"text": "call 555-0144"})
        (added,) = (await memory.add("call 555-0145", user_id="ada", infer=False))["results"]
        with contextlib.closing(sqlite3.connect(path)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM events").fetchone()
            for _ in range(2):
                await items.adelete(("n",), "k")
                await memory.delete(added["id"])
            assert [result.complete for result in told] == [False] * 4
        await items.adelete(("n",), "k")
        with pytest.raises(InvalidInput, match="not found"):
            await memory.delete(added["id"])
        assert len(told) == 4
        assert await ledger.erase() is Erasure.DONE
