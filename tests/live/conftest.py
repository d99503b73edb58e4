"""Leave the ring out unless `make live` asks for it, and write down what rules showed on engines."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from live.engine import Live
from live.record import Record

RESULTS = "CUSTODY_SYNC_LIVE"
"""Names the file that the results go to; its presence is what lets the ring run."""
HERE = Path(__file__).parent
_RECORD = pytest.StashKey[Record]()


class Unasked(pytest.Module):
    """A module of this ring in an ordinary run: named, with the reason, and not even imported."""

    def collect(self) -> list[pytest.Item]:
        """Skip it."""
        pytest.skip("needs servers that only make live installs and starts")


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Collect a module only when asked to."""
    if RESULTS in os.environ or not module_path.is_relative_to(HERE):
        return None
    return Unasked.from_parent(parent, path=module_path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give engines the time they need: a server answers in hundredths of a second, not in microseconds."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.timeout(1200))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Hand what a test of an engine showed to the record."""
    report: pytest.TestReport = yield
    kind: Any = getattr(item, "cls", None)
    if isinstance(kind, type) and issubclass(kind, Live):
        record = item.config.stash.setdefault(_RECORD, Record())
        record.take(kind, item, report, call)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the results of this run into the file, beside those of the engines that this run left out."""
    record = session.config.stash.get(_RECORD, None)
    if record is not None and RESULTS in os.environ:
        record.write(Path(os.environ[RESULTS]))
