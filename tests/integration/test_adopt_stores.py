"""The story of adopting on every store: the text stays, the label where it can be, and removal by the id."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fakes.letta_api import EMBEDDING, MODEL, LettaApi
from fakes.mem0_api import Mem0Api
from fakes.pgvector_tables import APP, COLLECTION, LANGCHAIN, MEM0, Shape
from fakes.zep_api import ZepApi
from fix_cognee import CogneeBench
from fix_pgvector import Connect, ask, store_of
from fix_zep import store_of as zep_store_of

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.adapters.langgraph import LangGraphStore
from custody_sync.adapters.letta import LettaStore
from custody_sync.adapters.mem0 import Mem0Store
from custody_sync.adapters.pgvector import PgVectorStore
from custody_sync.ports import Store
from custody_sync.removal import Patience
from custody_sync.testing.embedding import WordEmbedder

DIMENSIONS = 64
EMBED = WordEmbedder(DIMENSIONS)
INSERT_NOTE = """
    insert into app.notes (tenant, kind, body, "The Vector") values ('ada', 'note', %s, %s)"""
TEXTS = ("Ada drinks her coffee black", "Ada is allergic to nuts")


@asynccontextmanager
async def custody_of(folder: Path, *stores: Store) -> AsyncIterator[AsyncCoordinator]:
    """Open a coordinator over stores, which are asked at once whether something is gone."""
    brief = Patience(questions=3, first_wait=0.0)
    async with (
        await Ledger.open(f"sqlite:///{folder / 'custody.db'}", create=True, witness=False) as ledger,
        AsyncCoordinator(ledger, stores=stores, patience=brief) as custody,
    ):
        yield custody


async def tell(
    folder: Path,
    store: Store,
    put_raw: Callable[[str], Awaitable[None] | None],
    texts_in: Callable[[], Awaitable[list[str]] | list[str]],
    *,
    labels: bool,
) -> None:
    """Adopt two entries, believe both, retract one and forget the other; only then are they gone."""

    async def held() -> list[str]:
        found = texts_in()
        return sorted(found if isinstance(found, list) else await found)

    for text in TEXTS:
        made = put_raw(text)
        if made is not None:
            await made
    async with custody_of(folder, store) as custody:
        planned = await custody.adopt(store.name, actor="ops", space="user:ada")
        assert (planned.adopted, await held()) == (2, sorted(TEXTS)), planned
        result = await custody.adopt(store.name, actor="ops", space="user:ada", dry_run=False)
        assert (result.adopted, result.labelled, result.complete) == (2, 2 * labels, True), result
        assert bool(result.no_labels) is not labels
        again = await custody.adopt(store.name, actor="ops", space="user:ada", dry_run=False)
        assert (again.adopted, again.complete, await held()) == (0, True, sorted(TEXTS)), again
        confirmed = await custody.confirm_many(actor="ops", space="user:ada", dry_run=False)
        assert (confirmed.confirmed, confirmed.complete) == (2, True), confirmed
        facts = await custody.ledger.as_of(space="user:ada")
        assert sorted(str(fact.text) for fact in facts) == sorted(TEXTS)
        if labels:
            finder: Any = store
            (entry,) = await finder.find(facts[0].fact_id)
            assert (entry.space, entry.text) == ("user:ada", facts[0].text)
        retracted = await custody.retract(facts[0].fact_id, actor="ops", reason="not so")
        assert retracted.complete, retracted
        assert await held() == [facts[1].text]
        forgotten = await custody.forget(facts[1].fact_id, actor="ops", reason="asked to")
        assert (forgotten.complete, await held()) == (True, []), forgotten
        assert (await custody.verify(actor="ops")).complete


# --- pgvector ---------------------------------------------------------------------------------


def mapped(pool: Any, shape: Shape, **options: Any) -> PgVectorStore:
    """Return an adapter on somebody's table."""
    told = {"existing": shape.existing, "dimensions": DIMENSIONS, "embed": EMBED} | options
    return PgVectorStore(pool, table=shape.table, **told)


def vector(text: str) -> str:
    """Return a text's vector as pgvector reads it."""
    return str(list(EMBED(text)))


