"""What an engine would run, run without one: the installed wheel, the example's stores, a real Postgres."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from fix_docker import DOCKER, command_lines
from fix_package import run
from prometheus_client.parser import text_string_to_metric_families

METRICS = "/metrics/custody-sync.prom"


@pytest.fixture(scope="session")
def program(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel as the image does, beside the dependencies that are there already."""
    venv = tmp_path_factory.mktemp("image") / "custody-sync"
    run(sys.executable, "-m", "venv", "--without-pip", venv, cwd=venv.parent)
    python = venv / "bin/python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index",
        "--no-compile", "--disable-pip-version-check", wheel, cwd=venv.parent)  # fmt: skip
    site = run(
        python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=venv.parent
    ).strip()
    # Of the environment of the tests only what lies there: its links to the checkout are not followed.
    (Path(site) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    where = run(python, "-c", "import custody_sync; print(custody_sync.__file__)", cwd=venv.parent)
    assert where.startswith(site)
    return venv / "bin/custody-sync"


class Engine:
    """Runs the image's entry with a job's arguments and environment, its volumes in a folder."""

    def __init__(self, program: Path, folder: Path, uri: str) -> None:
        self._program, self.volume = program, folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}
        self._environ = {
            **kept,
            "CUSTODY_SYNC_CONFIG": str(DOCKER / "example/custody.toml"),
            "CUSTODY_SYNC_LEDGER": uri,
            "CUSTODY_SYNC_WITNESS": str(folder / "witness"),
            "MEMORIES_URL": uri,
        }

    def __call__(self, *args: str, status: int = 0) -> str:
        """Run the entry, hold it to its status and return what it printed."""
        command = [self._program, *args]
        done = subprocess.run(
            command,
            cwd=self.volume,
            env=self._environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == status, f"{args}: {done.stderr}{done.stdout}"
        return done.stdout


def distinct() -> list[list[str]]:
    """Return the command lines of docker/, each once, wherever its metrics go."""
    found: dict[str, list[str]] = {}
    for args in command_lines().values():
        moved = [METRICS if arg.endswith(".prom") else arg for arg in args]
        found[" ".join(moved)] = moved
    return sorted(found.values())


def test_what_the_image_and_the_jobs_run(program: Path, tmp_path: Path, database_uri: str) -> None:
    """CMD, init, a write and an erasure, then the command line of every job, end with 0 and leave metrics."""
    engine = Engine(program, tmp_path, database_uri)
    assert "Usage: custody-sync" in engine("--help")
    engine("init")
    fact_id = engine("write", "--space", "org", "--value", "tea at four", "--json").partition('"fact_id": "')[
        2
    ]
    engine("forget", fact_id.partition('"')[0], "--reason", "asked", "--yes")
    path = tmp_path / "custody-sync.prom"
    jobs = distinct()
    assert {args[0] for args in jobs} == {"repair", "verify"}
    for args in jobs:
        engine(*(str(path) if arg == METRICS else arg for arg in args))
        families = {f.name: f for f in text_string_to_metric_families(path.read_text())}
        assert [s.value for s in families["custody_sync_pending_removals"].samples] == [0.0]
        assert families["custody_sync_store_configured"].samples[0].labels["store"] == "notes"
        path.unlink()
