"""What docs/leaving.md says: labels come off, and nothing else goes with them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fakes.pgvector_tables import COLLECTION, LANGCHAIN
from fakes.zep_api import ZepApi
from fix_pgvector import Connect, ask
from fix_world import DIMENSIONS, EMBED, open_world
from fix_zep import store_of as zep_store_of

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.adapters.pgvector import PgVectorStore
from custody_sync.model import Label

PAGE = Path(__file__).parents[2] / "docs" / "leaving.md"
KEYS = {"source", "v", "ledger_id", "fact_id", "space", "stored_at", "custody"}


def statement(table: str, ledger_id: str) -> str:
    """Return the page's statement on a table."""
    (found,) = [
        s for s in re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL) if f"update {table}" in s
    ]
    return str(found).replace("THE LEDGER ID", ledger_id)


async def write(custody: AsyncCoordinator) -> None:
    """Write three facts."""
    for n in range(3):
        await custody.write(value=f"memory {n}", space="org", actor="a")


def test_the_page_names_every_key(label: Label) -> None:
    """Each statement takes off all keys of a label and no other."""
    assert set(label.to_metadata()) == KEYS
    for found in re.findall(r"array\[(.*?)\]", PAGE.read_text()):
        assert set(re.findall(r"'(\w+)'", found)) == KEYS


@pytest.fixture
def label() -> Label:
    """Return a label as any store gets it."""
    from datetime import UTC, datetime

    from custody_sync.model import Provenance

    now = datetime.now(UTC)
    return Label(
        ledger_id="l",
        fact_id="f",
        space="org",
        stored_at=now,
        generation="g",
        actor="a",
        provenance=Provenance.ATTESTED,
        valid_from=now,
    )


async def test_a_table_of_yours(tmp_path: Path, connect: Connect, database_uri: str) -> None:
    """The label's keys go from the rows of this ledger; text, vector and other keys stay."""
    for ddl in LANGCHAIN.ddl:
        await ask(database_uri, ddl)
    store = PgVectorStore(
        connect(), table=LANGCHAIN.table, existing=LANGCHAIN.existing, dimensions=DIMENSIONS, embed=EMBED
    )
    async with (
        await Ledger.open(f"sqlite:///{tmp_path / 'c.db'}", create=True, witness=False) as ledger,
        AsyncCoordinator(ledger, stores=[store]) as custody,
    ):
        await write(custody)
        await ask(database_uri, statement("langchain_pg_embedding", ledger.ledger_id))
    rows = await ask(
        database_uri,
        f"select document, cmetadata from langchain_pg_embedding where collection_id = '{COLLECTION}'",
    )
    assert sorted(row[0] for row in rows) == [f"memory {n}" for n in range(3)]
    assert [row[1] for row in rows] == [{"customer": "org"}] * 3
    others = await ask(database_uri, "select cmetadata from langchain_pg_embedding where id = 'other'")
    assert others == [({"source": "handbook.pdf"},)]


async def test_langgraph_on_postgres(tmp_path: Path, database_uri: str) -> None:
    """Items keep their text and their vectors, and are found as before."""
    async with open_world(database_uri) as world:
        async with (
            await Ledger.open(f"sqlite:///{tmp_path / 'c.db'}", create=True, witness=False) as ledger,
            AsyncCoordinator(ledger, stores=[world.agent]) as custody,
        ):
            await write(custody)
            await ask(database_uri, statement("store", ledger.ledger_id))
        hits = await world.agent.search("memory 1", 3, None)
        assert next((hit.entry.fact_id, hit.entry.text) for hit in hits) == (None, "memory 1")
    values = await ask(database_uri, "select value from store")
    assert [set(value) for (value,) in values] == [{"text"}] * 3


async def test_zep(tmp_path: Path, async_zep: Any, zep_api: ZepApi) -> None:
    """Keys with null go, and the episode stays."""
    store = zep_store_of(async_zep)
    async with (
        await Ledger.open(f"sqlite:///{tmp_path / 'c.db'}", create=True, witness=False) as ledger,
        AsyncCoordinator(ledger, stores=[store]) as custody,
    ):
        await write(custody)
    ((graph_id, graph),) = zep_api.graphs.items()
    for episode in list(graph.episodes):
        await async_zep.graph.episode.update(graph_id, episode, metadata=dict.fromkeys(KEYS))
    assert [episode.metadata for episode in graph.episodes.values()] == [{}] * 3
