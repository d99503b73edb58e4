"""The Postgres of tests and demo comes up by itself and never stays behind."""

from __future__ import annotations

import importlib.util
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from custody_sync.errors import ClosedError, MissingExtra
from custody_sync.testing.postgres import EmbeddedPostgres

KILLED = """
import os, signal
from custody_sync.testing.postgres import EmbeddedPostgres
print(EmbeddedPostgres().start(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def folder_of(uri: str) -> Path:
    """Return the folder that a server's socket is in."""
    return Path(str(conninfo_to_dict(uri)["host"]))


def test_it_serves_vectors_and_takes_its_folder_along() -> None:
    """Inside the block there is a Postgres with pgvector, also after a crash, and after it no folder."""
    server = EmbeddedPostgres(durable=True)
    with server as uri:
        assert server.uri == server.start() == uri
        with psycopg.connect(uri, autocommit=True) as connection:
            connection.execute("create extension vector")
            assert connection.execute("show fsync").fetchone() == ("on",)
            assert connection.execute("show listen_addresses").fetchone() == ("",)
            connection.execute("create table kept as select 1 as number")
            server.crash()
            with pytest.raises(psycopg.OperationalError):
                connection.execute("select 1")
        server.resume()
        with psycopg.connect(uri) as connection:
            assert connection.execute("select number from kept").fetchone() == (1,)
    assert not folder_of(uri).exists()
    with pytest.raises(ClosedError):
        _ = server.uri
    with pytest.raises(ClosedError):
        server.crash()
    server.stop()


def test_a_killed_process_leaves_no_server_behind() -> None:
    """When the process that started it is killed, the server stops and its folder goes."""
    ended = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL
    folder = folder_of(ended.stdout.strip())
    while folder.exists():  # the suite's own time limit ends a wait that is in vain
        time.sleep(0.05)


def test_a_long_temp_folder_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a socket's path would be too long for the system, the socket lies elsewhere."""
    # Not pytest's own folder: the server's user could not enter it.
    with tempfile.TemporaryDirectory(prefix="d" * 90) as deep:
        Path(deep).chmod(0o755)
        monkeypatch.setattr("tempfile.tempdir", deep)
        with EmbeddedPostgres() as uri:
            assert not folder_of(uri).is_relative_to(deep)
            with psycopg.connect(uri) as connection:
                assert connection.execute("select 1").fetchone() == (1,)
        assert list(Path(deep).iterdir()) == []


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing package is one sentence with the pip command."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"custody-sync\[demo\]"):
        EmbeddedPostgres().start()


def test_a_port_is_served_besides_the_socket() -> None:
    """Asked for a port, the server answers on 127.0.0.1 as well, and on no other address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with EmbeddedPostgres(port=port) as uri:
        for where in (uri, f"postgresql://postgres@127.0.0.1:{port}/postgres"):
            with psycopg.connect(where) as connection:
                assert connection.execute("show listen_addresses").fetchone() == ("127.0.0.1",)
