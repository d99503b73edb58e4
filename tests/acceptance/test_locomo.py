"""Real conversations through both stores; one speaker is erased, and everybody else stays as they were."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest
from fix_ledger import Book, open_book
from fix_oracle import Oracle
from fix_shelf import Shelf, check_both_ways
from fix_world import World, open_busy_world

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.model import (
    Erasure,
    Outcome,
    Provenance,
)
from custody_sync.results import (
    ForgetResult,
    WriteResult,
)

FOLDER = Path(__file__).parents[3] / "shared" / "data" / "locomo"
# Three of the ten have a John, so that erasing one of them must tell him from the others.
CONVERSATIONS = ("41", "43", "47")
ERASED = "locomo:41:John"
EVERYTHING = os.environ.get("CUSTODY_SYNC_LOCOMO") == "all"
AT_ONCE = 24
CLERK = "agent:listener"
TEXTS = {"agent": "select value->>'text' from store", "memories": "select text from memories"}

T, U = TypeVar("T"), TypeVar("U")

pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(),
    reason="the conversations (CC BY-NC) may not be copied into the project and are not beside it",
)


@dataclass(frozen=True)
class Observation:
    """What somebody noted about a speaker, and the turns of the dialogue that say so."""

    space: str
    text: str
    turns: str


def observations(conversation: Path) -> Iterator[Observation]:
    """Read one conversation's observations, session by session."""
    for name, said in json.loads(conversation.read_text()).items():
        if re.fullmatch(r"session_\d+_observation", name):
            for speaker, noted in said.items():
                for text, turns in noted:
                    joined = turns if isinstance(turns, str) else ", ".join(turns)
                    yield Observation(f"locomo:{conversation.stem}:{speaker}", text, joined)


def questions(conversation: Path) -> list[str]:
    """Read what the data asks about one conversation."""
    return [asked["question"] for asked in json.loads(conversation.read_text())["qa"]]


def conversations() -> list[Path]:
    """Return three conversations, or all where CUSTODY_SYNC_LOCOMO=all asks for them."""
    return [path for path in sorted(FOLDER.glob("*.json")) if EVERYTHING or path.stem in CONVERSATIONS]


async def at_once(work: Callable[[T], Awaitable[U]], items: Iterable[T]) -> list[U]:
    """Do some work on many items side by side."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(item: T) -> U:
        async with limit:
            return await work(item)

    return list(await asyncio.gather(*map(one, items)))


def needle(text: str) -> bytes:
    """Return the longest piece of a text that JSON writes as it is."""
    return max(re.split(r'["\\\x00-\x1f]', text), key=len).encode()


def in_files(oracle: Oracle, texts: Iterable[str]) -> set[str]:
    """Return the texts of which a file of the ledger's folder holds a piece."""
    images = [path.read_bytes() for path in oracle.files()]
    return {text for text in texts if any(needle(text) in image for image in images)}


def in_stores(engine: psycopg.Connection[Any]) -> dict[str, Counter[str]]:
    """Return every text of either store, by plain SQL."""
    return {store: Counter(text for (text,) in engine.execute(query)) for store, query in TEXTS.items()}


async def served(world: World, asked: Iterable[Observation]) -> dict[str, set[Observation]]:
    """Return, for each store, what its own search over everything serves when asked with its very text."""
    found: dict[str, set[Observation]] = {}
    for store in world.stores:

        async def ask(noted: Observation, store: Any = store) -> Observation | None:
            hits = [hit.entry for hit in await store.search(noted.text, 20, None)]
            return noted if any((e.text, e.space) == (noted.text, noted.space) for e in hits) else None

        found[store.name] = set(filter(None, await at_once(ask, asked)))
    return found


