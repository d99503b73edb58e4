"""The LangGraph face over each of LangGraph's own stores: the same calls, and nothing stale is served."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fix_custody import BRIEF
from fix_langgraph_face import Counter, open_counter
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from custody_sync.errors import InvalidInput, OnHold
from custody_sync.faces import _unfinished
from custody_sync.faces.langgraph import CustodyStore
from custody_sync.testing import FOREVER, Faults, MemoryStore

NOTES = ("notes", "user/42")


async def test_the_same_answers_over_every_store(graph_store: Any, tmp_path: Path) -> None:
    """Put, get, search, filters (P1) and namespaces answer alike, whatever the store compares and how."""
    async with open_counter(tmp_path, graph_store) as counter:
        store = counter.store
        scores: list[Any] = [9, 10, 100, -5, 10.5, "n/a"]
        await store.abatch(
            [
                *(PutOp(("f",), f"k{n}", {"text": f"t {n}", "score": s}) for n, s in enumerate(scores)),
                PutOp(("f",), "none", {"text": "nothing"}),
                PutOp(NOTES, "tea", {"text": "Ann likes green tea"}, index=["text"]),
            ]
        )

        async def by(condition: dict[str, Any]) -> set[Any]:
            listed = {row["score"] for row in await counter.values("f", filter={"score": condition})}
            searched = await counter.values("f", filter={"score": condition}, query="t")
            assert {row["score"] for row in searched} == listed
            return listed

        assert await by({"$gte": 10}) == {10, 100, 10.5}
        assert await by({"$lt": 0}) == {-5}
        assert await by({"$gt": 9, "$lte": 10}) == {10}
        item = await store.aget(NOTES, "tea")
        assert item is not None
        assert (item.namespace, item.key, item.value) == (NOTES, "tea", {"text": "Ann likes green tea"})
        assert await store.alist_namespaces() == [("f",), NOTES]
        (found,) = await store.asearch(("notes",), query="what does Ann like?")
        assert found.value == item.value
        await store.adelete(NOTES, "tea")
        assert await store.aget(NOTES, "tea") is None
        assert await store.asearch(("notes",), query="green tea") == []
        assert await store.alist_namespaces() == [("f",)]
        assert await counter.ledger.pending() == []


@pytest.mark.parametrize("graph_store", ["memory", "sqlite"], indirect=True)
async def test_what_has_expired_is_gone_at_once(graph_store: Any, tmp_path: Path) -> None:
    """After its lifetime an item is in no answer and not believed, and the sweep removes it (P2)."""
    async with open_counter(tmp_path, graph_store, patience=BRIEF) as counter:
        store, clock = counter.store, counter.clock
        assert store.supports_ttl
        await store.aput(("n",), "k", {"v": 1}, ttl=5)
        await store.aput(("n",), "stays", {"v": 2})
        minute_3 = clock.now() + timedelta(minutes=3)
        clock.advance(timedelta(minutes=5))
        assert [fact.value for fact in await counter.ledger.as_of()] == [{"v": 2}]
        clock.advance(timedelta(minutes=1))
        assert await store.aget(("n",), "k") is None
        assert await counter.values("n") == [{"v": 2}]
        assert await counter.values("n", query="v 1") == [{"v": 2}]
        clock.advance(timedelta(minutes=10))
        result = await counter.custody.repair(actor="ops", reason="nightly")
        assert result.complete, result
        then = await counter.ledger.as_of(space="n", valid_at=minute_3)
        assert sorted(fact.value["v"] for fact in then) == [1, 2]  # type: ignore[call-overload, index]
        await store.aput(("n",), "k", {"v": 3}, ttl=5)
        assert await counter.values("n") == [{"v": 2}, {"v": 3}]
        differences = await counter.custody.reconcile(actor="ops")
        assert differences.complete, differences
        await store.aput(("n",), "k", {"v": 4})
        clock.advance(timedelta(days=1))
        assert await counter.values("n") == [{"v": 2}, {"v": 4}]


@pytest.fixture
async def counter(tmp_path: Path) -> Any:
    """A face over an InMemoryStore without an index of its own."""
    async with open_counter(tmp_path, InMemoryStore()) as opened:
        yield opened


async def test_reading_extends_no_lifetime_and_says_so_once(
    counter: Counter, caplog: pytest.LogCaptureFixture
) -> None:
    """`refresh_ttl=True` warns once where it would have done something; the item ends when it was to end."""
    await counter.store.aput(("n",), "short", {"v": 1}, ttl=1)
    await counter.store.aput(("n",), "long", {"v": 2})
    await counter.store.aget(("n",), "short")
    await counter.store.aget(("n",), "long", refresh_ttl=True)
    assert not caplog.records
    for _ in range(2):
        assert await counter.store.aget(("n",), "short", refresh_ttl=True) is not None
        await counter.store.asearch(("n",), refresh_ttl=True)
    assert [record.getMessage() for record in caplog.records] == [
        "refresh_ttl has no effect: a lifetime runs from the last put"
    ]
    counter.clock.advance(60)
    assert await counter.store.aget(("n",), "short") is None
    for ttl in (0, -1, float("nan"), float("inf"), True, "5", 1e-12, 1e12, 10**400, 525_960_001):
        with pytest.raises(InvalidInput, match="ttl"):
            await counter.store.aput(("n",), "k", {"v": 1}, ttl=ttl)  # type: ignore[arg-type]


async def test_a_put_corrects_and_keeps_when_it_began(counter: Counter) -> None:
    """A put of a key that is there supersedes it: one item, `created_at` stays, `updated_at` moves."""
    store, clock = counter.store, counter.clock
    began = clock.now()
    for n in (1, 2, 2):
        await store.aput(NOTES, "k", {"n": n})
        clock.advance(1)
    item = await store.aget(NOTES, "k")
    assert item is not None
    assert (item.value, await counter.values("notes")) == ({"n": 2}, [{"n": 2}])
    assert abs(item.created_at - began) < timedelta(milliseconds=1)
    assert item.updated_at - item.created_at >= timedelta(seconds=2)
    assert item.created_at.tzinfo is not None
    assert await counter.kinds() == ["assert", "assert", "remove", "assert", "remove"]
    # Another process has to find the same, from the ledger alone.
    again = type(store)(counter.custody)
    assert await again.aget(NOTES, "k") == item
    await store.adelete(NOTES, "k")
    clock.advance(1)
    await store.aput(NOTES, "k", {"n": 3})
    fresh = await store.aget(NOTES, "k")
    assert fresh is not None
    assert fresh.created_at == fresh.updated_at > item.updated_at


async def test_a_delete_forgets_every_version(counter: Counter) -> None:
    """After a delete no version's value is left in the ledger, and deleting again appends nothing."""
    store = counter.store
    for word in ("first-canary", "second-canary"):
        await store.aput(NOTES, "k", {"text": word})
    await store.aput(NOTES, "other", {"text": "stays"})
    await store.adelete(NOTES, "k")
    facts = [
        await counter.ledger.get(a.fact_id) for a in await counter.ledger.accounts(space="notes/user%2F42")
    ]
    assert [fact.value for fact in facts if fact] == [None, None, {"text": "stays"}]
    before = (await counter.ledger.head()).seq
    await store.adelete(NOTES, "k")
    await store.adelete(NOTES, "never there")
    assert (await counter.ledger.head()).seq == before
    assert await store.aget(NOTES, "k") is None


