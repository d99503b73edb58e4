"""A wire between a client and a real server, bent below the client: what the server does stays real."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx

from custody_sync.testing.contract import NotApplicable, Trouble

Told = Callable[[httpx.Request], bool]

_BENDABLE = frozenset(
    (
        Trouble.SEARCH_FAILS,
        Trouble.THROTTLED,
        Trouble.FAILS_AFTER,
        Trouble.LOST_REPLY,
        Trouble.RESET,
        Trouble.LYING_DELETE,
        Trouble.EMPTY_BODY,
    )
)
_REFUSES = "a real server is behind the wire, and only whole answers are bent; its stand-in does this"


@dataclass
class Wire:
    """Which requests are which, and what happens to the next ones.

    Args:
        is_search: a request that recall is answered with.
        is_delete: a request that deletes a memory.
        is_put: a request that stores one.
        deleted: what the server answers a deletion with.
        is_aside: a request that no call waits for; troubles that come to any request leave it alone.
    """

    is_search: Told
    is_delete: Told
    is_put: Told
    deleted: Callable[[], httpx.Response] = lambda: httpx.Response(204)
    is_aside: Told = lambda request: False
    left: Counter[Trouble] = field(default_factory=Counter)

    def bend(self, trouble: Trouble, times: float = 1) -> None:
        """Make the next so many requests meet a trouble; `math.inf` is until the end."""
        if trouble not in _BENDABLE:
            raise NotApplicable(_REFUSES)
        if trouble is Trouble.LYING_DELETE:
            times = math.inf
        self.left[trouble] = times  # type: ignore[assignment]  # math.inf counts down to itself

    def before(self, request: httpx.Request) -> httpx.Response | None:
        """Return an answer that keeps the request from the server, or None."""
        if self.is_aside(request):
            return None
        if self._takes(Trouble.RESET):
            raise httpx.ConnectError("the connection was reset", request=request)
        if self._takes(Trouble.THROTTLED):
            return httpx.Response(429, headers={"Retry-After": "0"}, json={"detail": "slow down"})
        if self.is_search(request) and self._takes(Trouble.SEARCH_FAILS):
            return httpx.Response(500, json={"detail": "the index is away"})
        if self.is_delete(request) and self._takes(Trouble.LYING_DELETE):
            return self.deleted()
        return None

    def after(self, request: httpx.Request) -> httpx.Response | None:
        """Return an answer in place of the server's, which has done what it was asked to, or None."""
        if not (self.is_put(request) or self.is_delete(request)):
            return None
        if self._takes(Trouble.LOST_REPLY):
            raise httpx.ReadError("the connection ended before the answer", request=request)
        if self._takes(Trouble.FAILS_AFTER):
            return httpx.Response(500, json={"detail": "something went wrong"})
        return httpx.Response(204) if self._takes(Trouble.EMPTY_BODY) else None

    def _takes(self, trouble: Trouble) -> bool:
        if self.left[trouble] <= 0:
            return False
        self.left[trouble] -= 1
        return True


class BentTransport(httpx.HTTPTransport):
    """The wire under a blocking client."""

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self._wire = wire

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on, bent."""
        kept = self._wire.before(request)
        if kept is not None:
            return kept
        answer = super().handle_request(request)
        answer.read()
        answer.close()
        return self._wire.after(request) or answer


class BentAsyncTransport(httpx.AsyncHTTPTransport):
    """The wire under an asynchronous client."""

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self._wire = wire

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on, bent."""
        kept = self._wire.before(request)
        if kept is not None:
            return kept
        answer = await super().handle_async_request(request)
        await answer.aread()
        await answer.aclose()
        return self._wire.after(request) or answer
