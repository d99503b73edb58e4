"""Where everything that is installed and started for the live engines lies, and how it gets there.

All of it is below one folder, `.live/` in the project unless `CUSTODY_SYNC_LIVE_DIR` names another, so that
removing the folder removes all of it.
"""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

CLIENT = ("--editable", f"{ROOT}[all,test]", "chromadb>=1", "langchain-chroma>=1", "langchain-qdrant>=1")
"""What talks to the engines: the project with every extra, and the one vector store that is no extra."""

REQUIREMENTS: dict[str, tuple[str, ...]] = {
    # The last release that is the REST server, with what was current when it was. It needs Postgres even
    # though one of its extras is called sqlite, and does not start with later dependencies.
    "letta": ("letta[server,sqlite]==0.16.8", "asyncpg", "pg8000", "pgvector", "psycopg2-binary"),
    "cognee": ("cognee==1.6.5",),
}
AS_OF = {"letta": "2026-05-31T00:00:00Z", "cognee": "2026-11-28T00:00:00Z"}
"""Nothing uploaded later is installed, so that an engine of its time meets dependencies of its time."""


def base() -> Path:
    """Return the folder that holds it all, made if need be."""
    folder = Path(os.environ.get("CUSTODY_SYNC_LIVE_DIR") or ROOT / ".live").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def client() -> Path:
    """Return the Python that runs the tests, installed again whenever the project's requirements change."""
    stamp = (ROOT / "pyproject.toml").read_text()
    return _venv("client", [*CLIENT], stamp)


def engine(name: str) -> Path:
    """Return the Python of an engine's own environment, resolved as of the engine's time."""
    wanted, as_of = REQUIREMENTS[name], AS_OF[name]
    asked, pins = base() / f"{name}.in", base() / f"{name}.txt"
    stamp = "\n".join([*wanted, as_of, sys.version])
    if _stamp(name) != _digest(stamp):
        asked.write_text("\n".join(wanted) + "\n")
        # In two steps: the cut-off belongs to the resolution, and the file says afterwards what ran.
        _uv("pip", "compile", "--python", sys.executable, "--exclude-newer", as_of, asked, "-o", pins)
    return _venv(name, ["-r", str(pins)], stamp)


def state(name: str) -> Path:
    """Return an empty folder for what an engine keeps while it runs."""
    folder = base() / "state" / f"{name}-{os.getpid()}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def log(name: str) -> Path:
    """Return the file that an engine's output goes to."""
    folder = base() / "logs"
    folder.mkdir(exist_ok=True)
    return folder / f"{name}.log"


def tokenizers(python: Path) -> dict[str, str]:
    """Return where an engine finds the token tables that its libraries would fetch: in one of them."""
    found = [*python.parents[1].glob("lib/python3*/site-packages/litellm/litellm_core_utils/tokenizers")]
    return {"TIKTOKEN_CACHE_DIR": str(found[0])} if found else {}


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _venv(name: str, arguments: list[str], stamp: str) -> Path:
    folder = base() / name
    python = folder / "bin" / "python"
    if _stamp(name) != _digest(stamp):
        if folder.exists() and any(folder.iterdir()) and not (folder / "pyvenv.cfg").exists():
            raise SystemExit(
                f"{folder} is no environment and was not touched: set CUSTODY_SYNC_LIVE_DIR elsewhere"
            )
        print(f"installing {name} into {folder}", file=sys.stderr)
        _uv("venv", "--quiet", "--clear", "--python", sys.executable, folder)
        _uv("pip", "install", "--quiet", "--python", python, *arguments)
        (folder / "installed").write_text(_digest(stamp))
    return python


def _stamp(name: str) -> str | None:
    """Return what an environment was finished with; None where it was not."""
    path = base() / name / "installed"
    return path.read_text() if path.exists() else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _uv(*arguments: object) -> None:
    """Run uv, which is fetched into an environment of its own: pip fails on the tree of one engine."""
    folder = base() / "tools"
    uv = folder / "bin" / "uv"
    if not uv.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "uv"]
        subprocess.run(pip, check=True)
    environment = {"UV_CACHE_DIR": str(base() / "cache")} | dict(os.environ)
    done = subprocess.run(
        [str(uv), *map(str, arguments)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"uv {arguments[0]} failed: {done.stderr.strip()[-2000:]}")
