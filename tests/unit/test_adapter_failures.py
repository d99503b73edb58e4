"""What a vendor's error means: its status decides, wherever the client puts it, and its text never leaves."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from custody_sync.adapters._failures import (
    describe,
    failure_of,
    paged,
    retry_after,
    status_of,
    translated,
)
from custody_sync.errors import (
    InvalidInput,
    NoProof,
    StoreError,
    StoreRefused,
    StoreThrottled,
    StoreUnavailable,
)

CANARY = "the customer is called Mallory"
NOW = datetime(2026, 9, 1, 12, tzinfo=UTC)
Maker = Callable[..., Exception]


class RateLimitError(Exception):
    """As mem0ai 2.2 raises: the status and the time stand in `debug_info`."""

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        super().__init__(CANARY)
        self.debug_info: dict[str, Any] = {"status_code": status, "response_text": CANARY}
        if "Retry-After" in headers:
            self.debug_info["retry_after"] = headers["Retry-After"]


class ApiError(Exception):
    """As zep-cloud 4 raises: status, headers and body on the error itself."""

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        super().__init__(f"headers: {headers}, status_code: {status}, body: {CANARY}")
        self.status_code, self.headers, self.body = status, headers, {"message": CANARY}


class APIStatusError(Exception):
    """As letta-client 1.12 raises: the status is repeated, the headers are on the response."""

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        super().__init__(CANARY)
        self.response = httpx.Response(status, headers=headers, text=CANARY)
        self.status_code, self.body = status, CANARY


def from_httpx(status: int, headers: dict[str, str]) -> Exception:
    """As httpx raises from `raise_for_status`: everything is on the response."""
    request = httpx.Request("POST", f"https://api.example/v1?q={CANARY}")
    response = httpx.Response(status, headers=headers, text=CANARY, request=request)
    try:
        response.raise_for_status()
    except httpx.HTTPStatusError as error:
        return error
    raise AssertionError(status)


MAKERS = pytest.mark.parametrize("make", [RateLimitError, ApiError, APIStatusError, from_httpx])


async def raised_by(error: BaseException) -> StoreError:
    """Return what becomes of a vendor's error."""

    async def work() -> None:
        raise error

    with pytest.raises(StoreError) as caught:
        await translated("store", "put", work())
    return caught.value


@MAKERS
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, StoreRefused),
        (401, StoreRefused),
        (403, StoreRefused),
        (404, StoreRefused),
        (413, StoreRefused),
        (422, StoreRefused),
        (408, StoreUnavailable),
        (409, StoreUnavailable),
        (423, StoreUnavailable),
        (425, StoreUnavailable),
        (429, StoreThrottled),
        (500, StoreUnavailable),
        (502, StoreUnavailable),
        (503, StoreUnavailable),
        (529, StoreUnavailable),
    ],
)
async def test_the_status_decides(make: Maker, status: int, kind: type[StoreError]) -> None:
    """What blames the request is refused, a 429 did nothing, and everything else may have taken effect."""
    error = make(status, {})
    raised = await raised_by(error)
    assert type(raised) is kind
    assert raised.cause == f"{type(error).__name__} {status}"
    assert status_of(error) == status


@MAKERS
@pytest.mark.parametrize("status", [404, 429, 500])
async def test_nothing_of_it_is_quoted(make: Maker, status: int) -> None:
    """Neither what is said, nor what hangs on the error, nor a pickled copy knows what the vendor said."""
    raised = await raised_by(make(status, {"X-Echo": CANARY}))
    assert (raised.__cause__, raised.__context__) == (None, None)
    told = "".join(traceback.format_exception(raised)) + repr(raised.to_dict()) + repr(pickle.dumps(raised))
    assert "Mallory" not in told


@MAKERS
@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("7", 7.0),
        ("0.25", 0.25),
        ("0", 0.0),
        ("-3", 0.0),
        ("soon", None),
        ("", None),
        ("nan", None),
        ("inf", None),
        ("Tue, 01 Sep 2026 12:00:30 GMT", 30.0),
        ("Tue, 01 Sep 2026 14:00:30 +0200", 30.0),
        ("Tue, 01 Sep 2026 11:00:00 GMT", 0.0),
        ("Tue, 99 Sep 2026 11:00:00 GMT", None),
    ],
)
def test_how_long_a_server_asks_to_wait(make: Maker, said: str, seconds: float | None) -> None:
    """A number or a date, from wherever the client keeps it; what cannot be read names no time."""
    assert retry_after(make(429, {"Retry-After": said}), NOW) == seconds


