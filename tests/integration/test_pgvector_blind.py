"""What a connection does not show is not gone: row-level security, another database, another row's id."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.pgvector_tables import LANGCHAIN, Shape
from fix_custody import open_desk
from fix_pgvector import DIMENSIONS, EMBED, Connect, ask, case_of, database_of, store_of

from custody_sync.adapters.pgvector import ExistingTable, PgVectorStore
from custody_sync.errors import InvalidInput, NoProof, StoreRefused
from custody_sync.model import Entry

NOTES = Shape(
    table="notes",
    ddl=(
        "create extension if not exists vector",
        f"create table notes (id bigserial primary key, body text, v vector({DIMENSIONS}), meta jsonb)",
    ),
    existing=ExistingTable(id="id", text="body", embedding="v", label="meta"),
    stranger="",
)
SAID = '{"source": "custody-sync", "ledger_id": "theirs", "fact_id": "x", "space": "z"}'


@pytest.fixture
async def notes(connect: Connect, database_uri: str) -> PgVectorStore:
    """Return an adapter on an application's table whose ids the database gives."""
    for statement in NOTES.ddl:
        await ask(database_uri, statement)
    return mapped(connect())


def mapped(pool: Any, **options: Any) -> PgVectorStore:
    """Return an adapter on the table `notes`."""
    return store_of(pool, table="notes", existing=NOTES.existing, **options)


@pytest.fixture
async def tenant(database_uri: str) -> AsyncIterator[str]:
    """Return the connection string of a role that owns no table."""
    role = f"tenant_{database_of(database_uri)}"
    await ask(database_uri, f"create role {role} login")
    yield database_uri.replace("//postgres@", f"//{role}@")
    await ask(database_uri, f"drop owned by {role}")
    await ask(database_uri, f"drop role {role}")


async def secured(uri: str, table: str, *, forced: bool = False) -> None:
    """Put a table under a policy that shows nothing, and let the tenant at it."""
    role = f"tenant_{database_of(uri)}"
    await ask(uri, f"grant all on {table} to {role}")
    await ask(uri, f"alter table {table} enable row level security")
    await ask(uri, f"create policy nothing on {table} using (false) with check (true)")
    if forced:
        await ask(uri, f"alter table {table} owner to {role}")
        await ask(uri, f"alter table {table} force row level security")


# --- row-level security ----------------------------------------------------------------------


@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize("table", ["facts", "notes"])
async def test_what_a_policy_hides_is_not_gone(
    connect: Connect, database_uri: str, notes: PgVectorStore, tenant: str, table: str, forced: bool
) -> None:
    """A session that is shown nothing proves nothing, also the owner's under FORCE, and lists nothing."""
    make = mapped if table == "notes" else store_of
    put = await case_of(make(connect())).put()
    await secured(database_uri, table, forced=forced)
    store = make(connect(tenant))
    for entry in (*put.entries, *put.blind):
        await store.delete(entry)
        with pytest.raises(NoProof, match=r"\(row_level_security\)"):
            await store.verify_deleted(entry)
    with pytest.raises(StoreRefused, match=r"list_entries was refused \(row_level_security\)"):
        [entry async for entry in store.list_entries()]
    with pytest.raises(StoreRefused, match=r"find was refused \(row_level_security\)"):
        await store.find(put.fact.fact_id)
    assert await ask(database_uri, f"select count(*) from {table}") == [(1,)]


async def test_whom_a_policy_does_not_bind_proves(connect: Connect, database_uri: str, tenant: str) -> None:
    """A superuser sees through it, so the same removal is proved on another pool; a held row is held."""
    case = case_of(store_of(connect()))
    put = await case.put()
    await secured(database_uri, "facts")
    assert await case.said_gone(put.blind[0]) is False
    await case.delete(put)
    assert [await case.said_gone(entry) for entry in (*put.entries, *put.blind)] == [True, True]
    await ask(database_uri, "alter policy nothing on facts using (true)")
    shown = await case.put()
    assert await case_of(store_of(connect(tenant))).said_gone(shown.blind[0]) is False


async def test_a_forget_behind_a_policy_stays_pending(
    connect: Connect, database_uri: str, tenant: str, tmp_path: Path
) -> None:
    """Forget and sweep say which store proves nothing; a pool that sees all ends what is pending."""
    stores: list[Any] = [store_of(connect(), name="pg")]
    async with open_desk(tmp_path, stores=stores) as desk:
        fact_id = await desk.written()
        await secured(database_uri, "facts")
        bound = desk.coordinator(stores=[store_of(connect(tenant), name="pg")])
        told = await bound.forget(fact_id, actor="dpo", reason="asked")
        assert {removal.outcome for removal in told.removals} == {"unverified"}
        assert not (await bound.repair(actor="ops", reason="sweep")).complete
        assert await ask(database_uri, "select count(*) from facts") == [(1,)]
        assert (await desk.forget(fact_id)).complete
        assert await ask(database_uri, "select count(*) from facts") == [(0,)]


# --- ids of somebody else --------------------------------------------------------------------


