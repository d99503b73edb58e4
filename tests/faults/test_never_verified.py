"""`verified` is never said of what a store still holds or could not be asked about, however it is removed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from fix_oracle import read_log
from fix_world import AGENT, DIMENSIONS, EMBED, INDEX, MEMORIES, ShiftedClock
from langgraph.store.postgres import PostgresStore
from psycopg_pool import AsyncConnectionPool

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.adapters.langgraph import LangGraphStore
from custody_sync.adapters.pgvector import PgVectorStore
from custody_sync.model import Fact, Label, Outcome, Provenance
from custody_sync.removal import Patience
from custody_sync.runtime import Runtime

CLERK = "agent:clerk"
TEXT = "The spare key lies under the blue flower pot"
CROWD = 301
QUICK = Patience(questions=3, first_wait=0.01, factor=1.0, deletes=1)
# In a small table the planner would pass over the vector index, and with it over what the index does.
BY_INDEX = "&options=-c%20enable_seqscan%3Doff%20-c%20enable_sort%3Doff"
TABLES = {AGENT: "store", MEMORIES: "memories"}
FACT_ID = {AGENT: "value->>'fact_id'", MEMORIES: "fact_id"}


@dataclass
class Scene:
    """A coordinator with one store, and a connection to sabotage that store's engine with."""

    store: Any
    ledger: Ledger
    custody: AsyncCoordinator
    engine: psycopg.AsyncConnection[Any]
    folder: Path
    plan: tuple[str, ...] = ()
    """The sabotage, carried out once what is to be removed is there."""

    @property
    def name(self) -> str:
        """The store's name."""
        return str(self.store.name)

    async def strike(self) -> None:
        """Carry out the sabotage."""
        await self.run(*self.plan)

    async def run(self, *statements: str) -> None:
        """Run statements past the store."""
        for statement in statements:
            await self.engine.execute(statement.encode())

    async def rows(self, fact_id: str) -> int:
        """Count a fact's rows, by plain SQL."""
        query = f"select count(*) from {TABLES[self.name]} where {FACT_ID[self.name]} = %s"
        row = await (await self.engine.execute(query.encode(), (fact_id,))).fetchone()
        assert row is not None
        return int(row[0])

    def said(self, fact_id: str) -> set[str]:
        """Return every outcome of a fact's removal that the ledger's log has."""
        events = read_log(self.folder)
        return {e.data["outcome"] for e in events if e.kind == "remove" and e.fact_id == fact_id}

    async def write(self, **more: Any) -> str:
        """Write the text as a fact."""
        said = {"subject": "key", "predicate": "place", "space": "user:42", "actor": CLERK, "text": TEXT}
        return (await self.custody.write(value=TEXT, **(said | more))).fact.fact_id

    async def leave(self) -> str:
        """Leave an entry of a fact that the ledger never heard of."""
        now = self.ledger.now() - timedelta(minutes=20)
        fact_id = Runtime().ids.fact_id(now)
        whose: Any = {
            "space": "user:42",
            "actor": CLERK,
            "provenance": Provenance.ATTESTED,
            "valid_from": now,
        }
        fact = Fact(fact_id=fact_id, subject="key", predicate="place", value=TEXT, text=TEXT, **whose)
        ledger_id = self.ledger.ledger_id
        label = Label(ledger_id=ledger_id, fact_id=fact_id, stored_at=now, generation="lost", **whose)
        await self.store.put(fact, label)
        return fact_id

    async def repair(self) -> list[Outcome]:
        """Sweep, and return what became of each entry."""
        result = await self.custody.repair(actor=CLERK, reason="after an outage")
        assert result.complete is (not result.still_held and all_verified(result.repaired))
        return outcomes(result.repaired)


def outcomes(removals: Any) -> list[Outcome]:
    """Return what became of each entry."""
    return [removal.outcome for removal in removals]


def all_verified(removals: Any) -> bool:
    """Tell whether everything is said to be gone."""
    return set(outcomes(removals)) <= {Outcome.VERIFIED}


