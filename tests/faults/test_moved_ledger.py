"""A ledger that was moved takes nothing, and whoever still points at it touches no store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fix_custody import ACTOR, Desk

from custody_sync.errors import LedgerArriving, LedgerMoved, LedgerUnavailable, Terminal
from custody_sync.faultpoints import FaultPoint
from custody_sync.ledger.drafts import Draft
from custody_sync.ledger.storage import Way
from custody_sync.model import Event

PLACE = "sqlite:///new.db"
OPERATIONS = (
    "write",
    "supersede",
    "keyed",
    "confirm",
    "retract",
    "hold",
    "release",
    "forget",
    "forget_where",
    "forget_where_dry",
    "expire",
    "expire_dry",
    "repair",
    "repair_dry",
)


async def run(desk: Desk, operation: str, fact_id: str, claimed: str) -> object:
    """Run one operation on a fact, or on all."""
    custody, before = desk.custody, desk.clock.now()
    forget: dict[str, Any] = {"space": "org", "actor": ACTOR}
    expire: dict[str, Any] = {"before": before, "all_spaces": True, "actor": ACTOR}
    work: dict[str, Callable[[], Awaitable[object]]] = {
        "write": lambda: desk.write("max"),
        "supersede": lambda: desk.write("max", supersedes=fact_id),
        "keyed": lambda: desk.write("max", idempotency_key="k"),
        "confirm": lambda: desk.confirm(claimed),
        "retract": lambda: desk.retract(fact_id),
        "hold": lambda: custody.hold(fact_id, actor=ACTOR),
        "release": lambda: custody.release(fact_id, hold_id="case", actor=ACTOR),
        "forget": lambda: desk.forget(fact_id),
        "forget_where": lambda: custody.forget_where(**forget),
        "forget_where_dry": lambda: custody.forget_where(**forget, dry_run=True),
        "expire": lambda: custody.expire(**expire),
        "expire_dry": lambda: custody.expire(**expire, dry_run=True),
        "repair": desk.repair,
        "repair_dry": lambda: desk.repair(dry_run=True),
    }
    return await work[operation]()


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_moved_ledger_refuses_before_any_store_is_touched(desk: Desk, operation: str) -> None:
    """The error says where the ledger went, is terminal, and no store was called."""
    fact_id, claimed = await desk.written(), await desk.written("c", provenance="claimed")
    assert await desk.ledger.set_mark(None, Way.TO, PLACE) is not None
    calls = {name: dict(store.calls) for name, store in desk.stores.items()}
    with pytest.raises(LedgerMoved, match=PLACE) as raised:
        await run(desk, operation, fact_id, claimed)
    assert isinstance(raised.value, Terminal)
    assert {name: dict(store.calls) for name, store in desk.stores.items()} == calls
    assert len(await desk.ledger.history(fact_id)) == 1


async def test_an_unfinished_move_refuses_as_well(desk: Desk) -> None:
    """Until a move is complete the target takes nothing, and says whose move it is."""
    assert await desk.ledger.set_mark(None, Way.FROM, PLACE) is not None
    with pytest.raises(LedgerArriving, match=PLACE):
        await desk.write()


async def test_what_a_write_put_into_the_stores_is_taken_back(desk: Desk) -> None:
    """A move between the stores and the append: the error is LedgerMoved, and no entry is left."""
    append = desk.ledger.append

    async def moved_first(draft: Draft) -> Event:
        await desk.ledger.set_mark(None, Way.TO, PLACE)
        return await append(draft)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(desk.ledger, "append", moved_first)
        with pytest.raises(LedgerMoved, match=PLACE) as raised:
            await desk.write()
    assert not raised.value.fields.get("left")
    assert desk.plan.reached[FaultPoint.STORED] == 1
    assert desk.held() == {}


def test_a_lost_append_names_entries_in_words() -> None:
    """The sentence lists entries by store; the document keeps them as they are."""
    entries = [{"store": store, "external_id": str(number)} for number, store in enumerate(("a", "a", "b"))]
    error = LedgerUnavailable(name="l", cause="x", fact_id="f", entries=entries)
    assert str(error).endswith("for f: a (0, 1); b (2).")
    assert error.to_dict()["entries"] == entries
    assert str(LedgerUnavailable(name="l", cause="x", fact_id="f", entries=[])).endswith("for f: none.")
