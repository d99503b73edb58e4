"""Recall from stores that lie, refuse, are capped, hang or never end: what is served stays the ledger's."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from fix_custody import ACTOR, Desk, HttpError, error_of, left_running, open_desk
from fix_recall import Shelf, counts_of, entry_of, open_shelf, values_of, watch

from custody_sync.errors import StoreError, StoreUnavailable
from custody_sync.ledger import Forget
from custody_sync.model import Entry, Hit
from custody_sync.recall import MOST
from custody_sync.recalled import Budget, RecallResult
from custody_sync.testing import FOREVER, Faults, ManualClock, MemoryStore

QUERY = "which plan does the team have"


# --- stale entries before live ones ---------------------------------------------------------


class Capped(MemoryStore):
    """Serves so many hits at most, as hosted stores do."""

    cap = 100

    async def search(self, query: str, k: int, spaces: Sequence[str] | None) -> list[Hit]:
        """Serve the best hits up to the cap."""
        return (await super().search(query, k, spaces))[: self.cap]


async def test_p7_live_facts_behind_a_window_of_stale_ones(tmp_path: Path) -> None:
    """P7: the store's first windows hold only what was taken back, and the live facts follow."""

    def lagging(clock: ManualClock) -> list[MemoryStore]:
        return [Capped(faults=Faults(index_lag=FOREVER), without=["find", "verify_deleted"], clock=clock)]

    async with open_desk(tmp_path, stores=lagging) as desk:
        store: Any = desk.stores["memory"]
        await desk.written("worse", text="plan of the team: much more than was asked for, and other words")
        await desk.written("better", text="plan of the team: more than was asked for")
        near: Any = [{"predicate": f"p{n}", "text": f"{QUERY} {n}"} for n in range(125)]
        first = await asyncio.gather(*(desk.written(1, **about) for about in near))
        second = await asyncio.gather(
            *(desk.written(2, supersedes=old, **about) for old, about in zip(first, near, strict=True))
        )
        # The earlier links first: they are then not put again.
        for links in (first, second):
            await asyncio.gather(*map(desk.retract, links))
        for k, expected in ((1, ["better"]), (2, ["better", "worse"]), (5, ["better", "worse"])):
            store.cap = 100
            capped = await desk.custody.recall(QUERY, k=k)
            assert (values_of(capped), capped.status, capped.complete) == ([], "short", False)
            (said,) = capped.notes
            assert said.startswith(
                "the ledger has more facts here than the store served for this query; reconcile"
            )
            store.cap = MOST
            found = await desk.custody.recall(QUERY, k=k)
            assert values_of(found) == expected
            assert found.status == ("full" if k < 5 else "exhausted")
            assert counts_of(found) == {"retracted": 250}


async def test_the_store_is_asked_for_more_until_there_are_enough(tmp_path: Path) -> None:
    """Each answer that is too short of facts is asked for four times as large, and no answer twice."""
    async with open_shelf(tmp_path) as (desk, shelf):
        live = [await desk.written(n, predicate=f"p{n}") for n in range(3)]
        stale = [entry_of(desk.ledger, f"nobody-{n}") for n in range(40)]
        shelf.lay(*stale, *[entry_of(desk.ledger, fact_id) for fact_id in live])
        found = await desk.custody.recall("plan", k=3)
        assert (values_of(found), shelf.sizes, found.seen) == ([0, 1, 2], [3, 12, 48], 43)
        assert (found.status, counts_of(found)) == ("full", {"orphan": 40})
        shelf.sizes.clear()
        shelf.cap = 20
        assert (await desk.custody.recall("plan", k=3)).status == "short"
        assert shelf.sizes == [3, 12, 48]


