"""A line to a real Postgres that breaks on request: it reads the protocol and cuts where it hurts.

See https://www.postgresql.org/docs/current/protocol-message-formats.html.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit, urlunsplit

from custody_sync.testing.contract_case import Trouble

_SOCKET = ".s.PGSQL.5432"
_WRITES = (b"INSERT", b"UPDATE", b"DELETE", b"COPY")
_ASKS = b"QPB"
_TIMED_OUT = b"SERROR\0VERROR\0C57014\0Mcanceling statement due to statement timeout\0\0"


class CutError(Exception):
    """The line is to end here."""


@dataclass(slots=True)
class Line:
    """What the lines of one test do wrong, all of them together."""

    left: dict[Trouble, float] = field(default_factory=dict)

    def make(self, trouble: Trouble, times: float) -> None:
        """Let something go wrong from now on."""
        self.left[trouble] = times

    def take(self, trouble: Trouble) -> bool:
        """Return True if it is to go wrong now, and count it."""
        if self.left.get(trouble, 0) <= 0:
            return False
        self.left[trouble] -= 1
        return True


class Connection:
    """One client's line: both directions, a message at a time."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._status = b"I"
        self._answered: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(self, client: tuple[asyncio.StreamReader, asyncio.StreamWriter], target: str) -> None:
        """Carry messages until one side ends or the line is cut."""
        server = await asyncio.open_unix_connection(target)
        ways = [
            asyncio.ensure_future(self._ask(client[0], server[1], client[1])),
            asyncio.ensure_future(self._answer(server[0], client[1])),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        for writer in (client[1], server[1]):
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _ask(
        self, client: asyncio.StreamReader, server: asyncio.StreamWriter, back: asyncio.StreamWriter
    ) -> None:
        size = await client.readexactly(4)
        server.write(size + await client.readexactly(struct.unpack(">I", size)[0] - 4))
        is_refused = False
        while True:
            kind, message = await _message(client)
            if kind in _ASKS and self._line.take(Trouble.RESET):
                raise CutError
            if kind == b"P" and b"<=>" in message and self._line.take(Trouble.SEARCH_FAILS):
                is_refused = True
            if not is_refused:
                server.write(message)
                await server.drain()
            elif kind == b"S":
                # The server knows nothing of it, so its transaction is as it was; the client's has failed.
                is_refused = False
                back.write(_made(b"E", _TIMED_OUT) + _made(b"Z", b"I" if self._status == b"I" else b"E"))
                await back.drain()

    async def _answer(self, server: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        has_written, held = False, b""
        while True:
            kind, message = await _message(server)
            if kind == b"C" and message[5:].startswith(_WRITES):
                has_written = True
            # Inside a transaction only the COMMIT decides, and a pipeline waits for answers before it.
            decides = self._status == b"I" or message[5:].startswith(b"COMMIT")
            if held or (has_written and decides and self._line.left.get(Trouble.LOST_REPLY, 0) > 0):
                held += message
                if kind != b"Z":
                    continue
                # Idle again means that it is committed.
                if message[5:] == b"I" and self._line.take(Trouble.LOST_REPLY):
                    raise CutError
                message, held = held, b""
            if kind == b"Z":
                self._status = message[-1:]
                has_written = has_written and self._status != b"I"
            client.write(message)
            await client.drain()


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    return head[:1], head + await reader.readexactly(struct.unpack(">I", head[1:])[0] - 4)


def _made(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack(">I", len(body) + 4) + body


@asynccontextmanager
async def lined(uri: str) -> AsyncIterator[tuple[str, Line]]:
    """Yield the URI of a line to a Postgres that listens on a unix socket, and what it may do wrong."""
    parts = urlsplit(uri)
    target = str(Path(parse_qs(parts.query)["host"][0]) / _SOCKET)
    line, under_way = Line(), set[asyncio.Task[None]]()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        under_way.add(task)
        task.add_done_callback(under_way.discard)
        await Connection(line).serve((reader, writer), target)

    # Not below pytest's own folders: the path of a socket may have a hundred characters.
    with tempfile.TemporaryDirectory(prefix="line-", dir="/tmp") as folder:
        listening = await asyncio.start_unix_server(connected, str(Path(folder) / _SOCKET))
        try:
            yield urlunsplit(parts._replace(query=f"host={folder}")), line
        finally:
            listening.close()
            await asyncio.gather(*under_way, return_exceptions=True)
