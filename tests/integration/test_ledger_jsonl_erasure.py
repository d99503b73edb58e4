"""L6 on JSONL: a forget that is acknowledged has left no form of the value in the ledger's folder."""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fix_ledger import Book, files_of, open_book
from fix_residue import forms_of, grams_of, pieces_of, random_value

from custody_sync.ledger import Ledger, Remove
from custody_sync.ledger.storage import Note
from custody_sync.model import Erasure
from custody_sync.testing import testing_runtime


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Book]:
    """A new JSONL ledger in a folder of its own."""
    path = tmp_path / "ledger" / "l.jsonl"
    path.parent.mkdir()
    book = await open_book(path, url=f"jsonl:///{path}")
    yield book
    await book.ledger.close()


def found_in(folder: Path, needles: set[bytes]) -> list[str]:
    """Return which files hold any of the needles."""
    return [name for name, data in files_of(folder).items() if any(needle in data for needle in needles)]


@pytest.mark.parametrize("reading", ["nobody", "reader", "writer"])
@pytest.mark.parametrize("secret", ["123-45-6789", 'Zoë "Zed" \\ Ångström \U0001f600', "ÿ" * 9000])
async def test_l6_no_form_of_a_value_stays_whoever_has_the_file_open(
    kept: Book, secret: str, reading: str
) -> None:
    """The file is replaced, so nobody stands in the way; whoever asks next reads the new one."""
    fact_id = await kept.add("user:7", "ssn", {"list": [secret], secret[:900]: 1}, text=f"the text: {secret}")
    await kept.add("user:8", value="stays here")
    folder, url = kept.path.parent, f"jsonl:///{kept.path}"
    other: Ledger | None = None
    if reading != "nobody":
        runtime = testing_runtime(clock=kept.clock)
        other = await Ledger.open(url, read_only=reading == "reader", runtime=runtime)
        assert len(await other.as_of()) == 2
    needles = forms_of(secret[:40])
    assert found_in(folder, needles) == ["l.jsonl"]
    await kept.append(kept.forget(fact_id))
    assert found_in(folder, needles) == []
    assert found_in(folder, {b"stays here"}) == ["l.jsonl"]
    for ledger in (kept.ledger, other):
        if ledger is not None:
            assert [fact.value for fact in await ledger.as_of()] == ["stays here"]
            assert await ledger.erase() is Erasure.DONE
            assert not any(secret[:40] in text for text in memory_of(ledger))
    if other is not None:
        await other.close()


def memory_of(ledger: Ledger) -> list[str]:
    """Return every statement that would make what a ledger answers from."""
    storage: Any = ledger._storage
    return list(storage._image.conn.iterdump())


@pytest.mark.parametrize("seed", range(3))
async def test_l6_nothing_stays_when_many_facts_go(kept: Book, seed: int) -> None:
    """Facts of all sizes come and go in any order; no piece of what was forgotten is ever left."""
    rnd = random.Random(seed)
    living: dict[str, str] = {}
    for _ in range(4):
        for _ in range(rnd.randint(1, 20)):
            value = random_value(rnd, rnd.choice([24, 60, 900, 20_000]))
            living[await kept.add(f"user:{rnd.randint(0, 9)}", value=value, text="t")] = value
        gone = rnd.sample(sorted(living), rnd.randint(1, len(living)))
        needles = {piece for fact_id in gone for piece in pieces_of(living.pop(fact_id))}
        for fact_id in gone:
            await kept.append(kept.forget(fact_id))
        assert needles & grams_of(files_of(kept.path.parent).values()) == set()
    assert {fact.value for fact in await kept.ledger.as_of(limit=1000)} == set(living.values())