async def test_a_table_of_ours(tmp_path: Path, connect: Connect, database_uri: str) -> None:
    """Rows that somebody wrote into our table past custody are adopted, labelled and removed."""
    store = store_of(connect(), dimensions=DIMENSIONS, embed=EMBED)
    assert await store.find("nothing") == []

    async def put(text: str) -> None:
        statement = "insert into facts (key, text, embedding) values (%s, %s, %s)"
        await ask(database_uri, statement, [text[:9], text, vector(text)])

    async def texts() -> list[str]:
        return [row[0] for row in await ask(database_uri, "select text from facts")]

    await tell(tmp_path, store, put, texts, labels=True)


async def test_a_table_of_an_application(tmp_path: Path, connect: Connect, database_uri: str) -> None:
    """Ids of the database, a label in columns: the row is changed in these columns alone."""
    for statement in APP.ddl:
        await ask(database_uri, statement)

    async def put(text: str) -> None:
        statement = (
            "insert into app.notes (tenant, kind, body, \"The Vector\") values ('ada', 'note', %s, %s)"
        )
        await ask(database_uri, statement, [text, vector(text)])

    async def texts() -> list[str]:
        return [row[0] for row in await ask(database_uri, "select body from app.notes")]

    await tell(tmp_path, mapped(connect(), APP), put, texts, labels=True)


@pytest.mark.parametrize("metadata", [None, "{}", '{"customer": "ada"}'])
async def test_langchains_table(
    tmp_path: Path, connect: Connect, database_uri: str, metadata: str | None
) -> None:
    """The label goes beside what the metadata says already, also where there was none."""
    for statement in LANGCHAIN.ddl:
        await ask(database_uri, statement)
    await ask(database_uri, "delete from langchain_pg_embedding")

    async def put(text: str) -> None:
        statement = "insert into langchain_pg_embedding values (%s, %s, %s, %s, %s)"
        await ask(database_uri, statement, [text[:9], COLLECTION, vector(text), text, metadata])

    async def texts() -> list[str]:
        rows = await ask(database_uri, "select document, cmetadata from langchain_pg_embedding")
        if metadata and "customer" in metadata:
            assert all(row[1]["customer"] == "ada" for row in rows)
        return [row[0] for row in rows]

    await tell(tmp_path, mapped(connect(), LANGCHAIN), put, texts, labels=True)


async def test_a_key_of_somebody_else_is_not_overwritten(
    tmp_path: Path, connect: Connect, database_uri: str
) -> None:
    """LangChain's own `source` stays: the fact is placed without a label, named so, and removed by its id."""
    for statement in LANGCHAIN.ddl:
        await ask(database_uri, statement)
    await ask(database_uri, "delete from langchain_pg_embedding")
    for text in TEXTS:
        statement = "insert into langchain_pg_embedding values (%s, %s, %s, %s, %s)"
        said = json.dumps({"source": "handbook.pdf"})
        await ask(database_uri, statement, [text[:9], COLLECTION, vector(text), text, said])
    look = "select id, document, cmetadata from langchain_pg_embedding order by id"
    before = await ask(database_uri, look)
    store = mapped(connect(), LANGCHAIN)
    async with custody_of(tmp_path, store) as custody:
        result = await custody.adopt(
            store.name, actor="ops", space="org", provenance="attested", dry_run=False
        )
        assert (result.adopted, result.labelled, result.complete) == (2, 0, False)
        assert result.unlabelled == {"keys_of_the_label_are_taken": 2}
        assert await ask(database_uri, look) == before
        one, two = (sample.fact_id for sample in result.samples)
        assert (await custody.retract(one, actor="ops", reason="not so")).complete
        assert (await custody.forget(two, actor="ops", reason="asked to")).complete
        assert await ask(database_uri, look) == []


async def test_mem0s_own_table(tmp_path: Path, connect: Connect, database_uri: str) -> None:
    """Mem0's table on pgvector, past Mem0: the text lies in the JSON that gets the label."""
    for statement in MEM0.ddl:
        await ask(database_uri, statement)

    async def put(text: str) -> None:
        statement = "insert into mem0 values (gen_random_uuid(), %s, %s)"
        await ask(database_uri, statement, [vector(text), json.dumps({"data": text, "user_id": "ada"})])

    async def texts() -> list[str]:
        return [row[0] for row in await ask(database_uri, "select payload ->> 'data' from mem0")]

    await tell(tmp_path, mapped(connect(), MEM0), put, texts, labels=True)


