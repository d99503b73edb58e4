"""Mem0's service behind `MemoryClient` and `AsyncMemoryClient`.

Endpoints and shapes are those of docs/openapi.json in mem0ai/mem0 (2026-08-22) as mem0ai 2.2.1 calls
them. Every read asks for expired and merged rows too: the service hides both by default, and what is
hidden is not gone (https://docs.mem0.ai/platform/features/dream).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from custody_sync.adapters._failures import paged, translated
from custody_sync.adapters._mem0_clients import NotJson, decoded, is_blocking
from custody_sync.adapters._mem0_pages import Page, each_once, page_of
from custody_sync.adapters._mem0_place import project_of
from custody_sync.adapters._mem0_rows import Row, added, is_of, metadata_of, read_row, rows_of, text_of
from custody_sync.adapters._shared import OneLoop, WorkerThreads
from custody_sync.errors import NoProof, StoreError, StoreRefused, StoreThrottled, StoreUnavailable
from custody_sync.model import Capability, Entry, Label, Level, Support

T = TypeVar("T")

_MOST = 1_000
"""The most rows that a search returns."""
_LONGEST_PAUSE = 2.0
_UNFINISHED = frozenset({"PENDING", "RUNNING"})
_HIDDEN_TOO = {"show_expired": True, "include_merged": True}
_ANY = "*"


class Hosted:
    """One project of Mem0's service.

    Args:
        client: A `MemoryClient` or `AsyncMemoryClient`.
        name: The store's name, for errors.
        threads: Where the calls of a `MemoryClient` run.
        page_size: Rows on a page of a listing; the service allows 200.
        patience: Seconds that an accepted write may stay pending.
        poll: Seconds before a pending write is asked about again; doubles up to two.
    """

    leaves = (
        "What Mem0's service keeps of a deleted memory in its history, logs and backups follows its own "
        "retention, and cannot be asked.",
        "Memories that inference made of the same words, from other calls, are memories of their own; they "
        "carry no label and stay.",
    )
    capabilities: Mapping[Capability, Support] = {
        Capability.PUT_MANY: Support(Level.NONE, "one call takes one metadata for all its messages")
    }

    def __init__(
        self, client: Any, name: str, *, threads: WorkerThreads, page_size: int, patience: float, poll: float
    ) -> None:
        self._client = client
        self._name = name
        self._threads = threads
        self._page_size = page_size
        self._patience = patience
        self._poll = poll
        self._blocking = is_blocking(client)
        self._loop = OneLoop(name)
        self._finds_by_label = False
        self.place = project_of(client)

    # --- writing ---------------------------------------------------------------------------

    async def add(self, text: str, user_id: str, label: Label) -> str:
        """Import one text directly, and return its id once the row under it is seen to be ours.

        `run_id` makes the scope unique: in one scope the service drops exact repeats and says
        SUCCEEDED (https://docs.mem0.ai/platform/features/direct-import). It also keeps the text out
        of what the service synthesizes from memories that have a user and nothing else.
        """
        said = [{"role": "user", "content": text}]
        options = {"user_id": user_id, "run_id": label.key, "infer": False, "metadata": metadata_of(label)}
        answer = await self._ask("put", "add", said, **options)
        # From here on it may have taken effect, so nothing may be called refused that is not.
        try:
            async with asyncio.timeout(self._patience):
                external_id = await self._settled(answer, text, label)
        except TimeoutError:
            raise self._unavailable("put", "PENDING") from None
        if not self._finds_by_label:
            await self._check_found(label)
        return external_id

    async def infer(self, messages: Sequence[Any], **options: Any) -> list[str]:
        """Let the service make memories of messages; return the ids of those that it added, once it has."""
        answer = await self._ask("infer", "add", list(messages), infer=True, **options)
        try:
            async with asyncio.timeout(self._patience):
                return added(await self._results(answer))
        except TimeoutError:
            raise self._unavailable("infer", "PENDING") from None

    async def delete(self, external_id: str) -> None:
        """Delete one row; never its links, which are memories of their own."""
        try:
            await self._ask("delete", "delete", external_id)
        except StoreRefused as refusal:
            if not _is_404(refusal):
                raise

    async def relabel(self, row: Row, metadata: Mapping[str, str]) -> None:
        """Replace the label in the metadata of one row, and look whether it was."""
        # Whatever is left out of an update is gone from the row.
        whole = {**row.metadata, **metadata}
        await self._ask("relabel", "update", row.external_id, metadata=whole)
        changed = await self.get("relabel", row.external_id)
        if changed is None or any(changed.metadata.get(key) != value for key, value in whole.items()):
            raise self._unavailable("relabel", "LabelNotChanged")

    # --- reading ---------------------------------------------------------------------------

    async def get(self, operation: str, external_id: str) -> Row | None:
        """Return the row of an id; only a 404 means that there is none."""
        try:
            answer = await self._ask(operation, "get", external_id)
        except StoreRefused as refusal:
            if _is_404(refusal):
                return None
            raise
        row = read_row(answer)
        if row is None or row.external_id.casefold() != external_id.casefold():
            raise self._unavailable(operation, "UnreadableAnswer")
        return row

    async def is_listed(self, external_id: str) -> bool:
        """Look for the id in the listing, where a merged or expired row shows too."""
        only = {"user_id": _ANY, "memory_ids": [external_id]}
        return any(row.external_id == external_id for row in await self._all("verify_deleted", only))

    async def of_fact(self, operation: str, fact_id: str) -> list[Row]:
        """Filter by the fact id and check it again: a filter may be dropped on the way."""
        rows = await self._all(operation, {"user_id": _ANY, "metadata": {"fact_id": fact_id}})
        return [row for row in rows if row.metadata.get("fact_id") == fact_id]

    def everything(self) -> AsyncIterator[Row]:
        """Yield every row that has a user."""
        return self._listing("list_entries", {"user_id": _ANY})

    async def nearest(self, query: str, k: int, user_id: str | None, space: str | None) -> list[Row]:
        """Search as recall does, without a threshold."""
        only: dict[str, Any] = {"user_id": user_id or _ANY}
        if space is not None:
            only["metadata"] = {"space": space}
        return await self._search("search", query, only, min(k, _MOST))

    async def serves(self, entry: Entry, text: str) -> bool:
        """Search with the text: for the id alone, and as wide as the service allows."""
        scope = {"user_id": entry.scope or _ANY}

        def probe(only: Mapping[str, Any], top_k: int) -> Awaitable[list[Row]]:
            return self._search("verify_deleted", text, only, top_k, **_HIDDEN_TOO)

        near, wide = await asyncio.gather(
            probe({**scope, "memory_ids": [entry.external_id]}, 10), probe(scope, _MOST)
        )
        if any(row.external_id == entry.external_id for row in (*near, *wide)):
            return True
        await self._check_answer(probe, scope, {row.external_id for row in wide})
        return False

    async def _check_answer(
        self,
        probe: Callable[[Mapping[str, Any], int], Awaitable[list[Row]]],
        scope: Mapping[str, Any],
        shown: set[str],
    ) -> None:
        """Raise `NoProof` unless the searches could have shown the entry.

        Where the wide one left out a row, the narrow one has to show such a row when asked for it:
        then its filter comes before its cut, and it could have shown ours.
        """
        async for row in self._listing("verify_deleted", scope):
            if row.external_id in shown:
                continue
            control = await probe({**scope, "memory_ids": [row.external_id]}, 10)
            if any(hit.external_id == row.external_id for hit in control):
                return
            raise NoProof(store=self._name, operation="verify_deleted", cause="CrowdedSearch")

    # --- what a write came to --------------------------------------------------------------

    async def _settled(self, answer: Any, text: str, label: Label) -> str:
        """Return the id of the one row that the write made, or raise what became of it."""
        results = await self._results(answer)
        if not results:
            return await self._found_again(answer, label)
        external_id = results[0].get("id")
        if len(results) != 1 or not isinstance(external_id, str):
            raise self._unavailable("put", "SeveralResults")
        row = await self._patiently(partial(self.get, "put", external_id))
        if row is not None and not is_of(row, label):
            # Deleting a shared row would take the other fact's memory: it is left as it is.
            raise self._of_another(row)
        echo = text_of(results[0])
        if echo is not None and echo.strip() != text.strip():
            raise self._unavailable("put", "TextAltered")
        return external_id

    async def _results(self, answer: Any) -> list[Mapping[str, Any]]:
        """Return the results of a write, following one that is pending to its end."""
        pause = self._poll
        while (event_id := _event_of(answer)) is not None:
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
            answer = await self._patiently(partial(self._event, event_id))
        found = answer.get("results") if isinstance(answer, Mapping) else answer
        return [raw for raw in found if isinstance(raw, Mapping)] if isinstance(found, list) else []

    async def _found_again(self, answer: Any, label: Label) -> str:
        """Look for the label of a write whose answer names no row."""
        rows = await self._patiently(partial(self.of_fact, "put", label.fact_id))
        ours = [row.external_id for row in rows if is_of(row, label)]
        if ours:
            return ours[0]
        if (
            isinstance(answer, Mapping)
            and answer.get("results") == []
            and answer.get("status") == "SUCCEEDED"
        ):
            raise StoreRefused(store=self._name, operation="put", cause="EqualTextCollapsed")
        raise self._unavailable("put", "NoResult")

    async def _check_found(self, label: Label) -> None:
        """Look once whether filters lead to what was written: Mem0's pages differ on what they leave open."""

        async def found() -> None:
            rows = await self.of_fact("put", label.fact_id)
            if not any(is_of(row, label) for row in rows):
                raise self._unavailable("put", "NotFoundByLabel")

        try:
            async with asyncio.timeout(self._patience):
                await self._patiently(found)
        except TimeoutError:
            raise self._unavailable("put", "NotFoundByLabel") from None
        self._finds_by_label = True

    def _of_another(self, row: Row) -> StoreError:
        if row.to_entry("").fact_id is None:
            return self._unavailable("put", "LabelLost")
        return StoreRefused(store=self._name, operation="put", cause="IdOfAnotherFact")

    async def _event(self, event_id: str) -> Any:
        """Ask for a write's event; the clients have the address and no method (mem0ai 2.2.1)."""
        path = f"/v1/event/{event_id}/"
        wire = self._client.client if self._blocking else self._client.async_client

        def ended(response: Any) -> Any:
            response.raise_for_status()
            return response.json()

        if self._blocking:
            return await self._run("put", lambda: ended(wire.get(path)))

        async def ask() -> Any:
            return ended(await wire.get(path))

        return await self._run("put", ask)

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask until there is an answer; the caller's patience ends it.

        The write went through, so that a question is turned away says nothing about it.
        """
        pause = self._poll
        while True:
            try:
                return await ask()
            except StoreThrottled as throttled:
                wait = throttled.fields.get("retry_after")
                pause = max(pause, float(wait)) if isinstance(wait, int | float) else pause
            except StoreRefused as refusal:
                raise self._unavailable("put", str(refusal.fields.get("cause"))) from None
            except StoreUnavailable:
                pass
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    # --- calling the vendor ----------------------------------------------------------------

    async def _all(self, operation: str, only: Mapping[str, Any]) -> list[Row]:
        return [row async for row in self._listing(operation, only)]

    def _listing(self, operation: str, only: Mapping[str, Any]) -> AsyncIterator[Row]:
        unsettled = partial(self._unavailable, operation, "UnsettledListing")

        def read(number: int) -> Awaitable[Page]:
            return paged(operation, partial(self._page, operation, only, number))

        return each_once(read, self._page_size, unsettled)

    async def _page(self, operation: str, only: Mapping[str, Any], number: int) -> Page:
        try:
            answer = await self._ask(
                operation, "get_all", filters=only, page=number, page_size=self._page_size, **_HIDDEN_TOO
            )
        except StoreRefused as refusal:
            # A page that deletions have emptied is no page any more.
            if number > 1 and _is_404(refusal):
                return Page(rows=[], count=None, is_last=True)
            raise
        page = page_of(answer, number * self._page_size)
        if page is None:
            raise self._unavailable(operation, "UnreadableAnswer")
        return page

    async def _search(
        self, operation: str, query: str, only: Mapping[str, Any], top_k: int, **options: Any
    ) -> list[Row]:
        answer = await self._ask(
            operation, "search", query, filters=only, top_k=top_k, threshold=0.0, **options
        )
        rows = rows_of(answer)
        if rows is None:
            raise self._unavailable(operation, "UnreadableAnswer")
        return rows

    async def _ask(self, operation: str, method: str, *args: Any, **options: Any) -> Any:
        """Call a method of the client; None where it succeeded without saying anything."""
        return await self._run(operation, partial(getattr(self._client, method), *args, **options))

    async def _run(self, operation: str, call: Callable[[], Any]) -> Any:
        async def answered() -> Any:
            try:
                if self._blocking:
                    return await self._threads.run(call)
                self._loop.check()
                return await call()
            except Exception as error:
                problem = decoded(error)
            if isinstance(problem, NotJson):
                return None
            raise problem

        return await translated(self._name, operation, answered())

    def _unavailable(self, operation: str, cause: str) -> StoreUnavailable:
        return StoreUnavailable(store=self._name, operation=operation, cause=cause)


def _event_of(answer: Any) -> str | None:
    """Return the event that a write is to be asked about: it is under way, or names nothing else."""
    if not isinstance(answer, Mapping) or answer.get("results"):
        return None
    status, event_id = answer.get("status"), answer.get("event_id") or answer.get("id")
    is_open = status in _UNFINISHED or (status is None and "event_id" in answer)
    return str(event_id) if is_open and event_id else None


def _is_404(refusal: StoreRefused) -> bool:
    return str(refusal.fields.get("cause")).endswith(" 404")


__all__ = ["Hosted"]