async def forgotten_by_name(book: Book) -> tuple[str, set[bytes]]:
    """Forget a fact with its identity and remove its entry; return its id and every name it had."""
    rnd = random.Random(3)
    space, subject, reason, external_id, scope = (random_value(rnd, 30) for _ in range(5))
    draft = book.state(subject, space=space)
    fact_id = draft.fact.fact_id
    await book.append(replace(draft, placements=book.held(fact_id, [("m", external_id)], scope=scope)))
    await book.append(book.hold(fact_id, "h", reason))
    await book.append(book.release(fact_id, "h"))
    removed = book.remove(fact_id, "m", external_id, scope=scope)
    # What a sweep notes of an entry that it is about to remove.
    value = f'{{"fact_id":"{fact_id}","external_id":"{external_id}","scope":"{scope}"}}'
    await book.ledger.put_notes([Note(topic="sweep", key=external_id, value=value, since=book.clock.now())])
    await book.append(book.forget(fact_id, identity=True))
    await book.append(removed)
    return fact_id, {name.encode() for name in (space, subject, reason, external_id, scope)}


async def test_l6_an_identity_leaves_the_log_and_the_notes(kept: Book) -> None:
    """The log at once; what a sweep noted once it is no longer at work."""
    folder = kept.path.parent
    _, names = await forgotten_by_name(kept)
    assert found_in(folder, names) == ["l.jsonl-notes"]
    reader = await Ledger.open(f"jsonl:///{kept.path}", read_only=True)
    await kept.ledger.acquire("lease", "sweep", holder="me", value="{}", ttl=timedelta(minutes=1))
    assert await kept.ledger.erase() is Erasure.PENDING
    assert await reader.erase() is Erasure.PENDING
    assert len(await kept.ledger.notes("sweep")) == 1
    kept.later(minutes=2)
    assert await kept.ledger.erase() is Erasure.DONE
    assert await reader.erase() is Erasure.DONE
    assert await kept.ledger.notes("sweep") == []
    assert found_in(folder, names) == []
    assert not any(name.decode() in text for name in names for text in memory_of(kept.ledger))
    await reader.close()


async def test_l6_a_refused_erasure_of_an_identity_takes_no_notes(kept: Book) -> None:
    """It was announced before it was decided on, and what did not come is no reason to drop them."""
    fact_id = await kept.add()
    await kept.append(kept.hold(fact_id))
    note = Note(topic="sweep", key="k", value=f'{{"fact_id":"{fact_id}"}}', since=kept.clock.now())
    await kept.ledger.put_notes([note])
    assert await kept.refused(kept.forget(fact_id, identity=True)) == "on_hold"
    assert await kept.ledger.erase() is Erasure.DONE
    assert await kept.ledger.notes("sweep") == [note]
    assert await kept.ledger.notes("erasure") == []


async def test_l6_an_erasure_waits_for_nobody(kept: Book) -> None:
    """The value goes as the event comes, in one step."""
    fact_id = await kept.add(value="to-be-erased")
    forget = kept.forget(fact_id)
    seen: list[tuple[bool, bool]] = []

    def look(_: str) -> None:
        log = kept.path.read_bytes()
        seen.append((b"to-be-erased" in log, b'"kind":"forget"' in log))

    storage: Any = kept.ledger._storage
    storage._runtime = replace(storage._runtime, reach=look)
    await kept.append(forget)
    assert seen == [(True, False), (True, False), (False, True), (False, True)]


async def test_l6_the_removal_of_an_erased_entry_takes_its_ids_out_of_the_file(kept: Book) -> None:
    """The last removal of an identity that is gone rewrites the log as the forget did."""
    external_id = random_value(random.Random(5), 40)
    fact_id = await kept.add(held=[("m", external_id)])
    await kept.append(kept.forget(fact_id, identity=True))
    assert re.search(external_id.encode(), kept.path.read_bytes())
    removal = kept.remove(fact_id, "m", external_id)
    assert isinstance(removal, Remove)
    await kept.append(removal)
    assert found_in(kept.path.parent, {external_id.encode()}) == []
    (placement,) = await kept.ledger.placements(fact_id)
    assert placement.external_id.startswith("erased")
