"""A Cognee 1.6.5 server in memory, in the shapes that one gave over loopback.

It answers the requests of a real httpx client through respx, keeps its own rules (one item for equal
bytes, 409 for another file of the same name, line breaks turned into LF, nothing searchable before
`cognify`, a history of every search) and misbehaves on demand.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PureWindowsPath
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import httpx
import respx

from fakes import cognee_shapes as shapes
from fakes.cognee_server import CogneeState, parts

BASE_URL = "http://cognee.test"
USER, PASSWORD = "custody@example.com", "custody-pass"

Route = Callable[["CogneeServer", httpx.Request, "re.Match[str]"], httpx.Response]


class CogneeServer(CogneeState):
    """A Cognee server that real httpx clients can reach; it takes what `CogneeState` takes."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.accounts[USER, PASSWORD] = self.user_id
        self.requests: list[tuple[str, str]] = []
        self.before_answer: Callable[[httpx.Request], None] | None = None
        self._lock = threading.RLock()

    @contextmanager
    def running(self) -> Iterator[CogneeServer]:
        """Answer every request to `BASE_URL` while this is open."""
        with respx.mock(assert_all_called=False) as router:
            router.route(host=httpx.URL(BASE_URL).host).mock(side_effect=self.answer)
            yield self

    def answer(self, request: httpx.Request) -> httpx.Response:
        """Answer one request, or fail as the switches say."""
        with self._lock:
            self.requests.append((request.method, request.url.path))
            if self.before_answer is not None:
                self.before_answer(request)
            if self.switches.take("reset"):
                raise httpx.ConnectError("Connection reset by peer", request=request)
            if self.switches.take("throttled"):
                return httpx.Response(429, headers={"Retry-After": "1"}, text="Too many requests")
            return self._answer(request)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path != "/" and path.endswith("/"):
            return httpx.Response(307, headers={"Location": path.rstrip("/")})
        for method, pattern, route, is_open in ROUTES:
            found = re.fullmatch(pattern, path)
            if found is None or method != request.method:
                continue
            if not is_open and not self._knows(request):
                return httpx.Response(
                    401, json={"detail": "Authentication required (auth posture: default)."}
                )
            response = route(self, request, found)
            return self._spoiled(request, response) if route in WRITES else response
        return httpx.Response(404, json={"detail": "Not Found"})

    def _spoiled(self, request: httpx.Request, response: httpx.Response) -> httpx.Response:
        if response.status_code >= 300:
            return response
        if self.switches.take("fails_after"):
            return httpx.Response(500, json={"error": "Internal server error", "detail": "after the commit"})
        if self.switches.take("lost_reply"):
            raise httpx.ReadError("server disconnected", request=request)
        return httpx.Response(204) if self.switches.take("empty_body") else response

    def _knows(self, request: httpx.Request) -> bool:
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
        user_id = self.tokens.get(bearer) or self.api_keys.get(request.headers.get("X-Api-Key", ""))
        self.asking = user_id or self.user_id
        return user_id is not None or not self.access_control


# --- routes --------------------------------------------------------------------------------


def _body(request: httpx.Request) -> dict[str, Any]:
    """Read a JSON body in camel or snake case."""
    read = json.loads(request.content)
    return {re.sub(r"_(\w)", lambda m: m[1].upper(), key): value for key, value in read.items()}


def _query(request: httpx.Request) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(str(request.url)).query))


def health(server: CogneeServer, request: httpx.Request, found: re.Match[str]) -> httpx.Response:
    """GET /health."""
    return httpx.Response(200, json={"status": "ready", "health": "healthy", "version": server.version})


def login(server: CogneeServer, request: httpx.Request, found: re.Match[str]) -> httpx.Response:
    """POST /api/v1/auth/login."""
    form = parse_qs(request.content.decode())
    said = (form.get("username", [""])[0], form.get("password", [""])[0])
    if said not in server.accounts:
        return shapes.refusal(400, "LOGIN_BAD_CREDENTIALS")
    server.logins += 1
    token = f"jwt-{server.logins}"
    server.tokens[token] = server.accounts[said]
    cookie = {"Set-Cookie": f"fastapiusersauth={token}; HttpOnly; SameSite=Lax"}
    return httpx.Response(200, json={"access_token": token, "token_type": "bearer"}, headers=cookie)


def list_datasets(server: CogneeServer, request: httpx.Request, found: re.Match[str]) -> httpx.Response:
    """GET /api/v1/datasets."""
    shown = [dataset for dataset in server.datasets.values() if server.may_read(dataset.dataset_id)]
    return httpx.Response(200, json=[shapes.dataset(dataset) for dataset in shown])


def make_dataset(server: CogneeServer, request: httpx.Request, found: re.Match[str]) -> httpx.Response:
    """POST /api/v1/datasets."""
    return httpx.Response(200, json=shapes.dataset(server.dataset(_body(request)["name"], server.asking)))


