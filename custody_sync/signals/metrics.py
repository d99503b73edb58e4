"""A status as Prometheus reads it: text, for the textfile collector of a node's exporter.

No fact, space or text is ever a label: what is labelled has few values, and is no person. Every
series carries the ledger's id, so that the files of two ledgers on one machine do not collide.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

from custody_sync.errors import InvalidInput
from custody_sync.model import Erasure, Outcome
from custody_sync.rawfiles import opened
from custody_sync.results import Status

PREFIX = "custody_sync_"
_BEGINS = f"# HELP {PREFIX}".encode()
MODE = 0o644
"""Whoever collects is somebody else, and must be able to read it."""
_OUTCOMES = (
    "untried",
    Outcome.STARTED.value,
    Outcome.UNVERIFIED.value,
    Outcome.FAILED.value,
    Outcome.STILL_INDEXED.value,
)
"""Shown also where there are none, so that a query finds its series."""

Labels: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Family:
    """One metric: its name without the prefix, what it means, and its values by labels."""

    name: str
    meaning: str
    samples: tuple[tuple[Labels, float], ...]


def render(status: Status) -> str:
    """Return what a status says as gauges in the Prometheus text format.

    A moment is in seconds since the epoch; one that has not come yet, as of a sweep that never was, is
    zero, so that an alert about its age fires. Where nothing waits there is no moment of waiting.
    """
    ledger = ("ledger", status.ledger_id)
    lines: list[str] = []
    for family in (*_ledger(status), *_stores(status), *_sweep(status), *_reconciled(status)):
        if family.samples:
            name = PREFIX + family.name
            lines += [f"# HELP {name} {family.meaning}", f"# TYPE {name} gauge"]
            for labels, value in family.samples:
                shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in (ledger, *labels))
                lines.append(f"{name}{{{shown}}} {_number(value)}")
    return "\n".join(lines) + "\n"


def _ledger(status: Status) -> Iterable[_Family]:
    yield _single("status_timestamp_seconds", "When this was read, on the ledger's clock.", status.time)
    yield _single("ledger_head_seq", "Sequence number of the ledger's last event.", status.head.seq)
    meaning = "When the ledger's last event was recorded; 0 while there is none."
    yield _single("ledger_head_timestamp_seconds", meaning, status.head.tx_time)
    meaning = "1 while erased values may still be in the ledger's files."
    yield _single("erasure_pending", meaning, status.erasure is Erasure.PENDING)


def _stores(status: Status) -> Iterable[_Family]:
    stores = status.stores

    def by_store(name: str, meaning: str, values: Mapping[str, float | datetime | None]) -> _Family:
        samples = [(_store(key), _value(v)) for key, v in values.items() if v is not None]
        return _Family(name, meaning, tuple(samples))

    meaning = "1 where a store that the ledger knows is configured."
    yield by_store("store_configured", meaning, {s.store: s.configured for s in stores})
    meaning = "Removals that nobody saw verified."
    yield by_store("pending_removals", meaning, {s.store: s.pending for s in stores})
    samples = tuple(
        ((*_store(s.store), ("outcome", outcome)), float(s.by_outcome.get(outcome, 0)))
        for s in stores
        for outcome in dict.fromkeys((*_OUTCOMES, *s.by_outcome))
    )
    yield _Family("pending_removals_by_outcome", "The same by what came of them last.", samples)
    meaning = "When the first pending removal was ordered."
    yield by_store("oldest_pending_timestamp_seconds", meaning, {s.store: s.oldest_pending for s in stores})
    meaning = "Facts that are to be placed in a store."
    yield by_store("owed_placements", meaning, {s.store: s.owed for s in stores})
    meaning = "Facts that are to be placed in a store when their time comes."
    yield by_store("waiting_placements", meaning, {s.store: s.waiting for s in stores})
    meaning = "When the first of the waiting placements is due."
    yield by_store("next_waiting_timestamp_seconds", meaning, {s.store: s.next_waiting for s in stores})
    meaning = "Tries in a row that a store did not answer."
    failures = {s.store: 0 if s.retry is None else s.retry.failures for s in stores}
    yield by_store("store_failures", meaning, failures)
    meaning = "When a store that did not answer is tried again."
    again = {s.store: None if s.retry is None else s.retry.next_at for s in stores}
    yield by_store("store_retry_timestamp_seconds", meaning, again)


def _sweep(status: Status) -> Iterable[_Family]:
    last = status.last_sweep
    yield _single("sweep_running", "1 while a sweep holds the lease.", status.sweeping is not None)
    meaning = "When the last finished sweep ended; 0 before the first."
    yield _single("last_sweep_timestamp_seconds", meaning, None if last is None else last.finished_at)
    meaning = "1 if the last finished sweep left nothing to do."
    yield _single("last_sweep_complete", meaning, last is not None and last.complete)
    if last is None:
        return
    meaning = "What the last finished sweep could not do; each has a sentence in its result."
    yield _single("last_sweep_still_held", meaning, len(last.still_held))
    for name, meaning, counts in (
        ("scanned_entries", "Entries that it was shown by a store.", last.scanned),
        ("orphans", "Entries of facts that the ledger never asserted, found by it.", last.orphans),
        ("strays", "Entries that should have gone before, found by it.", last.strays),
        ("removed_entries", "Entries that it removed and saw gone.", last.removed),
    ):
        samples = tuple((_store(store), float(counts.get(store, 0))) for store in {**last.scanned, **counts})
        yield _Family(f"last_sweep_{name}", f"Of the last finished sweep: {meaning}", samples)


def _reconciled(status: Status) -> Iterable[_Family]:
    last = status.last_reconcile
    if last is None:
        return
    meaning = "When the last finished comparison of ledger and stores ended."
    yield _single("last_reconcile_timestamp_seconds", meaning, last.finished_at)
    meaning = "1 if the last finished comparison found no difference, or mended what it found."
    yield _single("last_reconcile_complete", meaning, last.complete)
    for name, meaning, counts in (
        ("missing_entries", "Entries that the ledger has and a store has not.", last.missing),
        ("altered_entries", "Entries whose text or label is not what was placed.", last.altered),
    ):
        samples = tuple((_store(store), float(count)) for store, count in counts.items())
        yield _Family(f"last_reconcile_{name}", f"Of the last finished comparison: {meaning}", samples)


def _single(name: str, meaning: str, value: float | datetime | None) -> _Family:
    return _Family(name, meaning, (((), 0.0 if value is None else _value(value)),))


def _store(name: str) -> Labels:
    return (("store", name),)


def _value(value: float | datetime) -> float:
    return value.timestamp() if isinstance(value, datetime) else float(value)


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def check_file(path: str | os.PathLike[str], kept: Iterable[Path] = ()) -> Path:
    """Return where metrics are to be written, or say why they cannot be, before any work begins.

    Args:
        path: the file that somebody named.
        kept: the files of the ledger, which it must not be.

    Raises:
        InvalidInput: its folder is not there, it is no file itself, or what it holds are no metrics of ours.
    """
    # Not a link to it: what is put in the place of /dev/stdout would stay there.
    where = Path(os.path.realpath(path))
    if where in {Path(os.path.realpath(file)) for file in kept}:
        raise InvalidInput(field="--metrics-file", problem=f"{where} is a file of the ledger itself")
    if where.exists() and not where.is_file():
        raise InvalidInput(field="--metrics-file", problem=f"{where} is no regular file")
    if not where.parent.is_dir():
        raise InvalidInput(field="--metrics-file", problem=f"there is no folder {where.parent}")
    if where.exists() and not _is_ours(where):
        problem = f"{where} holds something else than metrics of custody-sync; name a new file"
        raise InvalidInput(field="--metrics-file", problem=problem)
    return where


def _is_ours(path: Path) -> bool:
    """Tell whether a file begins as ours do, or is empty."""
    try:
        with opened(path) as file:
            return file.read(len(_BEGINS)) in (b"", _BEGINS)
    except OSError:
        # Whoever wrote it keeps it to himself; ours are for everybody.
        return False


def write_file(path: Path, text: str) -> None:
    """Put a text in a file's place in one step, readable by everybody: no collector sees half of it.

    Raises:
        OSError: it could not be written; what was there before still is.
    """
    # A collector reads what ends in .prom, and must not find this one.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            os.fchmod(file.fileno(), MODE)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


__all__ = ["check_file", "render", "write_file"]
