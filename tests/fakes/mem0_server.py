"""The stand-in of Mem0's service on loopback, for a client that does not use httpx for everything."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from fakes.mem0_api import Mem0Api
from fakes.mem0_rules import Dropped


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    api: Mem0Api

    def _serve(self) -> None:
        content = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            reply = self.api.handle(self.command, self.path, content, dict(self.headers))
        except Dropped:
            self.close_connection = True
            return
        self.send_response(reply.status)
        if reply.status != 204:
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(reply.content)))
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.content)

    do_GET = do_POST = do_PUT = do_DELETE = _serve  # the server calls them by these names

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: a memory may stand in what was asked."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that went away."""


@contextmanager
def serving(api: Mem0Api) -> Iterator[str]:
    """Serve the API on loopback, and yield its address."""
    handler = type("Handler", (_Handler,), {"api": api})
    with _Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
