"""608 dated corrections about 200 subjects: at every instant the right one is current."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fix_ledger import Book
from fix_shelf import Shelf, check_both_ways

from custody_sync import AsyncCoordinator

FULL = bool(os.environ.get("CUSTODY_SYNC_FULL"))
DATA = Path(__file__).parents[3] / "shared" / "data" / "amendments"
TICK = timedelta(microseconds=1)

pytestmark = pytest.mark.skipif(
    not DATA.is_dir(), reason="the amendments are no part of this project and are not beside it"
)


@dataclass(frozen=True)
class Amendment:
    """One line of the data: from `since` on, `value` is what holds of the subject."""

    fact_id: str
    subject: str
    predicate: str
    space: str
    value: str
    since: datetime
    link: int
    """Its place in the chain of its subject, from 0."""


Chains = dict[str, list[Amendment]]


@pytest.fixture(scope="module")
def chains() -> Chains:
    """The corrections of every subject, oldest first."""
    found: Chains = {}
    for number, line in enumerate((DATA / "multivault.facts.jsonl").read_text().splitlines()):
        raw = json.loads(line)
        found.setdefault(raw["subject"], []).append(
            Amendment(
                fact_id=f"fact-{number}",
                subject=raw["subject"],
                predicate=raw["predicate"],
                space=raw["space"],
                value=raw["value"],
                since=datetime.fromisoformat(raw["valid_from"]),
                link=raw["seq"],
            )
        )
    return found


@pytest.fixture(scope="module")
def queries() -> list[dict[str, Any]]:
    """The questions: `proj` is the subject, `cur` the right value, `stale` the wrong ones."""
    found: list[dict[str, Any]] = json.loads((DATA / "multivault.queries.json").read_text())
    return found


async def load(book: Book, chains: Chains) -> None:
    """Write every chain, each link superseding the one before it, with its own valid time."""
    drafts = []
    for chain in chains.values():
        before = None
        for amendment in chain:
            drafts.append(
                book.state(
                    amendment.subject,
                    amendment.predicate,
                    amendment.value,
                    fact_id=amendment.fact_id,
                    space=amendment.space,
                    valid_from=amendment.since,
                    supersedes=before,
                )
            )
            before = amendment.fact_id
    await asyncio.gather(*map(book.append, drafts))


def moments(chains: Chains) -> Iterator[tuple[list[Amendment], datetime]]:
    """Yield each subject's chain with every change point, the microsecond before and the one after."""
    for chain in chains.values():
        for amendment in chain:
            for instant in (amendment.since - TICK, amendment.since, amendment.since + TICK):
                yield chain, instant


def current(chain: Iterable[Amendment], instant: datetime) -> list[str]:
    """Return the value that holds at an instant: that of the latest correction which began by then."""
    begun = [amendment for amendment in chain if amendment.since <= instant]
    return [max(begun, key=lambda amendment: amendment.since).value] if begun else []


async def test_every_change_point_has_its_answer(book: Book, chains: Chains) -> None:
    """At each of 608 change points, and a microsecond before and after, exactly one value is right."""
    await load(book, chains)
    assert (len(chains), (await book.ledger.head()).seq) == (200, 608)
    asked = 0
    for chain, instant in moments(chains):
        assert await book.values(subject=chain[0].subject, valid_at=instant) == current(chain, instant)
        asked += 1
    assert asked == 3 * 608


async def test_the_current_value_answers_every_query(
    book: Book, chains: Chains, queries: list[dict[str, Any]]
) -> None:
    """The data's own questions: today only `cur` is believed, and every stale value is in the ledger too."""
    await load(book, chains)
    stale = 0
    for query in queries:
        assert await book.values(space=query["proj"]) == [query["cur"]]
        values = {amendment.value for amendment in chains[query["proj"]]}
        assert values == {query["cur"], *query["stale"]}
        stale += len(query["stale"])
    assert (len(queries), stale > 1000) == (1000, True)


@pytest.mark.parametrize("first", [0, 1])
async def test_every_second_link_can_be_retracted(book: Book, chains: Chains, first: int) -> None:
    """What is left answers as if the retracted links had never been; as of before, nothing has changed."""
    await load(book, chains)
    then = (await book.ledger.head()).tx_time
    wrong = [a for chain in chains.values() for a in chain if a.link % 2 == first]
    book.later(days=1)
    await asyncio.gather(*(book.append(book.retract(amendment.fact_id)) for amendment in wrong))
    for chain, instant in moments(chains):
        left = [amendment for amendment in chain if amendment.link % 2 != first]
        subject = chain[0].subject
        assert await book.values(subject=subject, valid_at=instant) == current(left, instant)
        assert await book.values(subject=subject, valid_at=instant, tx_at=then) == current(chain, instant)


@pytest.mark.timeout(1800)
async def test_recall_serves_what_holds_and_withholds_nothing(
    book: Book, chains: Chains, queries: list[dict[str, Any]]
) -> None:
    """Every value lies in the store: today and as of a past day, the answer is what then held, each once."""
    await load(book, chains)
    shelf, leads = Shelf(book.ledger.ledger_id), dict[str, str]()
    past, led_then = datetime(2018, 6, 1, tzinfo=UTC), dict[str, str]()
    for chain in chains.values():
        begun = [amendment.fact_id for amendment in chain if amendment.since <= past]
        for amendment in chain:
            shelf.hold(amendment.fact_id, amendment.value)
            leads[amendment.fact_id] = chain[-1].fact_id
            led_then |= dict.fromkeys([amendment.fact_id], begun[-1]) if begun else {}
    async with AsyncCoordinator(book.ledger, stores=[shelf], superseded="keep") as custody:
        for query in queries[:: 1 if FULL else 40]:
            ranked = shelf.ranked(query["q"])
            for k in (1, 3, 10):
                result = await custody.recall(query["q"], k=k)
                check_both_ways([hit.fact_id for hit in result.hits], ranked, leads, k)
                assert not {hit.text for hit in result.hits} & set(query["stale"])
            result = await custody.recall(query["q"], k=3, valid_at=past)
            check_both_ways([hit.fact_id for hit in result.hits], ranked, led_then, 3)
