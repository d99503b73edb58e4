"""What every ring shares: each test carries its folder's name as a marker; one hypothesis profile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = [
    "fix_cli",
    "fix_custody",
    "fix_ledger",
    "fix_package",
    "fix_postgres",
    "fix_residue",
    "fix_rules",
]

TESTS = Path(__file__).parent

# No deadline: a busy machine must not turn a right answer into a failure.
settings.register_profile(
    "custody", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("custody")


@pytest.fixture(scope="session", autouse=True)
def _witnesses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the witnesses of test ledgers out of the user's state folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUSTODY_SYNC_WITNESS", str(tmp_path_factory.mktemp("witnesses")))
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its ring, so that `-m faults` and `-m 'not integration'` work."""
    for item in items:
        ring = item.path.relative_to(TESTS).parts[0]
        item.add_marker(ring)
