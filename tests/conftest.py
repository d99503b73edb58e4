"""What every ring shares: each test carries its folder's name as a marker; one hypothesis profile."""

from __future__ import annotations

import itertools
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = [
    "fix_cli",
    "fix_cognee",
    "fix_custody",
    "fix_langchain",
    "fix_langgraph",
    "fix_ledger",
    "fix_cut",
    "fix_arenas",
    "fix_mem0",
    "fix_mem0_face",
    "fix_package",
    "fix_pgvector",
    "fix_postgres",
    "fix_residue",
    "fix_rules",
    "fix_wrap",
    "fix_zep",
]

TESTS = Path(__file__).parent
MEMORY, ROOM = Path("/dev/shm"), 3 << 30
RINGS = ("acceptance", "faults", "integration", "contract", "unit")
"""The ring whose tests take longest comes first: at the end one of them would leave other processors idle."""
_COUNT = itertools.count()

# No deadline: a busy machine must not turn a right answer into a failure.
settings.register_profile(
    "custody", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("custody")

# A run that was started in the background ignores Ctrl-C, and so would every process that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure() -> None:
    """Keep the files of tests in memory where there is room and programs may run: no power is cut on them.

    Most of their time they would wait for a disk. Whoever names a folder by TMPDIR has them there.
    """
    if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK):
        there = os.statvfs(MEMORY)
        if there.f_bavail * there.f_frsize > ROOM and not there.f_flag & os.ST_NOEXEC:
            os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


@pytest.fixture(scope="session", autouse=True)
def _witnesses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep the witnesses of test ledgers out of the user's state folder."""
    folder = tmp_path_factory.mktemp("witnesses")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUSTODY_SYNC_WITNESS", str(folder))
        yield folder


@pytest.fixture(scope="session", autouse=True)
def outer_environ(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Trust nobody's certificate, and return the environment with those that are trusted otherwise.

    No test speaks TLS, and for a client to read all certificates takes longer than most tests.
    """
    outer = dict(os.environ)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SSL_CERT_FILE", raising=False)
        patch.setenv("SSL_CERT_DIR", str(tmp_path_factory.mktemp("certificates")))
        yield outer


@pytest.fixture(autouse=True)
def _witness(_witnesses: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test witnesses of its own: ids of test ledgers are the same in every test."""
    monkeypatch.setenv("CUSTODY_SYNC_WITNESS", str(_witnesses / str(next(_COUNT))))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test with its ring, so that `-m faults` works, and let every worker begin with the long ones.

    Within a ring the order is that of chance. Workers are given equal parts in order, so the files of each
    ring are dealt out among the parts.
    """
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        item.add_marker(ring_of(item.path))
        files.setdefault(item.path, []).append(item)
    dealt = sorted(files, key=lambda path: _rank(ring_of(path)))
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    items[:] = [item for part in range(workers) for path in dealt[part::workers] for item in files[path]]


def ring_of(path: Path) -> str:
    """Return the folder that a test file is in."""
    return path.relative_to(TESTS).parts[0]


def _rank(ring: str) -> int:
    return RINGS.index(ring) if ring in RINGS else len(RINGS)