async def test_a_row_that_took_the_id(tmp_path: Path, connect: Connect, database_uri: str) -> None:
    """A database may give an id again: a row with other words under it is somebody's, and is left."""
    for statement in APP.ddl:
        await ask(database_uri, statement)
    await ask(database_uri, INSERT_NOTE, [TEXTS[0], vector(TEXTS[0])])
    store = mapped(connect(), APP)
    async with custody_of(tmp_path, store) as custody:
        result = await custody.adopt(
            store.name, actor="ops", space="org", provenance="attested", dry_run=False
        )
        await ask(database_uri, "truncate app.notes restart identity")
        await ask(database_uri, INSERT_NOTE, [TEXTS[1], vector(TEXTS[1])])
        retracted = await custody.retract(result.samples[0].fact_id, actor="ops", reason="not so")
        assert [removal.outcome.value for removal in retracted.removals] == ["verified"]
        assert await ask(database_uri, "select body from app.notes") == [(TEXTS[1],)]


async def test_wrap_the_table_you_have(tmp_path: Path, connect: Connect, database_uri: str) -> None:
    """A table with 1,000 rows: adopt, confirm, retract one, recall; all else of it stays to the byte."""
    for statement in APP.ddl:
        await ask(database_uri, statement)
    fill = """insert into app.notes (tenant, kind, body, "The Vector", made_at)
        select 'tenant-' || mod(n, 7), 'note', 'note number ' || n, %s, now() - n * interval '1 hour'
        from generate_series(1, 1000) n"""
    await ask(database_uri, fill, [vector("note")])
    look = """
        select md5(string_agg(concat_ws('|', id, tenant, kind, body, "The Vector", version, made_at), ';'
            order by id)) from app.notes where id <> %s"""
    before = await ask(database_uri, look, [7])
    store = mapped(connect(), APP)
    async with custody_of(tmp_path, store) as custody:
        result = await custody.adopt(store.name, actor="ops", space="{scope}", dry_run=False)
        assert (result.adopted, result.labelled, result.complete, result.elsewhere) == (1000, 1000, True, 0)
        assert sum(result.spaces.values()) == 1000
        assert len(result.spaces) == 7
        confirmed = await custody.confirm_many(actor="ops", space="tenant-*", dry_run=False)
        assert (confirmed.confirmed, confirmed.complete) == (1000, True)
        (row,) = [f for f in await custody.ledger.as_of(limit=1000) if f.text == "note number 7"]
        since = await ask(database_uri, "select made_at from app.notes where id = 7")
        assert (row.space, row.valid_from) == ("tenant-0", since[0][0])
        assert (await custody.retract(row.fact_id, actor="ops", reason="not so")).complete
        hits = await store.search("note number 8", 1000, ["tenant-1"])
        assert {hit.entry.space for hit in hits} == {"tenant-1"}
        assert all(hit.entry.fact_id for hit in hits)
        assert (await custody.verify(actor="ops")).complete
        swept = await custody.repair(actor="ops", reason="is all well?")
        assert (swept.scanned, swept.repaired, swept.complete) == ({store.name: 999}, (), True)
    assert await ask(database_uri, look, [7]) == before
    assert await ask(database_uri, "select count(*) from app.notes where id = 7") == [(0,)]


# --- the others ---------------------------------------------------------------------------------


async def test_langgraph(tmp_path: Path, graph_store: Any) -> None:
    """Every store of LangGraph's: an item with a `text` gets the label's keys beside it."""
    blocking = type(graph_store).__name__ in ("SqliteStore", "PostgresStore")

    async def call(method: str, *args: Any, **options: Any) -> Any:
        if blocking:
            return getattr(graph_store, method)(*args, **options)
        return await getattr(graph_store, f"a{method}")(*args, **options)

    async def put(text: str) -> None:
        await call("put", ("memories", "ada"), text[:9], {"text": text, "topic": "x"})

    async def texts() -> list[str]:
        items = await call("search", ("memories",), limit=100)
        assert all(item.value["topic"] == "x" for item in items)
        return [item.value["text"] for item in items]

    await tell(tmp_path, LangGraphStore(graph_store), put, texts, labels=True)


