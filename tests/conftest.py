"""What every ring shares: each test carries its folder's name as a marker; one hypothesis profile."""

from __future__ import annotations

import itertools
import os
import signal
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
_COUNT = itertools.count()

# No deadline: a busy machine must not turn a right answer into a failure.
settings.register_profile(
    "custody", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("custody")

# A run that was started in the background ignores Ctrl-C, and so would every process that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its ring, so that `-m faults` and `-m 'not integration'` work."""
    for item in items:
        ring = item.path.relative_to(TESTS).parts[0]
        item.add_marker(ring)
