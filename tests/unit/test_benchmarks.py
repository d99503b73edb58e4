"""Each benchmark still runs and ends with its one JSON object; figures of so short a run are not judged."""

from __future__ import annotations

import gc
import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from fix_sizes import LAB

from custody_sync.registry import known_stores

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
AMENDMENTS = Path(__file__).parents[3] / "shared" / "data" / "amendments"


def ran(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a benchmark as `make bench` does."""
    command = [sys.executable, str(BENCHMARKS / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def concluded(script: str) -> dict[str, Any]:
    """Run a benchmark quickly and read its last line."""
    done = ran(script, "--quick")
    assert done.returncode == 0, done.stdout + done.stderr
    last: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return last


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Import a benchmark into this process, which spares the imports of one of its own."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module


@pytest.fixture
def beside(
    here: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., dict[str, Any]]:
    """Run a benchmark quickly in this process; starting a server costs more than all that it asks."""

    def run(script: str, server: str, *, started_by: str = "") -> dict[str, Any]:
        monkeypatch.setattr(here(started_by or script), "EmbeddedPostgres", lambda **_: nullcontext(server))
        monkeypatch.setattr(sys, "argv", [f"{script}.py", "--quick"])
        assert here(script).main() == 0
        gc.unfreeze()  # a benchmark may have frozen what is here, which it need not think of when it is alone
        found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
        return found

    return run


def check_shape(found: dict[str, Any], name: str) -> None:
    """Hold the closing object to its shape: every bound is of a figure that was measured."""
    assert set(found) == {"name", "figures", "bound", "holds"}
    assert found["name"] == name
    assert isinstance(found["holds"], bool)
    for figure, limit in found["bound"].items():
        assert isinstance(found["figures"][figure], int | float)
        assert limit.keys() <= {"most", "least"}
        assert limit


def test_write_overhead_concludes() -> None:
    """The overhead of a write is measured against its floors in one run."""
    found = concluded("write_overhead.py")
    check_shape(found, "write_overhead")
    assert set(found["bound"]) == {"write_ratio", "append_ratio", "instant_ratio"}


def test_reconcile_concludes(beside: Callable[..., dict[str, Any]], postgres_uri: str) -> None:
    """A reconciliation is measured against the same work by hand, on both storages, and its memory is."""
    found = beside("reconcile", postgres_uri)
    check_shape(found, "reconcile")
    assert {"sweep_ratio", "reconcile_ratio", "memory_mb"} <= set(found["bound"])


def test_sweep_concludes(beside: Callable[..., dict[str, Any]], database_uri: str) -> None:
    """A sweep is measured against the same statements issued by hand, and its memory is."""
    found = beside("sweep", database_uri)
    check_shape(found, "sweep")
    assert set(found["bound"]) == {"sweep_ratio", "memory_mb"}


def test_verify_concludes(beside: Callable[..., dict[str, Any]], database_uri: str) -> None:
    """Verifying is measured against the same questions in bare SQL, and its memory is."""
    found = beside("verify", database_uri)
    check_shape(found, "verify")
    assert set(found["bound"]) == {"verify_ratio", "megabytes"}


@pytest.mark.skipif(not LAB, reason="takes as long as all other benchmarks do: set CUSTODY_SYNC_LAB")
def test_ledger_concludes(beside: Callable[..., dict[str, Any]], postgres_uri: str) -> None:
    """Every storage is asked everything that has a bound, beside the same statements by hand."""
    found = beside("ledger", postgres_uri, started_by="_ledger_postgres")
    check_shape(found, "ledger")
    asked = ("open", "subject now", "subject past", "history", "spaces", "space page", "page", "page past")
    changed = ("known", "append 1", "append 64", "forget", "erase")
    for storage in ("sqlite", "jsonl", "postgres"):
        assert {f"{storage} {what}" for what in (*asked, *changed)} <= found["figures"].keys()
    assert {"postgres storage, of claims", "postgres ledger, of claims"} <= found["bound"].keys()
    assert "sqlite memory, growth in MB" in found["bound"]


def test_recall_latency_concludes(beside: Callable[..., dict[str, Any]], postgres_uri: str) -> None:
    """A guarded recall is measured against the bare search and the ledger's statement, on both storages."""
    found = beside("recall_latency", postgres_uri)
    check_shape(found, "recall_latency")
    assert set(found["bound"]) == {"of_allowed_p50", "of_allowed_p95"}
    for storage in ("sqlite", "postgres"):
        for side in ("bare", "guarded", "ledger"):
            assert found["figures"][f"20_{storage}_{side}_p95_ms"] > 0


@pytest.mark.skipif(
    not AMENDMENTS.is_dir(), reason="the amendments are no part of this project and are not beside it"
)
def test_recall_quality_concludes(here: Callable[[str], Any], capsys: pytest.CaptureFixture[str]) -> None:
    """Alone a store serves what was superseded; guarded it serves none of it, and finds no less."""
    assert here("recall_quality").main(["--quick"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    check_shape(found, "recall_quality")
    figures = found["figures"]
    assert found["holds"]
    for k in (1, 3, 10):
        assert figures[f"memory_k{k}_alone_stale_of_anybody"] > 0
        assert figures[f"memory_k{k}_guarded_stale_of_anybody"] == 0
        assert figures[f"memory_k{k}_guarded_nothing_found"] <= figures[f"memory_k{k}_alone_nothing_found"]


def test_recall_quality_without_its_data_says_so_and_holds_nothing(
    here: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the data is not there nothing was measured, which is one sentence, no failure and no pass."""
    recall_quality = here("recall_quality")
    monkeypatch.setattr(recall_quality, "DATA", Path("nowhere"))
    assert recall_quality.main([]) == 0
    said, last = capsys.readouterr().out.splitlines()
    assert said.endswith("so nothing was measured.")
    assert json.loads(last)["holds"] is False


def test_imports_concludes() -> None:
    """The import of every adapter is measured against a bare interpreter, each with a bound."""
    found = concluded("imports.py")
    check_shape(found, "imports")
    assert set(found["bound"]) == set(known_stores)


def test_the_log_that_ledgers_are_filled_with_is_mostly_past() -> None:
    """A page of what is believed has to be found behind all that is not any more."""
    code = (
        "from _ledger_log import Log\n"
        "log = Log(3000)\n"
        "pages = [len(page) for page in log.pages()]\n"
        "staying = log.staying(3000)\n"
        "print(sum(pages), bool(staying), all(s.arrived > 1000 for s in staying), bool(log.orphans))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=BENCHMARKS, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["3000", "True", "True", "True"]


def test_a_bound_that_does_not_hold_fails_the_run() -> None:
    """A full run's exit code follows its bounds; a quick one's figures mean nothing and decide nothing."""
    code = (
        "from _bench import conclude\n"
        "missed = conclude('n', {'ratio': 2.0}, {'ratio': {'most': 1.5}}, enforced=True)\n"
        "quick = conclude('n', {'ratio': 2.0}, {'ratio': {'most': 1.5}}, enforced=False)\n"
        "held = conclude('n', {'ratio': 2.0}, {'ratio': {'least': 1.5, 'most': 3}}, enforced=True)\n"
        "absent = conclude('n', {'ratio': None}, {'ratio': {'most': 1.5}}, enforced=True)\n"
        "print(missed, quick, held, absent)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=BENCHMARKS, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "1 0 0 1"
