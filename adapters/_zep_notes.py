"""What stands about a deleted episode, so that no process and no crash makes a later answer kinder."""

from __future__ import annotations

from collections.abc import Sequence

from custody_sync.adapters._zep_graphs import Graphs

EARLY, LEFT = "early:", "left:"


class Notes:
    """Keep notes about episodes in the store's notebook, two places for each topic.

    A notebook takes a claim and drops one, and a process may end between the two. So what is new is
    claimed in the free place before what is old goes; where both stand, both count.

    Args:
        graphs: Whose notebook it is.
    """

    def __init__(self, graphs: Graphs) -> None:
        self._graphs = graphs

    async def read(self, topic: str, episode: str) -> list[str]:
        """Return what stands about an episode."""
        return list((await self._standing(topic, episode)).values())

    async def replace(self, topic: str, episode: str, value: str) -> None:
        """Let a value stand instead of what stood when this began."""
        book = self._graphs.notebook
        standing = await self._standing(topic, episode)
        if value not in standing.values():
            places = _places(topic, episode)
            if len(standing) == len(places):
                await book.drop(places[0], standing.pop(places[0]))
            for place in places:
                if place not in standing and await book.claim(place, value) == value:
                    break
            else:
                # Another process is replacing it as well: what stood stays beside what that one says.
                return
        for place, was in standing.items():
            if was != value:
                await book.drop(place, was)

    async def drop(self, topic: str, episode: str, values: Sequence[str]) -> None:
        """Forget these values; what was noted meanwhile stays."""
        for place, value in (await self._standing(topic, episode)).items():
            if value in values:
                await self._graphs.notebook.drop(place, value)

    async def _standing(self, topic: str, episode: str) -> dict[str, str]:
        read = {place: await self._graphs.notebook.get(place) for place in _places(topic, episode)}
        return {place: value for place, value in read.items() if value is not None}


def _places(topic: str, episode: str) -> tuple[str, str]:
    return f"{topic}{episode}", f"{topic}{episode}:2"


__all__ = ["EARLY", "LEFT", "Notes"]