@pytest.mark.parametrize("meta", ['{"app": true}', None, SAID])
async def test_an_id_given_again_is_not_ours(
    notes: PgVectorStore, database_uri: str, tmp_path: Path, meta: str | None
) -> None:
    """After TRUNCATE … RESTART IDENTITY nobody's row is deleted or relabelled, by whatever call."""
    case = case_of(notes)
    puts = [await case.put(case.fact(f"secret {n}")) for n in range(2)]
    await ask(database_uri, "truncate notes restart identity")
    for n in range(2):
        await ask(database_uri, "insert into notes (body, meta) values (%s, %s)", [f"theirs {n}", meta])
    look = "select id, body, meta from notes order by id"
    before = await ask(database_uri, look)
    for put in puts:
        for entry in (*put.entries, *put.blind):
            await notes.delete(entry)
        with pytest.raises(StoreRefused, match="no such entry"):
            await notes.relabel(put.entries[0], put.label)
    # With its text it is certain; without, the row may be ours with its label taken off.
    assert await case.said_gone(puts[0].entries[0]) is True
    assert await case.said_gone(puts[0].blind[0]) == "NoProof"
    assert await ask(database_uri, look) == before


async def test_a_row_labelled_by_another_ledger_is_theirs(notes: PgVectorStore, database_uri: str) -> None:
    """Where the ledger is known, a row of another one under the same id is not ours, text or none."""
    case = case_of(notes)
    put = await case.put()
    await ask(database_uri, "update notes set meta = %s, v = null, body = 'theirs'", [SAID])
    mine = replace(put.blind[0], ledger_id=put.label.ledger_id)
    await notes.delete(mine)
    assert await case.said_gone(mine) == "NoProof", "without its text nobody can tell"
    assert await ask(database_uri, "select body from notes") == [("theirs",)]


@pytest.mark.parametrize("changed", ["meta = '{}'", "meta = '{}', body = 'theirs'"])
async def test_a_text_or_a_vector_without_its_label_is_still_there(
    notes: PgVectorStore, database_uri: str, changed: str
) -> None:
    """A label that was taken off makes nothing gone: neither the text nor the vector of it."""
    case = case_of(notes)
    put = await case.put()
    await ask(database_uri, f"update notes set {changed}")
    await case.delete(put)
    assert [await case.said_gone(entry) for entry in (*put.entries, *put.blind)] == [False, "NoProof"]
    assert len(await ask(database_uri, "select 1 from notes")) == 1


async def test_a_key_whose_row_has_another_label_is_left_alone(connect: Connect, database_uri: str) -> None:
    """In a table of our own too the label says whose a row is."""
    case = case_of(store_of(connect()))
    puts = [await case.put(), await case.put()]
    await ask(database_uri, "update facts set fact_id = 'other', embedding = null, text = 'other'")
    await case.delete(*puts)
    assert len(await ask(database_uri, "select 1 from facts")) == 2
    assert [await case.said_gone(puts[0].entries[0]), await case.said_gone(puts[0].blind[0])] == [
        True,
        "NoProof",
    ]
    theirs = Entry(store="pgvector", external_id=puts[0].label.key)
    await case.store.delete(theirs)
    assert await case.said_gone(theirs) is False


@pytest.mark.parametrize("meta", ["'{}'", 'new.meta || \'{"fact_id": "other"}\'', "new.meta - 'custody'"])
async def test_a_put_whose_label_is_not_kept_is_refused(
    notes: PgVectorStore, database_uri: str, meta: str
) -> None:
    """A trigger that changes the label would make an entry that nobody finds again; nothing stays."""
    await ask(
        database_uri,
        "create function strip() returns trigger language plpgsql as "
        f"$$begin new.meta = {meta}; return new; end$$",
    )
    await ask(database_uri, "create trigger s before insert on notes for each row execute function strip()")
    case = case_of(notes)
    facts = [case.fact(), case.fact()]
    with pytest.raises(StoreRefused, match="does not keep the label"):
        await case.put()
    with pytest.raises(StoreRefused, match="does not keep the label"):
        await notes.put_many([(fact, case.label(fact)) for fact in facts])
    assert await ask(database_uri, "select 1 from notes") == []


@pytest.mark.parametrize("words", [{"id": "i%d"}, {"label": "m%(x)s"}, {"schema": "100%"}])
def test_a_percent_sign_in_a_name_is_refused(connect: Connect, words: dict[str, Any]) -> None:
    """It would be read as a place for a value in every statement."""
    whole: dict[str, Any] = {"id": "id", "text": "body", "embedding": "v", "label": "meta"} | words
    with pytest.raises(InvalidInput, match="a name with % in it cannot be used"):
        ExistingTable(**whole)
    with pytest.raises(InvalidInput, match="has a % in it"):
        PgVectorStore(
            connect(), table="p%ct", existing=LANGCHAIN.existing, dimensions=DIMENSIONS, embed=EMBED
        )


@pytest.mark.parametrize("rows", [[], [(None, "one")], [("k", None), (None, None)]])
async def test_what_a_look_goes_along_with_loses_no_row(
    notes: PgVectorStore, rows: list[tuple[str | None, str | None]]
) -> None:
    """A unique column of an application may be null: such a row is one all the same, and none is none."""
    await notes.find("nothing")
    values = " union all ".join(f"select {literal(a)}::text, {literal(b)}::text" for a, b in rows)
    statement = (values or "select null, null where false").encode()

    async def asked(cursor: Any) -> tuple[list[Any], Any]:
        return await notes._witness.beside(cursor, statement, {})

    found, (hidden, place) = await notes._pool.ask("find", asked)
    assert sorted(found, key=str) == sorted(rows, key=str)
    assert (hidden, bool(place)) == (False, True)


def literal(text: str | None) -> str:
    """Write a value of the test as SQL."""
    return "null" if text is None else f"'{text}'"
