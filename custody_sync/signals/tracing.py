"""Spans by OpenTelemetry, with the names of its conventions for memories; content is never in them.

The names are those of the span `gen_ai.memory.client` of OpenTelemetry's semantic conventions for
generative AI, version 0.1.0, in development (docs/gen-ai/gen-ai-spans.md, section Memory, of
https://github.com/open-telemetry/semantic-conventions-genai). What maps to what:

* `gen_ai.operation.name`, which is the span's name, is the convention's where it has one that applies,
  and a name of ours ending in `_memory` where it has none (repair, verify and the like);
* `gen_ai.memory.store.id` is a store's name on a call to it, and the ledger's id on an operation;
* `gen_ai.memory.record.id` is the fact's id, and only there if the operator asks for ids;
* `gen_ai.memory.query.text` and `gen_ai.memory.records`, which are opt-in there, do not exist here;
* `error.type` is the name of the error's class; nothing of its message, and no stack, is recorded;
* `custody_sync.operation`, `custody_sync.complete` and `custody_sync.dry_run` say what only we know.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from custody_sync.errors import InvalidInput, MissingExtra

SCOPE = "custody_sync"
VARIABLE = "CUSTODY_SYNC_TRACES"
"""The environment's word on whether the command line traces: on, ids or off."""

OPERATION = "gen_ai.operation.name"
STORE = "gen_ai.memory.store.id"
RECORD = "gen_ai.memory.record.id"
COUNT = "gen_ai.memory.record.count"
ERROR = "error.type"
VERB = "custody_sync.operation"
COMPLETE = "custody_sync.complete"
DRY_RUN = "custody_sync.dry_run"

_OPERATIONS: Mapping[str, str] = {
    "write": "create_memory",
    "supersede": "update_memory",
    "confirm": "update_memory",
    "confirm_many": "update_memory",
    "adopt": "update_memory",
    "backfill": "create_memory",
    "retract": "delete_memory",
    "forget": "delete_memory",
    "forget_many": "delete_memory",
    "forget_where": "delete_memory",
    "expire": "delete_memory",
}
_CALLS: Mapping[str, str] = {
    "put": "create_memory",
    "put_many": "create_memory",
    "relabel": "update_memory",
    "delete": "delete_memory",
    "after_forget": "delete_memory",
    "verify_deleted": "search_memory",
    "find": "search_memory",
    "search": "search_memory",
    "list": "search_memory",
}
_ONE = ("write", "supersede", "confirm", "retract", "forget", "put", "relabel", "delete")
"""What concerns one record, and says so whether or not it succeeds."""


class OpenTelemetryTracer:
    """Tells OpenTelemetry about operations and calls to stores; pass it as `Runtime(tracer=...)`.

    Where the spans go is the application's to set up: this needs the API alone.

    Args:
        provider: a TracerProvider; the global one by default.
        record_ids: also record fact ids. They name no person, but they tell which spans are about
            the same memory, also after it was forgotten.

    Raises:
        MissingExtra: OpenTelemetry's API is not installed.
    """

    def __init__(self, provider: Any = None, *, record_ids: bool = False) -> None:
        try:
            self._api = importlib.import_module("opentelemetry.trace")
        except ModuleNotFoundError:
            raise MissingExtra(feature="Tracing", extra="otel") from None
        self._tracer = self._api.get_tracer(SCOPE, tracer_provider=provider)
        self._record_ids = record_ids

    @contextmanager
    def operation(
        self, verb: str, *, ledger_id: str, fact_id: str | None = None, dry_run: bool = False
    ) -> Iterator[_Span]:
        """Trace one operation of a coordinator; what a dry run looks for, it does not delete."""
        name = _OPERATIONS.get(verb, f"{verb}_memory")
        attributes: dict[str, Any] = {STORE: ledger_id, VERB: verb}
        if dry_run:
            name = "search_memory" if verb in _OPERATIONS else name
            attributes[DRY_RUN] = True
        with self._span(name, self._api.SpanKind.INTERNAL, attributes, fact_id) as span:
            yield span

    @contextmanager
    def store_call(
        self, verb: str, *, store: str, fact_id: str | None = None, count: int | None = None
    ) -> Iterator[_Span]:
        """Trace one call to a store, with every attempt and every wait of it."""
        name = _CALLS.get(verb, f"{verb}_memory")
        attributes: dict[str, Any] = {STORE: store, VERB: verb}
        if count is not None:
            attributes[COUNT] = count
        with self._span(name, self._api.SpanKind.CLIENT, attributes, fact_id) as span:
            yield span

    @contextmanager
    def _span(self, name: str, kind: Any, attributes: dict[str, Any], fact_id: str | None) -> Iterator[_Span]:
        if attributes[VERB] in _ONE:
            attributes[COUNT] = 1
        if self._record_ids and fact_id:
            attributes[RECORD] = fact_id
        # OpenTelemetry would record an exception's message and its stack.
        with self._tracer.start_as_current_span(
            name,
            kind=kind,
            attributes={OPERATION: name, **attributes},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield _Span(span, self._record_ids)
            except BaseException as error:
                span.set_attribute(ERROR, type(error).__name__)
                span.set_status(self._api.StatusCode.ERROR)
                raise


class _Span:
    """A span under way; `done` adds what is known at its end."""

    def __init__(self, span: Any, record_ids: bool) -> None:
        self._span = span
        self._record_ids = record_ids

    def done(
        self, *, fact_id: str | None = None, count: int | None = None, complete: bool | None = None
    ) -> None:
        """Say how an operation ended."""
        if fact_id and self._record_ids:
            self._span.set_attribute(RECORD, fact_id)
        if count is not None:
            self._span.set_attribute(COUNT, count)
        if complete is not None:
            self._span.set_attribute(COMPLETE, complete)


def tracer_of(setting: str) -> OpenTelemetryTracer | None:
    """Return the tracer that a setting asks for: none for `off`, `on`, or `ids` for ids too.

    Raises:
        InvalidInput: it is none of these.
        MissingExtra: OpenTelemetry's API is not installed.
    """
    if setting in ("", "off"):
        return None
    if setting not in ("on", "ids"):
        raise InvalidInput(field=VARIABLE, problem="must be on, ids or off")
    return OpenTelemetryTracer(record_ids=setting == "ids")


__all__ = ["VARIABLE", "OpenTelemetryTracer", "tracer_of"]
