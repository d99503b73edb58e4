"""L6 for notebooks: a scope is often a person's name, and goes with the last fact of the space.

It goes only once nothing of the space lies where the scope alone makes a listing look.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from fix_custody import LATER
from fix_ledger import ACTOR, Book
from fix_notebook import ScopedStore
from fix_residue import Disk, left_in, random_value

from custody_sync import AsyncCoordinator
from custody_sync.ledger.storage import CLAIMS, NOTEBOOK
from custody_sync.model import Capability, Erasure, Fact, Label
from custody_sync.notebook import StoreNotebook
from custody_sync.testing import testing_runtime

STAYS = "scoped: where it keeps the erased space stays noted until `custody-sync repair`"


@dataclass
class Office:
    """A ledger, one scoped store, and a coordinator over both."""

    book: Book
    store: ScopedStore
    custody: AsyncCoordinator
    space: str

    async def write(self, value: str = "x", space: str = "", **more: Any) -> str:
        """Write a fact about somebody and return its id."""
        told = {"space": space or self.space, "actor": ACTOR} | more
        return (await self.custody.write(value=value, **told)).fact.fact_id

    async def forget(self, fact_id: str, **more: Any) -> Any:
        """Forget a fact with its identity."""
        told = {"actor": ACTOR, "reason": "asked", "identity": True} | more
        return await self.custody.forget(fact_id, **told)

    async def forget_all(self, **more: Any) -> Any:
        """Forget everything of the space with its identity."""
        told = {"actor": ACTOR, "identity": True, "space": self.space} | more
        return await self.custody.forget_where(**told)

    async def repair(self) -> Any:
        """Sweep."""
        return await self.custody.repair(actor="ops", reason="after a forget", max_removals=10)

    async def claims(self) -> set[str]:
        """Return the keys that stand."""
        runtime = testing_runtime(clock=self.book.clock)
        return set(await StoreNotebook(self.book.ledger, "scoped", runtime).read())

    async def rows(self) -> list[str]:
        """Return every row of the notebooks."""
        return [note.key for topic in NOTEBOOK for note in await self.book.ledger.notes(topic)]


@pytest.fixture
async def office(book: Book) -> AsyncIterator[Office]:
    """An office whose space has a name that occurs nowhere else."""
    store, space = ScopedStore(clock=book.clock), f"user:{random_value(random.Random(), 40)}"
    async with AsyncCoordinator(
        book.ledger, stores=[store], runtime=testing_runtime(clock=book.clock)
    ) as custody:
        yield Office(book, store, custody, space)


@pytest.mark.parametrize("how", ["forget", "forget_where", "expire"])
@pytest.mark.parametrize("reader", [False, True], ids=["alone", "with-a-reader"])
async def test_l6_nothing_of_a_scope_is_left(office: Office, disk: Disk, how: str, reader: bool) -> None:
    """After the last fact's erasure is done, the scope is in no file; what a reader keeps is pending."""
    fact_id = await office.write()
    goes = [office.space.removeprefix("user:")]
    assert left_in(disk.files(), goes) == set(goes)
    async with AsyncExitStack() as stack:
        if reader:
            await stack.enter_async_context(disk.reading())
        if how == "forget":
            result = await office.forget(fact_id)
        elif how == "forget_where":
            result = await office.forget_all()
        else:
            office.book.later(days=10)
            before = office.book.clock.now()
            result = await office.custody.expire(
                actor=ACTOR, before=before, space=office.space, identity=True
            )
        pending = reader and disk.blocks
        assert (result.erasure is Erasure.PENDING, result.complete) == (pending, not pending)
        assert bool(left_in(disk.files(), goes)) is pending
        assert await office.rows() == []
    assert (await office.repair()).erasure is Erasure.DONE
    assert left_in(disk.files(), goes) == set()


async def test_a_space_that_goes_on_keeps_its_scope(office: Office) -> None:
    """Only the last fact takes the scope along, and a forget of content alone never does."""
    first, second = await office.write("a"), await office.write("b")
    assert (await office.forget(first)).complete
    assert await office.claims() == {office.space}
    assert (await office.forget(second, identity=False)).complete
    assert await office.claims() == {office.space}
    assert (await office.forget(second)).complete
    assert await office.rows() == []


