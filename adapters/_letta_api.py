"""Calls to a Letta V1 server, through either client of letta-client, as records without embeddings.

The client repeats a failed call up to twice by itself, and a repeated create is a second passage:
so it is always asked once (letta-client 1.12, `_base_client.py`). What can be asked again without
harm is asked again here, once, when the connection broke: the server closes it after each 500.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from custody_sync.adapters._failures import status_of, translated
from custody_sync.adapters._shared import OneLoop, WorkerThreads
from custody_sync.errors import InvalidInput, InvalidStore, StoreError, StoreUnavailable

if TYPE_CHECKING:
    from letta_client import AsyncLetta, Letta

T = TypeVar("T")

_CLOUD = "letta.com"
_GONE, _NOT_THERE, _TAKEN = 404, 400, 409
AT_MOST = 100
"""Archives or hits in one answer."""
_CUT = "APIConnectionError"


@dataclass(frozen=True, slots=True)
class Passage:
    """One passage as the server shows it."""

    id: str
    archive: str | None
    text: str
    metadata: Mapping[str, Any] | None
    created_at: datetime | None


@dataclass(frozen=True, slots=True)
class Address:
    """A passage in its archive, which is what deletes it, and what its absence has to be asked of."""

    archive: str
    passage: str

    @classmethod
    def of(cls, external_id: str) -> Address | None:
        """Read an external id; None of one that names no archive."""
        archive, slash, passage = external_id.partition("/")
        return cls(archive, passage) if archive and slash and passage else None

    def __str__(self) -> str:
        """Write the external id."""
        return f"{self.archive}/{self.passage}"


@dataclass(frozen=True, slots=True)
class Archive:
    """One archive: what it is called and how it is searched."""

    id: str
    name: str
    description: str | None
    embeds: bool
    """Without an embedding model a batch fails (500, nothing stored) and a search compares substrings."""
    is_native: bool
    """Its search reads the table that its listing reads; Turbopuffer is a copy of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPassage:
    """What a passage is made of."""

    text: str
    metadata: dict[str, object]
    tags: list[str]
    created_at: str


