"""Zep Cloud's API v4 in memory: wire shapes, ids, paging, tasks, extraction, errors, and what goes wrong.

Written from the client (zep-cloud 4.0.1) and https://help.getzep.com; it knows nothing of any adapter.
Time passes by requests: extraction and deletion are work for later, and later is some requests on.
"""

from __future__ import annotations

import heapq
import json
import math
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

import httpx
import respx

from fakes import zep_graph, zep_pages
from fakes.zep_graph import Episode, Graph
from fakes.zep_troubles import Problem, Troubles, take

BASE = "https://api.getzep.com/api/v4"
_EPOCH = datetime(2026, 11, 1, tzinfo=UTC)
_SCALARS = (str, int, float, bool)


@dataclass(slots=True)
class _Task:
    uuid: str
    kind: str
    work: Callable[[], None]
    ends: str = "succeeded"
    status: str = "pending"

    def shown(self) -> dict[str, Any]:
        return {"uuid": self.uuid, "type": self.kind, "status": self.status}


@dataclass(slots=True)
class ZepApi:
    """One project of the service."""

    extraction: int = 3
    """How many requests on an episode has been processed."""
    deletion: int = 2
    """How many requests on a deletion has been carried out."""
    ranked: int = 50
    """How many candidates a search ranks."""
    equal_first: bool = False
    """A text that is written as the query ranks first; else any with the same words does as well."""
    lists_lag: float = 0
    """For how many answers lists of edges, nodes and observations miss an extraction or a deletion."""
    most_chars: int = 10_000
    keeps_summaries: bool = True
    """The summary of a shared node keeps what it took from an episode that was deleted."""
    leaves_edges: bool = False
    """A deletion takes the episode and leaves the edges that came of it."""
    leaves_nodes: bool = False
    """A deletion leaves the nodes that came of the episode alone, with no episode mentioning them."""
    merges_edges: bool = False
    """Equal facts are one edge of several episodes."""
    extracts_deleted: bool = False
    """An extraction that was under way goes on after its episode was deleted."""
    remembers_keys: bool = True
    """An idempotency key that was seen is answered as before."""
    policy: bool = False
    """The graphs have a content policy with a rule."""
    includes_violating: bool = False
    cuts_to: int | None = None
    """How many characters of a text are kept."""
    forgets_tasks: bool = False
    """A task cannot be asked about."""
    circles: bool = False
    """The cursor of a later page leads to that page again."""
    troubles: Troubles = field(default_factory=Troubles)
    graphs: dict[str, Graph] = field(default_factory=dict)
    tasks: dict[str, _Task] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    project: str = field(default_factory=lambda: str(uuid.uuid4()))
    sent: list[tuple[str, str, Any, dict[str, str]]] = field(default_factory=list)
    """Method, path, body and headers of every request."""
    _clock: int = 0
    _due: list[tuple[int, int, str]] = field(default_factory=list)
    _answered: dict[tuple[str, str], httpx.Response] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    # --- as a transport --------------------------------------------------------------------

    def transport(self) -> httpx.MockTransport:
        """Return what a synchronous client sends through."""
        return httpx.MockTransport(self._router().handler)

    def async_transport(self) -> httpx.MockTransport:
        """Return what an asynchronous client sends through."""
        return httpx.MockTransport(self._router().async_handler)

    def _router(self) -> respx.Router:
        router = respx.Router(assert_all_called=False, base_url=BASE)
        router.route().mock(side_effect=self.answer)
        return router

    def answer(self, request: httpx.Request) -> httpx.Response:
        """Answer one request."""
        with self._lock:
            self._clock += 1
            self._work()
            body = json.loads(request.content) if request.content else {}
            path = request.url.path.removeprefix("/api/v4/")
            self.sent.append((request.method, path, body, dict(request.headers)))
            try:
                return self._answer(request, path, body)
            except Problem as problem:
                return problem.response

    def _answer(self, request: httpx.Request, path: str, body: dict[str, Any]) -> httpx.Response:
        troubles = self.troubles
        if take(troubles, "reset"):
            raise httpx.ReadError("connection reset by peer", request=request)
        if take(troubles, "throttled"):
            headers = {"retry-after": troubles.retry_after, "x-ratelimit-remaining": "-43"}
            raise Problem(429, "rate_limited", troubles.throttled_text, **headers)
        if not request.headers.get("authorization", "").startswith("Api-Key "):
            raise Problem(401, "unauthorized")
        writes = request.method in ("PATCH", "DELETE") or path == "graphs" or path.endswith("/episodes")
        response = self._once(request, path, body) if writes else self._route(request, path, body)
        if writes and self.troubles.then_throttled:
            troubles.throttled = math.inf
        if writes and response.status_code < 300:
            if take(troubles, "fails_after"):
                raise Problem(500, "internal", f"could not answer {body.get('data', path)}")
            if take(troubles, "lost_reply"):
                raise httpx.RemoteProtocolError("server disconnected", request=request)
            if take(troubles, "empty_body"):
                return httpx.Response(204)
        return response

    def _once(self, request: httpx.Request, path: str, body: dict[str, Any]) -> httpx.Response:
        key = (path, request.headers["idempotency-key"])
        if not self.remembers_keys or key not in self._answered:
            self._answered[key] = self._route(request, path, body)
        return self._answered[key]

    # --- routes ----------------------------------------------------------------------------

    def _route(self, request: httpx.Request, path: str, body: dict[str, Any]) -> httpx.Response:
        query = request.url.params
        parts = [unquote(part) for part in path.split("/")]
        name = ".".join(["graphs", *parts[2:3]] if parts[0] == "graphs" else parts[:1])
        self.calls[f"{request.method} {name}"] += 1
        match request.method, parts:
            case "GET", ["project"]:
                project = {"uuid": self.project, "include_policy_violating_episodes": self.includes_violating}
                return httpx.Response(200, json=project)
            case "GET", ["tasks", task]:
                if task not in self.tasks or self.forgets_tasks:
                    raise Problem(404, "not_found")
                return httpx.Response(200, json=self.tasks[task].shown())
            case "POST", ["graphs"]:
                made = self.create(body.get("name"), body.get("description"))
                return httpx.Response(200, json=made.shown())
            case "POST", ["graphs", "list"]:
                wanted = (body.get("search") or "").casefold()
                rows = [g.shown() for g in self.graphs.values() if wanted in g.searchable()]
                return self._page(rows, query, by="created_at")
            case method, ["graphs", graph, *rest]:
                if graph not in self.graphs:
                    raise Problem(404, "not_found")
                return self._in_graph(self.graphs[graph], method, rest, body, query)
        raise Problem(404, "not_found")

    def _in_graph(
        self, graph: Graph, method: str, rest: list[str], body: dict[str, Any], query: httpx.QueryParams
    ) -> httpx.Response:
        filters = body.get("filters") or {}
        match method, rest:
            case "GET", []:
                return httpx.Response(200, json=graph.shown())
            case "DELETE", []:
                return self._later("graph.delete", lambda: self._drop(graph))
            case "GET", ["content-policy"]:
                return httpx.Response(200, json={"revision": 1, "rules": [{}] if self.policy else []})
            case "POST", ["episodes"]:
                return self._add(graph, body)
            case "POST", ["episodes", "list"]:
                rows = [e.shown() for e in graph.episodes.values() if graph.matches(e, filters)]
                return self._page(rows, query, by="created_at")
            case "GET", ["episodes", episode]:
                return httpx.Response(200, json=_found(graph.episodes, episode).shown())
            case "PATCH", ["episodes", episode]:
                found = _found(graph.episodes, episode)
                merged = {**found.metadata, **body.get("metadata", {})}
                found.metadata = _checked({key: value for key, value in merged.items() if value is not None})
                return httpx.Response(200, json=found.shown())
            case "DELETE", ["episodes", episode]:
                _found(graph.episodes, episode)
                return self._later("graph.episode.delete", lambda: self._delete(graph, episode))
            case "POST", ["edges" | "nodes" | "observations" as kind, "list"]:
                if kind == "observations" and "episode_uuids" in filters:
                    raise Problem(400, "unsupported_filter")
                return self._page(graph.listed(kind, filters), query, by="uuid")
            case "GET", ["edges" | "nodes" | "observations" as kind, row]:
                rows = {one["uuid"]: one for one in graph.derived(kind, {})}
                return httpx.Response(200, json=_found(rows, row))
            case "DELETE", ["edges", edge]:
                _found(graph.edges, edge)
                return self._later("graph.edge.delete", lambda: graph.edges.pop(edge, None))
            case "POST", ["search", kind]:
                return self._search(graph, kind, body, filters, query)
        raise Problem(404, "not_found")

    def _add(self, graph: Graph, body: dict[str, Any]) -> httpx.Response:
        text = body.get("data")
        if not isinstance(text, str) or not text.strip() or len(text) > self.most_chars:
            raise Problem(400, "invalid_data")
        metadata = _checked(body.get("metadata") or {})
        now = self._now()
        episode = Episode(
            uuid=str(uuid.uuid4()),
            graph=graph.uuid,
            content=text[: self.cuts_to],
            metadata=metadata,
            created_at=now,
            reference_time=body.get("reference_time") or now,
        )
        if not self.troubles.pending:
            graph.episodes[episode.uuid] = episode
        task = self._task("graph.add", self.extraction, lambda: self._extract(graph, episode))
        return httpx.Response(202, json={"episode": episode.shown(), "task": task.shown()})

    def _search(
        self, graph: Graph, kind: str, body: dict[str, Any], filters: dict[str, Any], query: httpx.QueryParams
    ) -> httpx.Response:
        if take(self.troubles, "search_fails"):
            raise Problem(500, "internal", f"no index for {body['query']}")
        if not body.get("query", "").strip():
            raise Problem(400, "invalid_query")
        if kind == "episodes":
            if set(filters) - {"metadata_filters", "content_policy_violated"}:
                raise Problem(400, "unsupported_filter")
            rows = graph.indexed(filters)
        else:
            rows = graph.derived(kind, filters)
        ranked = zep_graph.ranked(rows, body["query"], equal_first=self.equal_first)[: self.ranked]
        return self._page(ranked, query, by=None)

    # --- later -----------------------------------------------------------------------------

    def _later(self, kind: str, work: Callable[[], Any]) -> httpx.Response:
        done = (lambda: None) if self.troubles.lying_delete else work
        task = self._task(kind, self.deletion, done, self.troubles.deletes_end)
        return httpx.Response(202, json={"task": task.shown()})

    def _task(self, kind: str, after: int, work: Callable[[], Any], ends: str = "succeeded") -> _Task:
        task = _Task(str(uuid.uuid4()), kind, work, ends)
        self.tasks[task.uuid] = task
        if not self.troubles.pending:
            heapq.heappush(self._due, (self._clock + after, len(self.tasks), task.uuid))
        return task

    def _work(self) -> None:
        while self._due and self._due[0][0] <= self._clock:
            task = self.tasks[heapq.heappop(self._due)[2]]
            if task.ends == "succeeded":
                task.work()
            task.status = task.ends

    def _extract(self, graph: Graph, episode: Episode) -> None:
        if episode.uuid in graph.episodes or self.extracts_deleted:
            graph.lag(self.lists_lag)
            graph.extract(episode, self._now(), merge=self.merges_edges)

    def _delete(self, graph: Graph, episode: str) -> None:
        graph.lag(self.lists_lag)
        graph.delete(
            episode,
            keep_summaries=self.keeps_summaries,
            leave_edges=self.leaves_edges,
            leave_nodes=self.leaves_nodes,
            lag=self.troubles.lag,
        )

    def _drop(self, graph: Graph) -> None:
        self.graphs.pop(graph.uuid, None)

    def _now(self) -> str:
        at = _EPOCH + timedelta(seconds=self._clock, microseconds=len(self.tasks))
        return at.isoformat(timespec="microseconds").replace("+00:00", "Z")

    def _page(
        self, rows: list[dict[str, Any]], query: httpx.QueryParams, *, by: str | None
    ) -> httpx.Response:
        size = int(query.get("page_size", 50))
        if not 1 <= size <= 100:
            raise Problem(400, "invalid_page_size")
        try:
            page = zep_pages.page(rows, query, size=size, by=by)
        except ValueError:
            raise Problem(400, "invalid_cursor") from None
        items = page.items
        if by is not None and page.number > 1 and self.troubles.repeats:
            items = [*page.before, *items]
        if by is not None and page.number == 2 and take(self.troubles, "skips"):
            items = items[1:]
        answer: dict[str, Any] = {"items": items}
        if page.cursor is not None:
            again = self.circles and page.number > 1
            answer["next_cursor"] = query["cursor"] if again else page.cursor
        return httpx.Response(200, json=answer)

    # --- for the test ----------------------------------------------------------------------

    def create(self, name: str | None = None, description: str | None = None) -> Graph:
        """Make a graph, past any client."""
        graph = Graph(str(uuid.uuid4()), name, description, self._now())
        self.graphs[graph.uuid] = graph
        return graph

    def add(self, graph: str, text: str, metadata: dict[str, Any] | None = None) -> str:
        """Add an episode, past any client, and return its id."""
        with self._lock:
            response = self._add(self.graphs[graph], {"data": text, "metadata": metadata})
            episode: str = response.json()["episode"]["uuid"]
            return episode

    def pass_time(self, requests: int = 10) -> None:
        """Let as much time pass as so many requests take."""
        with self._lock:
            self._clock += requests
            self._work()

    def episodes(self) -> Iterator[Episode]:
        """Yield every episode that is held."""
        for graph in self.graphs.values():
            yield from graph.episodes.values()


def _found(rows: dict[str, Any], row: str) -> Any:
    if row not in rows:
        raise Problem(404, "not_found")
    return rows[row]


def _checked(metadata: dict[str, Any]) -> dict[str, Any]:
    if len(metadata) > 10:
        raise Problem(400, "too_many_metadata_keys")
    for value in metadata.values():
        items = value if isinstance(value, list) else [value]
        if not all(isinstance(item, _SCALARS) for item in items):
            raise Problem(400, "invalid_metadata_value")
    return dict(metadata)