def add(server: CogneeServer, request: httpx.Request, found: re.Match[str]) -> httpx.Response:
    """POST /api/v1/add."""
    fields, files = parts(request)
    dataset_id = fields.get("datasetId", [""])[0]
    name = fields.get("datasetName", [""])[0]
    if not dataset_id and not name:
        return httpx.Response(400, json={"error": "Either datasetId or datasetName must be provided."})
    dataset = server.may_change(dataset_id) if dataset_id else server.dataset(name, server.asking)
    if dataset is None:
        return shapes.unreadable()
    if "." in dataset.name or " " in dataset.name:
        detail = "Dataset name cannot contain spaces or dots."
        return httpx.Response(500, json={"error": "Internal server error", "detail": detail})
    said = fields.get("external_metadata", [""])[0]
    metadata = json.loads(said) if said else [None] * len(files)
    if not isinstance(metadata, list) or len(metadata) != len(files):
        return shapes.refusal(400, "Provide one external_metadata entry per data item")
    for file_name, content in files:
        stem, md5 = PureWindowsPath(file_name).stem, hashlib.md5(content, usedforsecurity=False).hexdigest()
        clash = [item for item in dataset.items.values() if item.name == stem and item.md5 != md5]
        if clash:
            detail = f"'{file_name}' (data_id {clash[0].data_id}) already exists with different content."
            error = {"error": "Document already exists; use the update endpoint", "detail": detail}
            return httpx.Response(409, json=error)
    if server.switches.pending or fields.get("run_in_background") == ["true"]:
        return httpx.Response(200, json={**shapes.run("PipelineRunStarted", dataset), "payload": []})
    done = server.take_in(dataset, files, metadata, fields.get("node_set", []))
    infos = [{"run_info": shapes.run(status, dataset), "data_id": data_id} for status, data_id in done]
    body = {**shapes.run("PipelineRunCompleted", dataset), "data_ingestion_info": infos}
    return httpx.Response(200, json=body)


def list_data(server: CogneeServer, request: httpx.Request, found: re.Match[str]) -> httpx.Response:
    """GET /api/v1/datasets/{id}/data."""
    dataset = server.may_read(found[1])
    if dataset is None:
        return shapes.unreadable()
    asked = _query(request)
    limit, offset = int(asked.get("limit", 100)), int(asked.get("offset", 0))
    if not 1 <= limit <= 1_000 or not 0 <= offset <= 1_000_000:
        return shapes.refusal(400, [{"loc": ["query", "limit"], "msg": "Input should be in range"}])
    rows = [shapes.row(dataset, item) for item in server.page(dataset, limit, offset)]
    return httpx.Response(200, json=rows)


def count(server: CogneeServer, request: httpx.Request, found: re.Match[str]) -> httpx.Response:
    """GET /api/v1/datasets/{id}/data/count."""
    dataset = server.may_read(found[1])
    return shapes.unreadable() if dataset is None else httpx.Response(200, json={"count": len(dataset.items)})


def raw(server: CogneeServer, request: httpx.Request, found: re.Match[str]) -> httpx.Response:
    """GET /api/v1/datasets/{id}/data/{data_id}/raw."""
    dataset = server.may_read(found[1])
    if dataset is None:
        return shapes.unreadable()
    if found[2] not in dataset.items or found[2] in server.lost_files:
        detail = f"Data ({found[2]}) not found in dataset ({found[1]}). [DataNotFoundError]"
        return shapes.refusal(404, detail)
    return httpx.Response(200, content=dataset.items[found[2]].text.encode())


def delete(server: CogneeServer, request: httpx.Request, found: re.Match[str]) -> httpx.Response:
    """DELETE /api/v1/datasets/{id}/data/{data_id}; yes for any id."""
    try:
        uuid.UUID(found[2])
    except ValueError:
        return shapes.refusal(400, [{"type": "uuid_parsing", "loc": ["path", "data_id"]}])
    dataset = server.may_change(found[1])
    if dataset is None:
        return shapes.refusal(401, f"Dataset {found[1]} not accessible. [UnauthorizedDataAccessError]")
    lies = server.switches.lying_delete or server.switches.pending
    if not lies and dataset.items.pop(found[2], None) is not None:
        living = {tag for item in dataset.items.values() for tag in item.node_set}
        for chunk in dataset.chunks:
            if chunk.item.data_id == found[2]:
                chunk.left = server.switches.lag
                if server.switches.detags and chunk.item.node_set:
                    chunk.item.node_set = [tag for tag in chunk.item.node_set if tag in living]
                    chunk.left = chunk.left if chunk.item.node_set else 0
        dataset.chunks = [chunk for chunk in dataset.chunks if chunk.left is None or chunk.left > 0]
    return httpx.Response(200, json=None)


def delete_dataset(server: CogneeServer, request: httpx.Request, found: re.Match[str]) -> httpx.Response:
    """DELETE /api/v1/datasets/{id}."""
    if server.may_change(found[1]) is None:
        return shapes.unreadable()
    del server.datasets[found[1]]
    return httpx.Response(200, json=None)


