"""What went wrong with memories elsewhere, asked of the Mem0 face: scopes, dead hits, aliases, races."""

from __future__ import annotations

import asyncio
import copy
import logging
from pathlib import Path
from typing import Any

import pytest
from fix_custody import error_of, open_desk
from fix_mem0_face import FaceDesk
from fix_recall import open_shelf

from custody_sync import Coordinator
from custody_sync.errors import (
    InsideEventLoop,
    InvalidInput,
    LedgerBusy,
    NotForgotten,
    OnHold,
    StoreWriteFailed,
)
from custody_sync.faces.mem0 import AsyncMemory, Memory
from custody_sync.ledger import Ledger
from custody_sync.testing import FOREVER, MemoryStore


async def test_an_empty_scope_is_nobody(faced: FaceDesk) -> None:
    """P3: no form of an empty owner deletes or lists anybody's memories; each is refused without an event."""
    await faced.add("tea one", "u-1")
    await faced.add("tea two", "u-2")
    before = await faced.events()
    memory = faced.memory
    calls = [
        memory.delete_all(user_id=""),
        memory.delete_all(user_id="  "),
        memory.delete_all(user_id=None),
        memory.delete_all(),
        memory.delete_all(user_id="u-1", agent_id=""),
        memory.get_all(filters={"user_id": ""}),
        memory.get_all(filters={"user_id": None}),
        memory.search("tea", filters={"user_id": " "}),
        faced.desk.custody.forget_where(space="", subject=None, actor="x"),
    ]
    for call in calls:
        await error_of(call, InvalidInput)
    assert await faced.events() == before
    assert [await faced.listed("u-1"), await faced.found("tea", "u-2")] == [["tea one"], ["tea two"]]
    assert len(await faced.desk.judge_clean()) == 2


async def test_what_is_nobodys_memory_is_none_of_its(faced: FaceDesk) -> None:
    """A fact of a space that is no user's, agent's or run's is not shown, changed or erased by its id."""
    custody = faced.desk.custody
    plain = (await custody.write(value="the plan", space="org", actor="ana")).fact
    item = await custody.write(
        value={"text": "pin"}, text="pin", space="secrets/bob", subject="k", predicate="item", actor="lg"
    )
    shaped = await custody.write(value="m", space="documents", subject="d-1", predicate="memory", actor="lc")
    before = await faced.events()
    for memory_id in (plain.fact_id, item.fact.fact_id, shaped.fact.fact_id, "d-1"):
        assert await faced.memory.get(memory_id) is None
        await error_of(faced.memory.delete(memory_id), InvalidInput)
        await error_of(faced.memory.update(memory_id, "mine"), InvalidInput)
    assert await faced.events() == before


async def test_delete_all_takes_one_scope(faced: FaceDesk) -> None:
    """Everything that has all the ids goes, whatever its state, and nothing of anybody else."""
    await faced.add("tea ada", agent_id="bot")
    updated = await faced.add("tea old", run_id="r-1", agent_id="bot")
    await faced.memory.update(updated, "tea new")
    await faced.add("tea eve", "eve", agent_id="bot")
    await faced.add("tea bot", None, agent_id="bot")
    await faced.memory.delete_all(user_id="ada", run_id="r-1")
    assert await faced.listed() == ["tea ada"]
    await faced.memory.delete_all(user_id="nobody")
    await faced.memory.delete_all(agent_id="bot")
    assert await faced.memory.get_all(filters={"user_id": "*"}) == {"results": []}
    assert await faced.memory.get_all(filters={"agent_id": "bot"}) == {"results": []}
    assert [row["new_memory"] for row in await faced.memory.history(updated)] == [None, None, None]
    assert await faced.desk.judge_clean() == set()


