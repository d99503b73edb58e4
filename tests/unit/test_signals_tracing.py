"""Spans: which there are, what they are called, and that nothing of a memory is in them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from custody_sync.coordinator import AsyncCoordinator
from custody_sync.errors import InvalidInput, MissingExtra, StoreWriteFailed
from custody_sync.ledger import Ledger
from custody_sync.runtime import Runtime
from custody_sync.signals.tracing import (
    COUNT,
    ERROR,
    OPERATION,
    RECORD,
    STORE,
    VERB,
    OpenTelemetryTracer,
    tracer_of,
)
from custody_sync.testing import MemoryStore

NEEDLE = "needle-7f3a"
ACTOR = "agent:test"


class Traced:
    """A coordinator whose spans a test can read."""

    def __init__(self, custody: AsyncCoordinator, exporter: InMemorySpanExporter, store: MemoryStore) -> None:
        self.custody, self.exporter, self.store = custody, exporter, store

    def take(self) -> list[ReadableSpan]:
        """Return the spans that ended since the last time, in the order in which they began."""
        spans = sorted(self.exporter.get_finished_spans(), key=lambda span: span.start_time or 0)
        self.exporter.clear()
        return spans

    def roots(self) -> list[ReadableSpan]:
        """Return those that stand alone or at the top."""
        return [span for span in self.take() if span.parent is None]


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Any]:
    """Make a traced coordinator over a ledger of its own."""

    def made(**options: Any) -> Any:
        exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        return exporter, OpenTelemetryTracer(provider, **options)

    return made


@pytest.fixture
async def traced(tmp_path: Path, make: Callable[..., Any]) -> AsyncIterator[Traced]:
    """A coordinator over one memory store, without ids in its spans."""
    async for opened in _open(tmp_path, *make()):
        yield opened


async def _open(folder: Path, exporter: InMemorySpanExporter, tracer: Any) -> AsyncIterator[Traced]:
    ledger = await Ledger.open(f"sqlite:///{folder / 'custody.db'}", create=True, witness=False)
    store = MemoryStore("notes")
    async with ledger, AsyncCoordinator(ledger, stores=[store], runtime=Runtime(tracer=tracer)) as custody:
        yield Traced(custody, exporter, store)


def names(spans: Sequence[ReadableSpan]) -> list[tuple[str, Any]]:
    """Return each span's name and our verb."""
    return [(span.name, (span.attributes or {})[VERB]) for span in spans]


async def test_a_write_is_one_operation_and_its_calls(traced: Traced) -> None:
    """The operation is named by the convention, of the ledger; below it stands the call to each store."""
    await traced.custody.write(value="tea", space="org", actor=ACTOR)
    write, put = traced.take()
    assert names([write, put]) == [("create_memory", "write"), ("create_memory", "put")]
    assert (write.kind, put.kind) == (SpanKind.INTERNAL, SpanKind.CLIENT)
    assert dict(write.attributes or {}) == {
        OPERATION: "create_memory",
        STORE: traced.custody.ledger.ledger_id,
        VERB: "write",
        COUNT: 1,
        "custody_sync.complete": True,
    }
    assert dict(put.attributes or {}) == {OPERATION: "create_memory", STORE: "notes", VERB: "put", COUNT: 1}
    assert put.parent is not None
    assert put.parent.span_id == write.context.span_id
    assert write.status.status_code is StatusCode.UNSET


async def test_each_verb_has_the_name_of_its_convention(traced: Traced) -> None:
    """Corrections and confirmations update, retractions and erasures delete, and ours are named like them."""
    custody = traced.custody
    first = (await custody.write(value="a", space="org", actor=ACTOR)).fact.fact_id
    second = (await custody.write(value="b", space="org", actor=ACTOR, supersedes=first)).fact.fact_id
    claimed = (await custody.write(value="c", space="org", actor=ACTOR, provenance="claimed")).fact.fact_id
    await custody.confirm(claimed, actor=ACTOR)
    await custody.retract(second, actor=ACTOR, reason="wrong")
    await custody.forget(claimed, actor=ACTOR, reason="asked")
    await custody.forget_where(space="org", actor=ACTOR)
    await custody.repair(actor=ACTOR, reason="nightly")
    await custody.verify(actor=ACTOR)
    assert names(traced.roots()) == [
        ("create_memory", "write"),
        ("update_memory", "supersede"),
        ("create_memory", "write"),
        ("update_memory", "confirm"),
        ("delete_memory", "retract"),
        ("delete_memory", "forget"),
        ("delete_memory", "forget_where"),
        ("repair_memory", "repair"),
        ("verify_memory", "verify"),
    ]


