"""Stores that drift behind custody's back, and reconciling them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fix_custody import Desk

from custody_sync.mended import ReconcileResult
from custody_sync.testing import MemoryStore


def found(result: ReconcileResult) -> list[tuple[str, str, str]]:
    """Return (store, kind, outcome) of every named difference, sorted."""
    return sorted((d.store, d.kind.value, d.outcome.value) for d in result.differences)


def alter(store: MemoryStore, key: str, **changes: Any) -> None:
    """Change what a store holds behind custody's back: its text, or keys of its label."""
    held = store._held[key]
    text = changes.pop("text", held.text)
    store._held[key] = replace(held, text=text, metadata=dict(held.metadata) | changes)


def key_of(desk: Desk, store: str, fact_id: str) -> str:
    """Return the one entry of a fact in a store."""
    (key,) = desk.held_of(fact_id)[store]
    return key


async def reconcile(desk: Desk, fix: Sequence[str] | str = (), **more: Any) -> ReconcileResult:
    """Reconcile."""
    return await desk.custody.reconcile(actor="ops", reason="drift", fix=fix, **more)


async def mended(desk: Desk, **more: Any) -> ReconcileResult:
    """Mend everything, see that a second run finds nothing, and that ledger and stores agree."""
    result = await reconcile(desk, "all", **more)
    again = await reconcile(desk, "all")
    assert found(again) == [], again
    assert again.complete
    await desk.judge_clean()
    return result
