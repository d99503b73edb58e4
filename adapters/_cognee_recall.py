"""Cognee's search for chunks, answered in entries: each once, by its nearest chunk, best first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from custody_sync.adapters._cognee_api import CogneeApi
from custody_sync.adapters._cognee_datasets import Datasets
from custody_sync.adapters._cognee_index import Indexer
from custody_sync.adapters._cognee_proof import Served, search
from custody_sync.adapters._cognee_rows import ends_as_put, read_chunk, read_text
from custody_sync.adapters._shared import finite
from custody_sync.errors import InvalidInput, StoreUnavailable
from custody_sync.model import Hit

_OPERATION = "search"
_GROWTH, _MOST = 4, 10_000


class Recall:
    """Search the datasets of one store."""

    def __init__(self, api: CogneeApi, datasets: Datasets, indexer: Indexer) -> None:
        self._api = api
        self._datasets = datasets
        self._indexer = indexer

    async def search(self, query: str, k: int, spaces: Sequence[str] | None) -> list[Hit]:
        """Return the k nearest entries, asked wider while chunks of one, or of other spaces, crowd them out.

        Raises:
            InvalidInput: the query is blank, to which Cognee answers 500.
            StoreUnavailable: facts are there, none is indexed, and no run that would is to be expected.
        """
        if k < 1 or (spaces is not None and not spaces):
            return []
        if not query.strip():
            raise InvalidInput(field="query", problem="is blank")
        places = await self._datasets.among(_OPERATION, spaces)
        if not places:
            return []
        top_k = k
        while True:
            served = await search(self._api, _OPERATION, query, places.values(), top_k)
            if served.searched is not None and not served.searched:
                if not self._indexer.lags:
                    await self._check_empty(places)
                return []
            hits = await self._hits(served, places, spaces)
            if top_k >= _MOST or _is_enough(served, top_k, hits[:k], k):
                return hits[:k]
            top_k = min(top_k * _GROWTH, _MOST)

    async def _hits(
        self, served: Served, places: Mapping[str, str], spaces: Sequence[str] | None
    ) -> list[Hit]:
        names = {dataset_id: name for name, dataset_id in places.items()}
        located = await self._located(places) if served.searched is None and served.chunks else {}
        # A dataset of its own keeps a space apart; else the label has to.
        wanted = None if spaces is None or self._datasets.scope.is_per_space else frozenset(spaces)
        best: dict[tuple[str, str], Hit] = {}
        pairs = zip(served.chunks, served.datasets, strict=True)
        for chunk, dataset_id in sorted(pairs, key=lambda pair: _distance(pair[0])):
            row = read_chunk(chunk)
            if row is None:
                raise self._api.unreadable(_OPERATION)
            name = located.get(row.data_id) if dataset_id is None else names.get(dataset_id)
            if name is None or (name, row.data_id) in best:
                continue
            entry = row.entry(self._api.store, name)
            if wanted is not None and entry.space not in wanted:
                continue
            if ends_as_put(chunk, f"{entry.fact_id}.{entry.generation}"):
                entry = row.entry(self._api.store, name, read_text(str(chunk.get("text"))))
            distance = _distance(chunk)
            score = 1.0 - distance if math.isfinite(distance) else None
            best[name, row.data_id] = Hit(entry=entry, score=score)
        return list(best.values())

    async def _located(self, places: Mapping[str, str]) -> dict[str, str]:
        """Return in which dataset each row lies; an answer of one index for all does not say."""
        located: dict[str, str] = {}
        for name, dataset_id in places.items():
            rows = await self._datasets.rows(_OPERATION, dataset_id)
            located.update((row.data_id, name) for row in rows)
        return located

    async def _check_empty(self, places: Mapping[str, str]) -> None:
        """Raise if facts are there: then no answer is not the answer that there are none."""
        for dataset_id in places.values():
            path = f"/api/v1/datasets/{dataset_id}/data/count"
            count = (await self._api.ask(_OPERATION, "GET", path)).mapping.get("count")
            if count != 0:
                cause = "NotCognified"
                raise StoreUnavailable(store=self._api.store, operation=_OPERATION, cause=cause)


def _is_enough(served: Served, top_k: int, hits: Sequence[Hit], k: int) -> bool:
    """Tell whether no index that was cut off can have a nearer entry than the last of the hits."""
    by_index: dict[str | None, list[float]] = {}
    for chunk, dataset_id in zip(served.chunks, served.datasets, strict=True):
        by_index.setdefault(dataset_id, []).append(_distance(chunk))
    cut_off = [max(distances) for distances in by_index.values() if len(distances) >= top_k]
    if not cut_off:
        return True
    last = hits[-1].score if len(hits) == k else None
    return last is not None and min(cut_off) >= 1.0 - last


def _distance(chunk: Mapping[str, Any]) -> float:
    score = chunk.get("score")
    distance = finite(score) if isinstance(score, int | float) else None
    return math.inf if distance is None else distance


__all__ = ["Recall"]
