"""Custody for Zep Cloud's graphs (API v4), through `Zep` or `AsyncZep` of zep-cloud 4.

A fact is one episode: Zep stores its text verbatim, with the label as metadata, and derives nodes,
edges and summaries from it that outlive a careless deletion. The episode is what is placed and
removed; what came of it is looked for before anything is called gone.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING, Any

from custody_sync.adapters._scopes import Scope, Scoping
from custody_sync.adapters._zep_calls import Calls, Waiting, is_missing
from custody_sync.adapters._zep_graphs import Graphs, encoded
from custody_sync.adapters._zep_labels import beside_a_label
from custody_sync.adapters._zep_removal import Removal, by
from custody_sync.adapters._zep_residue import Residue
from custody_sync.errors import InvalidInput, StoreError, StoreRefused, StoreThrottled
from custody_sync.model import (
    Capability,
    Entry,
    Fact,
    Hit,
    Label,
    Level,
    Limits,
    Support,
    format_instant,
    read_instant,
)
from custody_sync.ports import Notebook, Sleep

if TYPE_CHECKING:
    from zep_cloud.client import AsyncZep, Zep

_MOST_ON_A_PAGE = 100
_SIDE_BY_SIDE = 16
_REMEMBERED = 10_000
_TEXT_CHARS = 10_000
"""What Zep states for its v3 API (https://help.getzep.com/v3/chunking-large-documents); v4 states nothing."""
_DERIVED = (
    "Zep does not regenerate names, summaries and observations that it derived from a deleted episode, "
    "and a paraphrase in them cannot be found: update or delete such nodes (graph.node.update, "
    "graph.node.delete), or delete the graph if nothing else in it is needed."
)
_INVALIDATED = "Facts that Zep marked as no longer valid because of a deleted episode stay marked."
_NAMED = "A graph that was made for a space carries the name of the space."
_RETAINED = "Zep's debug logs, ingestion traces and backups follow Zep's own retention."


class ZepStore:
    """Keep facts as episodes in graphs of a Zep project.

    Args:
        client: `Zep`, called in worker threads, or `AsyncZep`, awaited in one event loop.
        name: The store's name in a coordinator; graphs made for it carry it in their mark.
        graph: Which graph a fact belongs to: a fixed name, a template of the space, or a function of
            the fact. A graph is made when a fact first needs it.
        graphs: Graphs that are there already, by that name: their UUIDs, or the UUIDs of their users.
        limits: The largest text; 10,000 characters unless given.
        page_size: Rows on a page of a listing, at most 100.
        patience: Seconds to wait for an extraction to end before a deletion, and as many for the deletion.
        settling: How long a deletion that had to come before its extraction ended is not called proved.
        threads: How many calls of a `Zep` may run at once.
        executor: Runs the calls of a `Zep` instead of own threads.
        sleep: What to wait with.
        now: Where time comes from.
    """

    def __init__(
        self,
        client: Zep | AsyncZep,
        *,
        name: str = "zep",
        graph: Scoping = "{space}",
        graphs: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        page_size: int = _MOST_ON_A_PAGE,
        patience: float = 10.0,
        settling: timedelta = timedelta(minutes=10),
        threads: int = 16,
        executor: Executor | None = None,
        sleep: Sleep = asyncio.sleep,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        if not 1 <= page_size <= _MOST_ON_A_PAGE:
            problem = f"{page_size} is not from 1 to {_MOST_ON_A_PAGE}, the most that Zep takes"
            raise InvalidInput(field="page_size", problem=problem)
        if patience < 0:
            raise InvalidInput(field="patience", problem=f"{patience} is less than no time")
        self.name = name
        self.limits = limits if limits is not None else Limits(text_chars=_TEXT_CHARS)
        self.capabilities = _capabilities()
        self._calls = Calls(client, name, threads=threads, executor=executor)
        self._scope = Scope("graph", graph, encoded)
        self._graphs = Graphs(self._calls, graphs or {})
        self._residue = Residue(self._calls, self._graphs)
        self._removal = Removal(
            self._calls,
            self._graphs,
            self._residue,
            patience=patience,
            settling=settling,
            sleep=sleep,
            now=now,
        )
        self._page_size = page_size
        self._patience = patience
        self._sleep = sleep
        self._whereabouts: OrderedDict[str, str] = OrderedDict()

    def remember_in(self, notebook: Notebook) -> None:
        """Take the notebook in which the graphs of the scopes stand."""
        self._graphs.notebook = notebook

    # --- the two verbs ---------------------------------------------------------------------

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        """Add an episode, and return its id once it can be read back with the text it was given."""
        text = fact.text or ""
        if not text.strip():
            raise InvalidInput(field="text", problem="Zep takes no episode without a text")
        scope = self._scope.of_fact(fact)
        graph = await self._graphs.make("put", scope)
        try:
            episode = await self._added(graph, text, label)
        except StoreRefused as problem:
            if not is_missing(problem) or not self._graphs.makes(scope):
                raise
            if not await self._graphs.is_deleted("put", graph):
                raise
            graph = await self._graphs.make("put", scope, instead_of=graph)
            episode = await self._added(graph, text, label)
        self._remember(fact.fact_id, scope)
        await self._confirm(graph, episode, text)
        return (episode,)

    async def delete(self, entry: Entry) -> None:
        """Delete an episode and follow Zep's task to its end; see `Removal.delete`."""
        for graph in await self._graphs_of("delete", entry):
            await self._removal.delete(graph, entry)

    async def relabel(self, entry: Entry, label: Label) -> None:
        """Replace an episode's label, or give it its first; its text and what was derived of it stay."""
        graphs = await self._graphs_of("relabel", entry)
        if not graphs:
            raise StoreRefused(store=self.name, operation="relabel", cause="graph_unknown")
        for graph in graphs:
            metadata: dict[str, Any] = dict(label.to_metadata())
            if entry.fact_id is None:
                found = await self._removal.read("relabel", graph, entry.external_id)
                metadata |= beside_a_label(self.name, entry, found, metadata.keys())
            await self._calls.ask(
                "relabel", "graph.episode.update", graph, entry.external_id, metadata=metadata
            )

    # --- what it can be asked --------------------------------------------------------------

    async def find(self, fact_id: str) -> list[Entry]:
        """Return every episode of a fact.

        Zep has no list across graphs. A fact lies in the graph of its scope, so one that this process
        wrote is asked for there; any other in every graph, some at a time.
        """
        scope = self._whereabouts.get(fact_id)
        graphs = await self._graphs.of("find", scope) if scope is not None else []
        where = dict.fromkeys(graphs, scope or "") if graphs else await self._graphs.all("find")

        async def ask(graph: str, scope: str) -> list[Entry]:
            only = by("fact_id", fact_id)
            rows = await self._calls.rows(
                "find", "graph.episode.list", graph, filters=only, page_size=self._page_size
            )
            entries = [self._entry(row, scope) for row in rows]
            return [entry for entry in entries if entry.fact_id == fact_id]

        answers = await self._some_at_a_time("find", where, ask)
        return [entry for entries in answers for entry in entries]

    async def list_entries(self) -> AsyncIterator[Entry]:
        """Yield every episode of every graph that is given, claimed or marked, without its text.

        Zep calls its cursors opaque. A graph of more than one page is therefore read a second time
        from its other end: what a page left out, or a deletion moved past the cursor, comes then.
        """
        async with aclosing(self._episodes(with_text=False)) as entries:
            async for entry in entries:
                yield entry

    async def list_with_text(self) -> AsyncIterator[Entry]:
        """Yield every episode as `list_entries` does, with its text."""
        async with aclosing(self._episodes(with_text=True)) as entries:
            async for entry in entries:
                yield entry

    async def _episodes(self, *, with_text: bool) -> AsyncGenerator[Entry]:
        for graph, scope in (await self._graphs.all("list_entries")).items():
            seen: set[str] = set()
            kept: list[Entry] = []
            read = 0
            async with aclosing(self._pages(graph, "asc")) as pages:
                async for page in pages:
                    read += 1
                    entries = self._unseen(page, scope, seen, with_text)
                    # One of each page is kept for the second reading, or nothing would come of it for long
                    # and the listing would be taken for one that hangs.
                    kept += entries[:1]
                    for entry in entries[1:]:
                        yield entry
            if read > 1:
                async with aclosing(self._pages(graph, "desc")) as pages:
                    async for page in pages:
                        for entry in [*self._unseen(page, scope, seen, with_text), *kept[-1:]]:
                            yield entry
                        del kept[-1:]
            for entry in kept:
                yield entry

    async def verify_deleted(self, entry: Entry) -> bool:
        """Ask by id, by fact id, by search and for what was derived; True only if nothing shows it."""
        graphs = [] if entry.scope is None else await self._graphs.of("verify_deleted", entry.scope)
        if not graphs:
            raise self._removal.no_proof("graph_unknown")
        for graph in graphs:
            if not await self._removal.is_gone(graph, entry):
                return False
        return True

    async def search(self, query: str, k: int, spaces: Sequence[str] | None) -> list[Hit]:
        """Return what Zep's episode search serves, asked graph by graph and merged by score."""
        if k < 1 or (spaces is not None and not spaces):
            return []
        where = await self._searched(spaces)
        size = min(k, _MOST_ON_A_PAGE)
        options: dict[str, Any] = {"query": query, "page_size": size, "most": ceil(k / size)}
        if spaces is not None and not self._scope.is_per_space:
            options["filters"] = by("space", *dict.fromkeys(spaces))

        async def ask(graph: str, scope: str) -> list[Hit]:
            rows = await self._calls.rows("search", "graph.search_episodes", graph, **options)
            return [Hit(entry=self._entry(row, scope), score=row.score) for row in rows]

        hits = [hit for hits in await self._some_at_a_time("search", where, ask) for hit in hits]
        hits.sort(key=lambda hit: (hit.score is None, -(hit.score or 0.0)))
        return hits[:k]

    def scope_of(self, fact: Fact) -> str:
        """Return what the fact's graph is called here; its UUID is Zep's, and only the notebook has it."""
        return self._scope.of_fact(fact)

    async def after_forget(self, entries: Sequence[Entry]) -> Sequence[str]:
        """Say what a deletion leaves in Zep, and where a text was seen to be left."""
        if not entries:
            return ()
        left = self._residue.left([entry.external_id for entry in entries])
        return (
            *[f"A forgotten text still stands in {where}." async for where in left],
            _DERIVED,
            _INVALIDATED,
            _NAMED,
            _RETAINED,
        )

    # --- putting ---------------------------------------------------------------------------

    async def _added(self, graph: str, text: str, label: Label) -> str:
        result = await self._calls.ask(
            "put",
            "graph.episode.add",
            graph,
            data=text,
            type="text",
            metadata=label.to_metadata(),
            source_description="custody-sync",
            reference_time=format_instant(label.valid_from),
            # A graph that was deleted and made again must not be answered from the old one's memory.
            idempotency_key=f"custody:{label.key}:{graph}",
        )
        if result.episode is None or not result.episode.uuid_:
            raise self._calls.unavailable("put", "no_episode_uuid")
        episode: str = result.episode.uuid_
        return episode

    async def _confirm(self, graph: str, episode: str, text: str) -> None:
        """Read an episode back: Zep says yes before it has done anything.

        Raises:
            StoreUnavailable: It cannot be read in time, or reads otherwise; it may still be there.
        """
        waiting = Waiting(self._patience, self._sleep)
        cause = "episode_not_readable"
        while True:
            try:
                found = await self._removal.read("put", graph, episode)
            except StoreThrottled:
                # "Nothing was done" would be wrong now.
                found, cause = None, "episode_not_read_back"
            except StoreRefused as problem:
                raise self._calls.unavailable("put", str(problem.fields["cause"])) from None
            if found is not None:
                break
            if not await waiting.more():
                raise self._calls.unavailable("put", cause)
        if found.content != text:
            raise self._calls.unavailable("put", "other_text_read_back")

    def _remember(self, fact_id: str, scope: str) -> None:
        self._whereabouts[fact_id] = scope
        self._whereabouts.move_to_end(fact_id)
        if len(self._whereabouts) > _REMEMBERED:
            self._whereabouts.popitem(last=False)

    # --- reading ---------------------------------------------------------------------------

    async def _graphs_of(self, operation: str, entry: Entry) -> list[str]:
        if entry.scope is None:
            raise StoreRefused(store=self.name, operation=operation, cause="graph_unknown")
        return await self._graphs.of(operation, entry.scope)

    async def _searched(self, spaces: Sequence[str] | None) -> dict[str, str]:
        scopes = self._scope.among(spaces)
        if scopes is None:
            return await self._graphs.all("search")
        return {graph: scope for scope in scopes for graph in await self._graphs.of("search", scope)}

    async def _some_at_a_time(
        self, operation: str, where: Mapping[str, str], ask: Callable[[str, str], Any]
    ) -> list[list[Any]]:
        """Ask a few graphs at once; one that was deleted meanwhile has nothing to say."""

        async def asked(graph: str, scope: str) -> list[Any]:
            try:
                answer: list[Any] = await ask(graph, scope)
            except StoreError as problem:
                if not is_missing(problem) or not await self._graphs.is_deleted(operation, graph):
                    raise
                return []
            return answer

        pairs = list(where.items())
        answers: list[list[Any]] = []
        for start in range(0, len(pairs), _SIDE_BY_SIDE):
            some = pairs[start : start + _SIDE_BY_SIDE]
            answers += await asyncio.gather(*(asked(graph, scope) for graph, scope in some))
        return answers

    async def _pages(self, graph: str, order: str) -> AsyncGenerator[list[Any]]:
        """Yield a graph's pages in the order of a key that nothing moves; none if it was deleted."""
        options: dict[str, Any] = {"page_size": self._page_size, "order_by": "uuid", "order": order}
        listing = self._calls.pages("list_entries", "graph.episode.list", graph, **options)
        try:
            async with aclosing(listing) as pages:
                async for page in pages:
                    yield page
        except StoreError as problem:
            if not is_missing(problem) or not await self._graphs.is_deleted("list_entries", graph):
                raise

    def _unseen(self, page: Sequence[Any], scope: str, seen: set[str], with_text: bool) -> list[Entry]:
        """Return the rows that were not seen yet, and see them."""
        rows = {row.uuid_: row for row in page if row.uuid_ not in seen}
        seen.update(rows)
        return [self._entry(row, scope, with_text=with_text) for row in rows.values()]

    def _entry(self, row: Any, scope: str, *, with_text: bool = True) -> Entry:
        return Entry.from_metadata(
            row.metadata,
            store=self.name,
            external_id=row.uuid_,
            scope=scope,
            text=row.content if with_text else None,
            created_at=read_instant(row.created_at),
        )


def _capabilities() -> Mapping[Capability, Support]:
    return {
        Capability.PUT_MANY: Support(
            Level.NONE, "Zep carries out a batch later and item by item, so its answer confirms no fact"
        ),
        Capability.SEARCH: Support(
            Level.PARTIAL,
            "a text is served once Zep has processed it, and a search ranks a limited set of candidates",
        ),
        Capability.VERIFY_DELETED: Support(
            Level.PARTIAL,
            "Zep writes texts into summaries that outlive them; a forget looks into these and stays unproved "
            "while one keeps the text; later checks do not know the text, and no paraphrase is found",
        ),
    }


__all__ = ["ZepStore"]
