"""When what was put becomes searchable: after each put, in the background, or when the caller says so."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Literal, TypeAlias

from custody_sync.adapters._cognee_api import CogneeApi
from custody_sync.adapters._cognee_shared import NextRun
from custody_sync.errors import CustodyError, InvalidInput, StoreUnavailable

Cognify: TypeAlias = Literal["wait", "background", "never"]

DONE = frozenset({"PipelineRunCompleted", "PipelineRunAlreadyCompleted"})
"""How a run of Cognee ends well, of `add` as of `cognify`."""
_OPERATION = "cognify"


class Indexer:
    """Run Cognee's `cognify`, one run at a time for a dataset: what comes meanwhile shares the next.

    A run reads what is there when it begins, and never is one broken off: a cancelled run was seen
    to be retried for ever (https://github.com/topoteretes/cognee/issues/4049).

    Args:
        api: The server.
        mode: "wait" ends a put when its text is searchable, "background" does not wait for that,
            "never" leaves it to the caller.
        seconds: How long one run may take before it counts as failed.
    """

    def __init__(self, api: CogneeApi, mode: Cognify, seconds: float) -> None:
        if mode not in ("wait", "background", "never"):
            problem = f"{mode!r} is not 'wait', 'background' or 'never'"
            raise InvalidInput(field="cognify", problem=problem)
        if not seconds > 0:
            raise InvalidInput(field="cognify_timeout", problem=f"{seconds!r} is not more than 0 seconds")
        self.failure: str | None = None
        """Type and status of what the last run in the background failed with; None after a good one."""
        self._api = api
        self._mode = mode
        self._seconds = seconds
        self._run: NextRun[str, None] = NextRun(self._cognify)
        self._in_background: set[asyncio.Task[None]] = set()

    @property
    def lags(self) -> bool:
        """Tell whether rows that are not indexed yet are what is to be expected."""
        return self._mode == "background" and self.failure is None

    async def after_put(self, dataset_ids: Collection[str]) -> None:
        """Do what the mode asks for, once new rows lie in these datasets."""
        if self._mode == "wait":
            await self.run(dataset_ids)
        elif self._mode == "background":
            task = asyncio.ensure_future(self._unattended(dataset_ids))
            self._in_background.add(task)
            task.add_done_callback(self._in_background.discard)

    async def run(self, dataset_ids: Collection[str]) -> None:
        """Return once runs that began after this call have ended well."""
        done = await asyncio.gather(*map(self._run, dataset_ids), return_exceptions=True)
        for problem in done:
            if isinstance(problem, BaseException):
                raise problem

    async def aclose(self) -> None:
        """Wait for the runs in the background that were begun in this loop."""
        here = asyncio.get_running_loop()
        await asyncio.gather(*[task for task in self._in_background if task.get_loop() is here])

    async def _unattended(self, dataset_ids: Collection[str]) -> None:
        try:
            await self.run(dataset_ids)
        except CustodyError as problem:
            # Nobody waits for it. The next run takes what this one left.
            self.failure = str(problem.fields.get("cause", problem.code))
        else:
            self.failure = None

    async def _cognify(self, dataset_id: str) -> None:
        # By id: for a name that it does not know, Cognee makes a dataset and reports success.
        body = {"datasetIds": [dataset_id], "runInBackground": False}
        answer = await self._api.ask(_OPERATION, "POST", "/api/v1/cognify", json=body, timeout=self._seconds)
        run = answer.mapping.get(dataset_id)
        status = run.get("status") if isinstance(run, dict) else None
        if status not in DONE:
            raise StoreUnavailable(store=self._api.store, operation=_OPERATION, cause="CognifyNotCompleted")


__all__ = ["DONE", "Cognify", "Indexer"]
