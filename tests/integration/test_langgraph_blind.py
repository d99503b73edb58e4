"""LangGraph's Postgres store under row-level security: what its session is not shown is not gone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from fix_langgraph import DIMENSIONS, CountingEmbedder
from fix_pgvector import ask, database_of

from custody_sync.adapters.langgraph import LangGraphStore
from custody_sync.errors import NoProof, StoreRefused
from custody_sync.testing.contract_case import Case, StoreHooks


@pytest.fixture(params=["postgres", "async postgres"])
async def opened(request: pytest.FixtureRequest, database_uri: str) -> AsyncIterator[Any]:
    """Return a function that opens the store for a role, the owner's set up."""
    from langgraph.store.postgres import AsyncPostgresStore, PostgresStore

    role = f"tenant_{database_of(database_uri)}"
    index: Any = {"dims": DIMENSIONS, "embed": CountingEmbedder(), "fields": ["text"]}
    async with AsyncExitStack() as stack:

        async def make(uri: str = database_uri) -> LangGraphStore:
            if request.param == "postgres":
                store = stack.enter_context(PostgresStore.from_conn_string(uri, index=index))
                return LangGraphStore(store)
            return LangGraphStore(
                await stack.enter_async_context(AsyncPostgresStore.from_conn_string(uri, index=index))
            )

        with PostgresStore.from_conn_string(database_uri, index=index) as owner:
            owner.setup()
        await ask(database_uri, f"create role {role} login")
        await ask(database_uri, f"grant all on all tables in schema public to {role}")
        yield make
    await ask(database_uri, f"drop owned by {role}")
    await ask(database_uri, f"drop role {role}")


@pytest.mark.parametrize("table", ["store", "store_vectors"])
async def test_what_a_policy_hides_is_not_gone(opened: Any, database_uri: str, table: str) -> None:
    """A policy on the items or on their vectors leaves every absence unproved and every listing refused."""
    owner = await opened()
    case = Case("integration", owner, StoreHooks())
    put, gone = await case.put(), await case.put()
    await case.delete(gone)
    await ask(database_uri, f"alter table {table} enable row level security")
    await ask(database_uri, f"create policy nothing on {table} using (false) with check (true)")
    role = f"tenant_{database_of(database_uri)}"
    store = await opened(database_uri.replace("//postgres@", f"//{role}@"))
    for entry in (*gone.entries, *gone.blind, *(put.blind if table == "store" else ())):
        with pytest.raises(NoProof, match=r"\(row_level_security|left out entries"):
            await store.verify_deleted(entry)
    with pytest.raises(StoreRefused, match=r"find was refused \(row_level_security\)"):
        await store.find(put.fact.fact_id)
    with pytest.raises(StoreRefused, match=r"list_entries was refused \(row_level_security\)"):
        [entry async for entry in store.list_entries()]
    # Whom the policy does not bind sees all, and so does what a policy shows.
    assert [await case.said_gone(entry) for entry in (gone.blind[0], put.blind[0])] == [True, False]
    await ask(database_uri, f"alter policy nothing on {table} using (true)")
    assert await store.verify_deleted(put.blind[0]) is False
