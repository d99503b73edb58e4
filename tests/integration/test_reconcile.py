"""Reconciling real stores: a LangGraph store, a pgvector table, and a table that was there before."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from fakes.pgvector_tables import LANGCHAIN
from fix_pgvector import Connect, ask, store_of
from fix_world import open_world

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.mended import ReconcileResult
from custody_sync.model import Fact, Label
from custody_sync.runtime import Runtime

AGO = timedelta(hours=1)
EDITS = (
    "delete from store where value ->> 'fact_id' = '{0}'",
    """update store set value = jsonb_set(value, '{{text}}', '"edited"') where value ->> 'fact_id' = '{1}'""",
    """update store set value = jsonb_set(value, '{{space}}', '"odd"') where value ->> 'fact_id' = '{2}'""",
    "delete from memories where fact_id = '{0}'",
    "update memories set text = 'edited' where fact_id = '{1}'",
    "update memories set custody = null, stored_at = null where fact_id = '{2}'",
    "delete from langchain_pg_embedding where cmetadata ->> 'fact_id' = '{0}'",
    "update langchain_pg_embedding set document = 'edited' where cmetadata ->> 'fact_id' = '{1}'",
    """update langchain_pg_embedding set cmetadata = cmetadata || '{{"space": "odd"}}'
        where cmetadata ->> 'fact_id' = '{2}'""",
)
"""What somebody does to three facts in each store."""
TEXTS = (
    "select value ->> 'text' from store where value ->> 'fact_id' = '{0}'",
    "select text from memories where fact_id = '{0}'",
    "select document from langchain_pg_embedding where cmetadata ->> 'fact_id' = '{0}'",
)


@dataclass(frozen=True)
class Place:
    """Three stores of one database behind one coordinator."""

    uri: str
    ledger: Ledger
    custody: AsyncCoordinator

    async def reconcile(self, *fix: str) -> ReconcileResult:
        """Reconcile."""
        return await self.custody.reconcile(actor="ops", fix=fix, max_removals=100)

    async def orphan(self, store: object) -> None:
        """Leave an entry that no event stands behind."""
        runtime = Runtime()
        at = runtime.clock.now() - AGO
        fact_id = runtime.ids.fact_id(at)
        some = {"fact_id": fact_id, "space": "org", "actor": "lost", "valid_from": at}
        known = (await self.ledger.as_of(limit=1))[0]
        fact = Fact(
            **some, subject="s", predicate="p", value="v", text=f"lost {fact_id}", provenance=known.provenance
        )
        label = Label(
            **some,
            ledger_id=self.ledger.ledger_id,
            stored_at=at,
            generation=runtime.ids.generation(),
            provenance=known.provenance,
        )
        await store.put(fact, label)  # type: ignore[attr-defined]


@pytest.fixture
async def place(database_uri: str, connect: Connect, tmp_path: Path) -> AsyncIterator[Place]:
    """Open all three, with four facts of an hour ago in them."""
    for statement in LANGCHAIN.ddl:
        await ask(database_uri, statement)
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(open_world(database_uri))
        mapped = store_of(connect(), table=LANGCHAIN.table, existing=LANGCHAIN.existing, name="mapped")
        ledger = await Ledger.open(f"sqlite:///{tmp_path}/custody.db", create=True)
        await stack.enter_async_context(ledger)
        custody = AsyncCoordinator(ledger, stores=[*world.stores, mapped])
        yield Place(database_uri, ledger, await stack.enter_async_context(custody))


async def test_what_drifted_in_real_stores_is_mended(place: Place) -> None:
    """Lost, edited and relabelled entries and orphans are found in each store and mended, once."""
    ids = []
    for number in range(4):
        told = {"subject": f"acct:{number}", "predicate": "plan", "space": "org", "actor": "agent:a"}
        ids.append((await place.custody.write(value=number, **told)).fact.fact_id)
    assert (await place.reconcile()).found == {"agent": {}, "memories": {}, "mapped": {"unlabelled": 1}}
    for edit in EDITS:
        await ask(place.uri, edit.format(*ids))
    for gate in place.custody._gates.values():
        await place.orphan(gate.store)
    drift = {"orphan": 1, "missing": 1, "altered_text": 1, "altered_label": 1}
    wanted = {"agent": drift, "memories": drift, "mapped": drift | {"unlabelled": 1}}
    dry = await place.reconcile()
    assert dry.found == wanted
    assert dry.uncompared == {}
    assert "edited" not in repr(dry)
    result = await place.reconcile("all")
    assert (result.found, result.complete) == (wanted, True), result.differences
    again = await place.reconcile("all")
    assert (again.differences, again.complete) == ((), True)
    for number, fact_id in enumerate(ids):
        for text in TEXTS:
            assert await ask(place.uri, text.format(fact_id)) == [(f"acct:{number} plan: {number}",)]
    assert await ask(place.uri, "select document from langchain_pg_embedding where id = 'other'") == [
        ("elsewhere",)
    ]
