"""The peers as their documentation has them called: LangChain's indexing, Mem0, LangGraph, two stores."""

from __future__ import annotations

import asyncio
import importlib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from _faults_stores import GraphStores, Mem0Memory, VectorStore
from _faults_story import Step, again
from _faults_wire import RECORD, Kind, Wire


class LangChainIndexing:
    """`index()` over a vector store and a record manager, from a source that is always up to date.

    A memory is a document with its key as its source. Puts and corrections are indexed incrementally,
    deletions by a full clean-up, and so is everything once more afterwards. The record manager outlives
    the process, as one in a database would.

    Args:
        wire: what calls of the store and of the record manager go over.
    """

    def __init__(self, wire: Wire) -> None:
        indexing = importlib.import_module("langchain_core.indexing")
        self._index = indexing.index
        self._document = importlib.import_module("langchain_core.documents").Document
        self._vectors = VectorStore(wire)
        self._records = indexing.InMemoryRecordManager("memories")
        ticks = itertools.count(1)
        self._records.get_time = lambda: float(next(ticks))
        kinds = dict.fromkeys(("exists", "list_keys", "update", "delete_keys"), Kind.RECORD)
        wire.attach(self._records, RECORD, kinds)
        self._source: dict[str, Any] = {}

    async def put(self, step: Step) -> bool:
        """Change the source and index what changed."""
        document = self._document(
            page_content=step.text, metadata={"source": step.key, "person": step.person}
        )
        self._source[step.key] = document
        self._run([document], "incremental")
        return True

    async def correct(self, step: Step) -> bool:
        """The same: the clean-up removes what the source said before."""
        return await self.put(step)

    async def delete(self, step: Step) -> bool:
        """Take it out of the source and have everything else indexed."""
        self._source.pop(step.key, None)
        return self._all()

    async def delete_person(self, step: Step) -> bool:
        """Take all of a person's out of the source."""
        self._source = {
            key: document
            for key, document in self._source.items()
            if document.metadata["person"] != step.person
        }
        return self._all()

    async def search(self, person: str, text: str) -> list[str]:
        """Search as a retriever does, among one person's."""
        found = self._vectors.store.similarity_search(
            text, k=10, filter=lambda document: document.metadata["person"] == person
        )
        return [document.page_content for document in found]

    async def restart(self) -> None:
        """Nothing of it is in the process: source, records and store are elsewhere."""

    async def recover(self, failed: Sequence[Step]) -> list[Step]:
        """Index the whole source with a full clean-up; the source has what failed already."""
        self._all()
        return list(failed)

    def held(self) -> Mapping[str, list[str]]:
        """Return what lies in the store."""
        return self._vectors.held()

    async def close(self) -> None:
        """Nothing is held."""

    def _all(self) -> bool:
        self._run(list(self._source.values()), "full")
        return True

    def _run(self, documents: Sequence[Any], cleanup: str) -> None:
        self._index(
            documents,
            self._records,
            self._vectors.store,
            cleanup=cleanup,
            source_id_key="source",
            key_encoder="sha256",
        )


class BareMem0:
    """`add` without inference, `update`, `delete`, `delete_all`; a key in the metadata finds a memory again.

    Args:
        wire: what calls of Mem0's vector store and of its history go over.
    """

    def __init__(self, wire: Wire) -> None:
        self._mem0 = Mem0Memory(wire)

    async def put(self, step: Step) -> bool:
        """Look under the key first, as a caller does who may have to do it again."""
        return await self.correct(step)

    async def correct(self, step: Step) -> bool:
        """Update what is found under the key; where nothing is, add it verbatim."""
        found = self._found(step)
        for memory_id in found:
            self._mem0.memory.update(memory_id, text=step.text)
        if not found:
            metadata = {"key": step.key}
            self._mem0.memory.add(step.text, user_id=step.person, metadata=metadata, infer=False)
        return True

    async def delete(self, step: Step) -> bool:
        """Delete what is found under the key."""
        for memory_id in self._found(step):
            self._mem0.memory.delete(memory_id)
        return True

    def _found(self, step: Step) -> list[str]:
        filters = {"user_id": step.person, "key": step.key}
        return [row["id"] for row in self._mem0.memory.get_all(filters=filters)["results"]]

    async def delete_person(self, step: Step) -> bool:
        """Delete all of a user's."""
        self._mem0.memory.delete_all(user_id=step.person)
        return True

    async def search(self, person: str, text: str) -> list[str]:
        """Search among one user's."""
        found = self._mem0.memory.search(text, filters={"user_id": person}, top_k=10)
        return [row["memory"] for row in found["results"]]

    async def restart(self) -> None:
        """Open the same folder again."""
        self._mem0.open()

    async def recover(self, failed: Sequence[Step]) -> list[Step]:
        """Do again what failed: its documentation has nothing else."""
        return await again(self, failed)

    def held(self) -> Mapping[str, list[str]]:
        """Return what lies in its vector store."""
        return self._mem0.held()

    async def close(self) -> None:
        """Close it."""
        self._mem0.close()


class BareGraph:
    """LangGraph's `put`, `delete` and `search` under the caller's keys; with several stores, at once.

    Args:
        wire: what calls of the stores go over.
        names: the stores.
    """

    def __init__(self, wire: Wire, names: Sequence[str]) -> None:
        self._graph = GraphStores(wire, names)

    async def put(self, step: Step) -> bool:
        """Put an item into each store at once."""
        await self._each("aput", (step.person,), step.key, {"text": step.text})
        return True

    async def correct(self, step: Step) -> bool:
        """Put it under the same key."""
        return await self.put(step)

    async def delete(self, step: Step) -> bool:
        """Delete by the key."""
        await self._each("adelete", (step.person,), step.key)
        return True

    async def delete_person(self, step: Step) -> bool:
        """Delete, one by one, what a search below the person's namespace shows."""
        for store in self._graph.stores.values():
            for item in await store.asearch((step.person,), limit=100):
                await store.adelete((step.person,), item.key)
        return True

    async def search(self, person: str, text: str) -> list[str]:
        """Search every store."""
        found = []
        for store in self._graph.stores.values():
            found += await store.asearch((person,), query=text, limit=10)
        return [item.value["text"] for item in found]

    async def restart(self) -> None:
        """Nothing of it is in the process."""

    async def recover(self, failed: Sequence[Step]) -> list[Step]:
        """Do again what failed: its documentation has nothing else."""
        return await again(self, failed)

    def held(self) -> Mapping[str, list[str]]:
        """Return what lies in the stores."""
        return self._graph.held()

    async def close(self) -> None:
        """Nothing is held."""

    async def _each(self, verb: str, *args: Any) -> None:
        await asyncio.gather(*(getattr(store, verb)(*args) for store in self._graph.stores.values()))