async def test_dead_hits_do_not_crowd_out_live_ones(tmp_path: Path) -> None:
    """P7: behind 250 dead hits of a broken index the live ones are found; a capped search says so."""
    async with open_shelf(tmp_path) as (desk, shelf):
        memory = AsyncMemory(desk.custody)
        for n in range(10):
            answer = await memory.add(f"tea {n}", user_id="ada", infer=False)
            (one,) = answer["results"]
            if n % 2:
                await memory.delete(one["id"])
            else:
                (fact,) = await desk.ledger.as_of(subject=one["id"])
                await desk.retract(fact.fact_id)
        shelf.hits *= 25
        await memory.add("tea better", user_id="ada", infer=False)
        await memory.add("tea worse", user_id="ada", infer=False)
        asked: dict[str, Any] = {"filters": {"user_id": "ada"}}
        for k, right in (
            (2, ["tea better", "tea worse"]),
            (1, ["tea better"]),
            (5, ["tea better", "tea worse"]),
        ):
            answer = await memory.search("tea", top_k=k, **asked)
            assert [one["memory"] for one in answer["results"]] == right
            assert "status" not in answer
        shelf.cap = 100
        assert await memory.search("tea", top_k=2, **asked) == {"results": [], "status": "short"}


async def test_nothing_is_shared_with_the_caller(faced: FaceDesk) -> None:
    """P8: what the caller passed in or was given may be changed, during a call and after; nothing follows."""
    store = faced.desk.stores["agent"]
    store.faults.delays["put"] = 0.05
    metadata: dict[str, Any] = {"tags": ["a"]}
    message = {"role": "user", "content": "tea"}
    said = [message, {**message}]
    call = asyncio.ensure_future(faced.memory.add(said, user_id="ada", infer=False, metadata=metadata))
    await asyncio.sleep(0)
    metadata["tags"].append("b")
    message["content"] = said[1]["content"] = "coffee"
    one, _ = (await call)["results"]
    asked = {"user_id": "ada"}
    for _ in range(2):
        shown = await faced.memory.get(one["id"])
        listed = (await faced.memory.get_all(filters=asked))["results"]
        found = (await faced.memory.search("tea", filters=asked))["results"]
        assert (len(listed), len(found)) == (2, 2)
        for each in (shown, *listed, *found):
            assert each is not None
            assert (each["memory"], each["metadata"]) == ("tea", {"tags": ["a"]})
            each["metadata"]["tags"].append("c")
    assert metadata == {"tags": ["a", "b"]}
    more = {"tags": ["x"]}
    await faced.memory.update(one["id"], metadata=more)
    assert more == {"tags": ["x"]}
    assert (await faced.desk.ledger.verify()).consistent


async def test_updates_at_once_become_links_in_turn(faced: FaceDesk) -> None:
    """Of five updates at once none is lost: each is a link, and every store serves the last one."""
    one = await faced.add("tea")
    await asyncio.gather(*(faced.memory.update(one, f"tea {n}", metadata={str(n): n}) for n in range(5)))
    shown = await faced.memory.get(one)
    assert shown is not None
    assert shown["metadata"] == {str(n): n for n in range(5)}
    rows = await faced.memory.history(one)
    assert [row["event"] for row in rows] == ["ADD", *["UPDATE"] * 5]
    assert [row["old_memory"] for row in rows[1:]] == [row["new_memory"] for row in rows[:-1]]
    assert rows[-1]["new_memory"] == shown["memory"]
    assert len(await faced.desk.judge_clean()) == 1


async def test_a_deletion_takes_the_update_that_overtook_it(faced: FaceDesk) -> None:
    """An update that is recorded while a deletion is under way does not bring the memory back."""
    one = await faced.add("tea")
    (fact,) = await faced.desk.ledger.as_of()
    forget, other = faced.desk.custody.forget_many, faced.desk.coordinator()
    overtaking = AsyncMemory(other)

    async def late(*args: Any, **more: Any) -> Any:
        if args[0] == [fact.fact_id]:
            await overtaking.update(one, "tea again")
        return await forget(*args, **more)

    faced.desk.custody.forget_many = late  # type: ignore[method-assign]
    await faced.memory.delete(one)
    assert await faced.memory.get(one) is None
    assert await faced.desk.judge_clean() == set()
    assert isinstance(await error_of(overtaking.update(one, "tea"), InvalidInput), ValueError)


