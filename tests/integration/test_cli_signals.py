"""What the command line shows of itself: metrics, log lines and spans, and nothing of a memory in them."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fix_cli import Cli
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

NEEDLE = "needle-7f3a"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """What the command line traces, with ids."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    monkeypatch.setenv("CUSTODY_SYNC_TRACES", "ids")
    return exporter


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A log of every command, and afterwards no trace of it in the process."""
    before = (logging.getLogger().handlers[:], logging.getLogger("custody_sync").level)
    monkeypatch.setenv("CUSTODY_SYNC_LOG", "json")
    yield
    assert (logging.getLogger().handlers[:], logging.getLogger("custody_sync").level) == before


def lines_of(cli: Cli) -> list[dict[str, Any]]:
    """Return the log of the last command; every line of stderr has to be one."""
    return [json.loads(line) for line in cli.stderr.splitlines()]


def metric(path: Path, name: str) -> dict[str, float]:
    """Return the values of a metric by store."""
    return {
        sample.labels.get("store", ""): sample.value
        for family in text_string_to_metric_families(path.read_text())
        for sample in family.samples
        if sample.name == f"custody_sync_{name}"
    }


# --- metrics --------------------------------------------------------------------------------


def test_metrics_say_what_a_repair_left(cli: Cli) -> None:
    """A store that does not let go is pending after a repair, in the file as in the result."""
    fact_id = cli.write()["fact"]["fact_id"]

    async def stuck(entry: Any) -> None:
        raise ConnectionError("no route")

    cli.stores[0].delete = stuck  # type: ignore[method-assign]
    cli("forget", fact_id, "--reason", "asked", "--yes", status=3)
    path = cli.folder / "custody.prom"
    cli("repair", "--metrics-file", str(path), status=3)
    assert metric(path, "pending_removals") == {"alpha": 1, "beta": 0}
    assert metric(path, "last_sweep_complete") == {"": 0}
    assert metric(path, "last_sweep_timestamp_seconds")[""] > 0
    assert metric(path, "ledger_head_seq")[""] > 1
    assert fact_id not in path.read_text()


def test_metrics_are_written_after_a_refusal_as_well(cli: Cli) -> None:
    """A command that was refused after the ledger was opened still says how the ledger stands."""
    path = cli.folder / "custody.prom"
    cli("verify", "no-such-fact", "--metrics-file", str(path), status=4)
    assert metric(path, "ledger_head_seq") == {"": 0}


def test_a_place_that_cannot_be_is_told_before_any_work(cli: Cli) -> None:
    """A folder that is not there is a mistake of the command line: status 2, and no store was asked."""
    cli.write()
    before = len(cli.json("history", cli.write("b")["fact"]["fact_id"])["events"])
    cli("repair", "--metrics-file", "nowhere/custody.prom", status=2)
    assert "--metrics-file: there is no folder" in cli.stderr
    assert before == 1


def test_metrics_that_cannot_be_written_change_no_status(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk costs the metrics and one sentence; what was done and its exit status stay."""

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fchmod", full)
    cli("repair", "--metrics-file", "custody.prom")
    assert "the metrics could not be written (No space left on device), and what was done" in cli.stderr
    assert not (cli.folder / "custody.prom").exists()


# --- the log --------------------------------------------------------------------------------


def test_a_log_tells_a_command_from_its_beginning_to_its_end(cli: Cli) -> None:
    """Begun, what came of each store, ended with status and seconds; every line with time and level."""
    cli.write()
    shown = cli("repair", "--log", "json")
    told = [line for line in lines_of(cli) if line["event"] == "progress"]
    assert told
    assert all({"step", "done"} <= set(line) for line in told)
    lines = [line for line in lines_of(cli) if line["event"] != "progress"]
    assert [line["event"] for line in lines] == ["started", "store", "store", "result", "ended"]
    assert all({"time", "level", "logger"} <= set(line) for line in (*told, *lines))
    assert {line["logger"] for line in lines} == {"custody_sync.cli"}
    assert [(line["store"], line["scanned"]) for line in lines[1:3]] == [("alpha", 1), ("beta", 1)]
    assert lines[3]["complete"] is True
    assert lines[-1]["command"] == "repair"
    assert lines[-1]["exit_code"] == 0
    assert lines[-1]["seconds"] >= 0
    assert "scanned" in shown


