"""Custody for any LangChain `VectorStore`: Qdrant, Chroma, Pinecone and the others behind one interface.

A fact is one document: its id is `label.key`, its content the text, its metadata the label's flat keys.
What the interface cannot do, such as listing, is done where the store is known or the caller says how,
and declared as missing where not.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal

from custody_sync.adapters._langchain_calls import GROWTH, MOST, Calls, Found
from custody_sync.adapters._langchain_reach import ListIds, Scores, Where, capabilities_of, reach_of
from custody_sync.adapters._shared import WorkerThreads, has_same_label, vendor
from custody_sync.errors import (
    InvalidInput,
    InvalidStore,
    NoProof,
    StoreError,
    StoreRefused,
    StoreThrottled,
    StoreUnavailable,
)
from custody_sync.model import Entry, Fact, Hit, Label, Limits
from custody_sync.ports import Whose, whose

if TYPE_CHECKING:
    from langchain_core.documents import Document
    from langchain_core.vectorstores import VectorStore

_METHODS = ("add_documents", "delete", "similarity_search")
_KEYS = uuid.UUID("6f1d3c1e-6a0f-5f7e-9f3e-2c9f0f3f7a11")
_PROBE = 100
# Two computations of one similarity may differ in the last bits; what differs less is a tie.
_TIE = 1e-6


class LangChainStore:
    """Keep facts in a LangChain vector store.

    `InMemoryVectorStore`, `Chroma` and `QdrantVectorStore` are known. Of any other the options say what it
    can do; without them it is put, deleted, searched and looked up by id, and what that cannot show is named
    in `capabilities`.

    Args:
        store: The vector store, opened by the caller, who also closes it.
        name: The store's name in a coordinator.
        ids: What ids it takes: `key` is any string, `uuid` only UUIDs, as Weaviate and Qdrant do.
        scores: What `similarity_search_with_score` returns: `similarity` is higher when nearer, `distance`
            lower. Stores differ, so of one that is not known hits have no score unless this says it.
        where: Makes the store's filter for `{"space": "user:42"}`; `dict` for those that take such mappings.
            It has to be applied before the store's cut, not after.
        list_ids: Yields the ids that begin with a prefix, and must not lose its place when entries are
            deleted meanwhile.
        mixed: Whether it may hold documents that custody did not put, some of them adopted: those have no
            label, so a search in a space also looks for them without the filter. False saves that question.
        blocking: Whether to call it in worker threads; False awaits its `a` methods in one event loop.
        threads: How many blocking calls may run at once.
        executor: Runs the blocking calls instead of own threads.
        limits: The largest text its embedding model takes, if that is known.
    """

    def __init__(
        self,
        store: VectorStore,
        name: str = "langchain",
        *,
        ids: Literal["key", "uuid"] | None = None,
        scores: Scores | None = None,
        where: Where | None = None,
        list_ids: ListIds | None = None,
        mixed: bool = True,
        blocking: bool = True,
        threads: int = 16,
        executor: Executor | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._document = vendor(
            "langchain_core.documents", feature="LangChainStore", extra="langchain"
        ).Document
        if any(not callable(getattr(store, method, None)) for method in _METHODS):
            raise InvalidStore(store=name, problem=f"{type(store).__name__} is not a LangChain VectorStore")
        for option, stated, allowed in (
            ("ids", ids, ("key", "uuid")),
            ("scores", scores, ("similarity", "distance")),
        ):
            if stated is not None and stated not in allowed:
                raise InvalidInput(field=option, problem=f"must be {allowed[0]!r} or {allowed[1]!r}")
        self.name = name
        self.original = store
        self.limits = limits or Limits()
        known = reach_of(store)
        self._reach = replace(
            known,
            uuids=known.uuids if ids is None else ids == "uuid",
            scores=scores or known.scores,
            where=where or known.where,
            list_ids=list_ids or known.list_ids,
        )
        workers = WorkerThreads(name, limit=threads, executor=executor)
        self._mixed = mixed
        self._calls = Calls(name, store, self._reach, workers, blocking=blocking)
        self.capabilities = capabilities_of(self._reach, gets=self._calls.gets, scored=self._calls.scored)

    @property
    def scores(self) -> Scores | None:
        """Whether the original's scores are higher or lower when nearer; None where nobody said."""
        return self._reach.scores if self._calls.scored else None

    # --- the two verbs ---------------------------------------------------------------------

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        """Add one document under an id made of `label.key`, so that a retry replaces it."""
        return (await self._add("put", [(fact, label)]))[0]

    async def put_many(self, items: Sequence[tuple[Fact, Label]]) -> Sequence[Sequence[str]]:
        """Add many documents with one call.

        Raises:
            StoreUnavailable: it failed; the store may have taken some of them.
        """
        failed: StoreError
        try:
            return await self._add("put_many", items) if items else []
        except StoreThrottled:
            raise
        except StoreError as error:
            failed = error
        raise StoreUnavailable(store=self.name, operation="put_many", cause=str(failed.fields["cause"]))

    async def _add(self, operation: str, items: Sequence[tuple[Fact, Label]]) -> list[Sequence[str]]:
        asked = [self._id(label.key) for _, label in items]
        documents = [
            self._document(id=key, page_content=_text(fact), metadata=label.to_metadata())
            for key, (fact, label) in zip(asked, items, strict=True)
        ]
        named = await self._calls.call(operation, "add_documents", documents, ids=asked)
        ids = [str(key) for key in named or ()]
        if len(ids) != len(items) or not all(ids):
            raise StoreUnavailable(store=self.name, operation=operation, cause="it named no ids")
        return [(key,) for key in ids]

    async def delete(self, entry: Entry) -> None:
        """Delete the document; where the ledger is known, only if it is still ours.

        A store may call it an error that the id is gone already: it is asked whether it is.
        """
        if entry.ledger_id is not None and self._calls.gets:
            found = await self._held("delete", entry)
            if found is not Whose.OURS:
                return
        failed: StoreError
        try:
            answer = await self._calls.call("delete", "delete", [entry.external_id])
            if answer is not False:
                return
            failed = StoreUnavailable(store=self.name, operation="delete", cause="it answered False")
        except StoreError as error:
            failed = error
        if isinstance(failed, StoreThrottled) or not await self._is_missing(entry):
            raise failed

    # --- what it can be asked --------------------------------------------------------------

    async def find(self, fact_id: str) -> list[Entry]:
        """Return every entry of the fact: by its metadata, by the prefix of its ids, or by a search."""
        find_by = self._reach.find_by()
        if find_by is not None and self._calls.gets:
            ids = await self._calls.run("find", lambda: list(find_by(fact_id)))
            documents = await self._calls.get("find", ids) if ids else []
        elif self._reach.where is not None:
            found = await self._calls.ask("find", fact_id, MOST, {"fact_id": fact_id})
            documents = [hit.document for hit in found]
        else:
            raise StoreRefused(store=self.name, operation="find", cause="not supported")
        entries = [self._entry(document) for document in documents]
        return [entry for entry in entries if entry.fact_id == fact_id]

    async def list_entries(self) -> AsyncIterator[Entry]:
        """Yield what is under every id that the store names, a page at a time."""
        list_ids = self._reach.list_ids
        if list_ids is None or not self._calls.gets:
            raise StoreRefused(store=self.name, operation="list_entries", cause="not supported")
        async for page in self._calls.pages("list_entries", lambda: list_ids("")):
            for document in await self._calls.get("list_entries", page):
                yield self._entry(document)

    async def search(self, query: str, k: int, spaces: Sequence[str] | None) -> list[Hit]:
        """Return what the store's own search serves, asked once per space where it can filter."""
        if k < 1 or (spaces is not None and not spaces):
            return []
        if spaces is None:
            return [self._hit(found) for found in await self._calls.ask("search", query, k)][:k]
        if self._reach.where is None:
            return await self._told_apart(query, k, frozenset(spaces))
        asked = [self._calls.ask("search", query, k, {"space": space}) for space in dict.fromkeys(spaces)]
        asked += [self._calls.ask("search", query, k)] if self._mixed else []
        answers = [[self._hit(found) for found in answer] for answer in await asyncio.gather(*asked)]
        if self._mixed:
            answers[-1] = [hit for hit in answers[-1] if hit.entry.fact_id is None]
        # Best of each first: hits without a score stay in that order.
        hits = [hit for best in zip_longest(*answers) for hit in best if hit is not None]
        return sorted(hits, key=lambda hit: (hit.score is None, -(hit.score or 0.0)))[:k]

    async def _told_apart(self, query: str, k: int, spaces: frozenset[str]) -> list[Hit]:
        """Search wider until enough of the hits are of these spaces, or there are no more."""
        size = min(k * GROWTH, MOST)
        while True:
            answer = await self._calls.ask("search", query, size)
            hits = [hit for hit in map(self._hit, answer) if self._may_be_in(spaces, hit.entry)]
            if len(hits) >= k or len(answer) < size or size >= MOST:
                return hits[:k]
            size = min(size * GROWTH, MOST)

    def _may_be_in(self, spaces: frozenset[str], entry: Entry) -> bool:
        return entry.space in spaces or (self._mixed and entry.fact_id is None)

    async def after_forget(self, entries: Sequence[Entry]) -> Sequence[str]:
        """Say what a deletion in this kind of store leaves, as far as it is known."""
        return self._reach.leaves if entries else ()

    async def metadata_of(self, external_id: str) -> dict[str, Any]:
        """Return a document's metadata as its application put them; none without a lookup by id."""
        found = await self._calls.get("metadata_of", [external_id]) if self._calls.gets else []
        own = self._reach.own_keys
        return {
            key: value for document in found for key, value in document.metadata.items() if key not in own
        }

    async def has(self, external_id: str) -> bool | None:
        """Tell whether a document stands under an id, whoever put it; None where it cannot be asked for it.

        Raises:
            StoreError: it did not answer.
        """
        if self._reach.uuids and not _is_uuid(external_id):
            return False
        list_ids = self._reach.list_ids
        if self._calls.gets:
            return bool(await self._calls.get("has", [external_id]))
        if list_ids is not None:
            listed = partial(list_ids, external_id)
            return await self._calls.run("has", lambda: any(key == external_id for key in listed()))
        return None

    # --- proving an absence ----------------------------------------------------------------

    async def verify_deleted(self, entry: Entry) -> bool:
        """Ask by id, by fact id and with the text; True only if all that could answer miss it."""
        if self._calls.gets:
            found = await self._held("verify_deleted", entry)
            if found is Whose.ANOTHER_LEDGER or found is Whose.UNKNOWN:
                raise self._no_proof(found.value)
            if found is not None:
                return found is Whose.REPLACED
        elif entry.text is None and entry.fact_id is None:
            raise self._no_proof("it cannot look up an id")
        return not await self._is_served(entry)

    async def _is_served(self, entry: Entry) -> bool:
        """Search as recall does with the text, or the fact id, and with the filter where there is one.

        Without a filter it is asked wider, until the answer goes on past all that could be as near.
        """
        query = entry.text or entry.fact_id
        if query is None:
            return False
        filtered = self._reach.where is not None and entry.fact_id is not None
        if filtered:
            only = {"fact_id": str(entry.fact_id)}
            near = await self._calls.ask("verify_deleted", query, _PROBE, only)
            if any(self._is(entry, found) for found in near):
                return True
        if entry.text is None and self._calls.gets:
            # Nothing is near a fact id, so without the text the lookup by id decides.
            return False
        limit = _PROBE
        while True:
            hits = await self._calls.ask("verify_deleted", query, limit)
            if any(self._is(entry, found) for found in hits):
                return True
            # A filter comes before the cut, so one that shows nothing has seen all; else the answer must.
            if filtered or (entry.text is not None and _falls_off(hits)):
                return False
            if len(hits) < limit:
                await self._check_complete(hits)
                return False
            if limit >= MOST:
                raise self._no_proof("too many entries are as near as the text asked for")
            limit = min(limit * GROWTH, MOST)

    async def _check_complete(self, hits: Sequence[Found]) -> None:
        """Raise `NoProof` when a search that seems to have shown all left out what the store names."""
        if self._reach.list_ids is None or not self._calls.gets:
            return
        shown = {self._hit(found).entry.external_id for found in hits}
        async for entry in self.list_entries():
            if entry.external_id not in shown and entry.text:
                raise self._no_proof("its search left out entries that it holds")

    async def _held(self, operation: str, entry: Entry) -> Whose | None:
        """Look up the document under an entry's id; None if there is none."""
        for document in await self._calls.get(operation, [entry.external_id]):
            # Who names no ledger goes by the id alone.
            return Whose.OURS if entry.ledger_id is None else whose(entry, self._entry(document))
        return None

    async def _is_missing(self, entry: Entry) -> bool:
        """Tell whether a delete failed because there was nothing; a doubt is no."""
        try:
            if self._calls.gets:
                return not await self._calls.get("delete", [entry.external_id])
            return not await self._is_served(entry)
        except StoreError:
            return False

    # --- what a document says --------------------------------------------------------------

    def _id(self, key: str) -> str:
        return str(uuid.uuid5(_KEYS, key)) if self._reach.uuids else key

    def _hit(self, found: Found) -> Hit:
        score = found.score
        if score is not None:
            score = {"similarity": score, "distance": -score}.get(self._reach.scores or "")
        return Hit(entry=self._entry(found.document), score=score)

    def _is(self, entry: Entry, found: Found) -> bool:
        shown = self._entry(found.document)
        return shown.external_id == entry.external_id or has_same_label(entry, shown)

    def _entry(self, document: Document) -> Entry:
        """Read a document; what the store does not name by id is named by its label, else not at all."""
        meta = document.metadata
        kept = meta.get(self._reach.id_key) if self._reach.id_key is not None else None
        entry = Entry.from_metadata(
            meta, store=self.name, external_id=str(document.id or kept or ""), text=document.page_content
        )
        if entry.external_id or entry.generation is None:
            return entry
        return replace(entry, external_id=self._id(f"{entry.fact_id}.{entry.generation}"))

    def _no_proof(self, cause: str) -> NoProof:
        return NoProof(store=self.name, operation="verify_deleted", cause=cause)


def _text(fact: Fact) -> str:
    text = fact.text or ""
    if not text.strip():
        raise InvalidInput(field="text", problem="must not be empty or blank")
    return text


def _is_uuid(key: str) -> bool:
    try:
        uuid.UUID(key)
    except ValueError:
        return False
    return True


def _falls_off(hits: Sequence[Found]) -> bool:
    """Tell whether the hits go on past every document that could be as near as the text itself."""
    scores = [found.score for found in hits if found.score is not None]
    return len(scores) > 1 and abs(scores[0] - scores[-1]) > _TIE


__all__ = ["LangChainStore"]
