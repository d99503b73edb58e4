"""What a store's own search serves of facts that were corrected, alone and guarded by the ledger.

608 dated values of 200 subjects and 1,000 questions about them; every value lies in the store, the
superseded ones too, and no search is filtered by space. Both sides ask the same store with the same
vectors. The links between the values are the ledger's: each was written as superseding the one before.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Literal

from _bench import Bound, conclude
from _recall_amendments import DATA, Amendments, Compared, VectorMemory, read, withheld, write
from _recall_minilm import NoModel, vectors
from psycopg_pool import AsyncConnectionPool

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.adapters.pgvector import PgVectorStore
from custody_sync.ports import Store
from custody_sync.testing.embedding import WordEmbedder
from custody_sync.testing.postgres import EmbeddedPostgres

KS = (1, 3, 10)
BOUND: Bound = {"stale_served": {"most": 0}, "lost": {"most": 0}, "withheld": {"most": 0}}
Model = Literal["minilm", "words"]
Embed = Callable[[str], list[float]]


def embedder(model: Model | None, data: Amendments) -> tuple[str, Embed]:
    """Return the vectors of every text: those of MiniLM, or where it cannot be had, of words."""
    if model != "words":
        try:
            known = dict(zip(data.texts, vectors(data.texts), strict=True))
            return "all-MiniLM-L6-v2", known.__getitem__
        except NoModel:
            if model == "minilm":
                raise SystemExit("The packages with all-MiniLM-L6-v2 cannot be had here.") from None
            print("The packages with all-MiniLM-L6-v2 cannot be had here; vectors are of words in common.")
    words = WordEmbedder(384)
    return "words in common", {text: words(text) for text in data.texts}.__getitem__


async def compare(store: Store, folder: Path, data: Amendments) -> dict[int, Compared]:
    """Fill one store and a ledger of its own, and ask everything of both sides."""
    current, found = data.current, {k: Compared() for k in KS}
    search: Any = store
    async with (
        await Ledger.open(f"sqlite:///{folder / store.name}.db?synchronous=off", create=True) as ledger,
        AsyncCoordinator(ledger, stores=[store], superseded="keep") as custody,
    ):
        await write(custody, data)
        for query in data.queries:
            ranked = [
                (hit.entry.text or "", hit.score or 0.0)
                for hit in await search.search(query.text, len(current), None)
            ]
            assert len(ranked) == len(current)
            for k, compared in found.items():
                alone = [hit.entry.text or "" for hit in await search.search(query.text, k, None)]
                guarded = [hit.text for hit in (await custody.recall(query.text, k=k)).hits]
                compared.take(query, alone, guarded, withheld(ranked, guarded, k, current), current)
    return found


async def compare_all(embed: Embed, data: Amendments, *, quick: bool) -> dict[str, dict[int, Compared]]:
    """Ask every store."""
    with tempfile.TemporaryDirectory(prefix="custody-bench-") as told:
        folder = Path(told)
        found = {"memory": await compare(VectorMemory(embed), folder, data)}
        if not quick:
            async with AsyncExitStack() as stack:
                found["pgvector"] = await compare(await _pgvector(stack, embed), folder, data)
    return found


async def _pgvector(stack: AsyncExitStack, embed: Embed) -> Store:
    """Return an empty table that is searched exactly, so that an index's misses do not count as a guard's."""

    async def at_once(text: str) -> list[float]:
        return embed(text)

    server = stack.enter_context(EmbeddedPostgres())
    pool: AsyncConnectionPool[Any] = AsyncConnectionPool(server, open=False, min_size=1, max_size=4)
    await stack.enter_async_context(pool)
    return PgVectorStore(pool, table="memories", dimensions=384, embed=at_once)


def show(found: Mapping[str, Mapping[int, Compared]]) -> dict[str, float | None]:
    """Print a table a store, and return all figures: of what has a bound the worst."""
    every = [compared for by_k in found.values() for compared in by_k.values()]
    figures: dict[str, float | None] = {
        "stale_served": max(one.guarded.stale_of_anybody for one in every),
        "lost": max(one.lost for one in every),
        "withheld": max(one.withheld for one in every),
    }
    for store, by_k in found.items():
        for k, compared in by_k.items():
            print(f"{store}, k = {k}: {compared.lost} lost, {compared.withheld} withheld")
            for side, tally in (("alone", compared.alone), ("guarded", compared.guarded)):
                counts = tally.counts()
                print(f"  {side:8s}", ", ".join(f"{name} {count}" for name, count in counts.items()))
                figures |= {f"{store}_k{k}_{side}_{name}": count for name, count in counts.items()}
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="a smoke test; its figures mean little")
    parser.add_argument(
        "--vectors", choices=("minilm", "words"), help="by default MiniLM where it can be had"
    )
    told = parser.parse_args(arguments)
    if not DATA.is_dir():
        print("The amendments are no part of this project and are not beside it, so nothing was measured.")
        return conclude("recall_quality", dict.fromkeys(BOUND), BOUND, enforced=False)
    data = read(8 if told.quick else None)
    name, embed = embedder("words" if told.quick else told.vectors, data)
    print(f"{len(data.queries)} questions, vectors: {name}")
    found = asyncio.run(compare_all(embed, data, quick=told.quick))
    return conclude("recall_quality", show(found), BOUND, enforced=not told.quick)


if __name__ == "__main__":
    sys.exit(main())
