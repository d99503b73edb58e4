"""Mem0's hosted service in memory, as docs/openapi.json of mem0ai/mem0 (2026-08-22) describes it.

It knows nothing of adapters: it stores, filters, pages and searches what any client sends, and can be
told to misbehave. `respx_side_effect` serves `MemoryClient`; `fakes.mem0_server` serves it on loopback to
`AsyncMemoryClient`, whose constructor asks by `requests`.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import httpx

from fakes.mem0_rules import (
    ENTITIES,
    WORD,
    Dropped,
    Memory,
    Refused,
    Reply,
    Switches,
    check_filters,
    is_wanted,
    scope_of,
    score_of,
)

KEY = "m0-stand-in"
HOST = "https://api.mem0.ai"
_PACIFIC = timezone(timedelta(hours=-7))
_MOST_ON_A_PAGE, _MOST_HITS = 200, 1_000


@dataclass(slots=True)
class _Ghost:
    memory: Memory
    questions: float


@dataclass(slots=True)
class _Event:
    polls: float
    results: list[dict[str, Any]]


class Mem0Api:
    """One project of the service, which only its key opens.

    Args:
        key: What its clients are made with.
    """

    def __init__(self, key: str = KEY) -> None:
        self.key = key
        self.project_id = f"proj_{uuid.uuid4().hex}"
        self.switches = Switches()
        self.memories: dict[str, Memory] = {}
        self.requests: list[tuple[str, str]] = []
        self.bodies: list[Any] = []
        self._ghosts: dict[str, _Ghost] = {}
        self._events: dict[str, _Event] = {}
        self._lock = threading.RLock()
        self._born = datetime.now(UTC)

    # --- what other programs of the project do ---------------------------------------------

    def put_raw(self, text: str, *, metadata: dict[str, Any] | None = None, **scope: str) -> str:
        """Store a memory past any client of the test, and return its id."""
        with self._lock:
            memory = self._made(text, scope, metadata or {})
            self.memories[memory.memory_id] = memory
            return memory.memory_id

    # --- the wire --------------------------------------------------------------------------

    def respx_side_effect(self, request: httpx.Request) -> httpx.Response:
        """Answer one request of an httpx client, or end its connection."""
        try:
            reply = self.handle(request.method, str(request.url), request.content, request.headers)
        except Dropped:
            raise httpx.ReadError(f"peer closed connection of {request.url}", request=request) from None
        headers = {"content-type": "application/json", **reply.headers}
        return httpx.Response(reply.status, content=reply.content, headers=headers)

    def handle(self, method: str, url: str, content: bytes, headers: Mapping[str, str]) -> Reply:
        """Answer one request."""
        parts = urlsplit(url)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        body = json.loads(content) if content else {}
        with self._lock:
            self.requests.append((method, parts.path))
            self.bodies.append(body)
            try:
                if httpx.Headers(headers).get("authorization") != f"Token {self.key}":
                    raise Refused(401, {"detail": "Invalid API key"})
                return self._answer(method, parts.path, query, body)
            except Refused as refused:
                return refused.reply

    def _answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Reply:
        if path == "/v1/ping/":
            return Reply(200, {"org_id": "org", "project_id": self.project_id, "user_email": "a@b.example"})
        if self.switches.take("reset"):
            raise Dropped
        if self.switches.take("throttled"):
            raise Refused(429, {"detail": "Too many requests"}, {"Retry-After": self.switches.retry_after})
        match method, path.strip("/").split("/"):
            case "POST", ["v3", "memories", "add"]:
                return self._written(lambda: self._add(body), body)
            case "POST", ["v3", "memories"]:
                return Reply(200, self._list(body, query))
            case "POST", ["v3", "memories", "search"]:
                return Reply(200, self._search(body))
            case "GET", ["v1", "event", event_id]:
                return Reply(200, self._event(event_id))
            case "GET", ["v1", "memories", memory_id]:
                return Reply(200, self._shown(self._looked_up(unquote(memory_id))))
            case "PUT", ["v1", "memories", memory_id]:
                return self._written(lambda: self._update(unquote(memory_id), body), body)
            case "DELETE", ["v1", "memories", memory_id]:
                return self._written(lambda: self._delete(unquote(memory_id)), body)
            case _:
                raise Refused(404, {"detail": "Not found."})

    def _written(self, write: Callable[[], Any], body: Any) -> Reply:
        done = write()
        if self.switches.take("lost_reply"):
            raise Dropped
        if self.switches.take("fails_after"):
            raise Refused(500, {"detail": f"failed after the commit of {body}"})
        if self.switches.take("empty_body"):
            return Reply(204)
        return Reply(200, done)

    # --- writing ---------------------------------------------------------------------------

    def _add(self, body: dict[str, Any]) -> dict[str, Any]:
        scope = {name: body[name] for name in ENTITIES if body.get(name)}
        if not scope:
            raise Refused(400, {"error": "At least one of user_id, agent_id, app_id, run_id is required"})
        if not isinstance(body.get("metadata") or {}, dict):
            raise Refused(400, {"error": "metadata should be an object"})
        event_id = str(uuid.uuid4())
        inferred = bool(body.get("infer", True))
        if self.switches.pending or (inferred and not self.switches.infers):
            self._events[event_id] = _Event(math.inf, [])
            return {"event_id": event_id, "status": "PENDING"}
        results = [
            result
            for message in body["messages"]
            if message.get("role") in ("user", "assistant") and isinstance(message.get("content"), str)
            for result in self._imported(message["content"], scope, body.get("metadata") or {})
        ]
        if self.switches.polls or inferred:
            self._events[event_id] = _Event(self.switches.polls, results)
            return {"event_id": event_id, "status": "PENDING"}
        done = {"message": "Memories stored successfully", "status": "SUCCEEDED"}
        return {**done, "event_id": event_id, "results": results}

    def _imported(self, text: str, scope: dict[str, str], metadata: dict[str, Any]) -> list[dict[str, Any]]:
        twin = self._twin(text, scope) if self.switches.collapses else None
        if twin is not None and not self.switches.collapse_shares_id:
            return []
        memory = twin or self._made(text, scope, metadata)
        self.memories[memory.memory_id] = memory
        return [{"id": memory.memory_id, "data": {"memory": memory.text}, "event": "ADD"}]

    def _twin(self, text: str, scope: dict[str, str]) -> Memory | None:
        keys = ("user_id",) if self.switches.collapse_ignores_run else ENTITIES
        wanted = [scope.get(key) for key in keys]
        digest = hashlib.sha256(text.encode()).digest()
        for memory in self.memories.values():
            same_scope = [memory.scope.get(key) for key in keys] == wanted
            if same_scope and hashlib.sha256(memory.text.encode()).digest() == digest:
                return memory
        return None

    def _made(self, text: str, scope: dict[str, str], metadata: dict[str, Any]) -> Memory:
        self._born += timedelta(microseconds=1)
        return Memory(
            memory_id=str(uuid.uuid4()),
            text=text,
            scope=dict(scope),
            metadata=dict(metadata),
            created_at=max(self._born, datetime.now(UTC)),
            words=frozenset(WORD.findall(text.casefold())),
        )

    def _update(self, memory_id: str, body: dict[str, Any]) -> dict[str, Any]:
        memory = self._held(memory_id)
        memory.text = body.get("text", memory.text)
        memory.words = frozenset(WORD.findall(memory.text.casefold()))
        memory.metadata = dict(body.get("metadata", memory.metadata))
        return self._shown(memory)

    def _delete(self, memory_id: str) -> dict[str, Any]:
        memory = self._held(memory_id)
        if not self.switches.lying_delete:
            del self.memories[memory_id]
            if self.switches.lag:
                self._ghosts[memory_id] = _Ghost(memory, self.switches.lag)
        return {"message": "Memory deleted successfully!"}

    def _looked_up(self, memory_id: str) -> Memory:
        ghosts = [memory for memory in self._lagging("get") if memory.memory_id == memory_id]
        memory = ghosts[0] if ghosts else self._held(memory_id)
        if memory.is_merged and self.switches.merged_hidden_by_id:
            raise Refused(404, {"error": "Memory not found!"})
        return memory

    def _held(self, memory_id: str) -> Memory:
        try:
            uuid.UUID(memory_id)
        except ValueError:
            raise Refused(400, {"error": "memory_id should be a valid UUID"}) from None
        if memory_id not in self.memories:
            raise Refused(404, {"error": "Memory not found!"})
        return self.memories[memory_id]

    def _event(self, event_id: str) -> dict[str, Any]:
        event = self._events.get(event_id)
        if event is None:
            raise Refused(404, {"error": "Event not found or you don't have permission to access it."})
        event.polls -= 1
        if event.polls > 0:
            return {"id": event_id, "event_type": "ADD", "status": "RUNNING", "results": []}
        return {"id": event_id, "event_type": "ADD", "status": "SUCCEEDED", "results": event.results}

    # --- reading ---------------------------------------------------------------------------

    def _list(self, body: dict[str, Any], query: dict[str, str]) -> Any:
        check_filters(body)
        number = int(query.get("page", 1))
        size = min(int(query.get("page_size", 100)), _MOST_ON_A_PAGE)
        held = [*self.memories.values(), *self._lagging("list")]
        rows = [memory for memory in held if is_wanted(memory, body)]
        if self.switches.null_scoping:
            rows = [memory for memory in rows if memory.scope.keys() <= body["filters"].keys()]
        rows.sort(key=lambda memory: memory.created_at, reverse=True)
        step = size - 1 if self.switches.repeats else size
        start = (number - 1) * step
        if number > 1 and start >= len(rows):
            raise Refused(404, {"detail": "Invalid page."})
        page = rows[start : start + size]
        if number == 2 and self.switches.take("skips"):
            page = page[1:]
        more = f"{HOST}/v3/memories/?page={number + 1}&page_size={size}"
        envelope = {
            "count": len(rows),
            "next": more if start + size < len(rows) else None,
            "previous": None if number == 1 else f"{HOST}/v3/memories/?page={number - 1}",
            "results": [self._row(memory) for memory in page],
        }
        if self.switches.bare_list:
            return envelope["results"]
        return {key: said for key, said in envelope.items() if key not in self.switches.envelope_omits}

    def _search(self, body: dict[str, Any]) -> dict[str, Any]:
        if self.switches.take("search_fails"):
            raise Refused(500, {"detail": f"no embedding for {body.get('query')}"})
        check_filters(body)
        query, top_k, threshold = body.get("query", ""), body.get("top_k", 10), body.get("threshold", 0.1)
        if not query.strip() or not 1 <= top_k <= _MOST_HITS or not 0 <= threshold <= 1:
            raise Refused(400, {"error": "query, top_k or threshold is out of range"})
        wide = {"show_expired": True, "include_merged": True, "filters": scope_of(body["filters"])}
        first = wide if self.switches.filters_last else body
        words = frozenset(WORD.findall(query.casefold()))
        scored = [
            (score_of(query, words, memory), memory) for memory in self._served() if is_wanted(memory, first)
        ]
        scored.sort(key=lambda pair: -pair[0])
        hits = [
            {**self._row(memory), "run_id": memory.scope.get("run_id"), "score": round(score, 6)}
            for score, memory in scored[:top_k]
            if score >= threshold and is_wanted(memory, body)
        ]
        for hit in hits:
            del hit["session_id"]
            hit["created_at"] = datetime.fromisoformat(hit["created_at"]).astimezone(UTC).isoformat()
        return {"results": hits}

    def _served(self) -> list[Memory]:
        """Count a question, and return what the search index has at this moment."""
        ghosts = self._lagging("search")
        for memory_id, ghost in list(self._ghosts.items()):
            ghost.questions -= 1
            if ghost.questions <= 0:
                del self._ghosts[memory_id]
        return [*self.memories.values(), *ghosts]

    def _lagging(self, reading: str) -> list[Memory]:
        reached = reading in self.switches.lag_reaches
        return [ghost.memory for ghost in self._ghosts.values()] if reached else []

    def _row(self, memory: Memory) -> dict[str, Any]:
        """Return a memory as lists and searches show it."""
        shown = self._shown(memory)
        if self.switches.metadata_as_text:
            shown["metadata"] = json.dumps(shown["metadata"])
        named = {self.switches.renames.get(key, key): said for key, said in shown.items()}
        return {key: said for key, said in named.items() if key}

    def _shown(self, memory: Memory) -> dict[str, Any]:
        return {
            "id": memory.memory_id,
            "memory": memory.text,
            "user_id": memory.scope.get("user_id"),
            "agent_id": memory.scope.get("agent_id"),
            "app_id": memory.scope.get("app_id"),
            "session_id": memory.scope.get("run_id"),
            "metadata": dict(memory.metadata) or None,
            "categories": None,
            "replaced_by": memory.replaced_by,
            "synthesized": False,
            "expiration_date": memory.expiration_date,
            "created_at": memory.created_at.astimezone(_PACIFIC).isoformat(),
            "updated_at": memory.created_at.astimezone(_PACIFIC).isoformat(),
        }
