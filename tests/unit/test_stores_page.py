"""The page of stores is what the results say, and nothing that was tried is left out or prettied up."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def maker() -> Any:
    """Load the script that makes the page; it is no part of the package."""
    spec = importlib.util.spec_from_file_location("make_stores", DOCS / "make_stores.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def engine(**other: Any) -> dict[str, Any]:
    """Return the results of one engine."""
    row = {
        "title": "Store 1.0",
        "adapter": "pgvector",
        "kind": "server",
        "ran": True,
        "why": "",
        "at": "2026-11-30",
        "with": "custody-sync 1, Python 3, 2 cores",
        "versions": {"client": "1.2"},
        "crowd": 301,
        "bulk": 130,
        "many": 1234,
        "forgets_as": "verified",
        "capabilities": {"find": {"level": "full", "reason": ""}},
        "limits": {"text_chars": 8000, "text_bytes": None},
        "rules": {"C-01": {"verdict": "passed", "reason": ""}},
        "runs": {"test_a_sweep": {"verdict": "passed", "reason": ""}},
        "notes": ["Backups keep it."],
        "latency": {"put": {"p50": 1.0, "p95": 2.5, "calls": 20}},
    }
    return row | other


def lines_about(page: str, word: str) -> list[str]:
    """Return the lines of a page that hold a word."""
    return [line for line in page.splitlines() if word in line]


def test_the_page_is_what_the_results_make(maker: Any) -> None:
    """The page in the tree is the one that the script makes from the results in the tree."""
    assert maker.PAGE.read_text() == maker.page(json.loads(maker.RESULTS.read_text()))


def test_a_broken_rule_is_shown_as_broken(maker: Any) -> None:
    """A rule that failed stands in its cell, in the counts and with its reason."""
    row = engine(rules={"C-01": {"verdict": "failed", "reason": "it lost one"}})
    page = maker.page({"rules": {"C-01": "Keeps all."}, "engines": {"one": row}})
    assert any("✗" in line for line in lines_about(page, "Keeps all."))
    assert "| 0 | 0 | **1** |" in page
    assert "1. it lost one" in page


def test_an_engine_that_did_not_run_is_named_with_why(maker: Any) -> None:
    """An engine without results has no column, and a sentence instead."""
    absent = {
        "title": "Other 2",
        "adapter": "letta",
        "kind": "server",
        "ran": False,
        "why": "no wheel",
        "at": "x",
    }
    page = maker.page({"rules": {"C-01": "Keeps all."}, "engines": {"one": engine(), "two": absent}})
    assert lines_about(page, "Other 2") == ["**Not tried: Other 2** (x): no wheel"]


def test_what_is_partial_says_why(maker: Any) -> None:
    """A capability that is not full has a number, and the number a reason."""
    row = engine(capabilities={"find": {"level": "partial", "reason": "only its own"}})
    page = maker.page({"rules": {}, "engines": {"one": row}})
    assert lines_about(page, "`find`") == ["| `find` | partial (1) |"]
    assert "1. only its own" in page


def test_a_stand_in_is_marked(maker: Any) -> None:
    """No reader can take an imitation for the vendor's service, and it comes after what is real."""
    rows = {"one": engine(title="Hosted", kind="stand-in"), "two": engine(title="Real")}
    page = maker.page({"rules": {}, "engines": rows})
    assert "**stand-in**" in lines_about(page, "| B | Hosted (stand-in) | [pgvector]")[0]
    assert all("Hosted (stand-in)" in line for line in lines_about(page, "Hosted"))
    assert lines_about(page, "| A | Real | [pgvector]")


def test_a_stand_in_has_no_latency(maker: Any) -> None:
    """How fast an imitation answers says nothing of anybody's service."""
    rows = {"one": engine(title="Hosted", kind="stand-in"), "two": engine(title="Real")}
    page = maker.page({"rules": {}, "engines": rows})
    latency = page.partition("## Latency")[2].partition("## Limits")[0]
    assert "| A | Real | 1 / 2.5 |" in latency
    assert "Hosted" not in latency


def test_a_forget_that_is_not_verified_is_told(maker: Any) -> None:
    """Where a service keeps something of a forgotten fact, the row says how the forget ends."""
    row = engine(forgets_as="unverified")
    page = maker.page({"rules": {}, "engines": {"one": row}})
    assert any("holds, the forget ends as `unverified`" in line for line in lines_about(page, "Store 1.0"))


def test_a_second_sweep_is_told(maker: Any) -> None:
    """Where one sweep did not prove everything, the row says that a second one was needed."""
    page = maker.page({"rules": {}, "engines": {"one": engine(sweeps=2)}})
    assert any("holds, after a second sweep" in line for line in lines_about(page, "Store 1.0"))


def test_a_rule_that_was_not_run_is_blank(maker: Any) -> None:
    """A rule that came after the run is neither kept nor broken."""
    page = maker.page({"rules": {"C-99": "New."}, "engines": {"one": engine()}})
    assert lines_about(page, "C-99") == ["| C-99 | New. |  |"]


def test_limits_and_leftovers_are_told(maker: Any) -> None:
    """The largest text and what a forget leaves stand on the page."""
    page = maker.page({"rules": {}, "engines": {"one": engine()}})
    assert "| A | Store 1.0 | 8,000 characters |" in page
    assert "  * Backups keep it." in page