async def test_what_is_on_hold_is_not_deleted(counter: Counter) -> None:
    """A hold on any version refuses the delete before anything of it is forgotten."""
    for n in (1, 2):
        await counter.store.aput(NOTES, "k", {"n": n})
    _, last = await counter.ledger.accounts()
    await counter.custody.hold(last.fact_id, actor="legal")
    with pytest.raises(OnHold):
        await counter.store.adelete(NOTES, "k")
    assert await counter.values() == [{"n": 2}]
    assert "forget" not in await counter.kinds()


async def test_a_batch_reads_first_and_puts_the_last_of_each(counter: Counter) -> None:
    """Answers are of before the batch, in its order; of two puts to a key only the last is made."""
    store = counter.store
    await store.aput(("a",), "k", {"n": 0})
    answers = await store.abatch(
        op
        for op in [
            PutOp(("a",), "k", {"n": 1}),
            GetOp(("a",), "k"),
            PutOp(("a",), "k", {"n": 2}),
            PutOp(("b", "c"), "new", {"n": 3}),
            PutOp(("b", "c"), "gone", {"n": 4}),
            PutOp(("b", "c"), "gone", None),
            SearchOp(("a",)),
            ListNamespacesOp(),
            GetOp(("b", "c"), "new"),
        ]
    )
    assert answers[0] is answers[2] is answers[8] is None
    assert answers[1].value == {"n": 0}  # type: ignore[union-attr]
    assert [item.value for item in answers[6]] == [{"n": 0}]  # type: ignore[union-attr]
    assert answers[7] == [("a",)]
    assert await counter.values() == [{"n": 2}, {"n": 3}]
    assert (await counter.kinds()).count("assert") == 3


