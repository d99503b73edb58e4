"""A server that said a commit is durable, and was not right: the ledger says that it moved back."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from fix_custody import ACTOR, error_of

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.errors import LedgerRestored, MissingExtra
from custody_sync.runtime import Runtime
from custody_sync.testing import ManualClock, MemoryStore
from custody_sync.testing.postgres import EmbeddedPostgres

ROUNDS, EVENTS = 8, 6
LATER = timedelta(minutes=20)


@pytest.fixture
def server() -> Iterator[EmbeddedPostgres]:
    """A server of its own that answers a commit before it is on the disk, as much as ten seconds before."""
    made = EmbeddedPostgres()
    try:
        made.start()
    except MissingExtra as missing:
        pytest.skip(f"{missing}; that package has no wheel for every platform")
    told(made, "ALTER SYSTEM SET wal_writer_delay = '10s'", "SELECT pg_reload_conf()")
    yield made
    made.stop()


def told(server: EmbeddedPostgres, *statements: str) -> None:
    """Tell a server to do something, each by itself."""
    with psycopg.connect(server.uri, autocommit=True) as conn:
        for statement in statements:
            conn.execute(statement.encode())


@pytest.mark.timeout(300)
async def test_acknowledged_events_that_a_server_lost_are_missed(
    server: EmbeddedPostgres, tmp_path: Path
) -> None:
    """The witness has seen what is gone: a verification says so, and a repair removes nothing."""
    clock = ManualClock()
    store, runtime, witness = MemoryStore("memories", clock=clock), Runtime(clock=clock), tmp_path / "witness"
    async with await Ledger.open(server.uri, create=True, runtime=runtime, witness=witness):
        # A ledger that is lost as a whole is another matter: nobody finds one there.
        told(server, "CHECKPOINT")
    acknowledged = 0
    for nth in range(ROUNDS):
        async with await Ledger.open(server.uri, runtime=runtime, witness=witness) as ledger:
            if (await ledger.head()).seq < acknowledged:
                break
            custody = AsyncCoordinator(ledger, stores=[store], runtime=runtime)
            for n in range(EVENTS):
                await custody.write(value=f"value {nth} {n}", space="org", actor=ACTOR)
            acknowledged += EVENTS
            await ledger.witness.flush()
            server.crash()
        server.resume()
    before = store.snapshot().keys()
    clock.advance(LATER)
    async with await Ledger.open(server.uri, runtime=runtime, witness=witness) as ledger:
        log = [row async for row in ledger.export()]
        assert len(log) < acknowledged, f"the server lost nothing in {ROUNDS} crashes, which proves nothing"
        assert (await ledger.verify(witness=False)).found is False, "what is left is whole"
        assert (await ledger.verify()).found is True
        custody = AsyncCoordinator(ledger, stores=[store], runtime=runtime)
        await error_of(custody.repair(actor="ops", reason="x", max_removals=1000), LedgerRestored)
    assert store.snapshot().keys() == before
