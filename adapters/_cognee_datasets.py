"""Which datasets a store uses, what the server calls them, and what lies in them.

A name means the dataset of whoever asks, and its id is made of name, user and tenant (1.6.5,
`get_unique_dataset_id`). So the id is noted with the name: a client of another user, tenant or server
sees another dataset by that name, and nothing that it does not see is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from custody_sync.adapters._cognee_api import CogneeApi
from custody_sync.adapters._cognee_rows import Row, escaped, read_row
from custody_sync.adapters._cognee_shared import NextRun
from custody_sync.adapters._failures import paged
from custody_sync.adapters._scopes import LooseNotes, Scope, Scoping
from custody_sync.errors import InvalidInput, StoreRefused, StoreUnavailable
from custody_sync.ports import Notebook

_SPACE = "{space}"
_LEAST, _MOST = 2, 1_000
_STEPS_BACK = 1_000


class Datasets:
    """Address the datasets of one store by name; its id is kept in the notebook before anything lies there.

    Args:
        api: The server.
        dataset: A fixed name, a template with `{space}`, or a function of the fact.
        page_size: How many rows a page of a listing has; Cognee's most is 1,000.
    """

    def __init__(self, api: CogneeApi, dataset: Scoping, page_size: int) -> None:
        if not _LEAST <= page_size <= _MOST:
            raise InvalidInput(field="page_size", problem=f"{page_size} is not from {_LEAST} to {_MOST:,}")
        self.scope = Scope("dataset", dataset, escaped)
        self._api = api
        self._page_size = page_size
        self._notes: Notebook = LooseNotes()
        self._ids: dict[str, str] = {}
        self._rows: NextRun[tuple[str, str], Sequence[Row]] = NextRun(self._listed)
        # Around the space; a function of the fact may name any dataset.
        self._around = ("", "")
        if isinstance(dataset, str) and self.scope.is_per_space:
            before, _, after = dataset.partition(_SPACE)
            self._around = (escaped(before), escaped(after) if _SPACE not in after else "")

    def remember_in(self, notebook: Notebook) -> None:
        """Keep names and ids in a ledger's notebook."""
        self._notes = notebook

    async def opened(self, operation: str, name: str) -> str:
        """Return the id of a dataset of this name, made if it is not there yet.

        Raises:
            StoreRefused: this client's dataset of the name is not the one that the notebook has.
        """
        noted = await self._notes.get(name)
        if noted is not None and noted == self._ids.get(name):
            return noted
        made = await self._made(operation, name)
        # An empty dataset is all that a crash in between would leave.
        if (noted or await self._notes.claim(name, made)) != made:
            raise self.out_of_sight(operation)
        self._ids[name] = made
        return made

    def lost(self, name: str) -> None:
        """Take note that the server no longer knows a dataset by the id it gave."""
        self._ids.pop(name, None)

    async def id_of(self, operation: str, name: str) -> str | None:
        """Return the id of a dataset; None where this client is not shown the one that was noted.

        One that nobody noted is known by its name, for which all that is noted has to be in sight.
        """
        noted, known = await self._notes.get(name), self._ids.get(name)
        if known is None or noted not in (None, known):
            places, is_all = await self.in_sight(operation, name)
            known = places.get(name) if noted is not None or is_all else None
            self._ids.update({} if known is None else {name: known})
        return known

    async def in_sight(self, operation: str, also: str | None = None) -> tuple[dict[str, str], bool]:
        """Return the datasets that are ours and shown, and whether all that were noted are shown."""
        noted = await self._notes.read()
        shown = await self._shown(operation)
        there = {dataset_id for ids in shown.values() for dataset_id in ids}
        found = {name: dataset_id for name, dataset_id in noted.items() if dataset_id in there}
        for name, ids in shown.items():
            if name not in noted and (name == also or self._is_ours(name)):
                # Two of one name are ours and one that was shared with us; making ours again says which.
                found[name] = ids[0] if len(ids) == 1 else await self._made(operation, name)
        return found, noted.keys() <= found.keys()

    async def covered(self, operation: str) -> dict[str, str]:
        """Return every dataset that is this store's: by its name, or as the notebook has it.

        Raises:
            StoreRefused: one that is noted is not shown to this client, so no listing is whole.
        """
        found, is_all = await self.in_sight(operation)
        if not is_all:
            raise self.out_of_sight(operation)
        return found

    def out_of_sight(self, operation: str) -> StoreRefused:
        """Return the error for a dataset that was noted and that this client is not shown."""
        return StoreRefused(store=self._api.store, operation=operation, cause="DatasetOutOfSight")

    async def among(self, operation: str, spaces: Sequence[str] | None) -> dict[str, str]:
        """Return the datasets that a search in these spaces has to look at.

        Raises:
            StoreRefused: one of them was noted, and this client is not shown it.
        """
        names = self.scope.among(spaces)
        if names is None:
            return await self.covered(operation)
        found: dict[str, str] = {}
        for name in names:
            dataset_id = await self.id_of(operation, name)
            if dataset_id is not None:
                found[name] = dataset_id
            elif await self._notes.get(name) is not None:
                raise self.out_of_sight(operation)
        return found

    async def rows(self, operation: str, dataset_id: str) -> Sequence[Row]:
        """Return every row of a dataset, as a listing shows them that begins after this call."""
        return await self._rows((operation, dataset_id))

    # --- inside ----------------------------------------------------------------------------

    async def _listed(self, address: tuple[str, str]) -> Sequence[Row]:
        """Return every row, each once, although rows come and go between two pages.

        Cognee orders by creation and pages by offset, so a deletion moves what follows into a page
        that was already read. Each page therefore begins with a row of the one before: while it
        does, nothing lies between them, and where it does not, the listing goes back.
        """
        operation, dataset_id = address
        found: dict[str, Row] = {}
        offset, steps_back = 0, 0
        while True:
            page = await paged(operation, partial(self._page, operation, dataset_id, offset))
            if offset and (not page or page[0].data_id not in found):
                steps_back += 1
                if steps_back > _STEPS_BACK:
                    cause = "UnsettledListing"
                    raise StoreUnavailable(store=self._api.store, operation=operation, cause=cause)
                offset = max(offset - max(self._page_size // 2, 1), 0)
                continue
            fresh = {row.data_id: row for row in page if row.data_id not in found}
            found.update(fresh)
            if len(page) < self._page_size and (not fresh or not offset):
                return tuple(found.values())
            offset += max(len({row.data_id for row in page}) - 1, 1)

    def _is_ours(self, name: str) -> bool:
        if self.scope.fixed is not None:
            return name == self.scope.fixed
        before, after = self._around
        is_long_enough = len(name) > len(before) + len(after) or not (before or after)
        return is_long_enough and name.startswith(before) and name.endswith(after)

    async def _made(self, operation: str, name: str) -> str:
        """Make a dataset, or get the one that this user has by the name: Cognee answers alike."""
        answer = await self._api.ask(operation, "POST", "/api/v1/datasets", json={"name": name})
        dataset_id = answer.mapping.get("id")
        if not isinstance(dataset_id, str) or not dataset_id:
            raise self._api.unreadable(operation)
        return dataset_id

    async def _shown(self, operation: str) -> Mapping[str, list[str]]:
        rows = (await self._api.ask(operation, "GET", "/api/v1/datasets")).rows
        if rows is None:
            raise self._api.unreadable(operation)
        shown: dict[str, list[str]] = {}
        for row in rows:
            name, dataset_id = row.get("name"), row.get("id")
            if not isinstance(name, str) or not isinstance(dataset_id, str):
                raise self._api.unreadable(operation)
            shown.setdefault(name, []).append(dataset_id)
        return shown

    async def _page(self, operation: str, dataset_id: str, offset: int) -> list[Row]:
        params: dict[str, Any] = {"limit": self._page_size, "offset": offset}
        path = f"/api/v1/datasets/{dataset_id}/data"
        rows = (await self._api.ask(operation, "GET", path, params=params)).rows
        if rows is None:
            raise self._api.unreadable(operation)
        found = [row for row in map(read_row, rows) if row is not None]
        if len(found) != len(rows):
            raise self._api.unreadable(operation)
        return found


__all__ = ["Datasets"]