async def test_a_hold_keeps_a_memory(faced: FaceDesk) -> None:
    """A memory under a hold is not deleted, nor a part of it; `delete_all` takes the rest, then says it."""
    one = await faced.add("tea")
    await faced.memory.update(one, "coffee")
    facts = [link.fact for link in (await faced.desk.ledger.links([await _believed(faced)]))[1][0]]
    await faced.desk.custody.hold(facts[0].fact_id, actor="legal", hold_id="case-7")
    other = await faced.add("cocoa")
    before = await faced.events()
    held = await error_of(faced.memory.delete(one), OnHold)
    assert (held.fact_id, await faced.events()) == (facts[0].fact_id, before)
    assert await faced.listed() == ["coffee", "cocoa"]
    await error_of(faced.memory.delete_all(user_id="ada"), OnHold)
    assert (await faced.memory.get(other), await faced.listed()) == (None, [])
    assert (await faced.desk.ledger.get(facts[0].fact_id)).text == "tea"  # type: ignore[union-attr]


async def _believed(faced: FaceDesk) -> str:
    (fact,) = await faced.desk.ledger.as_of()
    return fact.fact_id


async def test_what_is_not_verified_yet_is_told(faced: FaceDesk, caplog: pytest.LogCaptureFixture) -> None:
    """A removal that a store did not take is told once without content, handed over, and never served."""
    told: list[Any] = []
    memory = AsyncMemory(faced.desk.custody, on_pending=told.append)
    one, two = await faced.add("tea heron"), await faced.add("coffee heron")
    store = faced.desk.stores["agent"]
    store.faults.refuse("delete")
    with caplog.at_level(logging.WARNING, logger="custody_sync.faces"):
        await memory.update(two, "cocoa")
        assert await memory.delete(one) == {"message": "Memory deleted successfully!"}
    assert [result.complete for result in told] == [False, False]
    assert len(caplog.records) == 2
    assert "heron" not in caplog.text
    assert await faced.found("tea coffee heron cocoa") == ["cocoa"]
    store.faults.allow()
    await memory.delete(one)
    assert len(told) == 2
    await error_of(memory.delete(one), InvalidInput)
    await faced.desk.repair()
    assert len(await faced.desk.judge_clean()) == 1


async def test_what_was_there_before_is_not_called_deleted(faced: FaceDesk) -> None:
    """A row that nobody recorded is no memory here: its delete is refused, and it stays in the store."""
    store = faced.desk.stores["agent"]
    old = store.put_raw("an old note")
    await error_of(faced.memory.delete(old), InvalidInput)
    await faced.add("tea")
    await faced.memory.delete_all(user_id="ada")
    assert [entry.text for entry in store.snapshot().values()] == ["an old note"]


async def test_a_listener_that_fails_breaks_nothing(
    faced: FaceDesk, caplog: pytest.LogCaptureFixture
) -> None:
    """What `on_pending` raises is logged by its type; the deletion stands."""

    def broken(result: object) -> None:
        raise RuntimeError("heron")

    memory = AsyncMemory(faced.desk.custody, on_pending=broken)
    one = await faced.add("tea")
    faced.desk.stores["agent"].faults.refuse("delete")
    await memory.delete(one)
    assert "RuntimeError" in caplog.text
    assert "heron" not in caplog.text