@pytest.mark.timeout(600)
async def test_one_speaker_is_erased_and_nobody_else(database_uri: str, tmp_path: Path) -> None:
    """Nothing erased is in a store, its search or a file of the ledger; all others are untouched."""
    noted = [item for path in conversations() for item in observations(path)]
    erased = [item for item in noted if item.space == ERASED]
    others = [item for item in noted if item.space != ERASED]
    assert len(erased) > 100
    assert len(others) > 500
    assert not any(needle(item.text).decode() in other.text for item in erased for other in others)
    async with (
        open_busy_world(database_uri) as world,
        await Ledger.open(f"sqlite:///{tmp_path / 'custody.db'}", create=True) as ledger,
        AsyncCoordinator(ledger, stores=world.stores) as custody,
    ):
        with psycopg.connect(database_uri, autocommit=True) as engine:
            oracle = Oracle(tmp_path, engine)

            async def write(item: Observation) -> WriteResult:
                return await custody.write(
                    value=item.text, space=item.space, actor=CLERK, receipt_id=item.turns
                )

            written = await at_once(write, noted)
            assert in_stores(engine) == {key: Counter(item.text for item in noted) for key in TEXTS}
            assert in_files(oracle, (item.text for item in noted)) == {item.text for item in noted}
            sample = others[:: len(others) // 60]
            for store, found in (await served(world, erased + sample)).items():
                assert found == {*erased, *sample}, f"{store} does not serve what it holds"

            theirs = {w.fact.fact_id for w in written if w.fact.space == ERASED}
            page = await ledger.as_of(space=ERASED, limit=1000)
            assert {fact.fact_id for fact in page} == theirs

            async def forget(fact_id: str) -> ForgetResult:
                result = await custody.forget(fact_id, actor=CLERK, reason="asked to", identity=True)
                assert {removal.outcome for removal in result.removals} == {Outcome.VERIFIED}
                assert {removal.store for removal in result.removals} == set(TEXTS)
                return result

            held = oracle.held()
            results = await at_once(forget, sorted(theirs))
            # Whose fellows' entries were not all gone yet could not be told that the stores forgot the space.
            for fact_id in [result.fact_id for result in results if result.erasure is not Erasure.DONE]:
                result = await custody.forget(fact_id, actor=CLERK, reason="asked to", identity=True)
                assert (result.erasure, result.complete) == (Erasure.DONE, True)
            # The rest waited for fellows that were still on their way out of the stores.
            assert sum(result.complete for result in results) > len(theirs) // 10

            assert in_files(oracle, (item.text for item in erased)) == set()
            assert in_stores(engine) == {key: Counter(item.text for item in others) for key in TEXTS}
            assert oracle.says(ERASED) == []
            for store, found in (await served(world, erased + sample)).items():
                assert found == set(sample), f"{store} serves somebody wrong"
            assert oracle.held() == {key: whose for key, whose in held.items() if whose not in theirs}
            assert await ledger.as_of(space=ERASED) == []
            believed = oracle.judge(ledger.now(), kept=(w.fact.fact_id for w in written))
            assert believed == {w.fact.fact_id for w in written} - theirs


async def stated(book: Book, shelf: Shelf, noted: Sequence[Observation]) -> dict[str, str]:
    """State everything and lay it into the store, end some of it in every way, and return what leads where.

    The store hears of no end, and has what the ledger never heard of.
    """
    leads: dict[str, str] = {}

    async def state(item: Observation, text: str, **more: Any) -> str:
        free = {
            "subject": item.space,
            "predicate": "memory",
            "space": item.space,
            "value": text,
            "text": text,
        }
        return await book.add(**free, **more)

    async def live(number: int, item: Observation) -> None:
        fate = number % 12
        claimed = {"provenance": Provenance.CLAIMED} if fate == 0 else {}
        fact_id = await state(item, item.text, **claimed)
        shelf.hold(fact_id, item.text)
        if fate == 1:
            await book.append(book.retract(fact_id))
        elif fate == 2:
            await book.append(book.forget(fact_id, identity=True))
        elif fate in (3, 4, 5):
            newer = await state(item, f"{item.text} No longer.", supersedes=fact_id)
            if fate == 3:
                leads[fact_id] = newer  # the store has only the one before
            elif fate == 4:
                await book.append(book.retract(newer))
                leads[fact_id] = fact_id
            else:
                await book.append(book.forget(newer))
        elif fate == 6:
            shelf.hold(f"{fact_id}-never-stated", item.text)
            shelf.hold(fact_id, item.text, ledger_id="another")
        if fate >= 6:
            leads[fact_id] = fact_id

    await asyncio.gather(*(live(number, item) for number, item in enumerate(noted)))
    return leads


@pytest.mark.timeout(1800)
async def test_recall_withholds_nobodys_memory_and_serves_nothing_that_ended(tmp_path: Path) -> None:
    """The store still has all that ended: answers are the best live memories of the spaces asked for."""
    noted = [item for path in conversations() for item in observations(path)]
    book = await open_book(tmp_path / "custody.db", url=f"sqlite:///{tmp_path / 'custody.db'}")
    shelf, asked = Shelf(book.ledger.ledger_id), 0
    async with book.ledger, AsyncCoordinator(book.ledger, stores=[shelf], superseded="keep") as custody:
        leads = await stated(book, shelf, noted)
        assert len(noted) / 3 < len(set(leads.values())) < len(noted)
        space_of = {fact.fact_id: fact.space for fact in await book.ledger.as_of(limit=10_000)}
        assert set(leads.values()) == space_of.keys()
        for path in conversations():
            spaces = [f"locomo:{path.stem}:{ERASED.rpartition(':')[2]}", f"locomo:{path.stem}:Maria"]
            theirs = {owner: led for owner, led in leads.items() if space_of[led] in spaces}
            for question in questions(path)[:: 1 if EVERYTHING else 16]:
                ranked = shelf.ranked(question)
                for among, wanted in ((leads, None), (theirs, spaces)):
                    result = await custody.recall(question, k=10, spaces=wanted)
                    check_both_ways([hit.fact_id for hit in result.hits], ranked, among, 10)
                asked += 1
    assert asked > 30