@pytest.fixture(params=[AGENT, MEMORIES])
async def scene(request: pytest.FixtureRequest, database_uri: str, tmp_path: Path) -> AsyncIterator[Scene]:
    """Yield a coordinator with one real store, whose searches go by an HNSW index."""
    uri, runtime = database_uri + BY_INDEX, Runtime(clock=ShiftedClock(0))
    async with AsyncExitStack() as stack:
        store: Any
        if request.param == AGENT:
            raw = stack.enter_context(PostgresStore.from_conn_string(uri, index=INDEX))
            raw.setup()
            store = LangGraphStore(raw, namespace=("memories", "{space}"), name=AGENT)
        else:
            pool = await stack.enter_async_context(AsyncConnectionPool(uri, min_size=1, open=False))
            store = PgVectorStore(
                pool, table=MEMORIES, dimensions=DIMENSIONS, embed=EMBED, name=MEMORIES, index="hnsw"
            )
        engine = await psycopg.AsyncConnection.connect(database_uri, autocommit=True)
        await stack.enter_async_context(engine)
        ledger = await Ledger.open(f"sqlite:///{tmp_path / 'custody.db'}", create=True, runtime=runtime)
        await stack.enter_async_context(ledger)
        custody = AsyncCoordinator(ledger, stores=[store], runtime=runtime, patience=QUICK)
        yield Scene(store, ledger, await stack.enter_async_context(custody), engine, tmp_path)


# --- how a removal comes about --------------------------------------------------------------


async def retract(scene: Scene) -> tuple[str, list[Outcome]]:
    """Retract a fact."""
    fact_id = await scene.write()
    await scene.strike()
    result = await scene.custody.retract(fact_id, actor=CLERK, reason="a mistake")
    assert result.complete is all_verified(result.removals)
    return fact_id, outcomes(result.removals)


async def forget(scene: Scene) -> tuple[str, list[Outcome]]:
    """Forget a fact, whose text is still in memory then."""
    fact_id = await scene.write()
    await scene.strike()
    result = await scene.custody.forget(fact_id, actor=CLERK, reason="asked to")
    assert result.complete is all_verified(result.removals)
    return fact_id, outcomes(result.removals)


async def supersede(scene: Scene) -> tuple[str, list[Outcome]]:
    """Write a fact's replacement."""
    fact_id = await scene.write()
    await scene.strike()
    said = {"subject": "key", "predicate": "place", "space": "user:42", "actor": CLERK}
    result = await scene.custody.write(value="taken away", supersedes=fact_id, **said)
    assert result.complete is all_verified(result.removals)
    return fact_id, outcomes(result.removals)


async def sweep(scene: Scene) -> tuple[str, list[Outcome]]:
    """Sweep up an orphan."""
    await scene.write(subject="car")
    fact_id = await scene.leave()
    await scene.strike()
    return fact_id, await scene.repair()


Way = Callable[[Scene], Awaitable[tuple[str, list[Outcome]]]]
EVERY_WAY = pytest.mark.parametrize("way", [retract, forget, supersede, sweep])

# --- the sabotage ---------------------------------------------------------------------------


def nothing_is_deleted(scene: Scene) -> tuple[str, ...]:
    """Let a trigger swallow every delete, which then reports success."""
    return (
        "create function keep() returns trigger language plpgsql as 'begin return null; end'",
        f"create trigger keep before delete on {TABLES[scene.name]} for each row execute function keep()",
    )


