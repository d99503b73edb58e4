"""Try every store on the engine it is really used with, and write down what was seen: this is `make live`.

    python docker/live/run.py                  everything
    python docker/live/run.py letta            one part

Any Python from 3.11 on will do; what is needed is installed below `.live/` (see places.py), which takes some
minutes and three gigabytes the first time. Every server listens on 127.0.0.1 only and ends with the run.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import places
from services import NotStarted

RING = places.ROOT / "tests" / "live"
RESULTS = places.ROOT / "docs" / "stores" / "results.json"
PAGE = places.ROOT / "docs" / "make_stores.py"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the ring: its modules, and the server that they need, if any."""

    modules: tuple[str, ...]
    server: str = ""
    title: str = ""


PARTS = {
    "libraries": Part(("langchain", "langgraph", "pgvector", "mem0")),
    "stand-ins": Part(("stand_ins",)),
    "letta": Part(("letta",), "letta", "Letta server"),
    "cognee": Part(("cognee",), "cognee", "Cognee server, one dataset"),
}


def main(names: list[str]) -> int:
    """Run the parts one after the other, write the page, and return the exit code."""
    failed = False
    for name in names or PARTS:
        part = PARTS[name]
        try:
            with _served(part.server) as told:
                failed |= _tried(part, told)
        except NotStarted as problem:
            print(f"{part.title} was not tried: {problem}", file=sys.stderr)
            _left_out(part, str(problem))
            failed |= bool(names)
    subprocess.run([sys.executable, str(PAGE)], check=True)
    print(f"written: {RESULTS.relative_to(places.ROOT)} and docs/stores.md", file=sys.stderr)
    return int(failed)


@contextlib.contextmanager
def _served(server: str) -> Iterator[dict[str, str]]:
    """Start what a part needs, and yield how its tests reach it."""
    if server == "letta":
        # Imported here: the servers' modules need the environment that this one makes.
        with importlib.import_module("letta_server").letta_server() as url:
            yield {"CUSTODY_SYNC_LIVE_LETTA": url}
    elif server == "cognee":
        with importlib.import_module("cognee_server").cognee_server() as cognee:
            yield {
                "CUSTODY_SYNC_LIVE_COGNEE": cognee.url,
                "CUSTODY_SYNC_LIVE_COGNEE_USER": cognee.user,
                "CUSTODY_SYNC_LIVE_COGNEE_PASSWORD": cognee.password,
            }
    else:
        yield {}


def _tried(part: Part, told: dict[str, str]) -> bool:
    """Run a part's tests, and return True if one failed."""
    modules = [str(RING / f"test_{module}.py") for module in part.modules]
    # In order and one at a time: the stopwatch is not to measure the neighbours.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", *modules]
    environment = dict(os.environ) | told | {"CUSTODY_SYNC_LIVE": str(RESULTS)}
    return subprocess.run(command, cwd=places.ROOT, env=environment, check=False).returncode != 0


def _left_out(part: Part, why: str) -> None:
    """Write down that an engine did not run, and why, in place of what an earlier run showed."""
    document = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"rules": {}, "engines": {}}
    document["engines"][part.server] = {
        "title": part.title,
        "adapter": part.server,
        "kind": "server",
        "ran": False,
        "why": why,
        "at": f"{datetime.now(UTC):%Y-%m-%d}",
    }
    RESULTS.write_text(json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Try every store on its real engine.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one of {', '.join(PARTS)}; all by default")
    asked = parser.parse_args().parts
    if unknown := [name for name in asked if name not in PARTS]:
        parser.error(f"no part is called {unknown[0]!r}; there are {', '.join(PARTS)}")
    client = places.client()
    if Path(sys.prefix).resolve() != client.parents[1]:
        command = [str(client), str(Path(__file__).resolve()), *asked]
        sys.exit(subprocess.run(command, check=False).returncode)
    sys.exit(main(asked))