@pytest.mark.parametrize(
    "wrong",
    [
        PutOp(("a",), "k", "text"),  # type: ignore[arg-type]
        PutOp(("a",), "k", {"n": float("nan")}),
        PutOp(("a",), "k", {"n": object()}),
        PutOp(("a",), "k", {"text": "x\x00"}),
        PutOp(("a",), "k", {"n": 1}, index="text"),  # type: ignore[arg-type]
        PutOp(("a",), "", {"n": 1}),
        PutOp((), "k", {"n": 1}),
        PutOp(("a", " "), "k", None),
        GetOp(("a",), " "),
        SearchOp((" ",)),
        SearchOp(("a",), filter={"n": {"$in": [1]}}),
        SearchOp(("a",), limit=-1),
        SearchOp(("a",), offset=-1),
        SearchOp(("a",), query="x", limit=600, offset=401),
        ListNamespacesOp(max_depth=0),
        ListNamespacesOp(match_conditions=(MatchCondition("infix", ("a",)),)),  # type: ignore[arg-type]
        "put",
    ],
)
async def test_a_batch_with_one_wrong_operation_does_nothing(counter: Counter, wrong: Any) -> None:
    """Everything is checked before anything is done, so that no half of a batch has to be found again."""
    with pytest.raises(InvalidInput):
        await counter.store.abatch([PutOp(("a",), "fine", {"n": 1}), wrong])
    assert await counter.kinds() == []


async def test_namespaces_are_checked_as_the_original_does(counter: Counter) -> None:
    """Its own methods keep its own rules and its own error."""
    for namespace in ((), ("a.b",), ("",), ("langgraph", "x")):
        with pytest.raises(InvalidNamespaceError):
            await counter.store.aput(namespace, "k", {"n": 1})
    await counter.store.abatch([PutOp(("langgraph", "a.b"), "k", {"n": 1})])
    assert await counter.values("langgraph") == [{"n": 1}]


async def test_nothing_is_shared_with_the_caller(counter: Counter) -> None:
    """What the caller does to a value, before or after, changes nothing that was remembered (P8)."""
    store, mine = counter.store, {"tags": ["a"]}
    await store.aput(("n",), "k", mine)
    mine["tags"].append("b")
    for _ in range(2):
        item = await store.aget(("n",), "k")
        (listed,) = await store.asearch(("n",))
        (recalled,) = await store.asearch(("n",), query="tags")
        for seen in (item, listed, recalled):
            assert seen is not None
            assert seen.value == {"tags": ["a"]}
            seen.value["tags"].append("c")
    report = await counter.ledger.verify()
    assert report.intact


async def test_namespaces_are_listed_cut_and_paged(counter: Counter) -> None:
    """Only what has an item now, by prefix, suffix, wildcard and depth, in order, each once."""
    names = [("a", "b", "c"), ("a", "b", "d"), ("a", "b-x", "c"), ("a", "x"), ("z", "b", "c"), ("gone",)]
    await counter.store.abatch([PutOp(name, "k", {"n": 1}) for name in names])
    await counter.store.adelete(("gone",), "k")
    listed = counter.store.alist_namespaces
    assert await listed() == sorted(names[:-1])
    assert await listed(prefix=("a", "b")) == [("a", "b", "c"), ("a", "b", "d")]
    assert await listed(prefix=("a", "*", "c")) == [("a", "b", "c"), ("a", "b-x", "c")]
    assert await listed(suffix=("*", "c")) == [("a", "b", "c"), ("a", "b-x", "c"), ("z", "b", "c")]
    assert await listed(max_depth=1) == [("a",), ("z",)]
    assert await listed(max_depth=2, limit=2, offset=1) == [("a", "b-x"), ("a", "x")]
    assert await listed(prefix=("nobody",)) == []
    assert await listed(limit=0) == []
    assert [item.namespace for item in await counter.store.asearch(("a", "b"))] == names[:2]


