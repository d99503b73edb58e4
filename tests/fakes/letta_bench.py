"""What the tests of the Letta adapter share: stores over a service, and facts that are put into them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from custody_sync.adapters.letta import LettaStore
from custody_sync.model import Entry
from custody_sync.ports import Notebook
from custody_sync.testing import StoreHooks
from custody_sync.testing.contract import Case
from fakes.letta_api import EMBEDDING, MODEL, LettaApi


def opened(api: LettaApi, notes: Notebook | None = None, **options: Any) -> LettaStore:
    """Return a store as a new process has it, with a notebook if it is given one."""
    handles: dict[str, Any] = {} if "agent" in options else {"model": MODEL, "embedding": EMBEDDING}
    store = LettaStore(api.client(), **handles, **options)
    if notes is not None:
        store.remember_in(notes)
    return store


def case_of(store: LettaStore) -> Case:
    """Return what makes facts and puts them."""
    return Case("letta", store, StoreHooks())


def ids(entries: Iterable[Entry]) -> list[str]:
    """Return the external ids in order."""
    return sorted(entry.external_id for entry in entries)


__all__ = ["case_of", "ids", "opened"]
