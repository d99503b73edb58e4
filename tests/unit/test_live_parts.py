"""The parts of `make live` that need no engine: the stub of a model, what runs a server, the bent wire."""

from __future__ import annotations

import base64
import importlib
import json
import math
import struct
import sys
import urllib.request
from pathlib import Path
from typing import Any

import httpx
import pytest
from live.wire import Wire

from custody_sync.testing import NotApplicable, Trouble

SCRIPTS = Path(__file__).parents[2] / "docker" / "live"
SERVE = """
import http.server, sys
print("about to fail" if len(sys.argv) < 2 else "serving", flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


@pytest.fixture(scope="module", autouse=True)
def _scripts() -> Any:
    """Let the scripts be imported as they import each other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPTS))
        yield


def script(name: str) -> Any:
    """Import one of the scripts."""
    return importlib.import_module(name)


def test_equal_texts_have_equal_vectors_in_either_format() -> None:
    """An embedding depends on the text alone, and base64 holds the same numbers."""
    stub = script("openai_stub")
    rows = stub.embeddings({"input": ["a harbour", "a harbour", "a mill"]})["data"]
    assert rows[0]["embedding"] == rows[1]["embedding"] != rows[2]["embedding"]
    packed = stub.embeddings({"input": "a harbour", "encoding_format": "base64"})["data"][0]["embedding"]
    numbers = struct.unpack(f"<{stub.DIMENSIONS}f", base64.b64decode(packed))
    assert numbers == pytest.approx(rows[0]["embedding"], abs=1e-6)


def test_tokens_are_embedded_too() -> None:
    """A client that sends numbers of tokens gets one vector for them, not one for each."""
    assert len(script("openai_stub").embeddings({"input": [1, 2, 3]})["data"]) == 1


SCHEMA = {
    "type": "object",
    "properties": {
        "summary": {"type": "string"},
        "kind": {"enum": ["note", "other"]},
        "until": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/Year"}]},
        "nodes": {"type": "array", "items": {"type": "string"}},
    },
    "$defs": {"Year": {"type": "integer"}},
}
FILLED = {"summary": "What of it?", "kind": "note", "until": 0, "nodes": []}