class LettaCalls:
    """One client, asked once per call.

    Args:
        store: The store's name, for errors.
        client: A `Letta` or an `AsyncLetta`.
        cloud: Whether the vendor's own service is meant.
        threads: How many calls of a blocking client may run at once.
        executor: Runs these calls instead of own threads.
    """

    def __init__(
        self,
        store: str,
        client: Letta | AsyncLetta,
        *,
        cloud: bool,
        threads: int,
        executor: Executor | None,
    ) -> None:
        self._store = store
        given: Any = client
        create = getattr(getattr(getattr(given, "archives", None), "passages", None), "create_many", None)
        if not callable(create) or not callable(getattr(given, "with_options", None)):
            problem = f"{type(client).__name__} is not a Letta or AsyncLetta of letta-client 1.12 or newer"
            raise InvalidStore(store=store, problem=problem)
        _check_url(str(given.base_url), cloud)
        self._client: Any = given.with_options(max_retries=0)
        self._blocking = not inspect.iscoroutinefunction(create)
        self._threads = WorkerThreads(store, limit=threads, executor=executor)
        self._loop = OneLoop(store)

    # --- archives and agents ---------------------------------------------------------------

    async def create_archive(
        self, operation: str, *, name: str, description: str | None, **embedding: Any
    ) -> Archive:
        """Create an archive; names are not unique, so a repeated call is a second one."""
        create = self._client.archives.create
        made = await self._once(operation, lambda: create(name=name, description=description, **embedding))
        return self._read(operation, _archive, made)

    async def list_archives(self, operation: str, **only: str) -> list[Archive]:
        """Return all archives, oldest first; `name` compares exactly."""
        found: list[Archive] = []
        list_page = self._client.archives.list
        options: dict[str, Any] = {**only, "order": "asc", "limit": AT_MOST}
        while True:
            page = await self._again(operation, lambda: list_page(**options))
            rows: list[Archive] = self._read(operation, _archives, page)
            known = {archive.id for archive in found}
            new = [archive for archive in rows if archive.id not in known]
            found += new
            if not new or len(rows) < AT_MOST:
                return found
            options["after"] = rows[-1].id

    async def archives_of(self, operation: str, agent: str) -> list[Archive]:
        """Return the archive an agent has, or nothing: also for an agent that nobody knows."""
        list_page = self._client.archives.list
        page = await self._again(operation, lambda: list_page(agent_id=agent, order="asc"), {_GONE: None})
        if page is None:
            return []
        return self._read(operation, _archives, page)

    async def retrieve_archive(self, operation: str, archive: str) -> Archive | None:
        """Return an archive, or None where the server knows none of that id."""
        retrieve = self._client.archives.retrieve
        missing = object()
        said = await self._again(operation, lambda: retrieve(archive), {_GONE: missing})
        if said is missing:
            return None
        row = self._read(operation, _archive, said)
        if row.id != archive:
            raise self._unusable(operation)
        return row

    async def name_archive(self, operation: str, archive: str, *, name: str, description: str) -> Archive:
        """Give an archive its name and description, and return it as the server now shows it."""
        update = self._client.archives.update
        said = await self._again(operation, lambda: update(archive, name=name, description=description))
        row = self._read(operation, _archive, said)
        if (row.id, row.name, row.description) != (archive, name, description):
            raise self._unusable(operation)
        return row

    async def discard_archive(self, operation: str, archive: str) -> None:
        """Delete an archive that the caller has just made and nobody was told of; never one with passages.

        A question without a query shows whatever is there. Where it fails the archive stays, empty.
        """
        delete = self._client.archives.delete
        with suppress(StoreError):
            if not await self._found(operation, archive_id=archive, limit=1):
                await self._again(operation, lambda: delete(archive), {_GONE: None})

    async def create_agent(self, operation: str, **settings: Any) -> str:
        """Create an agent that nobody talks to, and return its id."""
        create = self._client.agents.create
        made = await self._once(operation, lambda: create(include_base_tools=False, **settings))
        return self._read(operation, lambda agent: _text(agent.id), made)

    async def discard_agent(self, operation: str, agent: str) -> None:
        """Delete an agent that the caller has just made; it holds no passages, and what it read stays."""
        delete = self._client.agents.delete
        with suppress(StoreError):
            await self._again(operation, lambda: delete(agent), {_GONE: None})

    async def agents_named(self, operation: str, name: str) -> list[str]:
        """Return the ids of the agents of exactly that name."""
        list_page = self._client.agents.list
        page = await self._again(operation, lambda: list_page(name=name))
        agents = self._read(operation, lambda page: [(_text(a.id), a.name) for a in _rows(page.items)], page)
        return [agent for agent, called in agents if called == name]

    async def retrieve_agent(self, operation: str, agent: str) -> Any:
        """Return an agent as the client shows it."""
        retrieve = self._client.agents.retrieve
        return await self._again(operation, lambda: retrieve(agent))

    async def attach(self, operation: str, archive: str, agent: str) -> bool:
        """Attach an archive; False where the agent has another, its only one, or either is not there."""
        attach = self._client.agents.archives.attach
        meaning = {_TAKEN: False, _GONE: False}
        said = await self._again(operation, lambda: attach(archive, agent_id=agent), meaning)
        return said is not False

    # --- passages --------------------------------------------------------------------------

    async def create(self, archive: str, new: NewPassage) -> Passage:
        """Store one passage."""
        create = self._client.archives.passages.create
        made = await self._once("put", lambda: create(archive, **_fields(new)))
        return self._read("put", _passage, made)

    async def create_many(self, archive: str, new: Sequence[NewPassage]) -> list[Passage]:
        """Store passages in one transaction, all of them or none, and return them in order."""
        create = self._client.archives.passages.create_many
        made = await self._once("put_many", lambda: create(archive, passages=[_fields(one) for one in new]))
        rows = self._read("put_many", _passages, made)
        if len(rows) != len(new):
            raise self._unusable("put_many")
        return rows

    async def delete(self, archive: str, passage: str) -> bool:
        """Delete a passage; gone already is as good. False if another archive has it."""
        delete = self._client.archives.passages.delete
        meaning = {_GONE: None, _NOT_THERE: False}
        said = await self._again("delete", lambda: delete(passage, archive_id=archive), meaning)
        return said is not False

    async def page(
        self, operation: str, agent: str, *, after: str | None, limit: int, search: str | None
    ) -> list[Passage]:
        """Return one page of an agent's archive, oldest first; 200 and empty for an agent nobody knows."""
        list_page = self._client.agents.passages.with_raw_response.list
        options: dict[str, Any] = {"ascending": True, "limit": limit}
        options |= {} if after is None else {"after": after}
        options |= {} if search is None else {"search": search}
        answer = await self._again(operation, lambda: list_page(agent, **options))
        return self._read(operation, lambda raw: [*map(_row, _rows(raw.http_response.json()))], answer)

    async def at(self, operation: str, archive: str, instant: datetime) -> list[Passage]:
        """Return up to 100 passages that were created at exactly that instant; no embedding is asked for."""
        when = {"start_date": instant, "end_date": instant}
        return await self._found(operation, archive_id=archive, limit=AT_MOST, **when)

    async def nearest(
        self, operation: str, query: str, *, archive: str | None = None, limit: int = AT_MOST
    ) -> list[Passage]:
        """Return the nearest passages of an archive, or of everybody's; the server takes no more than 100."""
        of = {} if archive is None else {"archive_id": archive}
        return await self._found(operation, query=query, limit=min(limit, AT_MOST), **of)

    async def recalled(self, operation: str, agent: str, query: str, top_k: int) -> list[str]:
        """Return the ids of what the agent's own search gives, as many as asked for."""
        search = self._client.agents.passages.search
        found = await self._again(operation, lambda: search(agent, query=query, top_k=top_k))
        return self._read(operation, lambda found: [_text(row.id) for row in _rows(found.results)], found)

    # --- inside ----------------------------------------------------------------------------

    async def _found(self, operation: str, **asked: Any) -> list[Passage]:
        search = self._client.passages.with_raw_response.search
        answer = await self._again(operation, lambda: search(**asked))
        return self._read(
            operation, lambda raw: [_row(hit["passage"]) for hit in _rows(raw.http_response.json())], answer
        )

    async def _once(self, operation: str, call: Callable[[], Any]) -> Any:
        return await translated(self._store, operation, self._run(call))

    async def _again(
        self, operation: str, call: Callable[[], Any], meaning: Mapping[int, object] | None = None
    ) -> Any:
        """Ask, and once more if the connection broke; some statuses have a meaning and are no errors."""

        async def asked() -> Any:
            try:
                return await self._run(call)
            except Exception as error:
                if type(error).__name__ != _CUT:
                    return _meant(error, meaning or {})
            try:
                return await self._run(call)
            except Exception as error:
                return _meant(error, meaning or {})

        return await translated(self._store, operation, asked())

    async def _run(self, call: Callable[[], Any]) -> Any:
        if self._blocking:
            return await self._threads.run(call)
        self._loop.check()
        answer: Awaitable[Any] = call()
        return await answer

    def _read(self, operation: str, read: Callable[[Any], T], answer: Any) -> T:
        """Refuse an answer without the fields it must have: the client passes on whatever came."""
        try:
            return read(answer)
        except (AttributeError, KeyError, TypeError, ValueError):
            failure = self._unusable(operation)
        raise failure

    def _unusable(self, operation: str) -> StoreUnavailable:
        return StoreUnavailable(store=self._store, operation=operation, cause="UnusableAnswer")


