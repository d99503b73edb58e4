"""An entry that lies in another scope than its placement says is removed where it lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from fix_custody import open_desk

from custody_sync.model import Entry, Fact, Label
from custody_sync.testing import MemoryStore


class Astray(MemoryStore):
    """Says one scope and puts into another, and looks only where it is told to."""

    keeps = False

    def scope_of(self, fact: Fact) -> str | None:
        """Return what is not so."""
        return "new"

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        """Put into the other scope."""
        ids = self._take(fact, label)
        self._held[ids[0]] = replace(self._held[ids[0]], scope="old")
        return ids

    async def delete(self, entry: Entry) -> None:
        """Delete in the entry's scope, unless the store keeps all."""
        if not self.keeps:
            await super().delete(entry)


@pytest.mark.parametrize("act", ["retract", "forget"])
async def test_what_find_shows_in_another_scope_is_removed_there(tmp_path: Path, act: str) -> None:
    """A placement's scope is one place to look and what the store shows is another: both count."""
    store = Astray("store", scope="new")
    async with open_desk(tmp_path, stores=[store]) as desk:
        result = await getattr(desk, act)(await desk.written())
        assert [removal.outcome for removal in result.removals] == ["verified"]
        assert store.snapshot() == {}


async def test_what_is_left_in_another_scope_is_not_verified(tmp_path: Path) -> None:
    """Gone where it was recorded and held where it lies is not gone."""
    store = Astray("store", scope="new")
    async with open_desk(tmp_path, stores=[store]) as desk:
        fact_id = await desk.written()
        store.keeps = True
        result = await desk.forget(fact_id)
        assert [removal.outcome for removal in result.removals] == ["still_indexed"]
        assert not result.complete
        store.keeps = False
        assert (await desk.forget(fact_id)).complete
        assert store.snapshot() == {}
