"""L6: of what was forgotten nothing is left in the ledger's files, logs, errors or results, on any storage.

Each storage is grepped after every kind of erasure, with and without somebody in the middle of a read.
`done` is said only where the grep finds nothing; what a reader keeps is pending, and completed later.
"""

from __future__ import annotations

import hashlib
import logging
import random
import traceback
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import rfc8785
from fix_ledger import ACTOR, Book
from fix_residue import Disk, left_in, random_value

from custody_sync import AsyncCoordinator
from custody_sync.errors import CustodyError
from custody_sync.model import Erasure, Observation, Provenance
from custody_sync.testing import MemoryStore, testing_runtime

ERASURES = pytest.mark.parametrize("identity", [False, True], ids=["content", "identity"])
READERS = pytest.mark.parametrize("reader", [False, True], ids=["alone", "with-a-reader"])


@dataclass
class Told:
    """What a ledger was told: what has to go with a fact's content, with its identity, and what stays."""

    book: Book
    rnd: random.Random = field(default_factory=random.Random)
    """Not seeded: a database may hold what another test wrote."""
    contents: list[str] = field(default_factory=list)
    identities: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)

    def secret(self, size: int, *, of: list[str] | None = None) -> str:
        """Return a value that occurs nowhere else, and remember it."""
        value = random_value(self.rnd, size)
        (self.contents if of is None else of).append(value)
        return value

    def goes(self, identity: bool) -> list[str]:
        """Return what an erasure has to take."""
        return self.contents + (self.identities if identity else [])

    async def add(self, value: Any, **more: Any) -> str:
        """Assert a fact that will be forgotten; its value's digest, which could be guessed, has to go too."""
        fact_id = await self.book.add(value=value, **more)
        self.contents.append(hashlib.sha256(rfc8785.dumps(value)).hexdigest())
        self.facts.append(fact_id)
        return fact_id

    async def tell(self) -> None:
        """Write values of every size and script, in every place a fact has for them."""
        book = self.book
        number = f"{self.rnd.randrange(10**11):011} of nobody"
        quoted = f'Zoë "Zed" \\ Ångström \U0001f600 {number}'
        self.contents += [number, quoted]
        await self.add(number)
        await self.add({"list": [quoted], quoted: [1.5, None]}, text=f"text: {self.secret(40)}")
        for size in (60, 900, 3000, 9000, 40_000):
            await self.add(self.secret(size))
        await self.add("ÿ" * 3000 + self.secret(60), text=self.secret(3000))
        source, path, value = (self.secret(40) for _ in range(3))
        evidence = Observation(source=source, path=path, value=value)
        await self.add(value, provenance=Provenance.VERIFIED, evidence=evidence)
        claimed = await self.add(self.secret(80), provenance=Provenance.CLAIMED)
        await book.append(book.confirm(claimed))
        keyed = book.state(value=self.secret(40))
        self.facts.append(keyed.fact_id)
        await book.append(replace(keyed, request=self.secret(64)))
        # A chain whose last link stays.
        old = await self.add(self.secret(200))
        middle = await self.add(self.secret(2500), supersedes=old)
        await book.add(value=self.secret(200, of=self.kept), supersedes=middle)
        await self.name()

    async def name(self) -> None:
        """Write names of every kind, beside others so that index pages split around them."""
        book = self.book
        for _ in range(20):
            names = [random_value(self.rnd, 30) for _ in range(3)]
            await book.add(names[0], names[1], "v", space=names[2])
        space, subject, predicate, reason, scope, external_id, long = (
            self.secret(size, of=self.identities) for size in (30, 900, 30, 3000, 600, 40, 900)
        )
        draft = book.state(subject, predicate, self.secret(200), space=space)
        held = book.held(draft.fact_id, [("memories", external_id), ("agent", long)], scope=scope)
        await book.append(replace(draft, placements=held))
        await book.append(book.hold(draft.fact_id, "h", reason))
        await book.append(book.release(draft.fact_id, "h"))
        self.facts.append(draft.fact_id)

    async def forget(self, identity: bool) -> None:
        """Forget every fact, and record that its entries are gone."""
        for fact_id in self.facts:
            await self.book.append(self.book.forget(fact_id, identity=identity))
            for gone in await self.book.ledger.placements(fact_id):
                await self.book.append(
                    self.book.remove(fact_id, gone.store, gone.external_id, scope=gone.scope)
                )


