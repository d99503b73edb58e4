"""Answer as OpenAI's API does, on loopback and without a model, so that no engine needs a key.

An embedding is a bag of hashed words: equal texts are equal, texts that share words are near. A chat answer
fills in whatever structure it was asked for, with the beginning of the question as text, so that what an
engine derives from a memory carries the memory's words, as a real model's answer would.

    python docker/live/openai_stub.py --port 9911
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import re
import struct
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from services import until_told

from custody_sync.testing.embedding import WordEmbedder

DIMENSIONS = 384
CHAT_MODEL, EMBEDDING_MODEL = "gpt-4o-mini", "text-embedding-3-small"
_EMBED = WordEmbedder(DIMENSIONS)
_DEEPEST = 8


def embeddings(body: dict[str, Any]) -> dict[str, Any]:
    """Return the vectors of one text, several texts, or texts as numbers of tokens."""
    given = body["input"]
    texts = [given] if isinstance(given, str) or (given and isinstance(given[0], int)) else given
    rows = []
    for index, text in enumerate(texts):
        vector: Any = _EMBED(text if isinstance(text, str) else " ".join(map(str, text)))
        if body.get("encoding_format") == "base64":
            vector = base64.b64encode(struct.pack(f"<{DIMENSIONS}f", *vector)).decode()
        rows.append({"object": "embedding", "index": index, "embedding": vector})
    return {"object": "list", "model": body.get("model"), "data": rows, "usage": _usage()}


def completion(body: dict[str, Any]) -> dict[str, Any]:
    """Return an answer of the shape that was asked for: a tool call, a JSON document, or words."""
    said = _last_question(body.get("messages", []))
    message: dict[str, Any] = {"role": "assistant", "content": said}
    asked = body.get("response_format") or {}
    finish = "stop"
    if body.get("tools"):
        function = body["tools"][0]["function"]
        schema = function.get("parameters", {})
        arguments = json.dumps(instance_of(schema, schema, said))
        call = {"name": function["name"], "arguments": arguments}
        calls = [{"id": "call_0", "type": "function", "function": call}]
        message, finish = {"role": "assistant", "content": None, "tool_calls": calls}, "tool_calls"
    elif asked.get("type") == "json_schema":
        schema = asked["json_schema"].get("schema", {})
        message["content"] = json.dumps(instance_of(schema, schema, said))
    elif asked.get("type") == "json_object":
        schema = _schema_in(body.get("messages", []))
        message["content"] = json.dumps(instance_of(schema, schema, said))
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
    head = {"id": "chatcmpl-0", "object": "chat.completion", "created": int(time.time())}
    return head | {"model": body.get("model"), "choices": [choice], "usage": _usage()}


def instance_of(schema: dict[str, Any], root: dict[str, Any], text: str, depth: int = 0) -> Any:
    """Return a small value that a JSON schema allows; lists stay empty, strings say the text."""
    if depth > _DEEPEST:
        return None
    if "$ref" in schema:
        there: Any = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            there = there[part]
        return instance_of(there, root, text, depth + 1)
    if "const" in schema or "enum" in schema:
        return schema.get("const", (schema.get("enum") or [None])[0])
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            options = [option for option in schema[word] if option.get("type") != "null"]
            return instance_of(options[0], root, text, depth + 1) if options else None
    if "properties" in schema or schema.get("type") == "object":
        inner = schema.get("properties", {})
        return {name: instance_of(part, root, text, depth + 1) for name, part in inner.items()}
    kinds = {"integer": 0, "number": 0.0, "boolean": False, "array": [], "null": None}
    return kinds.get(schema.get("type", "string"), text)


def _last_question(messages: list[dict[str, Any]]) -> str:
    texts = [_words(message.get("content")) for message in messages if message.get("role") == "user"]
    return (texts[-1] if texts else "")[:200]


def _words(content: Any) -> str:
    if isinstance(content, list):
        return " ".join(part.get("text", "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _schema_in(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the schema that a client wrote into the instructions, where the API takes none."""
    for message in messages:
        found = re.search(r"\{.*\}", _words(message.get("content")), re.DOTALL)
        with contextlib.suppress(ValueError):
            if found is not None and isinstance(schema := json.loads(found[0]), dict):
                return schema
    return {"type": "object", "properties": {"summary": {"type": "string"}}}


def _usage() -> dict[str, int]:
    return {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        names = (CHAT_MODEL, EMBEDDING_MODEL)
        rows = [{"id": name, "object": "model", "created": 1, "owned_by": "stub"} for name in names]
        self._answer({"object": "list", "data": rows})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("/embeddings"):
            self._answer(embeddings(body))
        elif self.path.endswith("/chat/completions"):
            self._answer(completion(body))
        else:
            self._answer({"error": {"message": "no such route", "type": "not_found"}}, status=404)

    def _answer(self, body: dict[str, Any], status: int = 200) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # the base class names it so
        """Say nothing: an engine's requests quote memories."""


@contextlib.contextmanager
def openai_stub(port: int = 0) -> Iterator[str]:
    """Serve until the block ends, in a thread, and yield the base URL."""
    with ThreadingHTTPServer(("127.0.0.1", port), _Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Answer like OpenAI's API, without a model.")
    parser.add_argument("--port", type=int, default=9911)
    with openai_stub(parser.parse_args().port) as url:
        print(url, flush=True)
        until_told()