async def test_a_deletion_that_was_stopped_is_no_success(
    faced: FaceDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger that fails while a scope is deleted is an error with what is left; the same call goes on."""
    for n in range(3):
        await faced.add(f"tea {n}")
    append, calls = Ledger.append, list[bool]()

    async def failing(self: Ledger, draft: Any) -> Any:
        calls.append(type(draft).__name__ == "Forget")
        if sum(calls) >= 2 and calls[-1]:
            raise LedgerBusy(name="custody.db", seconds=5)
        return await append(self, draft)

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "append", failing)
        error = await error_of(faced.memory.delete_all(user_id="ada"), NotForgotten)
    assert (error.found, 1 <= error.left <= 3) == (3, True)
    await faced.memory.delete_all(user_id="ada")
    assert await faced.desk.judge() == set()


async def test_a_fact_that_cannot_be_forgotten_is_named(
    faced: FaceDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fails for one fact is an error of its own with counts, never a message of success."""
    one = await faced.add("tea")

    async def failed(self: Ledger, draft: Any) -> Any:
        raise StoreWriteFailed(store="x", cause="x", removed=[], left=[])

    monkeypatch.setattr(Ledger, "append", failed)
    error = await error_of(faced.memory.delete(one), NotForgotten)
    assert (error.left, error.found) == (1, 1)


async def test_a_message_that_fails_names_those_before(faced: FaceDesk) -> None:
    """Where the third of three messages is not written, the error's note has the ids of the first two."""
    store = faced.desk.stores["agent"]
    said = [{"role": "user", "content": f"tea {n}"} for n in range(3)]
    put = store.put

    async def failing(fact: Any, label: Any) -> Any:
        if fact.text == "tea 2":
            store.faults.refuse("put")
        return await put(fact, label)

    store.put = failing  # type: ignore[method-assign]
    error = await error_of(faced.memory.add(said, user_id="ada", infer=False), StoreWriteFailed)
    listed = await faced.memory.get_all(filters={"user_id": "ada"})
    assert [one["memory"] for one in listed["results"]] == ["tea 0", "tea 1"]
    (note,) = error.__notes__
    assert all(one["id"] in note for one in listed["results"])


async def test_a_reranker_orders_and_decides_nothing_else(faced: FaceDesk) -> None:
    """What a reranker returns orders the answer; texts, and hits of its own, are not taken from it."""

    class Reranker:
        def rerank(self, query: str, rows: list[Any], top_k: int) -> list[Any]:
            turned = copy.deepcopy(rows[::-1])
            return [{**row, "memory": "heron", "rerank_score": 0.5} for row in turned] + [{"id": "x"}]

    await faced.add("tea tea")
    await faced.add("tea cup")
    custody = faced.desk.custody
    memory = AsyncMemory(custody, reranker=Reranker())
    asked = {"filters": {"user_id": "ada"}}
    plain = (await memory.search("tea", **asked))["results"]
    turned = (await memory.search("tea", rerank=True, **asked))["results"]
    assert turned == [{**one, "rerank_score": 0.5} for one in reversed(plain)]
    broken = AsyncMemory(custody, reranker=object())
    assert (await broken.search("tea", rerank=True, **asked))["results"] == plain


async def test_two_processes_agree(tmp_path: Path) -> None:
    """Another coordinator over the same ledger and store knows every id, and nothing is kept in memory."""
    async with open_desk(tmp_path) as desk:
        ours, theirs = (AsyncMemory(custody) for custody in (desk.custody, desk.coordinator()))
        (one,) = (await ours.add("tea", user_id="ada", infer=False))["results"]
        await theirs.update(one["id"], "coffee")
        assert await ours.get(one["id"]) == await theirs.get(one["id"])
        await ours.delete(one["id"])
        assert await theirs.get(one["id"]) is None


async def test_a_face_in_a_loop_is_awaited(faced: FaceDesk) -> None:
    """A blocking face over an asynchronous coordinator names the call to await instead."""
    with pytest.raises(InsideEventLoop, match=r"AsyncMemory\.get"):
        Memory(faced.desk.custody).get("x")


def test_one_coordinator_behind_both(tmp_path: Path) -> None:
    """A synchronous coordinator serves both faces, and stays open when they are closed."""
    with Coordinator(f"sqlite:///{tmp_path}/l.db", create=True, stores=[MemoryStore()]) as custody:
        with Memory(custody) as memory:
            (one,) = memory.add("tea", user_id="ada", infer=False)["results"]

        async def other() -> Any:
            async with AsyncMemory(custody) as twin:
                await twin.update(one["id"], "coffee")
                return await twin.get(one["id"])

        assert asyncio.run(other())["memory"] == "coffee"
        assert [fact.text for fact in custody.as_of()] == ["coffee"]


@pytest.mark.parametrize("options", [{"actor": ""}, {"infer": "always"}, {"infer": "adopt"}, {"store": " "}])
def test_a_face_is_made_right(faced: FaceDesk, options: dict[str, Any]) -> None:
    """A face without an actor, or with what it does not know, is refused when it is made."""
    with pytest.raises(InvalidInput):
        AsyncMemory(faced.desk.custody, **options)


async def test_an_index_that_never_drops_shows_nothing_deleted(faced: FaceDesk) -> None:
    """While the store's own search still has a deleted text, this one does not return it."""
    for store in faced.desk.stores.values():
        store.faults.index_lag = FOREVER
    one = await faced.add("tea")
    two = await faced.add("coffee")
    await faced.memory.delete(one)
    await faced.memory.update(two, "cocoa")
    assert await faced.found("tea coffee") == ["cocoa"]
    assert await faced.found("tea") == []


@pytest.mark.parametrize("url", ["sqlite:///{}/l.db", "jsonl:///{}/l.jsonl"])
def test_every_ledger_answers_alike(tmp_path: Path, url: str) -> None:
    """The same life over another storage shows the same."""
    with Coordinator(url.format(tmp_path), create=True, stores=[MemoryStore()]) as custody:
        memory = Memory(custody)
        (one,) = memory.add("tea", user_id="ada", infer=False, metadata={"k": 1})["results"]
        memory.add("cocoa", user_id="ada", infer=False)
        memory.update(one["id"], "coffee")
        assert [row["memory"] for row in memory.get_all(filters={"user_id": "ada"})["results"]] == [
            "cocoa",
            "coffee",
        ]
        (hit,) = memory.search("coffee", filters={"user_id": "ada", "k": 1})["results"]
        assert hit["id"] == one["id"]
        assert [row["event"] for row in memory.history(one["id"])] == ["ADD", "UPDATE"]
        memory.delete_all(user_id="ada")
        assert memory.get(one["id"]) is None
        assert memory.get_all(filters={"user_id": "ada"}, show_expired=True) == {"results": []}


async def test_a_listing_of_many_pages_is_of_one_moment(
    faced: FaceDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update between two pages of a listing shows the memory once, as it was when the listing began."""
    ids = [await faced.add(f"tea {n}") for n in range(5)]
    monkeypatch.setattr("custody_sync.faces._mem0_reading._PAGE", 2)
    as_of, calls = Ledger.as_of, list[int]()

    async def watched(self: Ledger, **asked: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            await faced.memory.update(ids[0], "coffee")
        return await as_of(self, **asked)

    monkeypatch.setattr(Ledger, "as_of", watched)
    assert await faced.listed() == [f"tea {n}" for n in range(5)]
    assert len(calls) == 3
    monkeypatch.undo()
    assert await faced.listed() == [*(f"tea {n}" for n in range(1, 5)), "coffee"]


async def test_whose_a_memory_is_is_where_it_lies(faced: FaceDesk) -> None:
    """A fact in another space that says it is ada's is not hers: neither found nor listed nor deleted."""
    await faced.add("tea")
    said = {"memory": "tea of mallory", "user_id": "ada", "role": "user"}
    forged = {"subject": "m-1", "predicate": "memory", "space": "user:mallory", "text": "tea of mallory"}
    await faced.desk.custody.write(value=said, actor="mallory", **forged)
    assert (await faced.found("tea"), await faced.listed()) == (["tea"], ["tea"])
    assert await faced.listed("mallory") == ["tea of mallory"]
    shown = await faced.memory.get("m-1")
    assert shown is not None
    assert shown["user_id"] == "mallory"
    await faced.memory.delete_all(user_id="ada")
    assert await faced.listed("mallory") == ["tea of mallory"]


async def test_a_search_asks_for_the_users_own_space(faced: FaceDesk) -> None:
    """The store is asked for one user's entries, so that others' cannot crowd them out of its answer."""
    asked: list[Any] = []
    store = faced.desk.stores["memories"]
    search = store.search

    async def watched(query: str, k: int, spaces: Any) -> Any:
        asked.append(spaces)
        return await search(query, k, spaces)

    store.search = watched  # type: ignore[method-assign]
    await faced.add("tea")
    await faced.found("tea")
    assert {tuple(spaces) for spaces in asked} == {("user:ada",)}
