"""Metrics: what Prometheus reads is what the status says, and no label is a person, a text or a fact."""

from __future__ import annotations

import re
import stat
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from custody_sync.errors import InvalidInput
from custody_sync.model import Erasure, Head
from custody_sync.results import LastReconcile, LastSweep, Retry, Status, StoreStatus
from custody_sync.signals.metrics import check_file, render, write_file

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
QUIET = Status(
    ledger_id="5f0c",
    name="sqlite:///custody.db",
    head=Head(seq=0, tx_time=None, hash="0" * 64),
    time=NOW,
    stores=(StoreStatus(store="notes", configured=True),),
    erasure=Erasure.DONE,
    last_sweep=None,
    sweeping=None,
)
ODD = 'a "b" \\n\nc'
BUSY = replace(
    QUIET,
    head=Head(seq=41, tx_time=NOW - timedelta(minutes=1), hash="0" * 64),
    stores=(
        StoreStatus(
            store="notes",
            configured=True,
            pending=7,
            by_outcome={"untried": 1, "failed": 2, "still_indexed": 4},
            oldest_pending=NOW - timedelta(hours=5),
            owed=3,
            waiting=2,
            next_waiting=NOW + timedelta(days=1),
            retry=Retry(failures=6, since=NOW - timedelta(hours=5), next_at=NOW + timedelta(minutes=9)),
        ),
        StoreStatus(store=ODD, configured=False, pending=1, by_outcome={"unverified": 1}),
    ),
    erasure=Erasure.PENDING,
    last_sweep=LastSweep(
        finished_at=NOW - timedelta(seconds=0.25),
        complete=False,
        scanned={"notes": 1000},
        orphans={"notes": 5},
        strays={ODD: 1},
        still_held=("store 'x' could not be listed",),
        removed={"notes": 4},
    ),
    sweeping="operator:nightly, process 4, run 9",
    last_reconcile=LastReconcile(
        finished_at=NOW, complete=True, missing={"notes": 0}, altered={"notes": 2, ODD: 1}
    ),
)