@pytest.mark.parametrize("labels", [True, False])
async def test_adopted_entries_that_no_space_of_the_store_has(tmp_path: Path, labels: bool) -> None:
    """Where labels cannot be given, what was adopted is looked for in all spaces, and checked as ever."""
    without = ["find", "verify_deleted", *([] if labels else ["relabel"])]
    async with open_desk(tmp_path, stores=lambda clock: [Capped(without=without, clock=clock)]) as desk:
        store: Any = desk.stores["memory"]
        store.put_raw("gold has acct 9")
        await desk.custody.adopt("memory", actor=ACTOR, space="org", provenance="attested", dry_run=False)
        await desk.written("tea", text="acct 9 has tea and biscuits")
        store.put_raw("acct 9 has")
        store.calls.clear()
        found = await desk.custody.recall("acct 9 has", k=5, spaces=["org"])
        assert values_of(found) == ["gold has acct 9", "tea"]
        assert (found.status, store.calls["search"]) == ("exhausted", 1 if labels else 2)
        assert counts_of(found) == ({} if labels else {"unlabelled": 1})
        shown = await desk.custody.recall("acct 9 has", k=5, spaces=["org"], unlabelled="show")
        assert (values_of(shown)[-1], shown.unlabelled) == ("tea", ())
        assert shown.status == ("exhausted" if labels else "short")
        elsewhere = await desk.custody.recall("acct 9 has", k=5, spaces=["user:1"])
        assert (elsewhere.hits, elsewhere.status) == ((), "exhausted")
        store.cap = 1
        capped = await desk.custody.recall("acct 9 has", k=5, spaces=["org"])
        assert (len(capped.hits), capped.status) == (1, "short")


@pytest.mark.parametrize("scored", [True, False])
async def test_what_a_narrow_search_found_stays_when_a_wide_one_does_not_show_it(
    tmp_path: Path, scored: bool
) -> None:
    """Both answers are served as one, each entry counted once, in order of score where there are scores."""

    class Narrow(Capped):
        async def search(self, query: str, k: int, spaces: Sequence[str] | None) -> list[Hit]:
            """Serve at most six, and everything of somebody else before the last of a space."""
            hits = await super().search(query, 10**6, spaces)
            hits = [hit for hit in hits if spaces or "tea" not in (hit.entry.text or "")]
            return [hit if scored else replace(hit, score=None) for hit in hits[: min(k, 6)]]

    without = ["find", "verify_deleted", "relabel"]
    async with open_desk(tmp_path, stores=lambda clock: [Narrow(without=without, clock=clock)]) as desk:
        store: Any = desk.stores["memory"]
        adopted = {"actor": ACTOR, "space": "org", "provenance": "attested", "dry_run": False}
        store.put_raw("acct 9 has gold and silver")
        store.put_raw("acct 9 gold")
        await desk.custody.adopt("memory", **adopted)
        await desk.written("tea", text="acct 9 has tea")
        await desk.written("none", text="nothing", predicate="p")
        store.put_raw("acct 9")
        found = await desk.custody.recall("acct 9 has", k=5, spaces=["org"])
        assert [hit.text for hit in found.hits] == (
            ["acct 9 has tea", "acct 9 has gold and silver", "acct 9 gold"]
            if scored
            else ["acct 9 has gold and silver", "acct 9 gold", "acct 9 has tea"]
        )
        assert (found.status, found.seen, counts_of(found)) == ("short", 4, {"unlabelled": 1})


async def test_an_adopted_fact_without_label_is_the_best_where_all_is_searched(tmp_path: Path) -> None:
    """Spaces alone leave it out once there are enough others; a filter of the ledger's spaces does not."""
    stores = [MemoryStore(without=["relabel"])]
    async with open_desk(tmp_path, stores=stores) as desk:
        stores[0].put_raw("allergic to peanuts")
        about: Any = {"actor": ACTOR, "space": "org", "provenance": "attested", "dry_run": False}
        await desk.custody.adopt("memory", **about)
        await desk.written("eaten", text="ate peanuts in 2019 with friends at the beach")
        await desk.written("other", text="allergic to peanuts, all of them", space="user:1")
        query = "allergic to peanuts"
        narrow = await desk.custody.recall(query, k=1, spaces=["org"])
        assert (values_of(narrow), narrow.status) == (["eaten"], "full")
        wide = await desk.custody.recall(query, k=1, keep=lambda fact: fact.space == "org")
        assert [hit.text for hit in wide.hits] == [query]
        both = await desk.custody.recall(query, k=2, spaces=["org"])
        assert both.hits[0].text == query


async def test_a_larger_answer_that_lacks_something_takes_nothing_away(tmp_path: Path) -> None:
    """What a store served once is served, though it does not serve it among more."""

    class Forgetful(Shelf):
        async def search(self, query: str, k: int, spaces: Sequence[str] | None) -> list[Hit]:
            """Leave the first entry out of every answer but the first."""
            hits = await super().search(query, k, spaces)
            return hits[1:] if len(self.sizes) > 1 else hits

    async with open_desk(tmp_path, stores=lambda clock: [Forgetful(clock=clock)]) as desk:
        shelf: Any = desk.stores["shelf"]
        first = await desk.written("first")
        second = await desk.written("second", predicate="p")
        stale = [entry_of(desk.ledger, f"nobody-{n}") for n in range(5)]
        shelf.lay(entry_of(desk.ledger, first), *stale, entry_of(desk.ledger, second))
        found = await desk.custody.recall("plan", k=2)
        assert (sorted(values_of(found)), found.status) == (["first", "second"], "full")
        assert (found.seen, counts_of(found)) == (7, {"orphan": 5})


