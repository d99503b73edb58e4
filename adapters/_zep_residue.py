"""What Zep derives from an episode, and whether a text outlives its episode there.

Deleting an episode regenerates neither names nor summaries of nodes that other episodes share
(https://help.getzep.com/v4/deleting-data-from-the-graph). A text is looked for as it is written;
nobody can find a paraphrase.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from custody_sync.adapters._zep_calls import Calls, is_missing
from custody_sync.adapters._zep_graphs import Graphs
from custody_sync.adapters._zep_notes import LEFT, Notes
from custody_sync.errors import StoreError

_PAGE = 100
_SEARCHED, _LISTED = 10, 100
"""Pages of a ranked search, and of a whole list, that one look reads of each kind of row."""
_MOST_SOURCES = 256
_MOST_NOTED = 100
_FIELDS = ("fact", "name", "summary", "attributes")

_Left: TypeAlias = "tuple[str, str, list[str]]"
"""What kind of row keeps a text, its id, and in which of its fields.

No id stands for one of too many; no kind for a look that was begun.
"""


@dataclass(frozen=True, slots=True)
class _Kind:
    """One kind of derived row, and what finding the text in it is called."""

    what: str
    search: str
    list: str
    get: str
    cause: str


_KINDS = (
    _Kind("edge", "graph.search_edges", "graph.edge.list", "graph.edge.get", "text_left_in_an_edge"),
    _Kind("node", "graph.search_nodes", "graph.node.list", "graph.node.get", "text_left_in_a_node_summary"),
    _Kind(
        "observation",
        "graph.search_observations",
        "graph.observation.list",
        "graph.observation.get",
        "text_left_in_an_observation",
    ),
)
_BY_NAME = {kind.what: kind for kind in _KINDS}
TOO_MANY = "too_many_rows_to_look_through"
UNFINISHED = "its_text_was_not_looked_for_to_the_end"
_BEGUN = json.dumps([("", "", [])])


class Residue:
    """Look for a text in what Zep derived of it, and remember where it was left.

    The text is known in the forget call only. So that a later question, which no longer knows it, is
    not answered more kindly, the rows stand in the notebook until each is gone, or empty where it was;
    and so does a look that was begun, until one comes to its end.

    Args:
        calls: The client.
        graphs: Whose notebook keeps where texts were left.
    """

    def __init__(self, calls: Calls, graphs: Graphs) -> None:
        self._calls = calls
        self._notes = Notes(graphs)

    async def begin(self, episode: str) -> None:
        """Note that a text is about to be looked for: what ends early must not pass for a look."""
        if not await self._notes.read(LEFT, episode):
            await self._notes.replace(LEFT, episode, _BEGUN)

    async def look(self, operation: str, graph: str, text: str, episode: str) -> str | None:
        """Return what keeps the text of a deleted episode, as a cause; None if nothing does.

        A row that a living episode with the same text accounts for is that episode's.
        """
        wanted = _plain(text)
        noted = await self._notes.read(LEFT, episode)
        left: list[_Left] = []
        for kind in _KINDS:
            rows, is_all = await self._carrying(operation, kind, graph, text, wanted)
            accounted = await self._accounted(operation, graph, rows, wanted, episode)
            left += [
                (kind.what, row.uuid_, _carrying(row, wanted)) for row in rows if row.uuid_ not in accounted
            ]
            if not is_all:
                left.append((kind.what, "", []))
        if not left:
            await self._notes.drop(LEFT, episode, noted)
            return None
        # What is not noted is not asked about again, so a note that is cut off never clears.
        kept = left if len(left) <= _MOST_NOTED else [*left[:_MOST_NOTED], (left[-1][0], "", [])]
        await self._notes.replace(LEFT, episode, json.dumps(kept))
        return next((_BY_NAME[name].cause for name, row, _ in left if row), TOO_MANY)

    async def look_again(self, operation: str, graph: str, episode: str) -> str | None:
        """Return what kept the text when it was last looked for and still may; None if nothing does."""
        noted = await self._notes.read(LEFT, episode)
        for name, row, fields in _rows(noted):
            if not row:
                return TOO_MANY if name else UNFINISHED
            if await self._may_carry(operation, _BY_NAME[name], graph, row, fields):
                return _BY_NAME[name].cause
        await self._notes.drop(LEFT, episode, noted)
        return None

    async def left(self, episodes: Sequence[str]) -> AsyncGenerator[str]:
        """Yield where the texts of these episodes were seen to be left, by id."""
        for episode in dict.fromkeys(episodes):
            said = {
                f"{name} {row}" if row else f"one of very many {name}s"
                for name, row, _ in _rows(await self._notes.read(LEFT, episode))
                if name
            }
            for where in sorted(said):
                yield where

    async def _may_carry(
        self, operation: str, kind: _Kind, graph: str, row: str, fields: Sequence[str]
    ) -> bool:
        try:
            found = await self._calls.ask(operation, kind.get, graph, row)
        except StoreError as problem:
            if not is_missing(problem):
                raise
            return False
        if found.uuid_ != row:
            raise self._calls.unavailable(operation, "another_row")
        return any(getattr(found, field, None) for field in fields)

    async def _carrying(
        self, operation: str, kind: _Kind, graph: str, text: str, wanted: str
    ) -> tuple[list[Any], bool]:
        """Return the rows that carry the text, and whether these are all.

        A search ranks a limited set by likeness, and a row that contains a text need not be like it: what
        a search shows counts, what it does not show says nothing. So the whole list is read as well; one of
        more than a page from both ends, as what a deletion moved past the cursor comes then.
        """
        found = await self._calls.rows(
            operation, kind.search, graph, query=text, page_size=_PAGE, most=_SEARCHED
        )
        carrying = {row.uuid_: row for row in found if _carrying(row, wanted)}
        read = 0
        for order in ("asc", "desc"):
            options: dict[str, Any] = {
                "page_size": _PAGE,
                "order_by": "uuid",
                "order": order,
                "most": _LISTED + 1,
            }
            read = 0
            async for page in self._calls.pages(operation, kind.list, graph, **options):
                read += 1
                carrying.update((row.uuid_, row) for row in page if _carrying(row, wanted))
            if read == 1 or read > _LISTED:
                break
        return list(carrying.values()), read <= _LISTED

    async def _accounted(
        self, operation: str, graph: str, rows: Sequence[Any], wanted: str, episode: str
    ) -> set[str]:
        """Return the rows that a living episode which says the text itself stands behind."""
        sources = {row.uuid_: {*(row.episode_uuids or ())} - {episode} for row in rows}
        asked = sorted(set[str]().union(*sources.values()))
        saying: set[str] = set()
        for start in range(0, len(asked), _MOST_SOURCES):
            # `mentioned_node_uuids` takes the ids of episodes too (zep-cloud 4.0.1, graph/episode/client.py).
            only = {"mentioned_node_uuids": asked[start : start + _MOST_SOURCES]}
            episodes = await self._calls.rows(
                operation, "graph.episode.list", graph, filters=only, page_size=_PAGE
            )
            saying |= {row.uuid_ for row in episodes if wanted in _plain(row.content or "")}
        return {row for row, behind in sources.items() if behind & saying}


def _rows(noted: Sequence[str]) -> list[_Left]:
    return [(name, row, fields) for raw in noted for name, row, fields in json.loads(raw)]


def _carrying(row: Any, wanted: str) -> list[str]:
    """Return the fields of a row that the text stands in."""
    return [field for field in _FIELDS if any(wanted in _plain(text) for text in _texts(row, field))]


def _texts(row: Any, field: str) -> Iterator[str]:
    said = getattr(row, field, None)
    for text in said.values() if isinstance(said, dict) else (said,):
        if isinstance(text, str):
            yield text


def _plain(text: str) -> str:
    """Fold what a summary may change of a text without changing what it says: case and white space."""
    return " ".join(text.split()).casefold()


__all__ = ["TOO_MANY", "UNFINISHED", "Residue"]
