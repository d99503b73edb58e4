"""A Letta 0.16.8 server in memory: wire shapes, ids, cursors, limits and errors as that server has them.

Reached by the real clients through a respx router as their transport. What it does was observed on
the real server, or read in its source at https://github.com/letta-ai/letta (tag 0.16.8).
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import httpx
import respx
from letta_client import AsyncLetta, Letta

from fakes.letta_rows import Faults, Passage, config, instant, like, nearness, tagged, words

BASE_URL = "http://letta.test"
MODEL, EMBEDDING = "openai-proxy/gpt-4o-mini", "openai/text-embedding-3-small"
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_ENDS = (("start_date", "1900-01-01T00:00:00Z"), ("end_date", "9000-01-01T00:00:00Z"))

Answer: TypeAlias = tuple[int, Any]


class LettaApi:
    """The service. `faults` may be changed at any time; `requests` says what was asked."""

    def __init__(self) -> None:
        self.faults = Faults()
        self.requests: list[str] = []
        self.archives: dict[str, dict[str, Any]] = {}
        self.agents: dict[str, dict[str, Any]] = {}
        self.attached: dict[str, str] = {}
        self.passages: dict[str, Passage] = {}
        self._ghosts: list[Passage] = []
        self._searches = 0
        self._is_cut = False
        self._ticks = 0
        self._lock = threading.RLock()
        self._router = respx.Router(assert_all_called=False)
        self._router.route().mock(side_effect=self._answer)

    # --- for the test ----------------------------------------------------------------------

    def client(self, **options: Any) -> Letta:
        """Return the real synchronous client, wired to this service."""
        transport = httpx.MockTransport(self._router.handler)
        return Letta(base_url=BASE_URL, http_client=httpx.Client(transport=transport), **options)

    def async_client(self, **options: Any) -> AsyncLetta:
        """Return the real asynchronous client, wired to this service."""
        transport = httpx.MockTransport(self._router.async_handler)
        return AsyncLetta(base_url=BASE_URL, http_client=httpx.AsyncClient(transport=transport), **options)

    def new_agent(self, name: str = "assistant") -> str:
        """Make an agent as its owner would."""
        return str(self._create_agent({"name": name, "model": MODEL, "embedding": EMBEDDING})[1]["id"])

    def new_archive(self, name: str, description: str | None = None, agent: str | None = None) -> str:
        """Make an archive as its owner would, and attach it."""
        made = self._create_archive({"name": name, "description": description, "embedding": EMBEDDING})[1]
        if agent is not None:
            self.attached[agent] = made["id"]
        return str(made["id"])

    def put(self, archive: str, text: str, **more: Any) -> str:
        """Put a passage as another program would."""
        return self._store(archive, {"text": text, **more}).id

    def drop(self, passage: str) -> None:
        """Delete a passage as another program would."""
        self.passages.pop(passage, None)

    def held(self, external_id: str) -> Passage:
        """Return the passage of an id that names its archive too."""
        archive, _, passage = external_id.partition("/")
        found = self.passages[passage]
        assert found.archive == archive
        return found

    def texts(self) -> list[str]:
        """Return the text of everything that is really held."""
        return sorted(passage.text for passage in self.passages.values())

    # --- transport -------------------------------------------------------------------------

    def _answer(self, request: httpx.Request) -> httpx.Response:
        with self._lock:
            return self._guarded(request)

    def _guarded(self, request: httpx.Request) -> httpx.Response:
        method, path = request.method, request.url.path
        operation, found = self._operation(method, path)
        self.requests.append(operation)
        if self._is_cut or self.faults.take("reset"):
            # After a 500 the server closes the connection, and the next request on it is lost.
            self._is_cut = False
            raise httpx.ReadError("connection reset by peer", request=request)
        if self.faults.take("throttled"):
            return httpx.Response(429, headers={"retry-after": "0"}, json={"detail": "Too many requests"})
        if hook := self.faults.before.pop(operation, None):
            hook()
        if operation in self.faults.answers:
            status, answer = self.faults.answers.pop(operation)
            return httpx.Response(status, json=answer)
        if operation in ("search", "agent_search") and self.faults.take("search_fails"):
            return self._failed()
        body = json.loads(request.content) if request.content else {}
        status, answer = found(request, body)
        writes = operation in ("create", "create_many", "delete")
        if operation in ("create_archive", "create_agent") and self.faults.take("setup_fails_after"):
            return self._failed()
        if status < 300 and writes and (spoilt := self._spoilt(request)):
            return spoilt
        if status == 500:
            return self._failed()
        return httpx.Response(status) if status == 204 else httpx.Response(status, json=answer)

    def _failed(self) -> httpx.Response:
        self._is_cut = True
        return httpx.Response(500, json={"detail": "An unknown error occurred"})

    def _spoilt(self, request: httpx.Request) -> httpx.Response | None:
        if self.faults.take("fails_after"):
            return self._failed()
        if self.faults.take("lost_reply"):
            raise httpx.ReadError("connection reset by peer", request=request)
        return httpx.Response(204) if self.faults.take("empty_body") else None

    def _operation(self, method: str, path: str) -> tuple[str, Callable[[httpx.Request, Any], Answer]]:
        for name, verb, pattern, answer in _ROUTES:
            there = re.fullmatch(pattern, path) if verb == method else None
            if there is None:
                continue
            ids = there.groups()
            for given, kind in zip(ids, re.findall(r"(agent|archive|passage)", pattern), strict=False):
                if not re.fullmatch(rf"{kind}-{_UUID}", given):
                    detail = json.dumps([{"type": "string_pattern_mismatch", "input": given}])
                    wrong = {"trace_id": "", "detail": detail, "examples": [f"{kind}-{uuid.uuid4()}"]}
                    return name, lambda request, body, wrong=wrong: (422, wrong)
            return name, lambda request, body, ids=ids, answer=answer: answer(self, request, body, *ids)
        return "unknown", lambda request, body: (405, {"detail": "Method Not Allowed"})

    # --- archives and agents ---------------------------------------------------------------

    def _create_archive(self, body: dict[str, Any], *_: Any) -> Answer:
        if body.get("embedding") not in (None, EMBEDDING):
            return 404, {"detail": f"NOT_FOUND: Handle {body['embedding']} not found, must be one of [...]"}
        made = {
            "id": f"archive-{uuid.uuid4()}",
            "name": body["name"],
            "description": body.get("description"),
            "created_at": instant(self._now()),
            "vector_db_provider": "native",
            "embedding_config": body.get("embedding_config") or config(body.get("embedding")),
            "metadata": None,
        }
        self.archives[made["id"]] = made
        return 200, made

    def _list_archives(self, request: httpx.Request, _: Any) -> Answer:
        asked = request.url.params
        rows = sorted(self.archives.values(), key=lambda row: (row["created_at"], row["id"]))
        if (agent := asked.get("agent_id")) is not None:
            if agent not in self.agents:
                return 404, {"detail": f"Agent with ID {agent} not found"}
            rows = [row for row in rows if row["id"] == self.attached.get(agent)]
        rows = [row for row in rows if asked.get("name") in (None, row["name"])]
        if asked.get("order", "desc") == "desc":
            rows.reverse()
        after = asked.get("after")
        if after is not None:
            if after not in self.archives:
                return _missing("Archive", after)
            ids = [row["id"] for row in rows]
            rows = rows[ids.index(after) + 1 :]
        return 200, rows[: int(asked.get("limit", 50))]

    def _retrieve_archive(self, request: httpx.Request, _: Any, archive: str) -> Answer:
        return (200, self.archives[archive]) if archive in self.archives else _missing("Archive", archive)

    def _update_archive(self, request: httpx.Request, body: Any, archive: str) -> Answer:
        if archive not in self.archives:
            return _missing("Archive", archive)
        given = {name: body[name] for name in ("name", "description") if body.get(name) is not None}
        self.archives[archive] |= given
        return 200, self.archives[archive]

    def _delete_archive(self, request: httpx.Request, _: Any, archive: str) -> Answer:
        if self.archives.pop(archive, None) is None:
            return _missing("Archive", archive)
        self.passages = {key: row for key, row in self.passages.items() if row.archive != archive}
        self.attached = {agent: to for agent, to in self.attached.items() if to != archive}
        return 204, None

    def _create_agent(self, body: dict[str, Any], *_: Any) -> Answer:
        for given, known in ((body.get("model"), MODEL), (body.get("embedding"), EMBEDDING)):
            if given != known:
                return 404, {"detail": f"NOT_FOUND: Handle {given} not found, must be one of ['{known}']"}
        if not re.match(r"^[\w '\-]+$", body["name"]):
            return 400, {"detail": f"Agent name '{body['name']}' contains invalid characters."}
        made = {
            "id": f"agent-{uuid.uuid4()}",
            "name": body["name"],
            "embedding": EMBEDDING,
            "embedding_config": config(EMBEDDING),
            "tags": body.get("tags", []),
        }
        self.agents[made["id"]] = made
        return 200, made

    def _list_agents(self, request: httpx.Request, _: Any) -> Answer:
        name = request.url.params.get("name")
        return 200, [row for row in self.agents.values() if name in (None, row["name"])]

    def _retrieve_agent(self, request: httpx.Request, _: Any, agent: str) -> Answer:
        return (200, self.agents[agent]) if agent in self.agents else _missing("Agent", agent)

    def _delete_agent(self, request: httpx.Request, _: Any, agent: str) -> Answer:
        self.attached.pop(agent, None)
        found = self.agents.pop(agent, None)
        return _missing("Agent", agent) if found is None else (200, {"message": "deleted"})

    def _attach(self, request: httpx.Request, _: Any, agent: str, archive: str) -> Answer:
        if agent not in self.agents or archive not in self.archives:
            return _missing("Agent or archive", archive)
        if self.attached.setdefault(agent, archive) != archive:
            return 409, {"detail": "UniqueViolation: unique_agent_archive"}
        return 200, None

    # --- passages --------------------------------------------------------------------------

    def _now(self) -> datetime:
        self._ticks += 1
        return _EPOCH + timedelta(microseconds=self._ticks)

    def _store(self, archive: str, body: dict[str, Any], now: datetime | None = None) -> Passage:
        given = body.get("created_at")
        at = datetime.fromisoformat(given) if given else now or self._now()
        text = body["text"].replace("\x00", "")
        tags = body.get("tags")
        made = Passage(
            id=f"passage-{uuid.uuid4()}",
            archive=archive,
            text=text,
            metadata=json.loads(json.dumps(body.get("metadata") or {})),
            tags=list(set(tags)) if tags else None,
            created_at=at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC),
            words=words(text),
        )
        self.passages[made.id] = made
        return made

    def _create(self, request: httpx.Request, body: Any, archive: str) -> Answer:
        answer = self._create_many(request, {"passages": [body]}, archive, single=True)
        return (200, answer[1][0]) if answer[0] == 200 else answer

    def _create_many(
        self, request: httpx.Request, body: Any, archive: str, *, single: bool = False
    ) -> Answer:
        if archive not in self.archives:
            return _missing("Archive", archive)
        if not single and body["passages"] and self.archives[archive]["embedding_config"] is None:
            return 500, None
        try:
            for row in body["passages"]:
                datetime.fromisoformat(row.get("created_at") or _EPOCH.isoformat())
        except ValueError:
            return 400, {"detail": "Invalid isoformat string"}
        # One transaction: rows without a time of their own all get the same.
        now = self._now()
        return 200, [self._store(archive, row, now).wire() for row in body["passages"]]

    def _delete(self, request: httpx.Request, _: Any, archive: str, passage: str) -> Answer:
        if archive not in self.archives:
            return _missing("Archive", archive)
        held = self.passages.get(passage)
        if held is None:
            return _missing("Agent passage", passage)
        if held.archive != archive:
            return 400, {"detail": f"Passage {passage} does not belong to archive {archive}"}
        if not self.faults.lying_delete:
            del self.passages[passage]
            if self.faults.lag:
                held.until = self._searches + self.faults.lag
                self._ghosts.append(held)
        return 204, None

    def _of_archive(self, archive: str | None) -> list[Passage]:
        rows = [row for row in self.passages.values() if archive in (None, row.archive)]
        return sorted(rows, key=lambda row: (row.created_at, row.id))

    def _list(self, request: httpx.Request, _: Any, agent: str) -> Answer:
        asked = request.url.params
        rows = self._of_archive(self.attached[agent]) if agent in self.attached else []
        if search := asked.get("search"):
            rows = [row for row in rows if like(row.text, search)]
        limit = int(asked.get("limit", 100))
        after = None if self.faults.ignores_cursors else asked.get("after")
        if limit < 0 or asked.get("ascending", "true") != "true" or asked.get("before"):
            return 500, None
        if after is not None:
            # The cursor's row is looked up; without it nothing is after it.
            cursor = self.passages.get(after)
            at = (cursor.created_at, cursor.id) if cursor is not None else None
            rows = [row for row in rows if at is not None and (row.created_at, row.id) > at]
            if cursor is not None and self.faults.repeats:
                rows = [cursor, *rows]
            if rows and self.faults.take("skips"):
                rows = rows[1:]
        return 200, [row.wire() for row in (rows[:limit] if limit else rows)]

    # --- search ----------------------------------------------------------------------------

    def _nearest(self, archive: str | None, query: str | None) -> list[Passage]:
        rows = self._of_archive(archive)
        if not query:
            return rows
        served = [
            row for row in self._ghosts if row.until > self._searches and archive in (None, row.archive)
        ]
        self._searches += 1
        asked = words(query)
        return sorted([*rows, *served], key=lambda row: -nearness(asked, row.words))

    def _search(self, request: httpx.Request, body: Any) -> Answer:
        limit, archive, query = body.get("limit", 50), body.get("archive_id"), body.get("query")
        if not 1 <= limit <= 100:
            return 422, {"detail": "[{'type': 'less_than_equal', 'loc': ('body', 'limit')}]"}
        if (agent := body.get("agent_id")) is not None:
            if query and agent not in self.agents:
                return 404, {"detail": f"Agent with ID {agent} not found"}
            archive = self.attached.get(agent, "none")
        elif query and archive is not None and archive not in self.archives:
            return _missing("Archive", archive)
        first, last = (datetime.fromisoformat(body.get(name) or end) for name, end in _ENDS)
        rows = [row for row in self._nearest(archive, query) if first <= row.created_at <= last][:limit]
        # The tags are compared after the cut.
        rows = tagged(rows, body.get("tags"), body.get("tag_match_mode", "any"))
        return 200, [{"passage": row.wire(), "score": 0.0, "metadata": {}} for row in rows]

    def _agent_search(self, request: httpx.Request, _: Any, agent: str) -> Answer:
        asked = request.url.params
        if not asked.get("query", "").strip():
            return 200, {"results": [], "count": 0}
        if agent not in self.agents:
            return 404, {"detail": f"Agent with ID {agent} not found"}
        rows = self._nearest(self.attached.get(agent, "none"), asked["query"])
        # Nought is no limit, here as in a listing.
        rows = rows[: int(asked.get("top_k", 5)) or None]
        rows = tagged(rows, asked.get_list("tags"), asked.get("tag_match_mode", "any"))
        results = [
            {"id": row.id, "timestamp": instant(row.created_at), "content": row.text, "tags": row.tags or []}
            for row in rows
        ]
        return 200, {"results": results, "count": len(results)}


_ROUTES: tuple[tuple[str, str, str, Callable[..., Answer]], ...] = (
    ("create_archive", "POST", r"/v1/archives/", lambda api, _, body: api._create_archive(body)),
    ("list_archives", "GET", r"/v1/archives/", LettaApi._list_archives),
    ("retrieve_archive", "GET", r"/v1/archives/([^/]+)", LettaApi._retrieve_archive),
    ("update_archive", "PATCH", r"/v1/archives/([^/]+)", LettaApi._update_archive),
    ("delete_archive", "DELETE", r"/v1/archives/([^/]+)", LettaApi._delete_archive),
    ("create", "POST", r"/v1/archives/([^/]+)/passages", LettaApi._create),
    ("create_many", "POST", r"/v1/archives/([^/]+)/passages/batch", LettaApi._create_many),
    ("delete", "DELETE", r"/v1/archives/([^/]+)/passages/([^/]+)", LettaApi._delete),
    ("create_agent", "POST", r"/v1/agents/", lambda api, _, body: api._create_agent(body)),
    ("list_agents", "GET", r"/v1/agents/", LettaApi._list_agents),
    ("retrieve_agent", "GET", r"/v1/agents/([^/]+)", LettaApi._retrieve_agent),
    ("delete_agent", "DELETE", r"/v1/agents/([^/]+)", LettaApi._delete_agent),
    ("attach", "PATCH", r"/v1/agents/([^/]+)/archives/attach/([^/]+)", LettaApi._attach),
    ("list", "GET", r"/v1/agents/([^/]+)/archival-memory", LettaApi._list),
    ("agent_search", "GET", r"/v1/agents/([^/]+)/archival-memory/search", LettaApi._agent_search),
    ("search", "POST", r"/v1/passages/search", LettaApi._search),
)


def _missing(what: str, key: str) -> Answer:
    return 404, {"detail": f"{what} with id {key} not found in database."}


__all__ = ["BASE_URL", "EMBEDDING", "MODEL", "Faults", "LettaApi"]
