"""Deleting an episode from Zep, and looking whether it and what came of it are gone.

Both extraction and deletion are work that Zep does later. A delete is followed to its end; one that
had to come before the extraction ended proves nothing until nothing can come of it any more.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from custody_sync.adapters._zep_calls import Calls, Waiting, is_missing, status_in
from custody_sync.adapters._zep_graphs import Graphs
from custody_sync.adapters._zep_notes import EARLY, Notes
from custody_sync.adapters._zep_residue import Residue
from custody_sync.errors import NoProof, StoreError
from custody_sync.model import Entry, format_instant, read_instant
from custody_sync.ports import Sleep, Whose, whose

_PAGE = 100
_SEARCHED = 10
_DELETE, _VERIFY = "delete", "verify_deleted"


def by(key: str, *values: str) -> dict[str, Any]:
    """Return the metadata filter for a key that has one of these values."""
    filters = [{"property_name": key, "operator": "eq", "value": value} for value in values]
    return {"metadata_filters": {"type": "or", "filters": filters}}


class Removal:
    """Delete episodes and look for them afterwards.

    Args:
        calls: The client.
        graphs: Whose notebook keeps which deletions came early.
        residue: Looks for texts in what Zep derived.
        patience: Seconds to wait for an extraction to end, and as many for a deletion.
        settling: How long something may still come of an extraction that a deletion came before.
        sleep: What to wait with.
        now: Where time comes from.
    """

    def __init__(
        self,
        calls: Calls,
        graphs: Graphs,
        residue: Residue,
        *,
        patience: float,
        settling: timedelta,
        sleep: Sleep,
        now: Callable[[], datetime],
    ) -> None:
        self._calls = calls
        self._graphs = graphs
        self._residue = residue
        self._notes = Notes(graphs)
        self._patience = patience
        self._settling = settling
        self._sleep = sleep
        self._now = now

    # --- deleting --------------------------------------------------------------------------

    async def delete(self, graph: str, entry: Entry) -> None:
        """Delete an episode of ours, and the edges that only it stands behind if Zep left them.

        Raises:
            StoreUnavailable: Zep's task failed, was done in part, or did not end in time.
        """
        waiting = Waiting(self._patience, self._sleep)
        episode = entry.external_id
        try:
            found = await self.read(_DELETE, graph, episode)
            if found is not None and _whose(entry, found) is not Whose.OURS:
                return
            if found is not None:
                if not await self._is_extracted(graph, episode, found):
                    # Before the deletion: a crash after it must not leave it unnoted. Anew each time: what
                    # counts is the deletion that took effect, and an earlier one did not.
                    await self._notes.replace(EARLY, episode, format_instant(self._now()))
                await self._delete(graph, episode, waiting)
            await self._delete_edges(graph, episode, waiting)
        except StoreError as problem:
            # Of a graph that is gone, everything is; whether it is gone is asked when it is verified.
            if not is_missing(problem):
                raise

    async def read(self, operation: str, graph: str, episode: str) -> Any | None:
        """Return an episode; None where Zep knows none of that id in the graph."""
        try:
            return await self._calls.ask(operation, "graph.episode.get", graph, episode)
        except StoreError as problem:
            if is_missing(problem):
                return None
            raise

    async def _is_extracted(self, graph: str, episode: str, found: Any | None) -> bool:
        """Wait until the extraction has ended; what it adds after a deletion would be nobody's."""
        waiting = Waiting(self._patience, self._sleep)
        # `expired_at` says that Zep gave up (changelog of 13 November 2026).
        while found is not None and not found.processed and not getattr(found, "expired_at", None):
            if not await waiting.more():
                return False
            found = await self.read(_DELETE, graph, episode)
        return True

    async def _delete(self, graph: str, episode: str, waiting: Waiting) -> None:
        try:
            result = await self._calls.ask(_DELETE, "graph.episode.delete", graph, episode)
        except StoreError as problem:
            if is_missing(problem):
                return
            if not _was_accepted(problem):
                raise
            result = None
        if not await self._follow(result, waiting):
            while await self.read(_DELETE, graph, episode) is not None:
                if not await waiting.more():
                    raise self._calls.unavailable(_DELETE, "still_there")

    async def _delete_edges(self, graph: str, episode: str, waiting: Waiting) -> None:
        for edge in await self._derived(_DELETE, "graph.edge.list", graph, episode):
            if edge.uuid_ and set(edge.episode_uuids or ()) == {episode}:
                try:
                    result = await self._calls.ask(_DELETE, "graph.edge.delete", graph, edge.uuid_)
                except StoreError as problem:
                    if not is_missing(problem) and not _was_accepted(problem):
                        raise
                else:
                    await self._follow(result, waiting)

    async def _follow(self, result: Any | None, waiting: Waiting) -> bool:
        """Follow a task to its end; False where there is none to follow."""
        task = getattr(result, "task", None)
        if task is None or not task.uuid_:
            return False
        uuid = task.uuid_
        while task.status not in ("succeeded", "partial", "failed"):
            if not await waiting.more():
                raise self._calls.unavailable(_DELETE, "task_still_open")
            try:
                task = await self._calls.ask(_DELETE, "task.get", uuid)
            except StoreError as problem:
                if is_missing(problem):
                    return False
                raise
        if task.status != "succeeded":
            raise self._calls.unavailable(_DELETE, f"task_{task.status}")
        return True

    # --- looking ---------------------------------------------------------------------------

    async def is_gone(self, graph: str, entry: Entry) -> bool:
        """Ask every way there is; no single one is enough.

        Raises:
            NoProof: Something else may hide it, or keeps what it said.
        """
        if entry.text:
            await self._residue.begin(entry.external_id)
        try:
            if await self._is_found(graph, entry):
                return False
            await self._check_sight(graph)
            if entry.text:
                cause = await self._residue.look(_VERIFY, graph, entry.text, entry.external_id)
            else:
                cause = await self._residue.look_again(_VERIFY, graph, entry.external_id)
        except StoreError as problem:
            if not is_missing(problem):
                raise
            if not await self._graphs.is_deleted(_VERIFY, graph):
                raise self.no_proof("graph_out_of_sight") from None
            cause = None
        if cause is not None:
            raise self.no_proof(cause)
        await self._check_settled(entry.external_id)
        return True

    def no_proof(self, cause: str) -> NoProof:
        """Return the error for an answer that decides nothing."""
        return NoProof(store=self._calls.store, operation=_VERIFY, cause=cause)

    async def _is_found(self, graph: str, entry: Entry) -> bool:
        episode = entry.external_id
        found = await self.read(_VERIFY, graph, episode)
        if found is not None and (whose_it_is := _whose(entry, found)) in (
            Whose.ANOTHER_LEDGER,
            Whose.UNKNOWN,
        ):
            raise self.no_proof(whose_it_is.value)
        if found is not None:
            return True
        ways: list[tuple[str, dict[str, Any]]] = []
        if entry.fact_id is not None:
            only = by("fact_id", entry.fact_id)
            query = entry.text or entry.fact_id
            ways.append(("graph.episode.list", {"filters": only}))
            ways.append(("graph.search_episodes", {"filters": only, "query": query, "most": _SEARCHED}))
        if entry.text:
            # As recall asks where a space has a graph of its own.
            ways.append(("graph.search_episodes", {"query": entry.text, "most": _SEARCHED}))
        for method, options in ways:
            rows = await self._calls.rows(_VERIFY, method, graph, page_size=_PAGE, **options)
            if any(row.uuid_ == episode for row in rows):
                return True
        for method in ("graph.edge.list", "graph.node.list"):
            if await self._derived(_VERIFY, method, graph, episode):
                return True
        return False

    async def _derived(self, operation: str, method: str, graph: str, episode: str) -> list[Any]:
        only = {"episode_uuids": [episode]}
        rows = await self._calls.rows(operation, method, graph, filters=only, page_size=_PAGE)
        return [row for row in rows if _may_name(row, episode)]

    async def _check_sight(self, graph: str) -> None:
        """Refuse an absence in a graph whose content policy may hide episodes from every reader.

        Unless the project says otherwise, what violated a policy is left out of all reads
        (zep-cloud 4.0.1, types/project.py).
        """
        try:
            policy = await self._calls.ask(_VERIFY, "graph.get_content_policy", graph)
        except StoreError as problem:
            if status_in(problem) not in (403, 404):
                raise
            return
        if policy.rules is None:
            raise self._calls.unavailable(_VERIFY, "policy_without_rules")
        if policy.rules:
            project = await self._calls.ask(_VERIFY, "project.get")
            if project.include_policy_violating_episodes is not True:
                raise self.no_proof("content_policy_hides_episodes")

    async def _check_settled(self, episode: str) -> None:
        noted = await self._notes.read(EARLY, episode)
        for raw in noted:
            since = read_instant(raw)
            if since is not None and self._now() - since < self._settling:
                raise self.no_proof("its_extraction_may_not_have_ended")
        await self._notes.drop(EARLY, episode, noted)


def _may_name(row: Any, episode: str) -> bool:
    """Tell whether a row that Zep gave for an episode may be its: of many, Zep shows the newest hundred."""
    named = row.episode_uuids
    return named is None or episode in named or bool(getattr(row, "episode_uuids_truncated", False))


def _whose(entry: Entry, found: Any) -> Whose:
    """Tell whose an episode is; who names no ledger goes by the id alone."""
    if entry.ledger_id is None:
        return Whose.OURS
    shown = Entry.from_metadata(
        found.metadata, store=entry.store, external_id=entry.external_id, text=found.content
    )
    return whose(entry, shown)


def _was_accepted(problem: StoreError) -> bool:
    """Tell whether Zep said yes in a form that the client cannot read, such as an empty body."""
    status = status_in(problem)
    return status is not None and 200 <= status < 300


__all__ = ["Removal", "by"]