def _meant(error: Exception, meaning: Mapping[int, object]) -> object:
    status = status_of(error)
    if status is not None and status in meaning:
        return meaning[status]
    raise error


def _check_url(url: str, cloud: bool) -> None:
    host = url.partition("://")[2].partition("/")[0].partition(":")[0].lower()
    if (host == _CLOUD or host.endswith(f".{_CLOUD}")) and not cloud:
        problem = (
            f"the client talks to {host}, its default; pass base_url= to the client, or cloud=True to the "
            "store if Letta Cloud is meant"
        )
        raise InvalidInput(field="client", problem=problem)


def _fields(new: NewPassage) -> dict[str, Any]:
    return {"text": new.text, "metadata": new.metadata, "tags": new.tags, "created_at": new.created_at}


def _rows(answer: object) -> list[Any]:
    """Take a list for a list and nothing else: an object would look like an empty one."""
    if not isinstance(answer, list):
        raise TypeError
    return answer


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError
    return value


def _archives(page: Any) -> list[Archive]:
    return [*map(_archive, _rows(page.items))]


def _archive(row: Any) -> Archive:
    provider = getattr(row, "vector_db_provider", None)
    return Archive(
        id=_text(row.id),
        name=_text(row.name),
        description=row.description,
        embeds=row.embedding_config is not None,
        is_native=provider in (None, "native"),
    )


def _passage(row: Any) -> Passage:
    return _row(row.to_dict(mode="json"))


def _passages(rows: Any) -> list[Passage]:
    return [_passage(row) for row in _rows(rows)]


def _row(row: Mapping[str, Any]) -> Passage:
    # Rows are read as plain JSON: of each the client would make objects for the model's settings too.
    metadata = row.get("metadata")
    archive, text = row.get("archive_id"), row["text"]
    if not isinstance(text, str) or not isinstance(archive, str | None):
        raise TypeError
    return Passage(
        id=_text(row["id"]),
        archive=archive,
        text=text,
        metadata=metadata if isinstance(metadata, Mapping) else None,
        created_at=_instant(row.get("created_at")),
    )


def _instant(raw: object) -> datetime | None:
    try:
        at = datetime.fromisoformat(str(raw))
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (OverflowError, ValueError):
        return None


__all__ = ["AT_MOST", "Address", "Archive", "LettaCalls", "NewPassage", "Passage"]