@pytest.mark.usefixtures("logged")
def test_a_log_names_an_error_by_its_code(cli: Cli) -> None:
    """What went wrong is a code, never a sentence that repeats what was typed."""
    for fact_id, told in (("0" * 32, "0" * 32), (NEEDLE, None)):
        cli("history", fact_id, status=4)
        failed = next(line for line in lines_of(cli) if line["event"] == "failed")
        assert (failed["error"], failed["level"]) == ("unknown_fact", "error")
        assert failed.get("fact_id") == told
    assert NEEDLE not in cli.stderr
    cli("repair", f"--{NEEDLE}", status=2)
    cli(NEEDLE, status=2)
    started, *_, ended = lines_of(cli)
    assert (started["command"], ended["exit_code"]) == ("?", 2)
    assert NEEDLE not in cli.stderr


@pytest.mark.usefixtures("logged")
def test_other_packages_lines_are_told_without_their_words(cli: Cli) -> None:
    """A vendor's warning that quotes a memory is a line with its logger and level alone."""

    def stores() -> Any:
        logging.getLogger("vendor.client").warning("could not store %s", NEEDLE)
        return cli.stores

    sys.modules["stores_of_this_test"].__dict__["stores"] = stores
    cli.write()
    vendor = next(line for line in lines_of(cli) if line["logger"] == "vendor.client")
    assert set(vendor) == {"time", "level", "logger"}
    assert NEEDLE not in cli.stderr


def test_a_word_that_is_no_form_of_a_log_is_told(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the option nor the variable takes anything but json."""
    cli("repair", "--log", "yaml", status=2)
    monkeypatch.setenv("CUSTODY_SYNC_LOG", "yaml")
    cli("repair", status=2)
    assert "CUSTODY_SYNC_LOG: must be json or nothing" in cli.stderr


# --- all of them ----------------------------------------------------------------------------


@pytest.mark.usefixtures("logged")
def test_nothing_of_a_memory_is_in_any_signal(cli: Cli, spans: InMemorySpanExporter) -> None:
    """I6: what a fact says, whose it is and why it went is in no metric, no span and no log line."""
    path, shown = cli.folder / "custody.prom", []

    def tell(*args: str, status: int = 0) -> str:
        document = cli(*args, "--json", status=status)
        shown.append(cli.stderr)
        assert cli.stderr.count("\n") == len(lines_of(cli)) >= 2
        return document

    person = f"user:{NEEDLE}"
    said = ("--value", f"{NEEDLE} likes tea", "--subject", person, "--predicate", NEEDLE, "--space", person)
    first = json.loads(tell("write", *said, "--receipt-id", NEEDLE))["fact"]["fact_id"]
    tell("write", *said)
    tell("retract", first, "--reason", f"{NEEDLE} moved away")

    async def stuck(entry: Any) -> None:
        raise RuntimeError(f"cannot delete {entry}: {NEEDLE}")

    cli.stores[0].delete = stuck  # type: ignore[method-assign]
    tell("forget", "--space", person, "--identity", "--reason", f"{NEEDLE} asked", "--yes", status=3)
    tell("repair", "--reason", f"{NEEDLE} asked", "--metrics-file", str(path), status=3)
    tell("verify", "--metrics-file", str(path), status=3)
    tell("forget", NEEDLE, "--reason", "x", "--yes", status=4)
    traced = "".join(span.to_json() for span in spans.get_finished_spans())
    assert first in traced
    assert metric(path, "pending_removals")["alpha"] > 0
    for name, signal in {"metrics": path.read_text(), "spans": traced, "log": "".join(shown)}.items():
        assert NEEDLE not in signal, name
