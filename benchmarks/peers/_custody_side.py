"""The same indexing through custody-sync, into LangChain's own table: a command a line in, an answer out."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from psycopg_pool import AsyncConnectionPool

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.adapters.pgvector import ExistingTable, PgVectorStore
from custody_sync.errors import BreakerOpen, CustodyError, WriteInProgress
from custody_sync.mended import Drift
from custody_sync.runtime import Runtime

ACTOR = "agent:indexer"
DIMENSIONS = 32
BEHIND = timedelta(minutes=11)


class SlowClock:
    """The machine's clock, some time behind."""

    def __init__(self, by: timedelta) -> None:
        self._by = by

    def now(self) -> datetime:
        """Return an instant that is past."""
        return datetime.now(UTC) - self._by


class CountingEmbeddings:
    """Vectors that follow from the text, after as long as a model would take; counts the texts."""

    def __init__(self, seconds: float) -> None:
        self.texts = 0
        self._seconds = seconds

    def __call__(self, text: str) -> Sequence[float]:
        """Return the vector of a text."""
        self.texts += 1
        time.sleep(self._seconds)
        return [1.0 + byte for byte in hashlib.sha256(text.encode()).digest()]


class Side:
    """One process that indexes, repairs and verifies.

    Args:
        uri: the database that holds both the vectors and the ledgers.
        name: what the server shows this process as.
        seconds: how long one call of the embedding takes.
    """

    def __init__(self, uri: str, name: str, seconds: float) -> None:
        self._uri, self._name = uri, name
        self._embed = CountingEmbeddings(seconds)

    async def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        """Do what was asked, and say what custody-sync said."""
        before = self._embed.texts
        verb, place, collection = command.pop("do"), command.pop("place"), command.pop("collection")
        # What is indexed is written by a clock that is behind, so that a sweep need not be waited for.
        behind = BEHIND if verb == "index" else timedelta(0)
        try:
            async with self._custody(place, collection, behind) as custody:
                said = await getattr(self, f"_{verb}")(custody, **command)
        except CustodyError as error:
            said = {"error": type(error).__name__, "fields": error.as_dict().get("fields")}
        return {"said": said, "embedded": self._embed.texts - before}

    @asynccontextmanager
    async def _custody(
        self, place: str, collection: str, behind: timedelta
    ) -> AsyncIterator[AsyncCoordinator]:
        joint = "&" if "?" in self._uri else "?"
        url = f"{self._uri}{joint}schema={place}"
        runtime = Runtime(clock=SlowClock(behind))
        about = {"application_name": self._name}
        async with (
            await Ledger.open(url, create=True, runtime=runtime) as ledger,
            AsyncConnectionPool(self._uri, min_size=1, max_size=4, open=False, kwargs=about) as pool,
        ):
            store = PgVectorStore(
                pool,
                table="langchain_pg_embedding",
                dimensions=DIMENSIONS,
                embed=self._embed,
                existing=ExistingTable(
                    id="id",
                    text="document",
                    embedding="embedding",
                    label="cmetadata",
                    scope_column="collection_id",
                    scope=collection,
                    others=lambda fact: {"cmetadata": {"document_of": fact.space}},
                ),
            )
            async with AsyncCoordinator(ledger, stores=[store], runtime=runtime) as custody:
                yield custody

    async def _index(
        self, custody: AsyncCoordinator, *, source: str, texts: list[str], cleanup: bool
    ) -> dict[str, Any]:
        """State every text of a source once, and retract what the source does not say any more."""
        wanted, gone = set(texts), []
        if cleanup:
            facts = await custody.ledger.as_of(space=source, limit=10_000)
            gone = [fact.fact_id for fact in facts if fact.value not in wanted]
        said: Counter[str] = Counter(
            await asyncio.gather(*(self._state(custody, source, text) for text in texts))
        )
        removed = await asyncio.gather(
            *(custody.retract(f, actor=ACTOR, reason="the source does not say it") for f in gone)
        )
        said.update(f"removal {item.outcome}" for result in removed for item in result.removals)
        return dict(said)

    async def _state(self, custody: AsyncCoordinator, source: str, text: str) -> str:
        key = hashlib.sha256(text.encode()).hexdigest()
        while True:
            try:
                result = await custody.write(value=text, space=source, actor=ACTOR, idempotency_key=key)
            except WriteInProgress:
                await asyncio.sleep(0.05)
            except CustodyError as error:
                return type(error).__name__
            else:
                return "there already" if result.duplicate else "written"

    async def _repair(self, custody: AsyncCoordinator) -> dict[str, Any]:
        """Sweep; where the breaker stops it, allow as many removals as it names, as an operator would."""
        told = {"actor": "ops", "reason": "after an outage"}
        said: dict[str, Any] = {}
        try:
            result = await custody.repair(**told)
        except BreakerOpen as stopped:
            said["breaker"] = planned = stopped.fields["planned"]
            result = await custody.repair(**told, max_removals=planned)
        said |= Counter(f"{item.kind} {item.outcome}" for item in result.repaired)
        return said | {"complete": result.complete}

    async def _reconcile(self, custody: AsyncCoordinator) -> dict[str, Any]:
        """Look at the difference; then mend what is missing, as many as the look has shown."""
        found = await custody.reconcile(actor="ops")
        counts = {f"{kind} found": n for of in found.found.values() for kind, n in of.items() if n}
        missing = found.count(Drift.MISSING)
        mended = await custody.reconcile(actor="ops", fix=[Drift.MISSING], max_puts=missing)
        outcomes = {
            f"{outcome} again": n for of in mended.outcomes.values() for outcome, n in of.items() if n
        }
        return counts | outcomes | {"complete": mended.complete}

    async def _verify(self, custody: AsyncCoordinator) -> dict[str, Any]:
        result = await custody.verify(actor="ops")
        return {"asked": result.asked, "complete": result.complete}


async def main(uri: str, name: str, seconds: str) -> None:
    """Say that it is ready, then answer until the input ends."""
    side = Side(uri, name, float(seconds))
    print(json.dumps({"versions": {}}), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await side.answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
