"""Custody in a table that another program made: told where things lie, and changing nothing else."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from fakes.pgvector_tables import APP, COLLECTION, LANGCHAIN, MEM0, SHAPES, Shape
from fix_listing import check_listing
from fix_pgvector import Connect, ask, case_of

from custody_sync.adapters.pgvector import ExistingTable, PgVectorStore
from custody_sync.errors import InvalidInput, StoreRefused
from custody_sync.model import Entry, Limits
from custody_sync.testing.embedding import WordEmbedder

DIMENSIONS = 64
EMBED = WordEmbedder(DIMENSIONS)
VECTOR = "[1" + ",0" * (DIMENSIONS - 1) + "]"
PLAIN = ExistingTable(id="id", text="body", embedding="v", label="meta")


def store_on(pool: Any, shape: Shape, **options: Any) -> PgVectorStore:
    """Return an adapter of a shape's table."""
    settings: dict[str, Any] = {
        "existing": shape.existing,
        "dimensions": DIMENSIONS,
        "embed": EMBED,
    } | options
    return PgVectorStore(pool, table=shape.table, **settings)


async def made(uri: str, shape: Shape) -> None:
    """Make the table as its own program would."""
    for statement in shape.ddl:
        await ask(uri, statement)


@pytest.fixture(params=sorted(SHAPES))
async def shape(request: pytest.FixtureRequest, database_uri: str) -> Shape:
    """Return each shape in turn, its table made."""
    await made(database_uri, SHAPES[request.param])
    return SHAPES[request.param]


async def test_rows_of_others_and_the_table_itself_stay_as_they_are(
    connect: Connect, database_uri: str, shape: Shape
) -> None:
    """Puts, searches, new labels and deletes leave every other row, column and index to the byte."""
    place = f"{shape.existing.schema or 'public'}.{shape.table}"
    ((stranger,),) = [
        (row[0],)
        for row in await _ask_named(database_uri, shape.stranger, {"text": "theirs", "vector": VECTOR})
    ]
    look = f"select md5(string_agg(t::text, ';' order by t::text)) from {place} t where id::text = %s"
    catalog = "select md5(string_agg(c::text, ';' order by c::text)) from information_schema.columns c"
    indexes = "select count(*) from pg_indexes where schemaname not in ('pg_catalog', 'pg_toast')"
    before = [
        await ask(database_uri, q, p) for q, p in ((look, [str(stranger)]), (catalog, None), (indexes, None))
    ]
    case = case_of(store_on(connect(), shape))
    puts = [await case.put(case.fact("theirs")) for _ in range(3)]
    await case.store.relabel(puts[0].entries[0], replace(puts[0].label, ledger_id="moved"))
    unlabelled = [hit.entry for hit in await case.search("theirs", 10) if hit.entry.fact_id is None]
    assert str(stranger) in {entry.external_id for entry in unlabelled}
    await case.delete(*puts)
    assert [await case.said_gone(entry) for put in puts for entry in (*put.entries, *put.blind)] == [True] * 6
    after = [
        await ask(database_uri, q, p) for q, p in ((look, [str(stranger)]), (catalog, None), (indexes, None))
    ]
    assert after == before


