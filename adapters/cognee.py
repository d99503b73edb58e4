"""Custody for a Cognee server (1.6.1 or newer), over its REST API and the caller's httpx client.

A fact is one uploaded file of its own in a dataset made from a template: text, and a last line that
no other entry has, since Cognee keeps one item for equal bytes. The label is the file's metadata,
and the fact id its node set, by which the index can be asked for that fact alone.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from custody_sync.adapters._cognee_api import CogneeApi, some_at_a_time
from custody_sync.adapters._cognee_datasets import Datasets
from custody_sync.adapters._cognee_index import DONE, Cognify, Indexer
from custody_sync.adapters._cognee_proof import NOT_FOUND, Prover
from custody_sync.adapters._cognee_recall import Recall
from custody_sync.adapters._cognee_rows import Row, data_id_of, fact_tag, read_text, written
from custody_sync.adapters._scopes import Scoping
from custody_sync.adapters._shared import vendor
from custody_sync.errors import CustodyError, InvalidInput, StoreRefused, StoreThrottled, StoreUnavailable
from custody_sync.model import Capability, Entry, Fact, Hit, Label, Level, Limits, Support
from custody_sync.ports import Notebook

if TYPE_CHECKING:
    import httpx

_NOT_OURS = frozenset({403, 404})
_READ_TOGETHER = 100
_LEAVES = (
    "Cognee's query history keeps every search and the chunks it answered, and no request deletes from it; "
    "rows that show this text stay until the server's owner deletes them from its database. With "
    "COGNEE_LOG_SEARCH_HISTORY=false the server keeps no such history.",
    "LanceDB's old versions and the graph's file keep deleted bytes until they are compacted.",
    "The server's log names the beginning of each query; it and backups follow their own retention.",
)

_NAME_STAYS = (
    "An empty dataset keeps its name, which was made of the fact: where a space is named after a person, "
    "delete the dataset at the server (DELETE /api/v1/datasets/<id>) once nothing of the space is owed any "
    "more. A dataset= function that returns a pseudonym keeps names out of Cognee."
)


class CogneeStore:
    """Keep facts in the datasets of one Cognee user.

    That user has to own the datasets: a name means those of whoever asks. A user of its own, with
    whom nothing else is shared, keeps other people's rows out of listings.

    Args:
        client: An `httpx.AsyncClient` or `httpx.Client` with the server's `base_url`; TLS, timeouts
            and its end are the caller's.
        name: The store's name in a coordinator.
        dataset: A fixed name, a template such as `"{space}"`, or a function of the fact. What Cognee
            refuses in a name is escaped, so no two spaces share a dataset.
        username: Logs in, with `password`; the token is renewed when it has expired.
        password: The user's password.
        api_key: A key of the user, instead of a login; it does not expire.
        cognify: When a put becomes searchable: "background" starts Cognee's indexing and does not
            wait, "wait" ends a put when it is done, "never" leaves it to `cognify()` or to others.
        cognify_timeout: Seconds that one indexing run may take.
        limits: The largest text to take; Cognee itself states none.
        page_size: How many rows a page of a listing has, at most 1,000.
        threads: How many calls of a blocking client may run at once.
        executor: Runs these calls instead of own threads.
    """

    def __init__(
        self,
        client: httpx.AsyncClient | httpx.Client,
        *,
        name: str = "cognee",
        dataset: Scoping = "{space}",
        username: str | None = None,
        password: str | None = None,
        api_key: str | None = None,
        cognify: Cognify = "background",
        cognify_timeout: float = 600.0,
        limits: Limits | None = None,
        page_size: int = 1_000,
        threads: int = 16,
        executor: Executor | None = None,
    ) -> None:
        vendor("httpx", feature="CogneeStore", extra="cognee")
        self.name = name
        self.limits = limits or Limits()
        self._api = CogneeApi(
            name,
            client,
            username=username,
            password=password,
            api_key=api_key,
            threads=threads,
            executor=executor,
        )
        self._datasets = Datasets(self._api, dataset, page_size)
        self.capabilities = _capabilities(cognify, per_space=self._datasets.scope.is_per_space)
        self._indexer = Indexer(self._api, cognify, cognify_timeout)
        self._recall = Recall(self._api, self._datasets, self._indexer)
        self._prover = Prover(self._api, self._datasets)

    @property
    def cognify_failure(self) -> str | None:
        """Return what the last indexing in the background failed with; None when it went well."""
        return self._indexer.failure

    def remember_in(self, notebook: Notebook) -> None:
        """Keep names and ids of used datasets in a ledger's notebook, to know another place by."""
        self._datasets.remember_in(notebook)

    # --- the two verbs ---------------------------------------------------------------------

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        """Upload the text as a file of its own; the same label again is the same file."""
        dataset_id, data_id = await self._added("put", fact, label)
        await self._indexer.after_put([dataset_id])
        return (data_id,)

    async def put_many(self, items: Sequence[tuple[Fact, Label]]) -> Sequence[Sequence[str]]:
        """Upload some files at a time and index each dataset once.

        Not in Cognee's own batches: one bad file fails a batch without ids although others are
        stored, and the node sets of a request are those of all its files.
        """
        work = [partial(self._attempted, fact, label) for fact, label in items]
        answers = await some_at_a_time(work)
        problems = [answer for answer in answers if isinstance(answer, CustodyError)]
        if problems:
            raise self._of_all(problems, len(items))
        added = [answer for answer in answers if not isinstance(answer, CustodyError)]
        await self._indexer.after_put({dataset_id for dataset_id, _ in added})
        return [(data_id,) for _, data_id in added]

    async def delete(self, entry: Entry) -> None:
        """Delete one data item of ours; Cognee says yes for any id, so that proves nothing."""
        if not entry.scope:
            raise StoreRefused(store=self.name, operation="delete", cause="its dataset is not known")
        dataset_id = await self._datasets.id_of("delete", entry.scope)
        if dataset_id is not None and await self._prover.is_ours("delete", dataset_id, entry):
            path = f"/api/v1/datasets/{dataset_id}/data/{data_id_of(entry.external_id)}"
            await self._api.ask("delete", "DELETE", path)

    # --- what it can be asked --------------------------------------------------------------

    async def find(self, fact_id: str) -> list[Entry]:
        """Return every entry of the fact with its text, out of the listings of all datasets."""
        places = await self._datasets.covered("find")
        work = [partial(self._found, name, dataset_id, fact_id) for name, dataset_id in places.items()]
        return list(chain.from_iterable(await some_at_a_time(work)))

    async def list_entries(self) -> AsyncIterator[Entry]:
        """Yield every row of every dataset, without its text; a dataset is read whole before that.

        Raises:
            StoreRefused: after what is shown, if a dataset that is noted is not.
        """
        places, is_all = await self._datasets.in_sight("list_entries")
        for name, dataset_id in places.items():
            for row in await self._datasets.rows("list_entries", dataset_id):
                yield row.entry(self.name, name)
        if not is_all:
            raise self._datasets.out_of_sight("list_entries")

    async def list_with_text(self) -> AsyncIterator[Entry]:
        """Yield what `list_entries` does, each row with what its file says; each file is a request."""
        places, is_all = await self._datasets.in_sight("list_entries")
        for name, dataset_id in places.items():
            rows = await self._datasets.rows("list_entries", dataset_id)
            for start in range(0, len(rows), _READ_TOGETHER):
                some = rows[start : start + _READ_TOGETHER]
                work = [partial(self._with_text, name, dataset_id, row) for row in some]
                for entry in await some_at_a_time(work):
                    yield entry
        if not is_all:
            raise self._datasets.out_of_sight("list_entries")

    async def verify_deleted(self, entry: Entry) -> bool:
        """Look in the listing, for the file, and with the fact id in the index; never with the text."""
        return await self._prover.is_gone(entry)

    async def search(self, query: str, k: int, spaces: Sequence[str] | None) -> list[Hit]:
        """Return the entries whose chunks are nearest, by Cognee's search for chunks."""
        return await self._recall.search(query, k, spaces)

    def scope_of(self, fact: Fact) -> str:
        """Return the name of the fact's dataset."""
        return self._datasets.scope.of_fact(fact)

    async def cognify(self) -> None:
        """Index now what lies in this store's datasets, and return when that is done."""
        await self._indexer.run((await self._datasets.covered("cognify")).values())

    async def after_forget(self, entries: Sequence[Entry]) -> Sequence[str]:
        """Say what Cognee keeps of a deleted fact where its REST API does not reach."""
        if not entries:
            return ()
        return _LEAVES if self._datasets.scope.fixed is not None else (*_LEAVES, _NAME_STAYS)

    async def aclose(self) -> None:
        """Wait for indexing that runs in the background; the client stays the caller's to close."""
        await self._indexer.aclose()

    # --- inside ----------------------------------------------------------------------------

    async def _attempted(self, fact: Fact, label: Label) -> tuple[str, str] | CustodyError:
        try:
            return await self._added("put_many", fact, label)
        except CustodyError as problem:
            return problem

    def _of_all(self, problems: Sequence[CustodyError], size: int) -> CustodyError:
        """Return the error of a batch: refused only if all of it was, since that says nothing was done."""
        refused = (StoreThrottled, StoreRefused, InvalidInput)
        if len(problems) == size and all(isinstance(problem, refused) for problem in problems):
            return problems[0]
        cause = next(str(problem.fields.get("cause", problem.code)) for problem in problems)
        return StoreUnavailable(store=self.name, operation="put_many", cause=cause)

    async def _added(self, operation: str, fact: Fact, label: Label) -> tuple[str, str]:
        text = fact.text or ""
        if not text.strip():
            raise InvalidInput(field="text", problem="is blank, and Cognee indexes nothing of it")
        name = self.scope_of(fact)
        dataset_id = await self._datasets.opened(operation, name)
        data_id = await self._add(operation, dataset_id, text, label)
        if data_id is None:
            # Somebody deleted the dataset since the server told its id.
            self._datasets.lost(name)
            dataset_id = await self._datasets.opened(operation, name)
            data_id = await self._add(operation, dataset_id, text, label)
        if data_id is None:
            raise StoreRefused(store=self.name, operation=operation, cause="DatasetNotWritable")
        return dataset_id, data_id

    async def _add(self, operation: str, dataset_id: str, text: str, label: Label) -> str | None:
        """Upload one file and return its data id; None where the dataset is not ours to write to."""
        form = {
            "datasetId": dataset_id,
            "external_metadata": json.dumps([label.to_metadata()]),
            "node_set": fact_tag(label.fact_id),
            "run_in_background": "false",
        }
        # As a file: a text that is a path or a URL would be fetched, if it came as `raw_data`.
        files = [("data", (f"{label.key}.txt", written(text, label), "text/plain"))]
        answer = await self._api.ask(
            operation, "POST", "/api/v1/add", allow=_NOT_OURS, data=form, files=files
        )
        if answer.status in _NOT_OURS:
            return None
        data_id = _data_id(answer.mapping)
        if data_id is not None:
            return data_id
        for row in await self._datasets.rows(operation, dataset_id):
            if (row.fact_id, row.generation) == (label.fact_id, label.generation):
                return row.external_id
        raise self._api.unreadable(operation)

    async def _found(self, name: str, dataset_id: str, fact_id: str) -> list[Entry]:
        rows = [row for row in await self._datasets.rows("find", dataset_id) if row.fact_id == fact_id]
        return await some_at_a_time([partial(self._with_text, name, dataset_id, row) for row in rows])

    async def _with_text(self, name: str, dataset_id: str, row: Row) -> Entry:
        path = f"/api/v1/datasets/{dataset_id}/data/{row.data_id}/raw"
        answer = await self._api.ask("find", "GET", path, allow=NOT_FOUND)
        text = None if answer.status in NOT_FOUND else read_text(answer.content)
        return row.entry(self.name, name, text)


def _data_id(answer: Mapping[str, Any]) -> str | None:
    """Return the data id of the one file; None where the upload is not said to be complete."""
    infos = answer.get("data_ingestion_info")
    if answer.get("status") not in DONE or not isinstance(infos, list) or len(infos) != 1:
        return None
    info = infos[0] if isinstance(infos[0], Mapping) else {}
    run, data_id = info.get("run_info"), info.get("data_id")
    done = isinstance(run, Mapping) and run.get("status") in DONE
    return data_id if done and isinstance(data_id, str) and data_id else None


def _capabilities(cognify: Cognify, *, per_space: bool) -> Mapping[Capability, Support]:
    found = {
        Capability.RELABEL: Support(
            Level.NONE, "Cognee's update changes a text and keeps its metadata; put the fact again"
        )
    }
    reasons = []
    if cognify != "wait":
        reasons.append("a text is served once Cognee has indexed it, for which a put does not wait")
    if not per_space:
        reasons.append(
            "spaces in one dataset are told apart among the nearest 10,000 chunks, after Cognee's cut"
        )
    if reasons:
        found[Capability.SEARCH] = Support(Level.PARTIAL, "; ".join(reasons))
    return found


__all__ = ["CogneeStore"]