@ERASURES
@READERS
async def test_l6_nothing_is_left_when_an_erasure_is_done(
    book: Book, disk: Disk, identity: bool, reader: bool
) -> None:
    """Values of every size and script, their digests, evidence, texts and names are in no file any more."""
    told = Told(book)
    await told.tell()
    goes, stays = told.goes(identity), told.kept + ([] if identity else told.identities)
    written = {secret for secret in goes if len(secret) != 64} | set(stays)
    assert left_in(disk.files(), written) == written, "the search finds what is there"
    async with AsyncExitStack() as stack:
        if reader:
            await stack.enter_async_context(disk.reading())
        await told.forget(identity)
        pending = reader and disk.blocks
        for _ in range(2):
            assert await book.ledger.erase() is (Erasure.PENDING if pending else Erasure.DONE)
            assert bool(left_in(disk.files(), goes)) is pending
    assert await book.ledger.erase() is Erasure.DONE
    assert left_in(disk.files(), goes) == set()
    assert left_in(disk.files(), stays) == set(stays)


async def caught(call: Callable[[], Awaitable[Any]]) -> str:
    """Make a call that is refused, and return all that the error says and carries."""
    with pytest.raises(CustodyError) as error:
        await call()
    shown = "".join(traceback.format_exception(error.value))
    return f"{shown} {error.value!r} {error.value.to_dict()} {error.value.fields}"


@ERASURES
@READERS
async def test_l6_a_forget_through_the_coordinator_leaves_nothing_anywhere(
    book: Book, disk: Disk, identity: bool, reader: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor do logs, errors and results hold it; `repair` completes what a reader kept."""
    caplog.set_level(logging.DEBUG)
    rnd, runtime = random.Random(), testing_runtime(clock=book.clock)
    value, text, key, source, space, subject = (random_value(rnd, 40) for _ in range(6))
    stores = [MemoryStore("memories", clock=book.clock), MemoryStore("agent", own_ids=True, clock=book.clock)]
    told = {"subject": subject, "predicate": "plan", "space": space, "actor": ACTOR, "idempotency_key": key}
    async with AsyncCoordinator(book.ledger, stores=stores, runtime=runtime) as custody:
        evidence = Observation(source=source, path="/plan", value=value)
        fact = (await custody.write(value=value, text=text, evidence=evidence, **told)).fact
        (event,) = await book.ledger.history(fact.fact_id)
        goes = [value, text, source, str(event.sealed["content"]["request"])]
        goes += [space, subject] if identity else []
        assert left_in(disk.files(), goes) == set(goes)
        async with AsyncExitStack() as stack:
            if reader:
                await stack.enter_async_context(disk.reading())
            forgotten = await custody.forget(fact.fact_id, actor=ACTOR, reason="asked", identity=identity)
            assert forgotten.complete is not (reader and disk.blocks)
            assert bool(left_in(disk.files(), goes)) is (forgotten.erasure is Erasure.PENDING)
        assert forgotten.erasure is Erasure.DONE or not forgotten.complete
        repaired = await custody.repair(actor="ops", reason="after a reader")
        assert repaired.complete
        assert left_in(disk.files(), [*goes, key]) == set()
        said = [
            repr(forgotten),
            repr(repaired),
            caplog.text,
            await caught(lambda: custody.write(value=value, text=text, evidence=evidence, **told)),
            await caught(lambda: custody.write(value="another", **told)),
            await caught(lambda: custody.retract(fact.fact_id, actor=ACTOR, reason="late")),
            repr(await custody.verify(actor="ops")),
        ]
    assert left_in({str(n): text.encode() for n, text in enumerate(said)}, [value, text, source]) == set()