async def test_a_listing_of_many_pages_is_whole(counter: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing goes on over pages, in the order of the last puts; filter, `limit` and `offset` cut it."""
    monkeypatch.setattr("custody_sync.faces._langgraph_reading._PAGE", 7)
    store = counter.store
    await store.abatch([PutOp(("m", str(n % 3)), f"k{n:02}", {"n": n}) for n in range(30)])
    await counter.custody.write(value="no item", space="m/0", actor="app")
    rows = await counter.values("m")
    assert sorted(row["n"] for row in rows) == list(range(30))
    assert await counter.values("m") == rows
    assert [item.value for item in await store.asearch(("m",), limit=10, offset=12)] == rows[12:22]
    even = await store.asearch(("m",), filter={"n": {"$gte": 20}}, limit=3, offset=2)
    assert [item.value for item in even] == [row for row in rows if row["n"] >= 20][2:5]
    await store.aput(("m", "0"), "k00", {"n": 0})
    assert [item.key for item in await store.asearch(("m", "0"), limit=50)][-1] == "k00"
    assert await store.asearch(("m",), limit=0) == []


async def test_a_stale_index_serves_nothing_stale(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What was replaced or deleted is not served although the store shows it; one warning says so."""
    told: list[Any] = []
    lagging = MemoryStore("memories", faults=Faults(index_lag=FOREVER))
    async with open_counter(tmp_path, lagging, patience=BRIEF, on_pending=told.append) as counter:
        store = counter.store
        await store.aput(NOTES, "price", {"text": "the price is 4200"}, index=["text"])
        assert not told
        await store.aput(NOTES, "price", {"text": "the price is 3600"}, index=["text"])
        await store.aput(NOTES, "secret", {"text": "the price of silence"}, index=["text"])
        await store.adelete(NOTES, "secret")
        assert [i.value["text"] for i in await store.asearch((), query="price 4200 silence")] == [
            "the price is 3600"
        ]
        assert [result.complete for result in told] == [False, False]
        warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        assert warnings == ["a removal is recorded and not yet verified in every store: run repair"] * 2
        assert all("silence" not in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("page", [1000, 1])
async def test_a_delete_that_a_store_refused_is_finished_by_the_same_call(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    """Each call tells as the first did, from any process, until every version is gone from the store."""
    monkeypatch.setattr(_unfinished, "_PAGE", page)
    told: list[Any] = []
    rows = MemoryStore("memories")
    async with open_counter(tmp_path, rows, patience=BRIEF, on_pending=told.append) as counter:
        for text in ("the code is 1111", "the code is 2222"):
            await counter.store.aput(NOTES, "code", {"text": text})
        await counter.store.aput(NOTES, "tea", {"text": "green"})
        await counter.store.adelete(NOTES, "tea")
        for call in ("delete", "search", "find", "verify_deleted"):
            rows.faults.refuse(call)
        await counter.store.adelete(NOTES, "code")
        first = len(told)
        assert first
        assert not any(result.complete for result in told)
        again = CustodyStore(counter.custody, on_pending=told.append)
        await again.adelete(NOTES, "code")
        assert len(told) == 2 * first
        assert len([r for r in caplog.records if "run repair" in r.getMessage()]) == 2 * first
        before = await counter.kinds()
        for key in ("tea", "never"):
            await again.adelete(NOTES, key)
        assert (await counter.kinds(), len(told)) == (before, 2 * first)
        rows.faults.allow()
        await again.adelete(NOTES, "code")
        assert len(told) == 2 * first
        assert [entry async for entry in rows.list_entries()] == []
        assert await counter.ledger.pending() == []


async def test_what_is_not_indexed_is_listed_and_not_searched(tmp_path: Path) -> None:
    """`index=False`, and a value without the indexed fields, is found by key and listing alone."""
    async with open_counter(tmp_path, MemoryStore("memories"), fields=["text", "tags[*]"]) as counter:
        store = counter.store
        await store.aput(("n",), "a", {"text": "green tea", "tags": ["hot"], "more": "secret words"})
        await store.aput(("n",), "b", {"text": "green tea"}, index=False)
        await store.aput(("n",), "c", {"more": "green tea"})
        await store.aput(("n",), "d", {"more": "green tea"}, index=["more"])
        (fact, *_) = await counter.ledger.as_of()
        assert fact.text == "green tea\nhot"
        found = [item.key for item in await store.asearch(("n",), query="green tea")]
        assert sorted(found) == ["a", "d"]
        assert [item.key for item in await store.asearch(("n",))] == ["a", "b", "c", "d"]
        assert [item.key for item in await store.asearch(("n",), query="  ")] == ["a", "b", "c", "d"]
        assert all(item.score is not None for item in await store.asearch(("n",), query="green tea"))


async def test_nearer_entries_elsewhere_do_not_hide_many_namespaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Below a prefix of more namespaces than a store is asked about at once, what it serves is found.

    Nothing is said of a part as long as there are as many as were asked for.
    """
    monkeypatch.setattr("custody_sync.recall.MOST", 40)
    rows = MemoryStore("memories")
    async with open_counter(tmp_path, rows) as counter:
        spread = [("user7", f"thread{n}") for n in range(70)]
        await counter.store.abatch([PutOp(one, "k", {"text": f"tea {one[1]}"}) for one in spread])
        for _ in range(60):
            rows.put_raw("tea")
        found = await counter.store.asearch(("user7",), query="tea", limit=5)
        assert len(found) == 5
        assert [item.score for item in found] == sorted([item.score for item in found], reverse=True)
        following = await counter.store.asearch(("user7",), query="tea", limit=5, offset=5)
        assert not {item.namespace for item in found} & {item.namespace for item in following}
        assert caplog.messages == []
        for external_id in list(rows.snapshot())[:40]:
            rows.drop(external_id)
        assert len(await counter.store.asearch(("user7",), query="tea", limit=70)) < 70
        assert caplog.messages == ["a search was answered in part: short"]