async def test_a_scope_that_others_use_stays(book: Book) -> None:
    """A scope that two spaces share goes with the second; who it was used by is not kept for longer."""
    store = ScopedStore(clock=book.clock, scope="everybody")
    async with AsyncCoordinator(
        book.ledger, stores=[store], runtime=testing_runtime(clock=book.clock)
    ) as custody:
        office = Office(book, store, custody, "user:1")
        first, second = await office.write(), await office.write(space="user:2")
        assert (await office.forget(first)).complete
        assert await office.claims() == {"everybody"}
        assert len(await office.rows()) == 3
        assert (await office.forget(second)).complete
        assert await office.rows() == []


async def test_an_orphan_keeps_the_scope_until_it_is_swept(office: Office) -> None:
    """What a dead process put there would never be listed again: the erasure is pending until it is swept."""
    fact_id, clock = await office.write(), office.book.clock
    office.store.faults.lose_reply("put")
    office.store.faults.refuse("find")
    with pytest.raises(Exception, match="may be left in"):
        await office.write("lost")
    office.store.faults.allow()
    result = await office.forget(fact_id)
    assert (result.erasure, result.complete) == (Erasure.PENDING, False)
    assert result.notes[-1] == f"{STAYS} (it lists entries)"
    assert await office.claims() == {office.space}
    assert (await office.custody.repair(actor="o", reason="r", dry_run=True)).erasure is Erasure.PENDING
    assert (await office.repair()).erasure is Erasure.PENDING
    clock.advance(LATER)
    swept = await office.repair()
    assert (swept.erasure, swept.complete, len(swept.repaired)) == (Erasure.DONE, True, 1)
    assert (office.store.snapshot(), await office.rows()) == ({}, [])


async def test_a_certificate_names_what_keeps_a_scope(office: Office) -> None:
    """`forget_where` is not complete while something unrecorded lies in the scope, and is once it is gone."""
    await office.write()
    office.store.faults.lose_reply("put")
    office.store.faults.refuse("find")
    with pytest.raises(Exception, match="may be left in"):
        await office.write("lost")
    office.store.faults.allow()
    first = await office.forget_all()
    assert (first.erasure, first.complete, len(first.young)) == (Erasure.PENDING, False, 1)
    assert f"{STAYS} (it lists entries)" in first.notes
    office.book.clock.advance(LATER)
    assert (await office.repair()).complete
    assert await office.rows() == []


@pytest.mark.parametrize(
    ("trouble", "why"),
    [
        ("list_entries", "it cannot list: store_unavailable"),
        ("delete", "removals are pending"),
        ("large", "it holds too much to look through now"),
    ],
)
async def test_what_cannot_be_decided_now(office: Office, trouble: Any, why: str) -> None:
    """Where the store does not tell, the scope stays, the result says why, and `repair` completes it."""
    if trouble == "large":
        for n in range(1000):
            office.store.put_raw(str(n), scope=office.space)
    fact_id = await office.write()
    if trouble != "large":
        office.store.faults.refuse(trouble)
    result = await office.forget(fact_id)
    assert (result.erasure, result.complete) == (Erasure.PENDING, False)
    assert result.notes[-1].startswith(STAYS)
    if trouble != "list_entries":
        assert result.notes[-1] == f"{STAYS} ({why})"
    assert office.space not in repr(result)
    office.store.faults.allow()
    assert (await office.repair()).complete
    assert await office.rows() == []


async def test_a_large_store_and_a_certificate(office: Office) -> None:
    """`forget_where` lists every store to its end anyway, so it needs no repair however much there is."""
    for n in range(1500):
        office.store.put_raw(str(n), scope="another")
    await office.write()
    await office.write(space="another")
    result = await office.forget_all()
    assert (result.complete, result.erasure, result.scanned) == (True, Erasure.DONE, {"scoped": 1501})
    assert not any(STAYS in note for note in result.notes)
    assert await office.claims() == {"another"}


async def test_a_store_that_cannot_list_needs_no_look(book: Book) -> None:
    """A scope serves listings: where there are none it goes at once."""
    store = ScopedStore(clock=book.clock, without=[Capability.LIST_ENTRIES])
    async with AsyncCoordinator(
        book.ledger, stores=[store], runtime=testing_runtime(clock=book.clock)
    ) as custody:
        office = Office(book, store, custody, "user:1")
        assert (await office.forget(await office.write())).complete
        assert await office.rows() == []