async def test_what_goes_meanwhile_does_not_stand_for_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fact forgotten after the store answered is no reason to say that there is no more."""
    async with open_desk(tmp_path, stores=lambda clock: [Shelf(clock=clock)]) as desk:
        shelf: Any = desk.stores["shelf"]
        first, second = await desk.written("first"), await desk.written("second", predicate="p")
        await desk.written("third", predicate="q")
        shelf.lay(entry_of(desk.ledger, first), entry_of(desk.ledger, second))
        as_of = desk.ledger.as_of

        async def after_a_forget(**asked: Any) -> Any:
            await desk.ledger.append(Forget(event_id="e-meanwhile", fact_id=first, actor="eve"))
            return await as_of(**asked)

        monkeypatch.setattr(desk.ledger, "as_of", after_a_forget)
        found = await desk.custody.recall("plan", k=5)
        assert (found.status, found.complete) == ("short", False)


async def test_a_store_that_never_ends_is_asked_so_often_and_no_more(tmp_path: Path) -> None:
    """Endless answers are cut where enough was asked for; an answer without an end is no endless wait."""

    class Endless(Shelf):
        async def search(self, query: str, k: int, spaces: Sequence[str] | None) -> Any:
            """Serve without an end."""
            self.sizes.append(k)

            def rows() -> Iterator[Hit]:
                for n in range(10**9):
                    yield Hit(entry=Entry(store="shelf", external_id=f"x{n}", fact_id="f", ledger_id="other"))

            return rows()

    async with open_desk(tmp_path, stores=[Endless()]) as desk:
        await desk.written("pro")
        found = await desk.custody.recall("plan", k=4)
        shelf: Any = desk.stores["shelf"]
        assert shelf.sizes == [4, 16, 64, 256, 1024, 4096, MOST]
        assert (found.hits, found.status, found.seen) == ((), "short", MOST)
        assert found.notes == (f"only the first {MOST} entries were looked at",)


async def test_more_hits_than_asked_for_are_not_looked_at(tmp_path: Path) -> None:
    """A store that ignores how many are wanted costs no more than one that does not."""
    async with open_shelf(tmp_path) as (desk, shelf):
        for n in range(30):
            await desk.written(n, predicate=f"p{n}")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shelf, "search", AsyncMock(return_value=shelf.hits))
            found = await desk.custody.recall("plan", k=2)
        assert (values_of(found), found.seen, found.status) == ([0, 1], 2, "full")


# --- lies -----------------------------------------------------------------------------------


async def test_lies_about_entries_and_scores(tmp_path: Path) -> None:
    """Repeated, foreign, forged and impossible hits neither raise nor change what is served."""
    async with open_shelf(tmp_path) as (desk, shelf):
        one, two = [await desk.written(n, predicate=f"p{n}") for n in (1, 2)]
        others = await desk.written("theirs", space="user:2")
        mine = {fact_id: entry_of(desk.ledger, fact_id) for fact_id in (one, two, others)}
        scores: list[Any] = [math.nan, math.inf, -math.inf, 10**400, "0.9", True, None, HttpError()]
        shelf.lay(
            *[Hit(entry=mine[one], score=score) for score in scores],
            Hit(entry=mine[two], score=0.5),
            Hit(entry=mine[others], score=0.9),
            Hit(entry=entry_of(desk.ledger, two, ledger_id="another"), score=0.8),
            Hit(entry=entry_of(desk.ledger, two, space="user:2"), score=math.nan),
            Hit(entry="no entry"),  # type: ignore[arg-type]  # that is the point
            Hit(entry=entry_of(desk.ledger, "\ud800", external_id="x")),
            Hit(entry=entry_of(desk.ledger, "a\0b")),
            Hit(entry=entry_of(desk.ledger, two, external_id="")),
            None, 7, (mine[two], 1.0), "x" * 100,
        )  # fmt: skip
        shelf.hits.append(mine[two])
        found = await desk.custody.recall("plan", k=10, spaces=["org"])
        assert [(hit.fact_id, hit.score) for hit in found.hits] == [(one, None), (two, 0.5)]
        assert counts_of(found) == {
            "repeated": 8, "other_space": 1, "other_ledger": 1, "unreadable": 9,
        }  # fmt: skip
        assert found.seen == 2 + sum(found.dropped.values())


@pytest.mark.parametrize("answer", [None, 7, object()])
async def test_an_answer_that_is_none(tmp_path: Path, answer: object) -> None:
    """What cannot be read as hits is no answer of the store."""
    async with open_shelf(tmp_path) as (desk, shelf):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shelf, "search", AsyncMock(return_value=answer))
            error = await error_of(desk.custody.recall("plan"), StoreUnavailable)
        assert error.cause == "TypeError"


async def test_the_stores_order_is_kept_and_ties_have_one(tmp_path: Path) -> None:
    """Facts come as the store ranked them, whatever its scores say; what scored alike comes by id."""
    async with open_shelf(tmp_path) as (desk, shelf):
        ids = [await desk.written(n, predicate=f"p{n}") for n in range(6)]
        entries = [entry_of(desk.ledger, fact_id, external_id=f"x{n}") for n, fact_id in enumerate(ids)]
        scores = (0.1, 0.9, 0.9, 0.9, 0.2, 0.9)

        async def served(order: Sequence[int]) -> bytes:
            shelf.lay(*[Hit(entry=entries[n], score=scores[n]) for n in order])
            found = await desk.custody.recall("plan", with_history=True)
            assert [scores[hit.value] for hit in found.hits] == [scores[n] for n in order]  # type: ignore[index]
            return repr(found).encode()

        first = await served([0, 3, 1, 2, 4, 5])
        assert first == await served([0, 2, 3, 1, 4, 5])
        assert first != await served([0, 5, 3, 1, 4, 2])
        shelf.lay(*reversed(entries))
        assert values_of(await desk.custody.recall("plan")) == [5, 4, 3, 2, 1, 0]


# --- refusals -------------------------------------------------------------------------------


class Narrow(Shelf):
    """Refuses to be asked for many at once, as vendors do with a large `limit`."""

    async def search(self, query: str, k: int, spaces: Sequence[str] | None) -> list[Hit]:
        """Serve what lies here, ten of it at most."""
        if k > 10:
            raise HttpError
        return await super().search(query, k, spaces)


async def test_a_store_that_refuses_to_serve_more(tmp_path: Path) -> None:
    """What it served before stands, and the answer says that there may be more."""
    async with open_desk(tmp_path, stores=[Narrow()]) as desk:
        live = [await desk.written(n, predicate=f"p{n}") for n in range(3)]
        shelf: Any = desk.stores["shelf"]
        shelf.lay(
            entry_of(desk.ledger, live[0]),
            *[entry_of(desk.ledger, f"nobody-{n}") for n in range(40)],
            *[entry_of(desk.ledger, fact_id) for fact_id in live[1:]],
        )
        found = await desk.custody.recall("plan", k=2)
        assert (values_of(found), found.status, found.complete) == ([0], "short", False)
        assert found.notes[0] == "shelf did not answer when it was asked for 32 entries (HttpError 503)"
        assert "canary" not in repr(found)
        error = await error_of(desk.custody.recall("plan", k=11), StoreError)
        assert error.cause == "HttpError 503"
        for fact_id in live[1:]:
            await desk.retract(fact_id)
        assert (await desk.custody.recall("plan", k=2)).status == "exhausted"


# --- time -----------------------------------------------------------------------------------


class Slow(Shelf):
    """Answers the first `quick` questions and hangs in every other until the test says `go`."""

    def __init__(self, quick: int = 0) -> None:
        super().__init__()
        self.quick, self.go, self.cancelled = quick, asyncio.Event(), 0

    async def search(self, query: str, k: int, spaces: Sequence[str] | None) -> list[Hit]:
        """Answer, or hang."""
        if len(self.sizes) >= self.quick:
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        return await super().search(query, k, spaces)


async def _filled(desk: Desk) -> Slow:
    live = [await desk.written(n, predicate=f"p{n}") for n in range(2)]
    slow = desk.stores["shelf"]
    assert isinstance(slow, Slow)
    slow.lay(
        entry_of(desk.ledger, live[0]),
        *[entry_of(desk.ledger, f"nobody-{n}") for n in range(9)],
        entry_of(desk.ledger, live[1]),
    )
    return slow


@pytest.mark.parametrize("quick", [0, 1])
async def test_what_is_known_when_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: int
) -> None:
    """Past the limit what is known is returned, nobody is asked any more, and nothing is left running."""
    async with open_desk(tmp_path, stores=[Slow(quick)]) as desk:
        slow = await _filled(desk)
        seen = watch(desk.ledger, [], monkeypatch.setattr)
        # Time enough for the ledger's answer on a busy machine, where there has to be one.
        budget = Budget(seconds=1.0 if quick else 0.02)
        found = await desk.custody.recall("plan", k=2, budget=budget, with_history=True)
        assert (values_of(found), found.status) == ([0] if quick else [], "timed_out")
        missed = "everything was asked" if quick else "anything of the ledger was read"
        assert found.notes == (f"the time was over before {missed}",)
        assert not found.complete
        assert (found.head and found.head.seq, seen) == ((2, ["follow"]) if quick else (None, []))
        read_at = None if found.head is None else found.head.tx_time
        assert found.valid_at == max(desk.clock.now(), read_at or desk.clock.now())
        assert (slow.cancelled, left_running()) == (1, set())
        slow.go.set()
        assert values_of(await desk.custody.recall("plan", k=2)) == [0, 1]


async def test_a_time_limit_holds_for_the_ledger_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger that does not answer in time costs the histories, or the facts that it would have named."""
    async with open_shelf(tmp_path) as (desk, _shelf):
        await desk.written("pro")

        async def hang(*_: object, **__: object) -> Any:
            await asyncio.Event().wait()

        # Time enough for the facts on a busy machine; only the histories do not come.
        budget = Budget(seconds=1.0)
        with monkeypatch.context() as patch:
            patch.setattr(desk.ledger, "links", hang)
            found = await desk.custody.recall("plan", k=1, budget=budget, with_history=True)
            assert (values_of(found), found.status, found.hits[0].history) == (["pro"], "timed_out", ())
            # What did not fit is still said.
            small = Budget(seconds=1.0, characters=30)
            seats = await desk.written(3, predicate="seats")
            await desk.written(4, predicate="seats", supersedes=seats)
            found = await desk.custody.recall("plan", k=2, budget=small, with_history=True)
            assert (values_of(found), found.status) == (["pro"], "budget_too_small")
            assert found.notes == ("the time was over before everything was asked",)
            patch.setattr(desk.ledger, "follow", hang)
            found = await desk.custody.recall("plan", k=1, budget=Budget(seconds=0.02))
            assert (found.hits, found.status, found.head) == ((), "timed_out", None)
            assert found.notes == ("the time was over before anything of the ledger was read",)