async def test_langgraph_leaves_keys_of_others(tmp_path: Path, graph_store: Any) -> None:
    """An item that has a `source` of its own is not labelled over."""
    value = {"text": TEXTS[0], "source": "agent"}
    if type(graph_store).__name__ in ("SqliteStore", "PostgresStore"):
        graph_store.put(("memories", "ada"), "k", value)
    else:
        await graph_store.aput(("memories", "ada"), "k", value)
    store = LangGraphStore(graph_store)
    async with custody_of(tmp_path, store) as custody:
        result = await custody.adopt(store.name, actor="ops", space="org", dry_run=False)
        assert (result.adopted, result.labelled) == (1, 0)
        assert result.unlabelled == {"gone_changed_or_keys_taken": 1}
        assert (await custody.retract(result.samples[0].fact_id, actor="ops", reason="no")).complete


async def test_mem0_hosted(tmp_path: Path, mem0_client: Any, mem0_api: Mem0Api) -> None:
    """Mem0's service keeps what else the metadata says."""

    def put(text: str) -> None:
        mem0_api.put_raw(text, user_id="ada", metadata={"topic": "x"})

    def texts() -> list[str]:
        rows = mem0_client.get_all(filters={"user_id": "ada"})["results"]
        assert all(row["metadata"]["topic"] == "x" for row in rows)
        return [row["memory"] for row in rows]

    await tell(tmp_path, Mem0Store(mem0_client), put, texts, labels=True)


async def test_mem0_local(tmp_path: Path, mem0_memory: Any) -> None:
    """Open source Mem0 writes no label beside a row; it is placed, believed and removed all the same."""

    def put(text: str) -> None:
        mem0_memory.add([{"role": "user", "content": text}], user_id="ada", infer=False)

    def texts() -> list[str]:
        return [row["memory"] for row in mem0_memory.get_all(filters={"user_id": "ada"})["results"]]

    await tell(tmp_path, Mem0Store(mem0_memory), put, texts, labels=False)


async def test_zep(tmp_path: Path, async_zep: Any, zep_api: ZepApi) -> None:
    """An episode keeps what its metadata says beside the label; the graph is told to the adapter."""
    store = zep_store_of(async_zep, patience=0.0)
    graph = await store._graphs.make("put", "ada")

    def put(text: str) -> None:
        zep_api.add(graph, text, {"topic": "x"})

    def texts() -> list[str]:
        episodes = zep_api.graphs[graph].episodes.values()
        assert all(episode.metadata["topic"] == "x" for episode in episodes)
        return [episode.content for episode in episodes]

    zep_api.keeps_summaries = False
    await tell(tmp_path, store, put, texts, labels=True)


async def test_letta(tmp_path: Path) -> None:
    """Letta changes no passage: it is placed without a label, and removed by its id."""
    api = LettaApi()
    store = LettaStore(api.async_client(), archive="ada", model=MODEL, embedding=EMBEDDING)
    await store._places.home("ada")
    (archive,) = api.archives

    def put(text: str) -> None:
        api.put(archive, text, metadata={"source": "agent"}, tags=["note"])

    async def texts() -> list[str]:
        return [str(entry.text) async for entry in store.list_with_text()]

    await tell(tmp_path, store, put, texts, labels=False)


async def test_cognee(tmp_path: Path, cognee: CogneeBench) -> None:
    """Cognee keeps its metadata: a file is placed without a label, and removed by its id."""
    store = cognee.adapter(dataset="ada")
    await store._datasets.opened("put", "ada")

    def put(text: str) -> None:
        dataset = cognee.server.dataset("ada")
        cognee.server.add(dataset, "notes.md", text.encode(), {"source": "agent"})
        cognee.server.cognify(dataset)

    async def texts() -> list[str]:
        return [str(entry.text) async for entry in store.list_with_text()]

    await tell(tmp_path, store, put, texts, labels=False)
