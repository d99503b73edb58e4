"""How much of an answer there is room for: a text is cut with a mark, a correction is whole or not there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fix_custody import Desk
from fix_recall import counts_of, open_shelf
from hypothesis import given
from hypothesis import strategies as st

from custody_sync.ledger.answers import NO_EVENT
from custody_sync.ledger.questions import Instants
from custody_sync.model import Entry, Fact
from custody_sync.recall import MARK, Question, Recall, Sifted
from custody_sync.recalled import Budget
from custody_sync.served import Served
from custody_sync.testing import ManualClock

LONG = "the plan of the team is described in many words"


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    """A desk with three facts, best first: a long one, a correction, and a short one."""
    async with open_shelf(tmp_path) as (opened, shelf):
        await opened.written("long", text=LONG)
        old = await opened.written("old", predicate="p", text="stale")
        await opened.written("new", predicate="p", text="the correction of it", supersedes=old)
        await opened.written("short", predicate="q", text="a short one")
        shelf.hits = [shelf.hits[place] for place in (0, 1, 3)]
        yield opened


async def texts(desk: Desk, k: int = 10, **budget: Any) -> tuple[list[str], str]:
    """Return the texts that were served and the status."""
    found = await desk.custody.recall("plan", k=k, budget=Budget(**budget))
    # What was not needed is not looked at.
    assert found.seen == min(k, 3)
    assert len(found.hits) + sum(found.dropped.values()) == min(k, 3)
    return [hit.text for hit in found.hits], found.status.value


async def test_no_budget(desk: Desk) -> None:
    """Without one everything is whole."""
    assert await texts(desk) == ([LONG, "the correction of it", "a short one"], "exhausted")
    assert await texts(desk, characters=1000, per_fact=100) == await texts(desk)


async def test_each_text_is_cut_with_a_mark_and_a_correction_never(desk: Desk) -> None:
    """`per_fact` counts the mark; value and fact stay whole; a correction is longer than it where it must."""
    found = await desk.custody.recall("plan", budget=Budget(per_fact=10))
    assert [(hit.text, hit.cut) for hit in found.hits] == [
        (LONG[:9] + MARK, True), ("the correction of it", False), ("a short o" + MARK, True),
    ]  # fmt: skip
    assert found.facts[0].text == LONG
    assert found.status == "exhausted"
    assert await texts(desk, per_fact=len("a short one")) == (
        [LONG[:10] + MARK, "the correction of it", "a short one"],
        "exhausted",
    )


async def test_a_correction_that_does_not_fit_is_said_and_nothing_takes_its_place(desk: Desk) -> None:
    """Neither the text it corrected nor a shorter fact that is worse is served instead."""
    room = len(LONG) + len("the correction of it")
    assert await texts(desk, k=2, characters=room) == ([LONG, "the correction of it"], "full")
    assert await texts(desk, characters=room - 1) == ([LONG], "budget_too_small")
    found = await desk.custody.recall("plan", budget=Budget(characters=room - 1))
    assert counts_of(found) == {"budget": 2}
    assert not found.complete
    assert await texts(desk, characters=15, per_fact=12) == ([LONG[:11] + MARK], "budget_too_small")


async def test_characters_of_all_texts_together(desk: Desk) -> None:
    """The last fact that there is room for is cut; the ones after it are counted."""
    room = len(LONG) + len("the correction of it")
    assert await texts(desk, characters=room + 5) == (
        [LONG, "the correction of it", "a sh" + MARK],
        "exhausted",
    )
    assert await texts(desk, characters=room + 1) == ([LONG, "the correction of it"], "budget_spent")
    assert await texts(desk, characters=1) == ([], "budget_spent")
    assert await texts(desk, k=1, characters=2) == (["t" + MARK], "full")


async def test_no_more_is_asked_for_than_there_is_room_for(tmp_path: Path) -> None:
    """A store is not searched on for facts that would not fit."""
    async with open_shelf(tmp_path, superseded="keep") as (desk, shelf):
        await desk.written("one", text="x" * 50)
        await desk.written("two", predicate="q", text="y" * 50)
        shelf.cap = 2
        shelf.hits *= 20
        found = await desk.custody.recall("plan", k=10, budget=Budget(characters=50))
        assert ([hit.value for hit in found.hits], found.status, shelf.sizes) == (
            ["one"],
            "budget_spent",
            [20],
        )


def sifted(sizes: list[tuple[int, bool]]) -> Sifted:
    """Return an answer with facts of these lengths, each a correction or not."""
    now = ManualClock().now()
    facts = [
        Fact(
            fact_id=f"f{n}", space="org", subject="s", predicate="p", value=n, text="é" * size, actor="a",
            provenance="attested", valid_from=now, supersedes="x" if corrects else None,
        )
        for n, (size, corrects) in enumerate(sizes)
    ]  # fmt: skip
    served: Served = (Entry(store="s", external_id="e"), None)
    return Sifted(Instants(NO_EVENT, now), len(facts), [(served, fact) for fact in facts])


SIZES = st.lists(st.tuples(st.integers(1, 30), st.booleans()), max_size=8)
LIMIT = st.none() | st.integers(1, 60)


@given(SIZES, st.integers(1, 6), LIMIT, LIMIT)
def test_what_fits(
    sizes: list[tuple[int, bool]], k: int, characters: int | None, per_fact: int | None
) -> None:
    """What is served is the best facts in order, in bounds, every correction whole, and as many as fit."""
    budget = Budget(characters=characters, per_fact=per_fact)
    answer = sifted(sizes)
    recall = Recall(None, _Gate(), Question(query="q", k=k, budget=budget))  # type: ignore[arg-type]
    over = recall._choose(answer)
    hits, best = recall._hits, answer.live[:k]
    assert [hit.fact for hit in hits] == [fact for _, fact in best[: len(hits)]]
    assert sum(len(hit.text) for hit in hits) <= (characters or 10**6)
    for hit in hits:
        whole = hit.fact.text or ""
        assert hit.text == (whole[: len(hit.text) - 1] + MARK if hit.cut else whole)
        assert not (hit.cut and hit.fact.supersedes)
        assert hit.fact.supersedes or len(hit.text) <= (per_fact or 10**6)
    assert (over is None) == (len(hits) == len(best))
    if over is not None:
        _, next_one = best[len(hits)]
        left = (characters or 10**6) - sum(len(hit.text) for hit in hits)
        if next_one.supersedes:
            assert (over, left < len(next_one.text or "")) == ("budget_too_small", True)
        else:
            assert (over, min(left, per_fact or left) < 2) == ("budget_spent", True)


class _Gate:
    name = "s"