@pytest.mark.parametrize(
    "asked",
    [
        {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
        {"response_format": {"type": "json_object"}},
    ],
    ids=["schema", "instructions"],
)
def test_a_structure_is_filled_in(asked: dict[str, Any]) -> None:
    """A chat answer has the structure that was asked for, by the API's means or in the instructions."""
    said = [{"role": "system", "content": f"Answer as {json.dumps(SCHEMA)}"}]
    said += [{"role": "user", "content": "What of it?"}]
    choice = script("openai_stub").completion({"messages": said} | asked)["choices"][0]
    assert json.loads(choice["message"]["content"]) == FILLED


def test_a_tool_is_called() -> None:
    """Offered a tool, the stub calls it with arguments of its schema."""
    tools = [{"type": "function", "function": {"name": "keep", "parameters": SCHEMA}}]
    said = [{"role": "user", "content": [{"type": "text", "text": "What of it?"}]}]
    choice = script("openai_stub").completion({"messages": said, "tools": tools})["choices"][0]
    call = choice["message"]["tool_calls"][0]["function"]
    assert (choice["finish_reason"], call["name"]) == ("tool_calls", "keep")
    assert json.loads(call["arguments"]) == FILLED


def test_the_stub_serves_over_http() -> None:
    """It names its models on a port of its own."""
    with script("openai_stub").openai_stub() as url, urllib.request.urlopen(f"{url}/models") as answer:  # noqa: S310  # loopback
        assert {row["id"] for row in json.load(answer)["data"]} == {"gpt-4o-mini", "text-embedding-3-small"}


def test_a_server_runs_for_as_long_as_its_block(tmp_path: Path) -> None:
    """It answers inside the block, and after it nobody does."""
    services, port = script("services"), script("places").free_port()
    url = f"http://127.0.0.1:{port}/"
    command = [sys.executable, "-c", SERVE, port]
    log = tmp_path / "log"
    with services.running("it", command, health=url, environment={}, log=log, cwd=tmp_path):
        assert services.answers(url)
    assert not services.answers(url)
    assert log.read_text().startswith("serving")


def test_a_server_that_ends_says_why(tmp_path: Path) -> None:
    """One that cannot start is not waited for, and its last words are the reason."""
    services = script("services")
    command = [sys.executable, "-c", SERVE]
    url = f"http://127.0.0.1:{script('places').free_port()}/"
    with (
        pytest.raises(services.NotStarted, match="it ended with 1: IndexError"),
        services.running("it", command, health=url, environment={}, log=tmp_path / "log", cwd=tmp_path),
    ):
        pytest.fail("it was said to run")


PUT = httpx.Request("POST", "http://it/put")
DELETE = httpx.Request("DELETE", "http://it/one")
SEARCH = httpx.Request("POST", "http://it/search")
ASIDE = httpx.Request("POST", "http://it/aside")


@pytest.fixture
def wire() -> Wire:
    """Return a straight wire."""
    return Wire(
        is_search=lambda request: request.url.path == "/search",
        is_delete=lambda request: request.method == "DELETE",
        is_put=lambda request: request.url.path == "/put",
        is_aside=lambda request: request.url.path == "/aside",
    )


def test_a_lost_reply_is_lost_after_the_request_was_let_through(wire: Wire) -> None:
    """What is to take effect reaches the server, and only a write loses its answer, once."""
    wire.bend(Trouble.LOST_REPLY)
    assert wire.before(PUT) is None
    assert wire.after(SEARCH) is None
    with pytest.raises(httpx.ReadError):
        wire.after(PUT)
    assert wire.after(PUT) is None


def test_what_is_turned_away_reaches_no_server(wire: Wire) -> None:
    """A throttled or reset request is answered or broken before it is sent; what nobody waits for passes."""
    wire.bend(Trouble.THROTTLED)
    assert wire.before(ASIDE) is None
    turned_away = wire.before(SEARCH)
    assert turned_away is not None
    assert (turned_away.status_code, turned_away.headers["Retry-After"]) == (429, "0")
    wire.bend(Trouble.RESET)
    with pytest.raises(httpx.ConnectError):
        wire.before(PUT)
    assert wire.before(PUT) is None


def test_a_lying_delete_is_kept_from_the_server_for_good(wire: Wire) -> None:
    """Deletes are answered with yes, however often, and nothing else is touched."""
    wire.bend(Trouble.LYING_DELETE)
    for _ in range(3):
        answer = wire.before(DELETE)
        assert answer is not None
        assert answer.status_code == 204
    assert wire.before(PUT) is None


def test_a_search_fails_as_often_as_it_is_told_to(wire: Wire) -> None:
    """Only searches fail, until the number is used up or for ever."""
    wire.bend(Trouble.SEARCH_FAILS, 1)
    assert wire.before(PUT) is None
    failed = wire.before(SEARCH)
    assert failed is not None
    assert failed.status_code == 500
    assert wire.before(SEARCH) is None
    wire.bend(Trouble.SEARCH_FAILS, math.inf)
    assert all(wire.before(SEARCH) is not None for _ in range(50))


def test_what_takes_the_inside_of_a_service_is_not_made_up(wire: Wire) -> None:
    """A wire cannot let a real index lag, and says so instead of passing."""
    with pytest.raises(NotApplicable):
        wire.bend(Trouble.LAG)


def test_an_environment_is_made_over_nothing_of_the_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is there and is no environment is left as it is, and the way out is named."""
    monkeypatch.setenv("CUSTODY_SYNC_LIVE_DIR", str(tmp_path))
    precious = tmp_path / "client" / "precious"
    precious.parent.mkdir()
    precious.touch()
    with pytest.raises(SystemExit, match="was not touched: set CUSTODY_SYNC_LIVE_DIR elsewhere"):
        script("places").client()
    assert precious.exists()
