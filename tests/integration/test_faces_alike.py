"""What all faces do alike when one is put over a store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from custody_sync.errors import InvalidInput
from custody_sync.faces.langchain import CustodyVectorStore
from custody_sync.faces.langgraph import CustodyStore
from custody_sync.faces.mem0 import AsyncMemory, Memory
from custody_sync.faces.wrap import awrap, wrap

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