def read(status: Status) -> dict[str, dict[tuple[str, ...], float]]:
    """Parse the text as Prometheus's own client does: values by name, and by the labels beside the ledger."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(render(status)):
        assert family.type == "gauge"
        assert family.documentation.endswith(".")
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("ledger") == "5f0c"
            assert set(labels) <= {"store", "outcome"}
            values = found.setdefault(sample.name.removeprefix("custody_sync_"), {})
            assert tuple(labels.values()) not in values
            values[tuple(labels.values())] = sample.value
    return found


def test_every_figure_of_a_status_is_there() -> None:
    """Each number of a status and each moment of it, in seconds, is a series of its store."""
    now = NOW.timestamp()
    none = dict.fromkeys(("untried", "started", "unverified", "failed", "still_indexed"), 0.0)
    by_outcome = {
        "notes": {**none, "untried": 1, "failed": 2, "still_indexed": 4},
        ODD: {**none, "unverified": 1},
    }
    assert read(BUSY) == {
        "status_timestamp_seconds": {(): now},
        "ledger_head_seq": {(): 41},
        "ledger_head_timestamp_seconds": {(): now - 60},
        "erasure_pending": {(): 1},
        "store_configured": {("notes",): 1, (ODD,): 0},
        "pending_removals": {("notes",): 7, (ODD,): 1},
        "pending_removals_by_outcome": {
            (store, outcome): count
            for store, counts in by_outcome.items()
            for outcome, count in counts.items()
        },
        "oldest_pending_timestamp_seconds": {("notes",): now - 5 * 3600},
        "owed_placements": {("notes",): 3, (ODD,): 0},
        "waiting_placements": {("notes",): 2, (ODD,): 0},
        "next_waiting_timestamp_seconds": {("notes",): now + 86400},
        "store_failures": {("notes",): 6, (ODD,): 0},
        "store_retry_timestamp_seconds": {("notes",): now + 540},
        "sweep_running": {(): 1},
        "last_sweep_timestamp_seconds": {(): now - 0.25},
        "last_sweep_complete": {(): 0},
        "last_sweep_still_held": {(): 1},
        "last_sweep_scanned_entries": {("notes",): 1000},
        "last_sweep_orphans": {("notes",): 5},
        "last_sweep_strays": {("notes",): 0, (ODD,): 1},
        "last_sweep_removed_entries": {("notes",): 4},
        "last_reconcile_timestamp_seconds": {(): now},
        "last_reconcile_complete": {(): 1},
        "last_reconcile_missing_entries": {("notes",): 0},
        "last_reconcile_altered_entries": {("notes",): 2, (ODD,): 1},
    }


def test_a_ledger_that_was_never_swept_says_so() -> None:
    """Before the first sweep its moment is zero, so an alert about its age fires, and it is not complete."""
    found = read(QUIET)
    assert found["last_sweep_timestamp_seconds"] == {(): 0}
    assert found["last_sweep_complete"] == {(): 0}
    assert found["ledger_head_timestamp_seconds"] == {(): 0}
    assert found["pending_removals"] == {("notes",): 0}
    assert not any(name.startswith(("oldest", "next", "last_reconcile", "store_retry")) for name in found)


def test_the_page_names_every_metric_and_no_other() -> None:
    """What an alert is written for from the page is there, and what is there can be looked up."""
    page = (Path(__file__).parents[2] / "docs/operating-signals.md").read_text()
    assert set(re.findall(r"custody_sync_(\w+)", page)) == set(read(BUSY))


def test_neither_names_nor_sentences_are_in_it() -> None:
    """Who sweeps, where the ledger is and what a sweep said are for people, and may name one."""
    text = render(BUSY)
    assert not any(said in text for said in ("operator", "custody.db", "could not be listed"))


def test_a_file_is_replaced_in_one_step_and_readable_by_all(tmp_path: Path) -> None:
    """The old file is there until the new one is whole; nothing else is left in the folder."""
    path = tmp_path / "custody.prom"
    path.write_text("old")
    path.chmod(0o600)
    with open(path) as reader:
        write_file(path, render(BUSY))
        assert reader.read() == "old"
    assert path.read_text() == render(BUSY)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full when the new file is written costs neither the old one nor a stray temporary."""
    path = tmp_path / "custody.prom"
    path.write_text("old")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fchmod", full)
    with pytest.raises(OSError, match="No space"):
        write_file(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_is_told_before_any_work(tmp_path: Path) -> None:
    """A folder, a device, or a file in a folder that is not there, is refused by the option's name."""
    with pytest.raises(InvalidInput, match=r"--metrics-file: .* is no regular file"):
        check_file(tmp_path)
    (tmp_path / "null").symlink_to("/dev/null")
    with pytest.raises(InvalidInput, match=r"--metrics-file: /dev/null is no regular file"):
        check_file(tmp_path / "null")
    with pytest.raises(InvalidInput, match="--metrics-file: there is no folder"):
        check_file(tmp_path / "no" / "custody.prom")
    (tmp_path / "link.prom").symlink_to(tmp_path / "custody.prom")
    assert check_file(tmp_path / "link.prom") == tmp_path / "custody.prom"


def test_what_is_no_file_of_metrics_is_kept(tmp_path: Path) -> None:
    """A ledger's own file, there or not, and a file with anything else in it are refused; ours is not."""
    path = tmp_path / "custody.db"
    with pytest.raises(InvalidInput, match="is a file of the ledger itself"):
        check_file(path, [path])
    path.write_text("memories")
    with pytest.raises(InvalidInput, match="holds something else than metrics"):
        check_file(path)
    assert path.read_text() == "memories"
    for text in ("", render(BUSY)):
        path.write_text(text)
        assert check_file(path) == path
