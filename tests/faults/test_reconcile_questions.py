"""What mending asks the ledger: facts in work at the same time together, and each of them only then."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fix_custody import Desk, open_desk
from fix_reconcile import alter, found, key_of, reconcile

from custody_sync.errors import LedgerBusy
from custody_sync.model import Fact, Label
from custody_sync.testing import MemoryStore

AT_ONCE = 64
QUESTIONS = ("get", "facts", "placements", "placements_of", "notes", "notes_at", "put_notes", "history")
Drifting = Callable[[MemoryStore, str], None]
DRIFTS: dict[str, Drifting] = {
    "missing": lambda store, key: store.drop(key),
    "altered_text": lambda store, key: alter(store, key, text="altered"),
    "altered_label": lambda store, key: alter(store, key, space="elsewhere"),
}


class Telling(MemoryStore):
    """A store that does something else at its next put, keeps what it was given, and may add to texts."""

    adds = ""
    then: Callable[[], Awaitable[object]] | None = None

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        """Put it, once what is to be done is done."""
        then, self.then = self.then, None
        if then is not None:
            await then()
        self.given = [*getattr(self, "given", ()), fact.fact_id]
        keys = await super().put(fact, label)
        if self.adds:
            alter(self, keys[0], text=f"{fact.text}{self.adds}")
        return keys


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    """A desk with one store."""
    async with open_desk(tmp_path, stores=lambda clock: [Telling("memories", clock=clock)]) as opened:
        yield opened


async def drifted(desk: Desk, count: int, drift: Drifting) -> list[str]:
    """Write facts and let the store drift from the ledger."""
    ids = [await desk.written(n, subject=f"s:{count}:{n}") for n in range(count)]
    for fact_id in ids:
        drift(desk.stores["memories"], key_of(desk, "memories", fact_id))
    return ids


def store_of(desk: Desk) -> Telling:
    """Return the one store."""
    store = desk.stores["memories"]
    assert isinstance(store, Telling)
    store.given = []
    return store


async def asked(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Reconcile, and count the questions and the notes."""
    counts: Counter[str] = Counter()

    def counting(name: str, ask: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def counted(*given: Any, **more: Any) -> Any:
            counts[name] += 1
            return await ask(*given, **more)

        return counted

    with monkeypatch.context() as patched:
        for name in QUESTIONS:
            patched.setattr(desk.ledger, name, counting(name, getattr(desk.ledger, name)))
        await reconcile(desk, "all", max_puts=1000)
    return counts


@pytest.mark.parametrize("adds", ["", "kept otherwise"])
@pytest.mark.parametrize("kind", DRIFTS)
async def test_what_is_mended_at_once_asks_at_once(
    desk: Desk, kind: str, adds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as are in work together take a few questions, whatever becomes of them."""
    store_of(desk).adds = adds
    few, many = [
        sum((await asked(desk, monkeypatch)).values())
        for count in (1, AT_ONCE)
        if await drifted(desk, count, DRIFTS[kind])
    ]
    assert many - few <= AT_ONCE / 2
    assert len(found(await reconcile(desk))) == (AT_ONCE + 1) * bool(adds)


async def test_a_fact_is_read_when_its_turn_comes(desk: Desk) -> None:
    """What was forgotten while others were mended is not put again from what was known before."""
    ids = await drifted(desk, AT_ONCE + 10, DRIFTS["missing"])
    store = store_of(desk)
    store.then = lambda: desk.forget(ids[-1])
    result = await reconcile(desk, "all", max_puts=1000)
    assert sorted(store.given) == sorted(ids[:-1])
    assert {d.fact_id: d.outcome.value for d in result.differences}[ids[-1]] == "settled"


async def test_a_fact_that_goes_while_it_is_put_is_taken_back(desk: Desk) -> None:
    """The ledger refuses what it no longer believes, however fresh the fact was."""
    (fact_id,) = await drifted(desk, 1, DRIFTS["missing"])
    store = store_of(desk)
    store.then = lambda: desk.retract(fact_id)
    await reconcile(desk, "all")
    assert store.given == [fact_id]
    assert desk.held_of(fact_id) == {}


async def test_a_question_that_fails_leaves_those_who_asked(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them is left and says why, and the next run mends it."""
    ids = await drifted(desk, 3, DRIFTS["altered_text"])

    async def busy(_: object) -> None:
        raise LedgerBusy(name="custody.db")

    with monkeypatch.context() as patched:
        patched.setattr(desk.ledger._storage, "placements_of", busy)
        result = await reconcile(desk, "all")
    assert sorted((d.fact_id, d.outcome.value, d.detail) for d in result.differences) == sorted(
        (fact_id, "left", "not known (ledger_busy)") for fact_id in ids
    )
    assert (await reconcile(desk, "all")).complete