async def test_a_timeout_of_somebody_elses_is_an_error(tmp_path: Path) -> None:
    """A filter that times out by itself is not taken for the limit of the call."""
    async with open_shelf(tmp_path) as (desk, _shelf):
        await desk.written("pro")

        def keep(_fact: object) -> bool:
            raise TimeoutError("canary")

        with pytest.raises(TimeoutError, match="canary"):
            await desk.custody.recall("plan", keep=keep, budget=Budget(seconds=60))


async def test_a_cancelled_recall_leaves_nothing(tmp_path: Path) -> None:
    """Its caller's cancellation goes through, and the store's slots are free for the next ones."""
    async with open_desk(tmp_path, stores=[Slow()]) as desk:
        slow = await _filled(desk)
        head = await desk.ledger.head()
        waiting = [asyncio.ensure_future(desk.custody.recall("plan", k=1)) for _ in range(40)]
        for _ in range(5):
            await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(one) for one in ended} == {asyncio.CancelledError}
        assert 0 < slow.cancelled <= 16
        assert (await desk.ledger.head(), left_running()) == (head, set())
        slow.go.set()
        again = await asyncio.gather(*(desk.custody.recall("plan", k=2) for _ in range(40)))
        assert all(isinstance(one, RecallResult) and values_of(one) == [0, 1] for one in again)


async def test_a_deadline_of_the_store_is_an_error(tmp_path: Path) -> None:
    """Without a limit of the call the store's own deadline ends it, as an error that names the store."""
    from custody_sync.stores import Deadlines

    async with open_desk(tmp_path, stores=[Slow()], deadlines=Deadlines(question=0.02)) as desk:
        error = await error_of(desk.custody.recall("plan"), StoreUnavailable)
        assert (error.store, error.operation) == ("shelf", "search")
        within = await desk.custody.recall("plan", budget=Budget(seconds=0.001))
        assert within.status == "timed_out"
        await desk.custody.write(value="x", space="org", actor=ACTOR)
