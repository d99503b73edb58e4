"""A store that is stopped while facts are forgotten: afterwards one repair proves every removal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fix_pgvector import DIMENSIONS, EMBED
from psycopg_pool import AsyncConnectionPool

from custody_sync import AsyncCoordinator
from custody_sync.adapters.pgvector import PgVectorStore
from custody_sync.errors import MissingExtra
from custody_sync.ledger import Ledger
from custody_sync.model import Outcome
from custody_sync.removal import Patience
from custody_sync.results import ForgetResult
from custody_sync.stores import Deadlines
from custody_sync.testing import MemoryStore
from custody_sync.testing.postgres import EmbeddedPostgres

FACTS, STOPPED_AFTER, AT_ONCE = 100, 20, 16
BRIEF = Patience(questions=2, first_wait=0.02, total=0.5, deletes=1)


@pytest.fixture
def server() -> Iterator[EmbeddedPostgres]:
    """A Postgres that keeps what it committed, for this test alone."""
    server = EmbeddedPostgres(durable=True)
    try:
        server.start()
    except MissingExtra as missing:
        pytest.skip(f"{missing}; that package has no wheel for every platform")
    yield server
    server.stop()


@asynccontextmanager
async def _opened(folder: Path, uri: str) -> AsyncIterator[tuple[AsyncCoordinator, PgVectorStore]]:
    """Open a SQLite ledger, the store that will be stopped, and one that will not."""
    pool: AsyncConnectionPool = AsyncConnectionPool(uri, open=False, min_size=1, max_size=8, timeout=0.3)
    async with pool, await Ledger.open(f"sqlite:///{folder}/custody.db", create=True) as ledger:
        store = PgVectorStore(pool, table="memories", dimensions=DIMENSIONS, embed=EMBED)
        others = MemoryStore("agent")
        deadlines = Deadlines(put=10, delete=2, question=2)
        async with AsyncCoordinator(
            ledger, stores=[store, others], patience=BRIEF, deadlines=deadlines
        ) as custody:
            yield custody, store


async def test_a_store_stopped_during_a_hundred_forgets(tmp_path: Path, server: EmbeddedPostgres) -> None:
    """Each forget says that it is not complete; once the store is back, one repair makes all verified."""
    async with _opened(tmp_path, server.uri) as (custody, store):
        ids = [
            (await custody.write(value=f"note {n}", space="user:1", actor="a")).fact.fact_id
            for n in range(FACTS)
        ]
        done: list[ForgetResult] = []
        waiting = iter(ids)

        async def forget() -> None:
            for fact_id in waiting:
                done.append(await custody.forget(fact_id, actor="ops", reason="asked to"))
                if len(done) == STOPPED_AFTER:
                    await asyncio.to_thread(server.crash)

        await asyncio.gather(*(forget() for _ in range(AT_ONCE)))
        assert len(done) == FACTS
        left = [result for result in done if not result.complete]
        assert len(left) >= FACTS - STOPPED_AFTER - AT_ONCE
        pending = await custody.ledger.pending(limit=1000)
        assert {row.store for row in pending} == {store.name}
        assert len(pending) >= len(left)
        while_down = await custody.repair(actor="ops", reason="too early")
        assert not while_down.complete
        (stopped,) = [one for one in (await custody.status()).stores if one.store == store.name]
        assert stopped.pending == len(pending)
        assert stopped.retry is not None

    # As an operator's command does, which connects anew: the other pool waits longer between its tries.
    await asyncio.to_thread(server.resume)
    async with _opened(tmp_path, server.uri) as (custody, store):
        repaired = await custody.repair(actor="ops", reason="after an outage")
        assert repaired.complete, repaired
        assert {row.outcome for row in repaired.repaired} == {Outcome.VERIFIED}
        assert await custody.ledger.pending() == []
        verified = await custody.verify(actor="ops")
        assert verified.complete
        assert verified.outcomes[store.name] == {"verified": FACTS}
        assert (await custody.status()).pending is False
        assert [entry async for entry in store.list_entries()] == []
