"""Whether an entry is gone: asked of the rows, of the file, and of the index that recall searches.

The index is asked with the fact id, never with the text: Cognee keeps every query and what it
answered in its history, and there is no request that deletes from it. The tag of the fact narrows
the question to its own chunks before the cut, so no crowd can hide one and no neighbour's text is
copied into that history, except one: a living fact that the same question has to show, or else the
index did not look.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from custody_sync.adapters._cognee_api import Answer, CogneeApi
from custody_sync.adapters._cognee_datasets import Datasets
from custody_sync.adapters._cognee_rows import Row, data_id_of, fact_tag, is_tagged, read_chunk, read_text
from custody_sync.adapters._cognee_shared import NextRun
from custody_sync.errors import NoProof, StoreRefused, StoreUnavailable
from custody_sync.model import ERASED_ID, Entry
from custody_sync.ports import ANOTHER_LEDGER, NO_LABEL, Whose, whose

NOT_FOUND = frozenset({404})
_PROBE, _GROWTH, _MOST = 100, 10, 1_000_000
_OPERATION = "verify_deleted"
_NO_INDEX = re.compile(r"cognify|no data", re.IGNORECASE)
"""What Cognee says of one of several that holds nothing, or nothing indexed; of a single one it says 404."""
_LOOKS = 5


@dataclass(frozen=True, slots=True)
class Served:
    """What a search answered: its chunks, and of which datasets it said that they can be searched."""

    chunks: tuple[Mapping[str, Any], ...]
    datasets: tuple[str | None, ...]
    """Beside each chunk its dataset; None where the server keeps all in one index."""
    searched: frozenset[str] | None
    """None where one index answered for all of them."""


async def search(
    api: CogneeApi,
    operation: str,
    query: str,
    dataset_ids: Collection[str],
    top_k: int,
    tags: Sequence[str] = (),
) -> Served:
    """Ask for chunks, which takes no language model and no session, and read either shape of the answer.

    A server with ENABLE_BACKEND_ACCESS_CONTROL=false has one index: it answers a flat list and
    takes no notice of the datasets it was asked about.
    """
    body: dict[str, Any] = {
        "query": query,
        "searchType": "CHUNKS",
        "datasetIds": list(dataset_ids),
        "topK": top_k,
        **({"nodeName": list(tags)} if tags else {}),
    }
    answer = await api.ask(operation, "POST", "/api/v1/search", allow=NOT_FOUND, json=body)
    if answer.status in NOT_FOUND:
        if not _says_no_data(answer):
            raise StoreRefused(store=api.store, operation=operation, cause="HTTPStatusError 404")
        return Served((), (), frozenset())
    rows = answer.rows
    if rows is None:
        raise api.unreadable(operation)
    if not rows:
        await _check_flat(api, operation, body)
    if all("search_result" not in row for row in rows):
        return Served(tuple(rows), (None,) * len(rows), None)
    return _by_dataset(api, operation, rows, frozenset(dataset_ids))


async def _check_flat(api: CogneeApi, operation: str, body: Mapping[str, Any]) -> None:
    """Raise unless an empty list is the answer of one index for all: others have a row for each dataset.

    Asked to be verbose, that index wraps its answer as well, in a row that names no dataset.
    """
    path = "/api/v1/search"
    rows = (await api.ask(operation, "POST", path, json={**body, "verbose": True})).rows
    if rows is None or len(rows) != 1 or "dataset_id" in rows[0] or rows[0].get("objects_result") != []:
        raise api.unreadable(operation)


def _by_dataset(
    api: CogneeApi, operation: str, rows: Sequence[Mapping[str, Any]], asked: frozenset[str]
) -> Served:
    chunks: list[Mapping[str, Any]] = []
    datasets: list[str | None] = []
    searched: set[str] = set()
    for row in rows:
        dataset_id, found = row.get("dataset_id"), row.get("search_result")
        is_list = isinstance(found, list) and all(isinstance(chunk, Mapping) for chunk in found)
        if not isinstance(dataset_id, str) or not is_list or found is None:
            raise api.unreadable(operation)
        chunks.extend(found)
        datasets.extend([dataset_id] * len(found))
        problem = row.get("error")
        if problem is None:
            searched.add(dataset_id)
        elif len(asked) == 1 or not _NO_INDEX.search(str(problem)):
            raise StoreUnavailable(store=api.store, operation=operation, cause="SearchFailed")
    if frozenset(row["dataset_id"] for row in rows) != asked:
        raise api.unreadable(operation)
    return Served(tuple(chunks), tuple(datasets), frozenset(searched))


def _says_no_data(answer: Answer) -> bool:
    return "NoDataError" in str(answer.mapping.get("detail"))


class Prover:
    """Prove that entries are gone, or raise `NoProof`."""

    def __init__(self, api: CogneeApi, datasets: Datasets) -> None:
        self._api = api
        self._datasets = datasets
        self._finished: NextRun[str, frozenset[str]] = NextRun(self._ask_finished)

    async def is_gone(self, entry: Entry) -> bool:
        """Return True only if no row, no file and no chunk of the entry is left, and all could have shown."""
        if entry.scope:
            dataset_id = await self._datasets.id_of(_OPERATION, entry.scope)
            if dataset_id is None:
                raise self._no_proof("its dataset is not shown to this client")
            return await self._is_gone_from(dataset_id, entry)
        if entry.fact_id is None:
            raise self._no_proof("neither its dataset nor its fact id is known")
        places, is_all = await self._datasets.in_sight(_OPERATION)
        if not is_all:
            raise self._no_proof("a dataset of this store is not shown to this client")
        answers = [await self._is_gone_from(dataset_id, entry) for dataset_id in places.values()]
        return all(answers)

    async def is_ours(self, operation: str, dataset_id: str, entry: Entry) -> bool:
        """Tell whether the row of an id may go; who names no ledger goes by the id alone."""
        if entry.ledger_id is None:
            return True
        rows = await self._datasets.rows(operation, dataset_id)
        data_id = data_id_of(entry.external_id)
        row = next((row for row in rows if row.data_id == data_id), None)
        # What is not listed may have left its file or its chunks.
        return row is None or await self._whose(operation, dataset_id, entry, row) is Whose.OURS

    async def _whose(self, operation: str, dataset_id: str, entry: Entry, row: Row) -> Whose:
        text = None
        if row.fact_id is None and entry.text is not None:
            path = f"/api/v1/datasets/{dataset_id}/data/{row.data_id}/raw"
            answer = await self._api.ask(operation, "GET", path, allow=NOT_FOUND)
            text = None if answer.status in NOT_FOUND else read_text(answer.content)
        return whose(entry, row.entry(entry.store, entry.scope or "", text))

    async def _is_gone_from(self, dataset_id: str, entry: Entry) -> bool:
        """Look again where rows went meanwhile, as in a sweep: the index rightly shows none of those."""
        for _ in range(_LOOKS - 1):
            rows, finished = await self._listed(dataset_id)
            try:
                return await self._is_gone_beside(dataset_id, entry, rows, finished)
            except NoProof:
                left = {row.data_id for row in await self._datasets.rows(_OPERATION, dataset_id)}
                if all(row.data_id in left for row in rows):
                    raise
        return await self._is_gone_beside(dataset_id, entry, *await self._listed(dataset_id))

    async def _listed(self, dataset_id: str) -> tuple[Sequence[Row], frozenset[str]]:
        rows, finished = await asyncio.gather(
            self._datasets.rows(_OPERATION, dataset_id), self._finished(dataset_id)
        )
        return rows, finished

    async def _is_gone_beside(
        self, dataset_id: str, entry: Entry, rows: Sequence[Row], finished: frozenset[str]
    ) -> bool:
        # An erasure of identity takes the id; then every entry of the fact has to be gone.
        data_id = None if entry.external_id.startswith(ERASED_ID) else data_id_of(entry.external_id)

        def is_it(row: Row) -> bool:
            return row.fact_id == entry.fact_id if data_id is None else row.data_id == data_id

        held = [row for row in rows if is_it(row)]
        if entry.ledger_id is not None:
            for row in held:
                found = await self._whose(_OPERATION, dataset_id, entry, row)
                if found is not Whose.OURS:
                    # Its file and chunks still have the id, so that nothing shows what became of ours.
                    raise self._no_proof(ANOTHER_LEDGER if found is Whose.ANOTHER_LEDGER else NO_LABEL)
        if held:
            return False
        if data_id is not None and await self._has_file(dataset_id, data_id):
            return False
        indexed = [row for row in rows if row.data_id in finished]
        if entry.fact_id is None or not is_tagged(entry.external_id):
            query = entry.fact_id or data_id or entry.external_id
            served = await self._whole_index(dataset_id, query, indexed)
        else:
            served = await self._chunks_of(dataset_id, entry.fact_id, indexed)
        if any(map(is_it, served)):
            return False
        listed = {row.data_id for row in rows}
        if data_id is None and any(not row.metadata and row.data_id not in listed for row in served):
            raise self._no_proof("a chunk in its index does not say of which fact it is")
        return True

    async def _chunks_of(self, dataset_id: str, fact_id: str, indexed: Sequence[Row]) -> list[Row]:
        """Return the fact's chunks and those of one living fact, which the same question has to show."""
        control = next((row for row in indexed if row.fact_id and is_tagged(row.external_id)), None)
        if control is None or control.fact_id is None:
            return await self._whole_index(dataset_id, fact_id, indexed)
        tags = [fact_tag(fact_id), fact_tag(control.fact_id)]
        served = await self._everything(dataset_id, fact_id, tags)
        if all(row.data_id != control.data_id for row in served):
            raise self._no_proof("its search does not show what it has indexed")
        return served

    async def _whole_index(self, dataset_id: str, query: str, indexed: Sequence[Row]) -> list[Row]:
        served = await self._everything(dataset_id, query, ())
        shown = {row.data_id for row in served}
        if any(row.data_id not in shown for row in indexed):
            raise self._no_proof("its search does not show what it has indexed")
        return served

    async def _everything(self, dataset_id: str, query: str, tags: Sequence[str]) -> list[Row]:
        """Return of which rows the index has chunks, asked wider until the answer has room to spare.

        "No searchable memory, run cognify" is an answer without chunks. Whether it could have had
        some, Cognee's word on which rows are indexed has to tell.
        """
        top_k = _PROBE
        while top_k <= _MOST:
            served = await search(self._api, _OPERATION, query, [dataset_id], top_k, tags)
            if len(served.chunks) < top_k:
                found = [row for row in map(read_chunk, served.chunks) if row is not None]
                if len(found) != len(served.chunks):
                    raise self._api.unreadable(_OPERATION)
                return found
            top_k *= _GROWTH
        raise self._no_proof("its index has more than a million chunks to look through")

    async def _ask_finished(self, dataset_id: str) -> frozenset[str]:
        """Return the rows of which Cognee says that they are indexed."""
        path = f"/api/v1/datasets/{dataset_id}/processing-status"
        params = {"pipeline": "cognify_pipeline"}
        said = (await self._api.ask(_OPERATION, "GET", path, params=params)).mapping
        items = said.get("items")
        if not isinstance(items, list) or len(items) != said.get("total"):
            raise self._api.unreadable(_OPERATION)
        finished: set[str] = set()
        for item in items:
            data_id = item.get("id") if isinstance(item, Mapping) else None
            if not isinstance(data_id, str) or not isinstance(item.get("completed"), bool):
                raise self._api.unreadable(_OPERATION)
            finished |= {data_id} if item["completed"] else set()
        return frozenset(finished)

    async def _has_file(self, dataset_id: str, data_id: str) -> bool:
        path = f"/api/v1/datasets/{dataset_id}/data/{data_id}/raw"
        answer = await self._api.ask(_OPERATION, "GET", path, allow=NOT_FOUND)
        if answer.status in NOT_FOUND and "DataNotFoundError" not in str(answer.mapping.get("detail")):
            raise self._no_proof("a 404 that is not about its file")
        return answer.status not in NOT_FOUND

    def _no_proof(self, cause: str) -> NoProof:
        return NoProof(store=self._api.store, operation=_OPERATION, cause=cause)


__all__ = ["NOT_FOUND", "Prover", "Served", "search"]