def a_crowd(scene: Scene) -> tuple[str, ...]:
    """Copy the newest row 301 times, text and vector and all, as another ledger's entries."""
    if scene.name == MEMORIES:
        return (
            "insert into memories (key, fact_id, ledger_id, space, stored_at, custody, text, embedding) "
            f"select 'crowd-' || n, 'crowd-' || n, 'another', space, stored_at, custody, text, embedding "
            f"from (select * from memories order by created_at desc limit 1), generate_series(1, {CROWD}) n",
        )
    newest = "(select * from store order by created_at desc limit 1)"
    return (
        "insert into store (prefix, key, value) select prefix, 'crowd-' || n, value || "
        "jsonb_build_object('ledger_id', 'another', 'fact_id', 'crowd-' || n) "
        f"from {newest}, generate_series(1, {CROWD}) n",
        "insert into store_vectors (prefix, key, field_name, embedding) "
        "select prefix, 'crowd-' || n, field_name, embedding "
        "from (select v.* from store_vectors v order by created_at desc limit 1), "
        f"generate_series(1, {CROWD}) n",
    )


def searches_fail(scene: Scene) -> tuple[str, ...]:
    """Take the column of vectors away: lookups still answer, and no search by text does."""
    table = "store_vectors" if scene.name == AGENT else "memories"
    return (f"alter table {table} rename column embedding to lost",)


def lookups_fail(scene: Scene) -> tuple[str, ...]:
    """Take the column away that every question needs, and no delete."""
    column = "value" if scene.name == AGENT else "fact_id"
    return (f"alter table {TABLES[scene.name]} rename column {column} to lost",)


MEND = {
    "keep": "drop function keep cascade",
    AGENT: "alter table store rename column lost to value",
    MEMORIES: "alter table memories rename column lost to fact_id",
}

# --- the tests ------------------------------------------------------------------------------


@EVERY_WAY
@pytest.mark.parametrize("crowded", [False, True], ids=["alone", "crowded"])
async def test_a_delete_that_does_nothing_is_never_verified(scene: Scene, way: Way, crowded: bool) -> None:
    """An entry that a silent delete left is not said to be gone, nor where 301 equal texts hide it."""
    scene.plan = (a_crowd(scene) if crowded else ()) + nothing_is_deleted(scene)
    fact_id, said = await way(scene)
    assert await scene.rows(fact_id) == 1, "the delete was to do nothing"
    assert said == [Outcome.STILL_INDEXED]
    assert "verified" not in scene.said(fact_id)
    asked = await scene.custody.verify(actor=CLERK)
    assert outcomes(asked.removals) == [Outcome.STILL_INDEXED]
    assert not asked.complete
    await scene.run(MEND["keep"])
    assert await scene.repair() == [Outcome.VERIFIED], "once deletes work again the repair says so"
    assert await scene.rows(fact_id) == 0


@EVERY_WAY
async def test_a_delete_that_works_is_at_worst_unverified_in_a_crowd(scene: Scene, way: Way) -> None:
    """Only a question with the text may be left open by 301 equal ones; the log agrees."""
    scene.plan = a_crowd(scene)
    fact_id, said = await way(scene)
    assert await scene.rows(fact_id) == 0
    may_be_hidden = scene.name == AGENT and way is forget
    assert said == [Outcome.VERIFIED] or (may_be_hidden and said == [Outcome.UNVERIFIED])
    assert ("verified" in scene.said(fact_id)) is (said == [Outcome.VERIFIED])


async def test_a_search_that_fails_never_verifies_a_forget(scene: Scene) -> None:
    """While the text is known the store is asked with it, and an error is no answer."""
    scene.plan = searches_fail(scene)
    fact_id, said = await forget(scene)
    assert said == [Outcome.UNVERIFIED]
    assert "verified" not in scene.said(fact_id)


@pytest.mark.parametrize("way", [retract, forget])
async def test_lookups_that_fail_never_verify(scene: Scene, way: Way) -> None:
    """A store that cannot be asked at all is never said to have let an entry go."""
    scene.plan = lookups_fail(scene)
    fact_id, said = await way(scene)
    assert Outcome.VERIFIED not in said
    assert "verified" not in scene.said(fact_id)
    await scene.run(MEND[scene.name])
    assert await scene.repair() == [Outcome.VERIFIED], "once it can be asked the repair says so"
    assert await scene.rows(fact_id) == 0