def processing_status(server: CogneeServer, request: httpx.Request, found: re.Match[str]) -> httpx.Response:
    """GET /api/v1/datasets/{id}/processing-status."""
    dataset = server.may_read(found[1])
    if dataset is None:
        return shapes.unreadable()
    items = [
        {"id": item.data_id, "name": item.name, "completed": item.is_indexed}
        for item in server.listed(dataset)
    ]
    done = sum(item["completed"] is True for item in items)
    body = {"total": len(items), "completed": done, "pending": len(items) - done, "items": items}
    return httpx.Response(200, json=body)


def cognify(server: CogneeServer, request: httpx.Request, found: re.Match[str]) -> httpx.Response:
    """POST /api/v1/cognify."""
    body = _body(request)
    chosen = [server.may_change(dataset_id) for dataset_id in body.get("datasetIds") or ()]
    chosen += [server.dataset(name, server.asking) for name in body.get("datasets") or ()]
    if server.switches.take("cognify_fails"):
        return httpx.Response(500, json={"error": "Pipeline run errored", "detail": "the model is down"})
    runs: dict[str, Any] = {}
    for dataset in chosen:
        if dataset is None:
            return shapes.unreadable()
        if body.get("runInBackground"):
            dataset.status = "DATASET_PROCESSING_STARTED"
            runs[dataset.dataset_id] = {**shapes.run("PipelineRunStarted", dataset), "payload": []}
            continue
        server.cognify(dataset)
        runs[dataset.dataset_id] = {**shapes.run("PipelineRunCompleted", dataset), "data_ingestion_info": []}
    return httpx.Response(200, json=runs)


def search(server: CogneeServer, request: httpx.Request, found: re.Match[str]) -> httpx.Response:
    """POST /api/v1/search, of which CHUNKS alone is here."""
    body = _body(request)
    query, top_k = body["query"], body.get("topK", 15)
    if body.get("searchType", "HYBRID_COMPLETION") != "CHUNKS":
        return shapes.refusal(400, "this stand-in searches for CHUNKS")
    if top_k is not None and top_k <= 0:
        return shapes.refusal(422, "top_k must be a positive integer. [CogneeValidationError]")
    if server.switches.take("held_searches"):
        raise httpx.ReadTimeout("timed out", request=request)
    if server.switches.take("search_fails") or not query:
        return httpx.Response(
            500, json={"error": "Internal server error", "detail": f"no vector for {query}"}
        )
    dataset_ids = body.get("datasetIds") or [one for one in server.datasets if server.may_read(one)]
    if any(server.may_read(dataset_id) is None for dataset_id in dataset_ids):
        return shapes.unreadable()
    indexes = server.indexes(dataset_ids)
    if not any(is_there for _, _, is_there in indexes):
        why = shapes.missing(server.datasets[dataset_id] for dataset_id in dataset_ids)
        return shapes.refusal(404, f"No searchable memory: {why} [NoDataError]")
    answer: list[Any] = []
    for dataset, chunks, is_there in indexes:
        nearest = server.nearest(chunks, query, top_k, body.get("nodeName") or [])
        served = [shapes.chunk(distance, chunk) for distance, chunk in nearest]
        kinds = {"text_result": served, "context_result": "", "objects_result": served}
        shown = kinds if body.get("verbose") else {"search_result": served}
        if dataset is None:
            answer.extend([kinds] if body.get("verbose") else served)
            continue
        wrapped = {
            "dataset_id": dataset.dataset_id,
            "dataset_name": dataset.name,
            "dataset_tenant_id": None,
            **shown,
        }
        missing = {} if is_there else {"error": shapes.missing([dataset])}
        answer.append({**wrapped, **missing})
    server.history.append({"text": query, "createdAt": server.tick().isoformat()})
    server.history.append({"text": str(answer), "createdAt": server.tick().isoformat()})
    server.age()
    return httpx.Response(200, json=answer)


def history(server: CogneeServer, request: httpx.Request, found: re.Match[str]) -> httpx.Response:
    """GET /api/v1/search: every query and what it answered."""
    return httpx.Response(200, json=server.history)


_ID = r"([^/]+)"
WRITES = frozenset({add, delete})
ROUTES: list[tuple[str, str, Route, bool]] = [
    ("GET", "/health", health, True),
    ("POST", "/api/v1/auth/login", login, True),
    ("GET", "/api/v1/datasets", list_datasets, False),
    ("POST", "/api/v1/datasets", make_dataset, False),
    ("DELETE", f"/api/v1/datasets/{_ID}", delete_dataset, False),
    ("POST", "/api/v1/add", add, False),
    ("GET", f"/api/v1/datasets/{_ID}/data", list_data, False),
    ("GET", f"/api/v1/datasets/{_ID}/data/count", count, False),
    ("GET", f"/api/v1/datasets/{_ID}/data/{_ID}/raw", raw, False),
    ("DELETE", f"/api/v1/datasets/{_ID}/data/{_ID}", delete, False),
    ("GET", f"/api/v1/datasets/{_ID}/processing-status", processing_status, False),
    ("POST", "/api/v1/cognify", cognify, False),
    ("POST", "/api/v1/search", search, False),
    ("GET", "/api/v1/search", history, False),
]
