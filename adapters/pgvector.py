"""Custody for a Postgres table with pgvector, one row per entry.

The table is made by the adapter, or it is one that you have. Either way a fact is found by its id,
listed by its key and proved absent without an approximate index having a say.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from custody_sync.adapters._failures import translated
from custody_sync.adapters._pgvector_distances import measure_of
from custody_sync.adapters._pgvector_layout import Layout, yes
from custody_sync.adapters._pgvector_mapped import MappedTable
from custody_sync.adapters._pgvector_own import OwnTable
from custody_sync.adapters._pgvector_pool import Pool
from custody_sync.adapters._pgvector_residue import ELSEWHERE, left_behind, vacuumed
from custody_sync.adapters._pgvector_rows import score_of
from custody_sync.adapters._pgvector_table import ExistingTable
from custody_sync.adapters._pgvector_vectors import (
    Distance,
    Embed,
    Embedder,
    VectorType,
    checked_dimensions,
)
from custody_sync.adapters._pgvector_witness import Doubt, Seen, Witness, judged
from custody_sync.adapters._shared import WorkerThreads, vendor
from custody_sync.errors import InvalidInput, NoProof, StoreError, StoreRefused
from custody_sync.gathering import Gathering
from custody_sync.model import Capability, Entry, Fact, Hit, Label, Limits, Support
from custody_sync.ports import ANOTHER_LEDGER, Listed, Notebook

if TYPE_CHECKING:
    from psycopg import AsyncCursor
    from psycopg_pool import AsyncConnectionPool


Answer: TypeAlias = 'Literal["gone", "held"] | Doubt'


class PgVectorStore:
    """Keep facts in a pgvector table.

    A table of our own is made at the first use, with extension and indexes, and that is tried again
    after a failure; one that is there already is described by `existing` and only looked at. The
    pool is the caller's: with any row factory, with or without autocommit, opened or not; an
    unopened one is opened at the first use and closed by its owner, or by `aclose`, which the
    synchronous `Coordinator` calls before its loop ends.

    Args:
        pool: A psycopg `AsyncConnectionPool`.
        table: A plain identifier; with `existing` the name of that table.
        dimensions: The length of every vector.
        embed: Turns a text into a vector; a coroutine function, or a plain one, called in a thread.
        name: The store's name in a coordinator.
        existing: Which columns of a table that you have hold what.
        place: A word of yours for where the table stands. The database is noted at the first put, and
            what another one does not hold is not gone; after a move (dump and restore, a new cluster)
            give a new word, and the new place is noted.
        vector_type: "vector", or "halfvec" with half the bytes and indexes up to 4,000 dimensions.
        distance: What near means: "cosine", "l2" or "inner_product".
        index: "hnsw" makes an approximate index, which a search uses, or uses the one of an existing
            table; None searches exactly.
        vacuum: Run VACUUM (INDEX_CLEANUP ON) after a forget. With a large HNSW index that takes
            minutes, so it is off by default.
        limits: The largest text the embedding model takes, if that is known.
        page_size: How many rows a page of a listing has.
        threads: How many calls of a blocking `embed` may run at once.
        executor: Runs these calls instead of own threads.
    """

    def __init__(
        self,
        pool: AsyncConnectionPool[Any],
        *,
        table: str,
        dimensions: int,
        embed: Embed,
        name: str = "pgvector",
        existing: ExistingTable | None = None,
        place: str = "",
        vector_type: VectorType = "vector",
        distance: Distance = "cosine",
        index: Literal["hnsw"] | None = None,
        vacuum: bool = False,
        limits: Limits | None = None,
        page_size: int = 5_000,
        threads: int = 16,
        executor: Executor | None = None,
    ) -> None:
        self.name = name
        self.limits = limits or Limits()
        self.capabilities: Mapping[Capability, Support] = {}
        vendor("psycopg.sql", feature="PgVectorStore", extra="pgvector")
        length = checked_dimensions(dimensions, vector_type, index)
        measure = measure_of(distance)
        if page_size < 1:
            raise InvalidInput(field="page_size", problem=f"{page_size} is not at least 1")
        self._table: Layout = (
            OwnTable(table, length, vector_type, measure, index)
            if existing is None
            else MappedTable(name, table, existing, length, vector_type, measure, index, self.limits)
        )
        self._witness = Witness(name, self._table.relation, place)
        self._pool = Pool(name, pool, self._set_up)
        threads_of_embed = WorkerThreads(name, limit=threads, executor=executor)
        self._embed = Embedder(name, embed, length, vector_type, threads_of_embed)
        self._index = index
        self._vacuum = vacuum
        self._page_size = page_size
        self._is_absent = Gathering(self._absent)
        self._is_dropped = Gathering(self._dropped)
        self._entries_of = Gathering(self._found)

    # --- the two verbs ---------------------------------------------------------------------

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        """Write the row of this label, or write it again; the vector is checked before."""
        vector = await self._embed(_text(fact))
        await self._note("put")

        async def write(cursor: AsyncCursor[Any]) -> tuple[str, ...]:
            return await self._table.put(cursor, (fact, label, vector))

        return await self._pool.ask("put", write, transaction=isinstance(self._table, MappedTable))

    async def put_many(self, items: Sequence[tuple[Fact, Label]]) -> Sequence[Sequence[str]]:
        """Write many rows at once and in one transaction: all of them or none."""
        if not items:
            return []
        vectors = await self._embed.many([_text(fact) for fact, _ in items])
        await self._note("put_many")
        rows = [(fact, label, vector) for (fact, label), vector in zip(items, vectors, strict=True)]

        async def write(cursor: AsyncCursor[Any]) -> list[tuple[str, ...]]:
            return await self._table.put_many(cursor, rows)

        return await self._pool.ask("put_many", write, transaction=True)

    async def relabel(self, entry: Entry, label: Label) -> None:
        """Change the label's columns of one row, which leaves its text and its vector alone.

        A row without a label gets one where nothing of somebody else's stands in its place.
        """
        await self._note("relabel")

        async def change(cursor: AsyncCursor[Any]) -> str | None:
            at = self._table.read_id(entry.external_id)
            wanted = self._table.changed(label) | {"at": at, "key": at, "scope": entry.scope}
            wanted |= {"of": entry.fact_id, "owner": entry.ledger_id, "was": entry.text}
            await cursor.execute(self._table.sql.relabel, wanted)
            if await cursor.fetchone() is not None:
                return None
            await cursor.execute(self._table.sql.why, wanted)
            row = await cursor.fetchone()
            return row[0] if row is not None and entry.fact_id is None else "no such entry"

        cause = await self._pool.ask("relabel", change)
        if cause is not None:
            raise StoreRefused(store=self.name, operation="relabel", cause=cause)

    async def delete(self, entry: Entry) -> None:
        """Delete the row of the entry's id if its label says so, where it has a scope only in that scope."""
        self._pool.check()
        if await self._is_dropped(entry):
            return

        async def drop(cursor: AsyncCursor[Any]) -> None:
            at = self._table.read_id(entry.external_id)
            wanted = {"key": at, "scope": entry.scope, "of": entry.fact_id, "owner": entry.ledger_id}
            wanted["was"] = entry.text
            await cursor.execute(self._table.sql.delete, wanted)

        await self._pool.ask("delete", drop)

    # --- what it can be asked --------------------------------------------------------------

    async def find(self, fact_id: str) -> list[Entry]:
        """Return every row of the fact, under whatever id and in whatever scope."""
        return await self._entries_of(fact_id)

    async def list_entries(self) -> AsyncIterator[Entry]:
        """Yield every row, without its text, page by page along the key, which nothing moves.

        One page is read ahead, and then neither a connection nor a snapshot is held, so a sweep
        may take its time.
        """
        async with aclosing(self._pages("page")) as pages:
            async for rows in pages:
                for row in rows:
                    yield self._table.entry(self.name, row)

    async def list_with_text(self) -> AsyncIterator[Entry]:
        """Yield every row as `list_entries` does, with its text."""
        async with aclosing(self._pages("texts")) as pages:
            async for rows in pages:
                for row in rows:
                    yield self._table.whole(self.name, row)

    async def list_pages(self, after: str | None = None, until: str | None = None) -> AsyncIterator[Listed]:
        """Yield what `list_entries` does; a cursor is the key of a page's last row, even if that is gone."""
        async with aclosing(self._pages("page", after, until)) as pages:
            async for rows in pages:
                yield Listed([self._table.entry(self.name, row) for row in rows], rows[-1][0])

    async def _pages(
        self, what: str, after: str | None = None, until: str | None = None
    ) -> AsyncGenerator[list[tuple[Any, ...]]]:
        ahead = asyncio.create_task(self._page(what, after, until))
        try:
            while rows := await ahead:
                is_last = len(rows) < self._page_size
                if not is_last:
                    ahead = asyncio.create_task(self._page(what, rows[-1][0], until))
                yield rows
                if is_last:
                    return
        finally:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)

    async def verify_deleted(self, entry: Entry) -> bool:
        """Look by key, by fact id and, while the text is known, by an exact search for it.

        That search passes over every index and looks at all rows as near as an equal text, so
        neither a crowd of equal texts nor a damaged index can hide the row. What row-level security
        may hide, or another database does not hold, is not gone.
        """
        self._pool.check()
        answer = await (self._seen(entry, entry.text) if entry.text else self._is_absent(entry))
        if answer not in ("gone", "held"):
            raise NoProof(store=self.name, operation="verify_deleted", cause=answer)
        return answer == "gone"

    async def _seen(self, entry: Entry, text: str) -> Answer:
        """Look with the text, which also tells whether a row with another label is this one."""
        vector = (await self._embed(text)).text

        async def look(cursor: AsyncCursor[Any]) -> Answer:
            (answer,), _ = await self._judged(cursor, [entry])
            if answer == "held":
                return "held"
            key = self._table.read_id(entry.external_id)
            await cursor.execute(self._table.sql.no_index_at_all)
            near = {"key": key, "text": text, "vector": vector}
            if await yes(cursor, self._table.sql.is_near, near):
                return ANOTHER_LEDGER if answer == ANOTHER_LEDGER else "held"
            return await self._witness.doubt(cursor) or "gone"

        return await self._pool.ask("verify_deleted", look, transaction=True)

    async def search(self, query: str, k: int, spaces: Sequence[str] | None) -> list[Hit]:
        """Return the nearest rows; where the index comes back short, ask again without it."""
        if k < 1 or (spaces is not None and not spaces):
            return []
        wanted: dict[str, Any] = {"vector": (await self._embed(query)).text, "k": k}
        wanted |= {"spaces": list(spaces or ()), "scopes": self._table.scopes_among(spaces)}

        async def look(cursor: AsyncCursor[Any]) -> list[tuple[Any, ...]]:
            sql = self._table.sql
            nearest = sql.nearest if spaces is None else sql.nearest_in
            if self._index is not None:
                await cursor.execute(sql.scan_on)
                await cursor.execute(nearest, wanted)
                rows = await cursor.fetchall()
                if len(rows) == k:
                    return rows
            await cursor.execute(sql.no_index_scan)
            await cursor.execute(nearest, wanted)
            return await cursor.fetchall()

        rows = await self._pool.ask("search", look, transaction=True)
        width = self._table.width
        return [
            Hit(entry=self._table.entry(self.name, row, row[width]), score=score_of(row[width + 1]))
            for row in rows
        ]

    def scope_of(self, fact: Fact) -> str | None:
        """Return what stands in the scope column of an existing table; None where there is no such column."""
        return self._table.scope_of(fact)

    async def after_forget(self, entries: Sequence[Entry]) -> Sequence[str]:
        """Say what stays on disk until which VACUUM, and run it if the store was made to."""
        if not entries:
            return ()
        here = await vacuumed(self._pool, self._table) if self._vacuum else left_behind(self._table)
        return here, ELSEWHERE

    async def aclose(self) -> None:
        """Close the pool if this store opened it; a caller's own stays open."""
        await self._pool.aclose()

    def remember_in(self, notebook: Notebook) -> None:
        """Note in the ledger in which database the table stands."""
        self._witness.notes = notebook

    # --- inside ----------------------------------------------------------------------------

    async def _set_up(self, cursor: AsyncCursor[Any]) -> None:
        await self._witness.before_set_up(cursor, self._table.relation)
        await self._table.set_up(cursor)
        await self._witness.after_set_up(cursor)

    async def _note(self, operation: str) -> None:
        await translated(self.name, operation, self._pool.ready())
        await self._witness.note(operation)

    async def _found(self, fact_ids: Sequence[str]) -> dict[str, list[Entry]]:
        """Return the rows of several facts, each with its own."""

        async def find(cursor: AsyncCursor[Any]) -> list[tuple[Any, ...]]:
            asked = {"fact_ids": list(fact_ids)}
            rows, seen = await self._witness.beside(cursor, self._table.sql.find, asked)
            await self._witness.check_seen(seen, "find")
            return rows

        rows = await self._pool.ask("find", find)
        width = self._table.width
        entries: dict[str | None, list[Entry]] = {}
        for row in rows:
            entry = self._table.entry(self.name, row, row[width])
            entries.setdefault(entry.fact_id, []).append(entry)
        return {fact_id: entries.get(fact_id, []) for fact_id in fact_ids}

    async def _dropped(self, entries: Sequence[Entry]) -> dict[Entry, bool]:
        """Delete what nobody has locked; what is not certain after that is for each caller to do alone."""

        async def drop(cursor: AsyncCursor[Any]) -> set[str]:
            keys = [self._table.read_id(entry.external_id) for entry in entries]
            wanted = {"keys": keys, "scopes": [entry.scope for entry in entries]}
            wanted |= {"of": [e.fact_id for e in entries], "owners": [e.ledger_id for e in entries]}
            await cursor.execute(self._table.sql.delete_free, wanted)
            return {key for (key,) in await cursor.fetchall()}

        try:
            gone = await self._pool.ask("delete", drop)
        except StoreError:
            gone = set()
        return {entry: entry.external_id in gone for entry in entries}

    async def _absent(self, entries: Sequence[Entry]) -> dict[Entry, Answer]:
        async def look(cursor: AsyncCursor[Any]) -> dict[Entry, Answer]:
            answers, seen = await self._judged(cursor, entries)
            doubt = await self._witness.doubt_of(seen) if "gone" in answers else None
            told: list[Answer] = [doubt or a if a == "gone" else a for a in answers]
            return dict(zip(entries, told, strict=True))

        return await self._pool.ask("verify_deleted", look)

    async def _judged(self, cursor: AsyncCursor[Any], entries: Sequence[Entry]) -> tuple[list[Answer], Seen]:
        keys = [self._table.read_id(entry.external_id) for entry in entries]
        wanted = {"keys": keys, "fact_ids": [entry.fact_id for entry in entries]}
        found, seen = await self._witness.beside(cursor, self._table.sql.held, wanted)
        rows: dict[str, list[tuple[Any, ...]]] = {}
        for row in found:
            rows.setdefault(row[0], []).append(row)
        return [judged(entry, rows.get(entry.external_id, ())) for entry in entries], seen

    async def _page(self, what: str, after: str | None, until: str | None) -> list[tuple[Any, ...]]:
        statement = f"first_{what}" if after is None else f"next_{what}"
        asked = {"after": after, "until": until, "limit": self._page_size}

        async def fetch(cursor: AsyncCursor[Any]) -> list[tuple[Any, ...]]:
            await cursor.execute(getattr(self._table.sql, statement if until is None else "part_page"), asked)
            rows = await cursor.fetchall()
            # After it, since a row that was hidden since must not pass for one that is not there.
            await self._witness.check(cursor, "list_entries")
            return rows

        return await self._pool.ask("list_entries", fetch)


def _text(fact: Fact) -> str:
    text = fact.text or ""
    if not text.strip():
        raise InvalidInput(field="text", problem="must not be empty or blank")
    return text


__all__ = ["Distance", "Embed", "ExistingTable", "PgVectorStore", "VectorType"]