async def test_a_dry_run_deletes_nothing_by_its_name_either(traced: Traced) -> None:
    """A dry run is a search, and says that it is one."""
    await traced.custody.write(value="a", space="org", actor=ACTOR)
    traced.take()
    await traced.custody.expire(actor=ACTOR, before=datetime.now(UTC), space="org", dry_run=True)
    (span,) = traced.roots()
    assert span.name == "search_memory"
    assert (span.attributes or {})["custody_sync.dry_run"] is True


async def test_ids_are_recorded_only_on_request(tmp_path: Path, make: Callable[..., Any]) -> None:
    """By default no span names a fact; with `record_ids` the operation and its calls name the same one."""
    for folder, options in (("without", {}), ("with", {"record_ids": True})):
        (tmp_path / folder).mkdir()
        async for traced in _open(tmp_path / folder, *make(**options)):
            fact_id = (await traced.custody.write(value="a", space="org", actor=ACTOR)).fact.fact_id
            await traced.custody.forget(fact_id, actor=ACTOR, reason="asked")
            spans = traced.take()
            seen = {(span.attributes or {}).get(RECORD) for span in spans}
            assert seen == ({fact_id} if options else {None})
            if not options:
                assert fact_id not in "".join(span.to_json() for span in spans)


async def test_an_error_is_its_type_and_nothing_else(traced: Traced) -> None:
    """A store whose error quotes the memory leaves neither message nor stack in a span."""

    async def refuse(fact: Any, label: Any) -> Any:
        raise RuntimeError(f"cannot store {fact.text}")

    traced.store.put = refuse  # type: ignore[method-assign]
    with pytest.raises(StoreWriteFailed):
        await traced.custody.write(value=NEEDLE, space="org", actor=ACTOR)
    spans = traced.take()
    write, put = spans[0], next(span for span in spans if (span.attributes or {})[VERB] == "put")
    assert (write.attributes or {})[ERROR] == "StoreWriteFailed"
    assert (put.attributes or {})[ERROR] == "StoreUnavailable"
    for span in (write, put):
        assert span.status.status_code is StatusCode.ERROR
        assert span.status.description is None
        assert span.events == ()
    assert NEEDLE not in "".join(span.to_json() for span in spans)


async def test_nothing_of_a_memory_is_in_any_span(tmp_path: Path, make: Callable[..., Any]) -> None:
    """I6: neither what a fact says, nor whose it is, nor why it went is in a span."""
    async for traced in _open(tmp_path, *make(record_ids=True)):
        said = {name: f"{NEEDLE} {name}" for name in ("value", "subject", "predicate", "space", "receipt_id")}
        fact = (await traced.custody.write(**said, actor=f"{NEEDLE} actor")).fact
        await traced.custody.retract(fact.fact_id, actor=ACTOR, reason=f"{NEEDLE} reason")
        await traced.custody.forget_where(space=said["space"], actor=ACTOR, identity=True)
        await traced.custody.repair(actor=ACTOR, reason=f"{NEEDLE} reason")
        spans = traced.take()
        assert len(spans) > 8
        assert NEEDLE not in "".join(span.to_json() for span in spans)


@pytest.mark.parametrize(
    ("setting", "kind"), [("", type(None)), ("off", type(None)), ("on", OpenTelemetryTracer)]
)
def test_a_setting_says_whether_to_trace(setting: str, kind: type) -> None:
    """Nothing and `off` trace nothing."""
    assert isinstance(tracer_of(setting), kind)


def test_a_setting_that_is_none_is_told() -> None:
    """A word that means nothing is an error that names the variable."""
    with pytest.raises(InvalidInput, match="CUSTODY_SYNC_TRACES: must be on, ids or off"):
        tracer_of("yes")


def test_without_opentelemetry_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tracer without its package says which command installs it."""
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(MissingExtra, match=r"pip install 'custody-sync\[otel\]'"):
        OpenTelemetryTracer()


def test_nothing_is_imported_before_it_is_wanted(tmp_path: Path) -> None:
    """Neither the coordinator nor the module of the tracer imports OpenTelemetry."""
    code = (
        "import sys, custody_sync.coordinator, custody_sync.signals.tracing as t; t.tracer_of('');"
        "print([m for m in sys.modules if m.startswith('opentelemetry')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.strip() == "[]"
