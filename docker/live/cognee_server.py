"""Run a real Cognee server (1.6.5) on loopback, with everything it keeps in one folder.

    python docker/live/cognee_server.py --port 8000

Log in as the user and password printed below. It needs custody-sync; everything else it fetches.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import places
from openai_stub import CHAT_MODEL, DIMENSIONS, EMBEDDING_MODEL, openai_stub
from services import installed, running, until_told

VERSION = "cognee 1.6.5"
USER = "default_user@example.com"


@dataclass(frozen=True, slots=True)
class Cognee:
    """A running server, and who may use it."""

    url: str
    user: str = USER
    password: str = field(default="", repr=False)


@contextlib.contextmanager
def cognee_server(port: int = 0) -> Iterator[Cognee]:
    """Run it until the block ends.

    Raises:
        NotStarted: it cannot be installed, or did not come up.
    """
    python = installed("cognee")
    folder, password = places.state("cognee"), secrets.token_urlsafe(12)
    try:
        with openai_stub() as models:
            where = port or places.free_port()
            url = f"http://127.0.0.1:{where}"
            command = [
                python,
                "-m",
                "uvicorn",
                "cognee.api.client:app",
                "--host",
                "127.0.0.1",
                "--port",
                where,
            ]
            with running(
                "cognee",
                command,
                health=f"{url}/health",
                environment=_environment(folder, python, models, password),
                log=places.log("cognee"),
                cwd=folder,
            ):
                yield Cognee(url, password=password)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _environment(folder: Path, python: Path, models: str, password: str) -> dict[str, str]:
    """Return what the server is told: its folders, the stub, its one user, and to call nobody else."""
    told = {"PATH": os.environ.get("PATH", ""), "HOME": str(folder)}
    for word, name in (
        ("DATA_ROOT_DIRECTORY", "data"),
        ("SYSTEM_ROOT_DIRECTORY", "system"),
        ("COGNEE_LOGS_DIR", "logs"),
    ):
        (folder / name).mkdir(exist_ok=True)
        told[word] = str(folder / name)
    told |= {
        "LLM_PROVIDER": "custom",
        "LLM_MODEL": f"openai/{CHAT_MODEL}",
        "LLM_ENDPOINT": models,
        "LLM_API_KEY": "unused",
        "EMBEDDING_PROVIDER": "openai_compatible",
        "EMBEDDING_MODEL": EMBEDDING_MODEL,
        "EMBEDDING_ENDPOINT": models,
        "EMBEDDING_API_KEY": "unused",
        "EMBEDDING_DIMENSIONS": str(DIMENSIONS),
        # Since 1.6 the first user has no password unless it is named before the first start.
        "DEFAULT_USER_PASSWORD": password,
        "FASTAPI_USERS_JWT_SECRET": secrets.token_urlsafe(32),
        "TELEMETRY_DISABLED": "1",
        "ENV": "prod",
        "HF_HUB_OFFLINE": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    return told | places.tokenizers(python)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run a Cognee server on loopback.")
    parser.add_argument("--port", type=int, default=8000)
    with cognee_server(parser.parse_args().port) as server:
        print(server.url, server.user, server.password, flush=True)
        until_told()