@MAKERS
async def test_the_time_goes_along(make: Maker) -> None:
    """What the server said is on the error that the core waits by; where it said nothing there is none."""
    assert (await raised_by(make(429, {"Retry-After": "12"}))).retry_after == 12.0
    assert (await raised_by(make(429, {}))).retry_after is None


@pytest.mark.parametrize("name", ["retry-after", "RETRY-AFTER", "Retry-After"])
def test_a_header_has_any_case(name: str) -> None:
    """Header names are compared as HTTP does."""
    assert retry_after(ApiError(429, {name: "3"})) == 3.0


@pytest.mark.parametrize(
    "error",
    [
        httpx.ConnectError(CANARY),
        httpx.ReadTimeout(CANARY),
        httpx.RemoteProtocolError(CANARY),
        OSError(CANARY),
    ],
)
async def test_without_a_status_nobody_knows(error: Exception) -> None:
    """A connection that fails half-way may have carried the request."""
    raised = await raised_by(error)
    assert (type(raised), raised.cause) == (StoreUnavailable, type(error).__name__)


@pytest.mark.parametrize("junk", ["429", None, 4.5, [429]])
def test_a_status_is_a_number(junk: Any) -> None:
    """What is no whole number under that name is no status."""
    error = Exception(CANARY)
    error.status_code = junk  # type: ignore[attr-defined]  # as a vendor's
    error.debug_info = CANARY  # type: ignore[attr-defined]  # as a vendor's
    assert (status_of(error), describe(error)) == (None, "Exception")
    assert type(failure_of("store", "put", error)) is StoreUnavailable


@pytest.mark.parametrize(
    "ours",
    [
        NoProof(store="s", operation="o", cause="c"),
        InvalidInput(field="f", problem="p"),
        StoreThrottled("s", "o", "c", 2.0),
    ],
)
async def test_our_own_errors_pass(ours: Any) -> None:
    """What an adapter decided itself is not judged again."""

    async def work() -> None:
        raise ours

    with pytest.raises(type(ours)) as caught:
        await translated("store", "put", work())
    assert caught.value is ours


async def test_a_cancellation_passes() -> None:
    """Whoever stops waiting is no failure of the store."""

    async def work() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await translated("store", "put", work())


# --- pages of a listing ------------------------------------------------------------------------


def turned_away(times: int, after: float | None) -> tuple[Callable[[], Awaitable[str]], list[float], Any]:
    """Return a page that is throttled so many times, what was waited, and what waits."""
    waits: list[float] = []
    left = iter(range(times))

    async def read() -> str:
        if next(left, None) is not None:
            raise StoreThrottled("s", "list_entries", "HTTPError 429", after)
        return "a page"

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    return read, waits, sleep


@pytest.mark.parametrize(
    ("times", "after", "waited"),
    [
        (0, None, []),
        (2, None, [1.0, 2.0]),
        (3, 4.0, [4.0, 4.0, 4.0]),
        (4, 0.0, [0.05, 0.1, 0.2, 0.4]),
    ],
)
async def test_a_page_is_waited_for(times: int, after: float | None, waited: list[float]) -> None:
    """A listing goes on where it was turned away, after the time that the store named or a growing one."""
    read, waits, sleep = turned_away(times, after)
    assert await paged("list_entries", read, sleep) == "a page"
    assert waits == waited


async def test_a_page_that_never_comes() -> None:
    """After five refusals the listing says that it is throttled; it never ends as if there were no more."""
    read, waits, sleep = turned_away(5, 0.5)
    with pytest.raises(StoreThrottled):
        await paged("list_entries", read, sleep)
    assert len(waits) == 4


async def test_other_errors_are_not_waited_for() -> None:
    """Only a refusal that did nothing and will pass is worth the wait."""
    asked: list[int] = []

    async def read() -> str:
        asked.append(1)
        raise StoreUnavailable(store="s", operation="list_entries", cause="HTTPError 500")

    with pytest.raises(StoreUnavailable):
        await paged("list_entries", read)
    assert asked == [1]


@pytest.mark.parametrize("operation", ["find", "search", "verify_deleted"])
async def test_pages_of_a_question_are_not_waited_for(operation: str) -> None:
    """There the core waits, which knows how much of the deadline is left."""
    read, waits, sleep = turned_away(1, 0.5)
    with pytest.raises(StoreThrottled):
        await paged(operation, read, sleep)
    assert waits == []
