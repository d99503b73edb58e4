"""The page that maps the failure table to its tests names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "failure-table.md"
NAMED = sorted(set(re.findall(r"`([a-z_/]+\.py)::(test_\w+)`", PAGE.read_text("utf-8"))))


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_named_test_exists(path: str, name: str) -> None:
    """Each test that the page names is defined in the file it names."""
    assert re.search(rf"^(async )?def {name}\(", (TESTS / path).read_text("utf-8"), re.MULTILINE)


def test_every_row_names_a_test() -> None:
    """No row of the tables is without a test."""
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if re.match(r"\| (?!step|rule|-)", line)]
    assert len(rows) > 40
    assert [row for row in rows if "::test_" not in row] == []
