"""One graph of the stand-in for Zep: episodes, and the nodes, edges and summaries that come of them."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from fakes.zep_troubles import Problem

_WORD = re.compile(r"\w+")


@dataclass(slots=True)
class Episode:
    """A text as it was given."""

    uuid: str
    graph: str
    content: str
    metadata: dict[str, Any]
    created_at: str
    reference_time: str
    processed: bool = False
    expired_at: str | None = None

    def shown(self) -> dict[str, Any]:
        """Return it as the wire has it."""
        row = {
            "uuid": self.uuid,
            "graph_uuid": self.graph,
            "content": self.content,
            "metadata": self.metadata,
            "created_at": self.created_at,
            "reference_time": self.reference_time,
            "processed": self.processed,
            "source": "text",
        }
        return row if self.expired_at is None else {**row, "expired_at": self.expired_at}


@dataclass(slots=True)
class Edge:
    """A fact that was extracted."""

    uuid: str
    fact: str
    episodes: list[str]
    created_at: str

    def shown(self) -> dict[str, Any]:
        """Return it as the wire has it."""
        return {
            "uuid": self.uuid,
            "fact": self.fact,
            "name": "RELATES_TO",
            "episode_uuids": list(self.episodes),
            "created_at": self.created_at,
        }


@dataclass(slots=True)
class Node:
    """An entity, with a summary of what was said about it."""

    uuid: str
    name: str
    said: dict[str, str]
    """What the summary took, by the episode it came from."""
    episodes: list[str]
    created_at: str
    is_observation: bool = False

    def shown(self) -> dict[str, Any]:
        """Return it as the wire has it: at most the hundred newest episodes."""
        return {
            "uuid": self.uuid,
            "name": self.name,
            "summary": " ".join(self.said.values()),
            "episode_uuids": self.episodes[:-101:-1],
            "episode_uuids_truncated": len(self.episodes) > 100,
            "created_at": self.created_at,
        }


@dataclass(slots=True)
class Ghost:
    """What the index still serves of a deleted episode."""

    episode: Episode
    left: float


@dataclass(slots=True)
class Graph:
    """Episodes and what came of them."""

    uuid: str
    name: str | None
    description: str | None
    created_at: str
    episodes: dict[str, Episode] = field(default_factory=dict)
    edges: dict[str, Edge] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    ghosts: list[Ghost] = field(default_factory=list)
    hidden: set[str] = field(default_factory=set)
    """Episodes that a content policy hides from all reads."""
    hub: str = ""
    """The node that every episode mentions."""
    past: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """What lists of derived rows show while they lag."""
    past_left: float = 0

    def shown(self) -> dict[str, Any]:
        """Return it as the wire has it."""
        return {
            "uuid": self.uuid,
            "name": self.name,
            "description": self.description,
            "created_at": self.created_at,
            "type": "standard",
        }

    def searchable(self) -> str:
        """Return what a search for graphs looks in."""
        return f"{self.name or ''}\n{self.description or ''}".casefold()

    # --- extraction and deletion -----------------------------------------------------------

    def extract(self, episode: Episode, now: str, *, merge: bool) -> None:
        """Make nodes and an edge of an episode: one entity that all share, and one of its own."""
        episode.processed = True
        hub = self.nodes.get(self.hub)
        if hub is None:
            hub = self._node("the user", now)
            self.hub = hub.uuid
        own = self._node(f"topic {len(self.nodes)}", now)
        for node in (hub, own):
            node.said[episode.uuid] = episode.content
            node.episodes.append(episode.uuid)
        same = [edge for edge in self.edges.values() if edge.fact == episode.content] if merge else []
        if same:
            same[0].episodes.append(episode.uuid)
            return
        edge = Edge(str(uuid.uuid4()), episode.content, [episode.uuid], now)
        self.edges[edge.uuid] = edge

    def delete(
        self, episode: str, *, keep_summaries: bool, leave_edges: bool, leave_nodes: bool, lag: float
    ) -> None:
        """Delete an episode with the edges and nodes that are only its own."""
        gone = self.episodes.pop(episode, None)
        if gone is None:
            return
        if lag > 0 and gone.processed:
            self.ghosts.append(Ghost(gone, lag))
        for edge in list(self.edges.values()):
            if episode in edge.episodes and not leave_edges:
                edge.episodes.remove(episode)
                if not edge.episodes:
                    del self.edges[edge.uuid]
        for node in list(self.nodes.values()):
            if episode in node.episodes:
                node.episodes.remove(episode)
                if not node.episodes and not leave_nodes:
                    del self.nodes[node.uuid]
                elif not keep_summaries:
                    node.said.pop(episode, None)

    def observe(self, text: str, episodes: Iterable[str], now: str) -> str:
        """Make an observation, and return its id."""
        node = self._node("observation", now)
        node.is_observation = True
        node.said["observed"] = text
        node.episodes += episodes
        return node.uuid

    def _node(self, name: str, now: str) -> Node:
        node = Node(str(uuid.uuid4()), name, {}, [], now)
        self.nodes[node.uuid] = node
        return node

    # --- reading ---------------------------------------------------------------------------

    def matches(self, episode: Episode, filters: dict[str, Any]) -> bool:
        """Tell whether an episode passes the filters of a list."""
        mentioned = filters.get("mentioned_node_uuids")
        if mentioned is not None:
            by_node = any(
                episode.uuid in self.nodes[node].episodes for node in mentioned if node in self.nodes
            )
            if episode.uuid not in mentioned and not by_node:
                return False
        return episode.uuid not in self.hidden and passes(episode.metadata, filters.get("metadata_filters"))

    def indexed(self, filters: dict[str, Any]) -> list[dict[str, Any]]:
        """Return what the episode search knows: processed episodes, and for a while deleted ones."""
        lagging = [ghost.episode for ghost in self.ghosts if ghost.left > 0]
        for ghost in self.ghosts:
            ghost.left -= 1
        processed = [episode for episode in self.episodes.values() if episode.processed]
        return [e.shown() for e in [*processed, *lagging] if self.matches(e, filters)]

    def lag(self, answers: float) -> None:
        """Let lists of derived rows show for so many answers what is there now."""
        if answers > 0 and self.past_left <= 0:
            self.past = {kind: self.derived(kind, {}) for kind in ("edges", "nodes", "observations")}
            self.past_left = answers

    def listed(self, kind: str, filters: dict[str, Any]) -> list[dict[str, Any]]:
        """Return what a list shows, which may not have seen the latest change."""
        if self.past_left <= 0:
            return self.derived(kind, filters)
        self.past_left -= 1
        sources = filters.get("episode_uuids")
        wanted = None if sources is None else set(sources)
        return [row for row in self.past[kind] if _came_of(row["episode_uuids"], wanted)]

    def derived(self, kind: str, filters: dict[str, Any]) -> list[dict[str, Any]]:
        """Return edges, nodes or observations that pass the filters."""
        sources = filters.get("episode_uuids")
        wanted = None if sources is None else set(sources)
        if kind == "edges":
            return [edge.shown() for edge in self.edges.values() if _came_of(edge.episodes, wanted)]
        is_observation = kind == "observations"
        nodes = [node for node in self.nodes.values() if node.is_observation is is_observation]
        return [node.shown() for node in nodes if _came_of(node.episodes, wanted)]


def _came_of(episodes: list[str], wanted: set[str] | None) -> bool:
    return wanted is None or not wanted.isdisjoint(episodes)


def passes(metadata: dict[str, Any], group: dict[str, Any] | None) -> bool:
    """Tell whether metadata passes a filter group."""
    if not group:
        return True
    answers = [_passes(metadata, one) for one in group.get("filters") or ()]
    answers += [passes(metadata, inner) for inner in group.get("groups") or ()]
    return any(answers) if group.get("type") == "or" else all(answers)


def _passes(metadata: dict[str, Any], one: dict[str, Any]) -> bool:
    held, value = metadata.get(one["property_name"]), one.get("value")
    match one["operator"]:
        case "eq":
            return bool(held == value)
        case "ne":
            return bool(held != value)
        case "in":
            return held in (value or ())
        case "contains":
            return isinstance(held, str) and str(value) in held
    raise Problem(400, "unsupported_filter")


def ranked(rows: list[dict[str, Any]], query: str, *, equal_first: bool) -> list[dict[str, Any]]:
    """Return rows with a score, the best first: by shared words, and of equals the newest."""
    scored = [{**row, "score": _score(query, row, equal_first=equal_first)} for row in reversed(rows)]
    return sorted(scored, key=lambda row: -float(row["score"]))


def _score(query: str, row: dict[str, Any], *, equal_first: bool) -> float:
    said = " ".join(str(row[key]) for key in ("content", "fact", "name", "summary") if row.get(key))
    if equal_first and (said == query or row.get("fact") == query):
        return 1.0
    asked, there = set(_WORD.findall(query.casefold())), set(_WORD.findall(said.casefold()))
    overlap = len(asked & there) / len(asked | there) if asked and there else 0.0
    return overlap * 0.99
