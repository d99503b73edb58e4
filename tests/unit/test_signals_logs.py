"""Log lines: one JSON object a line, sparing about progress, silent until somebody asks."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from custody_sync.errors import InvalidInput, StoreUnavailable
from custody_sync.signals.logs import EVERY, JsonLine, Sparing, counts_of, fields_of, json_lines, say

LOGGER = logging.getLogger("custody_sync.test")


def record(event: str, created: float, **fields: Any) -> logging.LogRecord:
    """Make a record of a moment."""
    made = logging.LogRecord("custody_sync.test", logging.INFO, "", 0, event, None, None)
    made.created = created
    made.fields = fields
    return made


def test_a_line_is_one_object_with_its_fields() -> None:
    """Time in UTC, level, logger and event stand in every line; a field that is None is left out."""
    stream = io.StringIO()
    with json_lines(stream):
        say(LOGGER, "store", store="a\n\u2028b", scanned=3, outcome=None)
    (line,) = stream.getvalue().splitlines()
    read = json.loads(line)
    assert read.pop("time").endswith("Z")
    assert read == {
        "level": "info",
        "logger": "custody_sync.test",
        "event": "store",
        "store": "a\n\u2028b",
        "scanned": 3,
    }


def test_progress_is_told_every_few_seconds() -> None:
    """Of one kind of work a line is written at once, and the next when some seconds are over."""
    sparing = Sparing()
    told = [
        (0.0, "a"),
        (1.0, "a"),
        (1.0, "b"),
        (EVERY - 0.1, "a"),
        (EVERY, "a"),
        (EVERY + 1, "a"),
        (EVERY + 1, "b"),
    ]
    passed = [(at, step) for at, step in told if sparing.filter(record("progress", 1e9 + at, step=step))]
    assert passed == [(0.0, "a"), (1.0, "b"), (EVERY, "a"), (EVERY + 1, "b")]
    assert all(sparing.filter(record("store", 1e9)) for _ in range(3))


def test_others_are_quoted_nowhere() -> None:
    """A record of another package, or one of a name like ours, shows neither message, arguments nor stack."""
    for name in ("vendor", "custody_syncs", "root"):
        try:
            raise ValueError("needle")
        except ValueError:
            other = logging.LogRecord(name, logging.ERROR, "", 0, "needle %s", ("needle",), sys.exc_info())
        assert set(json.loads(JsonLine().format(other))) == {"time", "level", "logger"}
        assert "needle" not in JsonLine().format(other)


def test_a_warning_is_quoted_nowhere_either() -> None:
    """What Python would print of a warning is a line as well."""
    stream = io.StringIO()
    with json_lines(stream), warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("needle", stacklevel=1)
        logging.captureWarnings(False)
    assert [json.loads(line)["logger"] for line in stream.getvalue().splitlines()] == ["py.warnings"]
    assert "needle" not in stream.getvalue()


def test_an_error_is_told_by_what_quotes_nothing() -> None:
    """Of an error the store, the operation and the cause are told; a problem that quotes is not."""
    down = StoreUnavailable(store="notes", operation="put", cause="ReadTimeout")
    assert fields_of(down) == {
        "error": "store_unavailable",
        "store": "notes",
        "operation": "put",
        "cause": "ReadTimeout",
    }
    assert fields_of(InvalidInput(field="space", problem="'needle' is none")) == {
        "error": "invalid_input",
        "field": "space",
    }
    assert fields_of(InvalidInput(field="the needle", problem="is none")) == {"error": "invalid_input"}


@pytest.mark.parametrize("field", ["stores", "--metrics-file", "max_removals", "plan"])
def test_what_quotes_no_memory_is_told_in_words(field: str) -> None:
    """Of an argument that only says how to work the log has the sentence."""
    told = fields_of(InvalidInput(field=field, problem="is wrong"))
    assert told == {"error": "invalid_input", "field": field, "problem": "is wrong"}


@pytest.mark.parametrize(
    ("document", "counts"),
    [
        ({}, {}),
        ({"removals": "odd", "scanned": None}, {}),
        ({"scanned": {"a": 2}, "repaired": []}, {"a": {"scanned": 2}}),
        (
            {"found": {"a": {"missing": 2}}, "expected": {"a": 9, "b": 0}, "dry_run": True},
            {"a": {"found": {"missing": 2}, "expected": 9}, "b": {"expected": 0}},
        ),
        ({"store": "a", "adopted": 3, "complete": True, "refused": {"x": 1}}, {"a": {"adopted": 3}}),
        (
            {
                "removals": [{"store": "a", "outcome": "verified"}] * 2
                + [{"store": "b", "outcome": "failed"}],
                "repaired": [{"store": "a", "kind": "orphan", "outcome": "verified"}],
                "restored": [{"store": "b"}, {}],
            },
            {
                "a": {"repaired": {"orphan verified": 1}, "removals": {"verified": 2}},
                "b": {"removals": {"failed": 1}, "restored": {"all": 1}},
            },
        ),
    ],
)
def test_a_result_is_counted_by_store(document: dict[str, Any], counts: dict[str, Any]) -> None:
    """What became of how many entries is told for each store; which ones is not."""
    assert counts_of(document) == counts


def test_a_library_says_nothing_by_itself(tmp_path: Path) -> None:
    """Without a log that was asked for, even an error of ours goes nowhere, and the root is left alone."""
    code = (
        "import logging; from custody_sync.signals.logs import LOGGER;"
        "LOGGER.error('x'); print(logging.getLogger().handlers, LOGGER.level)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert (done.stdout, done.stderr) == ("[] 0\n", "")
