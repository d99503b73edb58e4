"""Cognee's REST API over the caller's httpx client: version, authentication, requests, readable replies.

Shapes and statuses are those of `cognee.api.client:app` 1.6.5, asked over loopback.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from custody_sync.adapters._failures import translated
from custody_sync.adapters._shared import OneLoop, WorkerThreads
from custody_sync.errors import InvalidInput, InvalidStore, StoreRefused, StoreUnavailable

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

_OLDEST = (1, 6, 1)
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_UNAUTHORIZED = 401
_SIDE_BY_SIDE = 8


class CogneeApi:
    """Ask a Cognee server, logged in, once its version is known to be one that can be asked.

    Args:
        store: The store's name, for errors.
        client: An `httpx.AsyncClient`, awaited, or an `httpx.Client`, called in worker threads.
        username: Logs in with `password`; the token is renewed when the server no longer takes it.
        password: The user's password.
        api_key: Is sent as `X-Api-Key` instead.
        threads: How many calls of a blocking client may run at once.
        executor: Runs these calls instead of own threads.
    """

    def __init__(
        self,
        store: str,
        client: httpx.AsyncClient | httpx.Client,
        *,
        username: str | None = None,
        password: str | None = None,
        api_key: str | None = None,
        threads: int = 16,
        executor: Executor | None = None,
    ) -> None:
        request = getattr(client, "request", None)
        base_url = str(getattr(client, "base_url", ""))
        if not callable(request) or not hasattr(client, "base_url"):
            problem = f"{type(client).__name__} is neither an httpx.AsyncClient nor an httpx.Client"
            raise InvalidStore(store=store, problem=problem)
        if not base_url:
            problem = 'has no address; make it with base_url="https://…", the address of the Cognee server'
            raise InvalidInput(field="client", problem=problem)
        _check_credentials(username, password, api_key)
        self.store = store
        self._client: Any = client
        self._login = {"username": username, "password": password} if username is not None else None
        self._api_key = api_key
        self._token: str | None = None
        self._is_async = inspect.iscoroutinefunction(request)
        self._threads = None if self._is_async else WorkerThreads(store, limit=threads, executor=executor)
        self._loop = OneLoop(store) if self._is_async else None
        self._is_known = False
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    async def ask(
        self, operation: str, method: str, path: str, *, allow: frozenset[int] = frozenset(), **options: Any
    ) -> Answer:
        """Send one request and return the answer.

        Raises:
            InvalidStore: the server is older than 1.6.1, or is no Cognee server.
            StoreError: it answered with a status of 300 or more that is not in `allow`, or not at all.
        """
        if self._loop is not None:
            self._loop.check()
        return await translated(self.store, operation, self._asked(operation, method, path, allow, options))

    def unreadable(self, operation: str) -> StoreUnavailable:
        """Return the error for an answer in which what was asked for does not stand."""
        return StoreUnavailable(store=self.store, operation=operation, cause="UnreadableReply")

    async def _asked(
        self, operation: str, method: str, path: str, allow: frozenset[int], options: Mapping[str, Any]
    ) -> Answer:
        if not self._is_known:
            await self._check_version(operation)
        token = await self._logged_in(operation, None)
        response = await self._send(method, path, token, options)
        # Cognee answers 401 for a dataset that is not ours, too: one new login tells which it is.
        if response.status_code == _UNAUTHORIZED and self._login is not None:
            token = await self._logged_in(operation, token)
            response = await self._send(method, path, token, options)
        if response.status_code not in allow:
            response.raise_for_status()
        return Answer(response)

    async def _send(self, method: str, path: str, token: str | None, options: Mapping[str, Any]) -> Any:
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        if self._api_key is not None:
            headers["X-Api-Key"] = self._api_key
        call = partial(self._client.request, method, path, headers=headers, **options)
        return await (call() if self._threads is None else self._threads.run(call))

    async def _check_version(self, operation: str) -> None:
        response = await self._send("GET", "/health", None, {})
        response.raise_for_status()
        said = Answer(response).mapping.get("version")
        found = _VERSION.match(said) if isinstance(said, str) else None
        if found is None:
            problem = "names no version at /health; base_url has to be the address of a Cognee server"
            raise InvalidStore(store=self.store, problem=problem)
        if tuple(map(int, found.groups())) < _OLDEST:
            problem = (
                f"its server is Cognee {found[0]}; 1.6.1 is the oldest that lists in pages, so upgrade it"
            )
            raise InvalidStore(store=self.store, problem=problem)
        self._is_known = True

    async def _logged_in(self, operation: str, stale: str | None) -> str | None:
        """Return a token other than the stale one; whoever comes first fetches it for all."""
        if self._login is None:
            return None
        lock = self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())
        async with lock:
            if self._token is None or self._token == stale:
                self._token = await self._new_token(operation, self._login)
            return self._token

    async def _new_token(self, operation: str, login: Mapping[str, str | None]) -> str:
        response = await self._send("POST", "/api/v1/auth/login", None, {"data": dict(login)})
        if response.status_code in (400, _UNAUTHORIZED):
            cause = f"LoginRefused {response.status_code}"
            raise StoreRefused(store=self.store, operation=operation, cause=cause)
        response.raise_for_status()
        token = Answer(response).mapping.get("access_token")
        if not isinstance(token, str) or not token:
            raise self.unreadable(operation)
        return token


class Answer:
    """A reply, of which nothing is taken for granted: what is no JSON, or another shape, reads as empty."""

    def __init__(self, response: Any) -> None:
        self.status: int = response.status_code
        self.content: bytes = response.content
        self._response = response

    @property
    def json(self) -> Any:
        """Return the body, or None where it is not JSON."""
        try:
            return self._response.json()
        except (ValueError, RecursionError):
            return None

    @property
    def mapping(self) -> Mapping[str, Any]:
        """Return the body if it is an object, else an empty one."""
        body = self.json
        return body if isinstance(body, Mapping) else {}

    @property
    def rows(self) -> list[Mapping[str, Any]] | None:
        """Return the body if it is a list of objects, else None."""
        body = self.json
        if not isinstance(body, list) or not all(isinstance(row, Mapping) for row in body):
            return None
        return body


async def some_at_a_time(work: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """Run calls, a few side by side, and return the answers in order; the first error ends them all."""
    answers: dict[int, T] = {}
    jobs = iter(enumerate(work))

    async def worker() -> None:
        for place, call in jobs:
            answers[place] = await call()

    tasks = [asyncio.ensure_future(worker()) for _ in range(min(_SIDE_BY_SIDE, len(work)))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [answers[place] for place in range(len(work))]


def _check_credentials(username: str | None, password: str | None, api_key: str | None) -> None:
    if (username is None) is not (password is None):
        raise InvalidInput(field="username", problem="a login needs username and password")
    if username is not None and api_key is not None:
        raise InvalidInput(field="api_key", problem="give either a login or an API key, not both")


__all__ = ["Answer", "CogneeApi", "some_at_a_time"]