async def test_a_store_that_is_not_configured(office: Office) -> None:
    """Without the store nobody can say what lies in the scope: pending, and not named after the person."""
    fact_id = await office.write()
    async with AsyncCoordinator(
        office.book.ledger, runtime=testing_runtime(clock=office.book.clock, seed=3)
    ) as bare:
        result = await bare.forget(fact_id, actor=ACTOR, reason="r", identity=True)
        assert result.erasure is Erasure.PENDING
        assert "a store that is not configured here" in result.notes[-1]
    assert (await office.repair()).complete
    assert await office.rows() == []


async def test_a_held_fact_keeps_its_space(office: Office) -> None:
    """A forget that a hold refuses leaves nothing due, and the scope as it was."""
    fact_id = await office.write()
    await office.custody.hold(fact_id, actor=ACTOR, hold_id="case 1")
    with pytest.raises(Exception, match="hold"):
        await office.forget(fact_id)
    assert (await office.repair()).complete
    assert await office.claims() == {office.space}


async def test_a_write_to_the_space_meanwhile(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that asked before the scope was let go of, and is recorded after, finds it claimed again."""
    fact_id = await office.write()
    put = ScopedStore.put

    async def forgetting_put(self: ScopedStore, fact: Fact, label: Label) -> Any:
        ids = await put(self, fact, label)
        monkeypatch.undo()
        # The entry is hidden from the look, as in a store whose listing lags.
        hidden = {key: self._held.pop(key) for key in ids}
        assert (await office.forget(fact_id)).complete
        assert await office.rows() == []
        self._held |= hidden
        return ids

    monkeypatch.setattr(ScopedStore, "put", forgetting_put)
    second = await office.write("y")
    assert await office.claims() == {office.space}
    assert [entry.fact_id async for entry in office.store.list_entries()] == [second]
    assert (await office.forget(second)).complete
    assert await office.rows() == []


@pytest.mark.parametrize("who", ["the same space", "another space"])
async def test_a_write_recorded_while_a_scope_goes(
    book: Book, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever lets go looks once more afterwards: what was recorded meanwhile has its scope back."""
    store = ScopedStore(clock=book.clock, scope="{space}" if who == "the same space" else "everybody")
    async with AsyncCoordinator(
        book.ledger, stores=[store], runtime=testing_runtime(clock=book.clock)
    ) as custody:
        office = Office(book, store, custody, "user:1")
        fact_id = await office.write()
        drop, written = book.ledger.drop_notes, list[str]()

        async def slow_drop(topic: str, keys: Any = None, **more: Any) -> None:
            if topic == CLAIMS and not written:
                space = "user:1" if who == "the same space" else "user:2"
                written.append(await office.write("y", space=space))
                # As if the claim had stood while it was written: only its row is taken.
                for note in await book.ledger.notes(CLAIMS):
                    await drop(CLAIMS, [note.key])
            await drop(topic, keys, **more)

        monkeypatch.setattr(book.ledger, "drop_notes", slow_drop)
        assert (await office.forget(fact_id)).removals[0].outcome == "verified"
        assert [entry.fact_id async for entry in store.list_entries()] == written


async def test_many_spaces_are_looked_for_once(office: Office) -> None:
    """An expiry that ends many spaces lists each store once for all of them, at its end."""
    for n in range(12):
        await office.write(space=f"user:{n}")
    await office.write(space="org")
    office.book.later(days=10)
    before = office.store.calls["list_entries"]
    result = await office.custody.expire(actor=ACTOR, windows={"user:*": "P1D"}, identity=True, batch=3)
    assert (result.complete, len(result.facts)) == (True, 12)
    assert office.store.calls["list_entries"] == before + 1
    assert await office.claims() == {"org"}


async def test_a_dry_run_lets_go_of_nothing(office: Office) -> None:
    """What would be forgotten keeps its scope, and nothing is due."""
    await office.write()
    assert (await office.forget_all(dry_run=True)).erasure is None
    assert await office.claims() == {office.space}
    assert len(await office.rows()) == 3
