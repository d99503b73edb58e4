"""L7 as others measure it: agent-memory-integrity edits the ledger's files and asks whether that is noticed.

The package's exit code 0 is not nine passes: a check that it could not run counts as no failure there. So
its report is read, and what it could not evaluate is a failure here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PACKAGE = "agent-memory-integrity==0.6.3"
VARIABLE = "CUSTODY_SYNC_INTEGRITY_PYTHON"
ADAPTERS = [
    f"{kept}{storage}Adapter" for kept in ("", "Witnessed") for storage in ("Sqlite", "Jsonl", "Postgres")
]
NINE = {f"T{number}" for number in range(1, 10)}


@dataclass(frozen=True)
class Environment:
    """An interpreter, and the folder with what it would not find by itself."""

    python: str
    folder: str = ""


@pytest.fixture(scope="module")
def measuring(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Environment:
    """Return an environment with the package and this library in it.

    One is made of two packages beside those of this interpreter, unless the variable names one that has both.
    """
    if (named := os.environ.get(VARIABLE)) is not None:
        return Environment(named)
    folder = tmp_path_factory.mktemp("measuring")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--retries", "0", "--timeout", "10"]
    install = [*pip, "--no-deps", "--target", str(folder)]
    environ: dict[str, str] = request.getfixturevalue("outer_environ")
    had = subprocess.run([*install, PACKAGE], capture_output=True, text=True, check=False, env=environ)
    if had.returncode != 0:
        pytest.skip(f"{PACKAGE} cannot be installed here, and {VARIABLE} names no environment that has it")
    subprocess.run([*install, str(request.getfixturevalue("wheel"))], check=True)
    return Environment(sys.executable, str(folder))


def measure(where: Environment, adapter: str, folder: Path, **more: str) -> list[dict[str, Any]]:
    """Run the nine checks and return the report's lines; `more` are environment variables."""
    report = folder / "report.json"
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("COV", "PYTHON"))}
    paths = filter(None, [where.folder, str(Path(__file__).parent)])
    environ |= {"PYTHONPATH": os.pathsep.join(paths), "CUSTODY_SYNC_WITNESS": str(folder / "witness")}
    environ |= more
    command = [
        where.python,
        "-m",
        "agmi.check",
        "--adapter",
        f"integrity_adapter:{adapter}",
        "--json",
        report,
    ]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert report.exists(), done.stderr
    edits: list[dict[str, Any]] = json.loads(report.read_text())["edits"]
    return edits


@pytest.mark.timeout(300)
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_l7_all_nine_edits_behind_the_ledgers_back_are_noticed(
    measuring: Environment, tmp_path: Path, adapter: str, request: pytest.FixtureRequest
) -> None:
    """Tampered, cut, thinned, reordered, forged, replayed, relabelled or put back whole: never accepted."""
    server = request.getfixturevalue("postgres_uri") if "Postgres" in adapter else ""
    edits = measure(measuring, adapter, tmp_path, CUSTODY_SYNC_INTEGRITY_POSTGRES=server)
    assert {edit["edit"].split()[0] for edit in edits} == NINE
    said = {edit["edit"]: (edit["verdict"], edit["detail"]) for edit in edits}
    assert {edit["verdict"] for edit in edits} <= {"REJECTED", "REPORTED"}, said
