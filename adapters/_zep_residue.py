"""What Zep derives from an episode, and whether a text outlives its episode there.

Deleting an episode regenerates neither names nor summaries of nodes that other episodes share
(https://help.getzep.com/v4/deleting-data-from-the-graph). A text is looked for as it is written;
nobody can find a paraphrase.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from custody_sync.adapters._zep_calls import Calls

_PAGE = 100
_SEARCHED, _LISTED = 10, 100
"""Pages of a ranked search, and of a whole list, that one look reads."""
_MOST_SOURCES = 256
_REMEMBERED = 1_000


@dataclass(frozen=True, slots=True)
class _Kind:
    """One kind of derived row, and what finding the text in it is called."""

    what: str
    search: str
    list: str
    cause: str


_KINDS = (
    _Kind("edge", "graph.search_edges", "graph.edge.list", "text_left_in_an_edge"),
    _Kind("node", "graph.search_nodes", "graph.node.list", "text_left_in_a_node_summary"),
    _Kind(
        "observation", "graph.search_observations", "graph.observation.list", "text_left_in_an_observation"
    ),
)
TOO_MANY = "too_many_rows_to_look_through"


class Residue:
    """Look for a text in what Zep derived of it.

    Args:
        calls: The client.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._seen: OrderedDict[str, str] = OrderedDict()

    async def look(self, operation: str, graph: str, text: str, episode: str) -> str | None:
        """Return what keeps the text of a deleted episode, as a cause; None if nothing does.

        A row that a living episode with the same text accounts for is that episode's.
        """
        self._seen.pop(episode, None)
        wanted = _plain(text)
        for kind in _KINDS:
            rows = await self._carrying(operation, kind, graph, text, wanted)
            if rows is None:
                return TOO_MANY
            accounted = await self._accounted(operation, graph, rows, wanted, episode)
            for row in rows:
                if row.uuid_ not in accounted:
                    self._remember(episode, f"{kind.what} {row.uuid_} of graph {graph}")
                    return kind.cause
        return None

    def left(self, episodes: Sequence[str]) -> Iterator[str]:
        """Yield where the texts of these episodes were last seen to be left, by id."""
        for episode in dict.fromkeys(episodes):
            if episode in self._seen:
                yield self._seen[episode]

    async def _carrying(
        self, operation: str, kind: _Kind, graph: str, text: str, wanted: str
    ) -> list[Any] | None:
        """Return the rows that carry the text; None if there are too many to be sure.

        A search ranks a limited set. Where all of it carries the text, others may have been cut off,
        so the whole list is read instead.
        """
        found = await self._calls.rows(
            operation, kind.search, graph, query=text, page_size=_PAGE, most=_SEARCHED
        )
        carrying = [row for row in found if _carries(row, wanted)]
        if len(carrying) < len(found):
            return carrying
        read, carrying = 0, []
        async for page in self._calls.pages(operation, kind.list, graph, page_size=_PAGE, most=_LISTED):
            carrying += [row for row in page if _carries(row, wanted)]
            read += 1
        return carrying if read < _LISTED else None

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

    def _remember(self, episode: str, where: str) -> None:
        self._seen[episode] = where
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)


def _carries(row: Any, wanted: str) -> bool:
    return any(wanted in _plain(text) for text in _texts(row))


def _texts(row: Any) -> Iterator[str]:
    attributes = getattr(row, "attributes", None) or {}
    said = (getattr(row, field, None) for field in ("fact", "name", "summary"))
    yield from (text for text in (*said, *attributes.values()) if isinstance(text, str))


def _plain(text: str) -> str:
    """Fold what a summary may change of a text without changing what it says: case and white space."""
    return " ".join(text.split()).casefold()


__all__ = ["TOO_MANY", "Residue"]
