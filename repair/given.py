"""Entries that a caller gives instead of a listing: whose they are, each once, and whether they are there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from custody_sync.errors import CustodyError
from custody_sync.model import Capability, Entry
from custody_sync.shown import Spoiled, read_entry
from custody_sync.stores import Gate

ELSEWHERE = "it is an entry of another store"
UNLIKE = "it was given more than once, and not alike"


def read_given(
    entries: Iterable[object], store: str
) -> tuple[list[Entry], list[tuple[Entry | Spoiled, str]]]:
    """Return each entry once, and apart those of another store and those that contradict each other.

    What is no entry at all is among the first, for whoever reads what stores show to refuse.
    """
    given: list[Any] = []
    first: dict[str, Entry] = {}
    unlike: set[str] = set()
    for entry in entries:
        if not isinstance(entry, Entry):
            given.append(entry)
            continue
        # Nobody has looked yet whether they are texts.
        key = repr((entry.store, entry.external_id, entry.scope))
        if first.setdefault(key, entry) != entry:
            unlike.add(key)
    refused: list[tuple[Entry | Spoiled, str]] = []
    for key, entry in first.items():
        if entry.store != store:
            refused.append((read_entry(entry, store), ELSEWHERE))
        elif key in unlike:
            refused.append((read_entry(entry, store), UNLIKE))
        else:
            given.append(entry)
    return given, refused


async def is_seen(gate: Gate, entry: Entry, fact_id: str, ledger_id: str) -> bool | None:
    """Tell whether a store holds an entry with its text, as the one of a fact; None if it cannot be asked."""
    if not gate.can(Capability.VERIFY_DELETED):
        return None
    try:
        return not await gate.is_gone(replace(entry, fact_id=fact_id, ledger_id=ledger_id))
    except CustodyError:
        return None


__all__ = ["ELSEWHERE", "UNLIKE", "is_seen", "read_given"]