async def _ask_named(uri: str, statement: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
    import psycopg

    async with await psycopg.AsyncConnection.connect(uri, autocommit=True) as connection:
        return await (await connection.execute(statement.encode(), values)).fetchall()


async def test_the_tables_own_program_reads_what_custody_put(connect: Connect, database_uri: str) -> None:
    """Text, scope and the application's own keys lie where that program looks for them."""
    for shape in SHAPES.values():
        await made(database_uri, shape)
        case = case_of(store_on(connect(), shape))
        await case.put(case.fact("tea at four", space="user:7"))
    chain = "select document, cmetadata ->> 'customer', collection_id::text from langchain_pg_embedding"
    assert ("tea at four", "user:7", COLLECTION) in await ask(database_uri, chain)
    app = "select body, tenant, kind, version from app.notes"
    assert await ask(database_uri, app) == [("tea at four", "user:7", "memory", 1)]
    mem0 = "select payload ->> 'data', payload ->> 'user_id' from mem0"
    assert await ask(database_uri, mem0) == [("tea at four", "user:7")]


async def test_a_retry_finds_the_row_whose_id_the_database_gave(connect: Connect, database_uri: str) -> None:
    """Eight puts of one label at once, alone and in batches, are one row with one id."""
    await made(database_uri, APP)
    store = store_on(connect(max_size=8), APP)
    case = case_of(store)
    fact, other = case.fact(), case.fact()
    label = case.label(fact)
    pairs = [(fact, label), (other, case.label(other)), (fact, label)]
    alone = [store.put(fact, label) for _ in range(5)]
    many = [store.put_many(pairs) for _ in range(3)]
    answers = await asyncio.gather(*alone, *many)
    ids = {tuple(answer) for answer in answers[:5]} | {tuple(answer[0]) for answer in answers[5:]}
    assert len(ids) == 1
    assert await ask(database_uri, "select count(*) from app.notes") == [(2,)]


async def test_an_id_that_somebody_else_has_is_not_written_over(connect: Connect, database_uri: str) -> None:
    """Where a row of others has our id, the put is refused and that row stays."""
    await made(database_uri, LANGCHAIN)
    case = case_of(store_on(connect(), LANGCHAIN))
    fact = case.fact()
    label = case.label(fact)
    taken = f"insert into langchain_pg_embedding values (%s, '{COLLECTION}', %s, 'theirs', '{{}}')"
    await ask(database_uri, taken, [label.key, VECTOR])
    with pytest.raises(StoreRefused, match="taken by a row of somebody else"):
        await case.store.put(fact, label)
    assert await ask(
        database_uri, "select document from langchain_pg_embedding where id = %s", [label.key]
    ) == [("theirs",)]


@pytest.mark.parametrize("external_id", ["x'; drop table", "0x1", "9223372036854775808", "", "+1", "²"])
async def test_an_id_that_no_row_can_have_is_gone(connect: Connect, shape: Shape, external_id: str) -> None:
    """A foreign id is no error of the database: its delete is success, and its fact id still decides."""
    case = case_of(store_on(connect(), shape))
    put = await case.put()
    odd = Entry(store="pgvector", external_id=external_id, fact_id=put.fact.fact_id)
    await case.store.delete(odd)
    assert [await case.said_gone(e) for e in (odd, replace(odd, text="x"), put.entries[0])] == [
        True,
        True,
        False,
    ]


async def test_a_filter_never_leaves_a_search_of_such_a_table_short(
    connect: Connect, database_uri: str
) -> None:
    """Five notes of a tenant come through the index though 600 nearer ones are others'."""
    await made(database_uri, APP)
    await ask(database_uri, 'create index on app.notes using hnsw ("The Vector" vector_cosine_ops)')
    options = "-c enable_seqscan=off -c enable_sort=off"
    pool = connect(kwargs={"autocommit": True, "options": options})
    case = case_of(store_on(pool, APP, index="hnsw"))
    near = [case.fact(f"black coffee {n}", space="crowd") for n in range(600)]
    far = [case.fact(f"tea with milk {n}", space="rare") for n in range(5)]
    await case.store.put_many([(fact, case.label(fact)) for fact in (*near, *far)])
    hits = await case.search("black coffee 1", 10, ["rare"])
    assert {hit.entry.fact_id for hit in hits} == {fact.fact_id for fact in far}
    assert len(await case.search("black coffee 1", 100)) == 100


async def test_a_listing_shows_each_of_1234_once_among_rows_of_others(connect: Connect, shape: Shape) -> None:
    """Numbers are paged as numbers and ids as ids, while entries come and go."""
    case = case_of(store_on(connect(), shape, page_size=100))
    facts = [case.fact(f"note {n}", space=f"user:{n % 5}") for n in range(1_234)]
    pairs = [(fact, case.label(fact)) for fact in facts]
    ids = [external_id for (external_id,) in await case.store.put_many(pairs)]
    passing = [case.confirmed(*pair, [i]) for pair, i in zip(pairs[::20], ids[::20], strict=True)]
    await check_listing(case, set(ids), passing)


async def test_a_new_label_keeps_the_applications_keys(connect: Connect, database_uri: str) -> None:
    """What else lies in the JSON stays, and so does the text under its key."""
    await made(database_uri, MEM0)
    case = case_of(store_on(connect(), MEM0))
    put = await case.put(case.fact("tea", space="user:7"))
    await case.store.relabel(put.entries[0], replace(put.label, ledger_id="moved"))
    look = "select payload ->> 'data', payload ->> 'user_id', payload ->> 'ledger_id' from mem0"
    assert await ask(database_uri, look) == [("tea", "user:7", "moved")]
    gone = replace(put.entries[0], external_id="00000000-0000-4000-8000-000000000000")
    with pytest.raises(StoreRefused, match="no such entry"):
        await case.store.relabel(gone, put.label)


@pytest.mark.parametrize(
    ("ddl", "existing", "message"),
    [
        ("", PLAIN, "table: there is no table notes"),
        ("id text primary key, v vector(64), meta jsonb", PLAIN, r"notes has no column 'body' \(text\)"),
        ("id text primary key, body int, v vector(64), meta jsonb", PLAIN, r"notes.body \(text\) is integer"),
        (
            "id text primary key, body text, v vector(64), meta json",
            PLAIN,
            r"meta \(label\) is json, and has to be jsonb",
        ),
        (
            "id float primary key, body text, v vector(64), meta jsonb",
            PLAIN,
            r"id \(id\) is double precision",
        ),
        ("id text, body text, v vector(64), meta jsonb", PLAIN, "no unique index of its own"),
        (
            "id bigint primary key, body text, v vector(64), meta jsonb",
            PLAIN,
            "the database gives it no value",
        ),
        ("id varchar(36) primary key, body text, v vector(64), meta jsonb", PLAIN, "takes 36 characters"),
        (
            "id text primary key, body varchar(99), v vector(64), meta jsonb",
            PLAIN,
            r"Limits\(text_chars=99\)",
        ),
        (
            "id text primary key, body text, v halfvec(64), meta jsonb",
            PLAIN,
            r"holds halfvec\(64\), the store was given vector\(64\)",
        ),
        ("id text primary key, body text, v vector(32), meta jsonb", PLAIN, r"holds vector\(32\)"),
        (
            "id text primary key, body text, v vector(64), meta jsonb, must int not null",
            PLAIN,
            "notes.must is NOT NULL and has no default; give its value by others=",
        ),
        (
            "id text primary key, body text, v vector(64), meta jsonb",
            replace(PLAIN, others=lambda _: {"no": 1}),
            "'no', which is no column of notes",
        ),
        (
            "id text primary key, body text, v vector(64), meta jsonb",
            replace(PLAIN, others=lambda _: {"body": "x"}),
            "'body', which is not its to fill",
        ),
        (
            "id text primary key, body text, v vector(64), meta jsonb",
            replace(PLAIN, others=lambda _: {"meta": {"space": 1}}),
            "'space', a key of the label",
        ),
        (
            "id text primary key, body text, v vector(64), meta jsonb",
            replace(PLAIN, others=lambda _: {"meta": {"x": float("nan")}}),
            "no JSON",
        ),
        (
            "id text primary key, body text, v vector(64), meta jsonb, must int not null",
            replace(PLAIN, others=lambda _: {}),
            "gives no 'must'",
        ),
    ],
)
async def test_what_does_not_fit_is_named(
    connect: Connect, database_uri: str, ddl: str, existing: ExistingTable, message: str
) -> None:
    """A missing table, a missing column, a wrong type: one sentence each, at the first use, and no row."""
    await ask(database_uri, "create extension vector")
    if ddl:
        await ask(database_uri, f"create table notes ({ddl})")
    store = PgVectorStore(connect(), table="notes", dimensions=64, embed=EMBED, existing=existing)
    with pytest.raises(InvalidInput, match=message):
        await case_of(store).put()
    if ddl:
        assert await ask(database_uri, "select count(*) from notes") == [(0,)]


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (None, "notes has no HNSW index, the store needs vector_l2_ops; make one: create index concurrently"),
        ("vector_cosine_ops", "has an HNSW index for vector_cosine_ops, the store needs vector_l2_ops"),
    ],
)
async def test_an_index_that_no_search_would_use_is_named(
    connect: Connect, database_uri: str, index: str | None, message: str
) -> None:
    """An index on another distance would be passed over in silence, and every search be a full scan."""
    await ask(database_uri, "create extension vector")
    await ask(database_uri, "create table notes (id text primary key, body text, v vector(64), meta jsonb)")
    if index:
        await ask(database_uri, f"create index on notes using hnsw (v {index})")
    options: dict[str, Any] = {"existing": PLAIN, "distance": "l2", "index": "hnsw"}
    store = PgVectorStore(connect(), table="notes", dimensions=64, embed=EMBED, **options)
    with pytest.raises(InvalidInput, match=message):
        await store.find("any")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"label": None}, "either label, one jsonb column, or label_columns"),
        ({"label_columns": {}}, "either label, one jsonb column, or label_columns"),
        ({"text": None}, "either text, a column, or text_key"),
        ({"text": None, "text_key": "space"}, "a key that the label does not use itself"),
        ({"label": None, "label_columns": {"fact_id": "f"}}, "lacks custody, ledger_id, space, stored_at"),
        ({"embedding": "body"}, "one column is named for two things"),
        ({"id": ""}, "a text that is not empty"),
    ],
)
def test_a_mapping_that_cannot_be_meant_is_refused(words: dict[str, Any], message: str) -> None:
    """A mapping is checked in itself when it is made."""
    whole: dict[str, Any] = {"id": "id", "text": "body", "embedding": "v", "label": "meta"} | words
    with pytest.raises(InvalidInput, match=message):
        ExistingTable(**whole)


async def test_a_varchar_column_sets_the_limit_before_any_store_is_touched(
    connect: Connect, database_uri: str
) -> None:
    """With the limit that the refusal names, a text of just that length is held whole."""
    await ask(database_uri, "create extension vector")
    columns = "id text primary key, body varchar(99), v vector(64), meta jsonb"
    await ask(database_uri, f"create table notes ({columns})")
    options: dict[str, Any] = {"existing": PLAIN, "limits": Limits(text_chars=99)}
    case = case_of(PgVectorStore(connect(), table="notes", dimensions=64, embed=EMBED, **options))
    await case.put(case.fact("é" * 99))
    with pytest.raises(StoreRefused, match="22001"):
        await case.put(case.fact("é" * 100))
    assert await ask(database_uri, "select length(body) from notes") == [(99,)]
