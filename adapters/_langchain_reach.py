"""What a vector store offers beyond LangChain's interface, which can neither list nor filter alike.

Of the stores known here each filter, listing and kind of score is as its own package has it; of any other
the caller says it, or custody does without and says so.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from custody_sync.model import Capability, Level, Support

Scores: TypeAlias = Literal["similarity", "distance"]
"""Whether a higher score is nearer, or a lower one."""
Where: TypeAlias = Callable[[Mapping[str, str]], Any]
"""Makes the store's own filter for documents whose metadata have these values."""
ListIds: TypeAlias = Callable[[str], Iterable[str]]
"""Yields the ids that begin with a prefix, all of them for an empty one."""

_PAGE = 1000
_ITS_OWN_WAY = (
    "What the store keeps of deleted documents in its files, logs and backups follows its own ways.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How one kind of store is reached where LangChain's interface ends."""

    uuids: bool = False
    """Its ids have to be UUIDs."""
    scores: Scores | None = None
    where: Where | None = None
    list_ids: ListIds | None = None
    find_ids: Callable[[str], Iterable[str]] | None = None
    """Returns the ids of the documents with a fact id in their metadata."""
    id_key: str | None = None
    """Where in the metadata it keeps the id that it leaves out of `Document.id`."""
    approximate: bool = False
    """Its index may leave out what is near, as a graph of neighbours does among many equal vectors."""
    own_keys: tuple[str, ...] = ()
    """What the store itself adds to the metadata that it hands out."""
    alone: bool = False
    """Two calls at once may lose one of them."""
    leaves: tuple[str, ...] = _ITS_OWN_WAY

    def find_by(self) -> Callable[[str], Iterable[str]] | None:
        """Return what names the ids of a fact: the store's own filter, or the prefix of the ids we chose."""
        if self.find_ids is not None or self.list_ids is None or self.uuids:
            return self.find_ids
        list_ids = self.list_ids
        return lambda fact_id: list_ids(f"{fact_id}.")


def reach_of(store: Any) -> Reach:
    """Return how a store is reached; of one that is not known, nothing beyond the interface."""
    for kind in type(store).__mro__:
        known = _KNOWN.get((kind.__module__.partition(".")[0], kind.__name__))
        if known is not None:
            return known(store)
    return Reach()


def _in_memory(store: Any) -> Reach:
    return Reach(
        scores="similarity",
        where=lambda only: lambda document: only.items() <= document.metadata.items(),
        list_ids=lambda prefix: [key for key in list(store.store) if key.startswith(prefix)],
        find_ids=lambda fact_id: [
            key for key, held in list(store.store.items()) if held["metadata"].get("fact_id") == fact_id
        ],
        leaves=(),
    )


def _chroma(store: Any) -> Reach:
    def ids(**only: Any) -> list[str]:
        return list(store.get(include=[], **only)["ids"])

    return Reach(
        scores="distance",
        where=dict,
        approximate=True,
        # Its pages are by offset and lose rows under deletes, so the ids are read at once.
        list_ids=lambda prefix: [key for key in ids() if key.startswith(prefix)],
        find_ids=lambda fact_id: ids(where={"fact_id": fact_id}),
        leaves=(
            "Chroma's own file keeps the deleted text in its journal and full-text pages until the file is "
            "rewritten.",
        ),
    )


def _qdrant(store: Any) -> Reach:
    models = importlib.import_module("qdrant_client.models")

    def where(only: Mapping[str, str]) -> Any:
        inside = store.metadata_payload_key
        return models.Filter(
            must=[
                models.FieldCondition(key=f"{inside}.{key}", match=models.MatchValue(value=value))
                for key, value in only.items()
            ]
        )

    def ids(only: Any = None) -> Iterator[str]:
        # Points are read in the order of their ids, so deletes move nothing.
        after, some = None, {"limit": _PAGE, "with_payload": False, "with_vectors": False}
        while True:
            points, after = store.client.scroll(
                store.collection_name, scroll_filter=only, offset=after, **some
            )
            yield from (str(point.id) for point in points)
            if after is None:
                return

    # Qdrant in this process is numpy arrays: it compares with all, and two puts at once both replace them.
    local = type(getattr(store.client, "_client", None)).__name__ == "QdrantLocal"
    similar = str(getattr(store.distance, "value", store.distance)).casefold() in ("cosine", "dot")
    return Reach(
        uuids=True,
        scores="similarity" if similar else "distance",
        where=where,
        list_ids=lambda prefix: (key for key in ids() if key.startswith(prefix)),
        find_ids=lambda fact_id: ids(where({"fact_id": fact_id})),
        id_key="_id",
        own_keys=("_id", "_collection_name"),
        approximate=not local,
        alone=local,
        leaves=(
            "Qdrant keeps deleted points in its segments until its optimizer rewrites them, and in its "
            "write-ahead log and snapshots.",
        ),
    )


_KNOWN: Mapping[tuple[str, str], Callable[[Any], Reach]] = {
    ("langchain_core", "InMemoryVectorStore"): _in_memory,
    ("langchain_chroma", "Chroma"): _chroma,
    ("langchain_qdrant", "QdrantVectorStore"): _qdrant,
}


def capabilities_of(reach: Reach, *, gets: bool, scored: bool) -> Mapping[Capability, Support]:
    """Return what a store cannot do, or not fully, each with its reason."""
    found: dict[Capability, Support] = {}
    if reach.list_ids is None or not gets:
        reason = "LangChain has no call that lists documents; give list_ids= where the store has one"
        found[Capability.LIST_ENTRIES] = Support(Level.NONE, reason)
    if reach.find_by() is None or not gets:
        if reach.where is None:
            reason = "it can neither list nor filter; give where= or list_ids= where the store can"
            found[Capability.FIND] = Support(Level.NONE, reason)
        else:
            reason = "asked by a filtered search, which shows what the store's index shows"
            found[Capability.FIND] = Support(Level.PARTIAL, reason)
    if reach.where is None:
        reason = "it cannot filter by space, so a space's entries are told apart after its search"
        found[Capability.SEARCH] = Support(Level.PARTIAL, reason)
    if reach.approximate:
        crowded = "nearer entries, deleted or of other spaces, can crowd one out of its approximate index"
        found[Capability.SEARCH] = Support(Level.PARTIAL, crowded)
        reason = "where equal texts crowd its approximate index, only the question by id decides"
        found[Capability.VERIFY_DELETED] = Support(Level.PARTIAL, reason)
    if not gets or not scored:
        lacking = "look up an id" if not gets else "say how near a hit is"
        reason = f"it cannot {lacking}: while more than 10,000 entries are held, a miss may prove nothing"
        found[Capability.VERIFY_DELETED] = Support(Level.PARTIAL, reason)
    reason = "LangChain has no call that changes metadata alone; delete the entry and put it again"
    found[Capability.RELABEL] = Support(Level.NONE, reason)
    return found


__all__ = ["ListIds", "Reach", "Scores", "Where", "capabilities_of", "reach_of"]
