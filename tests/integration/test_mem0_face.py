"""Mem0's calls over a ledger: what each takes, does and returns."""

from __future__ import annotations

import logging
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from fix_custody import error_of
from fix_mem0_face import FaceDesk

from custody_sync.errors import InvalidInput, NotOffered
from custody_sync.faces.mem0 import AsyncMemory

MESSAGES: list[Any] = [
    {"role": "system", "content": "be kind"},
    {"role": "user", "content": "I live in Oslo", "name": "ada"},
    {"role": "assistant", "content": [{"type": "text", "text": "In"}, {"type": "text", "text": "Oslo!"}]},
    {"role": "assistant", "tool_calls": []},
    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
    "no message",
]


async def test_a_text_becomes_a_memory(faced: FaceDesk) -> None:
    """A text is one memory of its user: a fact in the user's space, under the id that was returned."""
    answer = await faced.memory.add("I like tea", user_id=" ada ", infer=False, metadata={"k": [1]})
    (one,) = answer["results"]
    assert one == {
        "id": one["id"], "memory": "I like tea", "event": "ADD", "actor_id": None, "role": "user",
    }  # fmt: skip
    (fact,) = await faced.desk.ledger.as_of()
    assert (fact.space, fact.subject, fact.predicate) == ("user:ada", one["id"], "memory")
    assert (fact.text, fact.actor) == ("I like tea", "agent:7")
    assert await faced.desk.judge_clean() == {fact.fact_id}


async def test_messages_become_memories(faced: FaceDesk) -> None:
    """Each message with words is a memory; the system's, and those without role or words, are left out."""
    answer = await faced.memory.add(MESSAGES, user_id="ada", agent_id="bot", run_id=7, infer=False)
    said = [(one["memory"], one["role"], one["actor_id"]) for one in answer["results"]]
    assert said == [("I live in Oslo", "user", "ada"), ("In Oslo!", "assistant", None)]
    one = await faced.memory.get(answer["results"][0]["id"])
    assert one is not None
    assert (one["user_id"], one["agent_id"], one["run_id"]) == ("ada", "bot", "7")
    assert await faced.memory.add({"role": "user", "content": "Hi"}, user_id="ada", infer=False)
    assert await faced.listed() == ["I live in Oslo", "In Oslo!", "Hi"]


async def test_the_shape_of_a_memory(faced: FaceDesk) -> None:
    """A memory has Mem0's keys; a listing has no score, a search has the store's."""
    one = await faced.add("I like tea", metadata={"k": 1})
    shown = await faced.memory.get(one)
    began = faced.desk.clock.now().isoformat()
    assert shown == {
        "id": one,
        "memory": "I like tea",
        "hash": "5dba890347a8644a0a37f670d5afb6fa",
        "metadata": {"k": 1},
        "score": None,
        "created_at": began,
        "updated_at": began,
        "user_id": "ada",
        "role": "user",
    }
    del shown["score"]
    assert await faced.memory.get_all(filters={"user_id": "ada"}) == {"results": [shown]}
    found = await faced.memory.search("tea", filters={"user_id": "ada"}, top_k=1)
    assert found["results"][0].pop("score") > 0
    assert found == {"results": [shown]}


async def test_an_update_keeps_the_id(faced: FaceDesk) -> None:
    """An update is a supersession under the one id: get, search, update and history go on with it."""
    one = await faced.add("I like tea", metadata={"k": 1, "z": 2})
    faced.desk.clock.advance(60)
    assert await faced.memory.update(one, "I like coffee", metadata={"k": 3}) == {
        "message": "Memory updated successfully!"
    }
    faced.desk.clock.advance(60)
    await faced.memory.update(one, data="I like cocoa")
    shown = await faced.memory.get(one)
    assert shown is not None
    assert (shown["memory"], shown["metadata"], shown["role"]) == ("I like cocoa", {"k": 3, "z": 2}, "user")
    began = datetime.fromisoformat(shown["created_at"])
    assert datetime.fromisoformat(shown["updated_at"]) - began == timedelta(seconds=120)
    found = await faced.memory.search("tea coffee cocoa", filters={"user_id": "ada"}, top_k=5)
    assert [(hit["id"], hit["memory"], hit["created_at"]) for hit in found["results"]] == [
        (one, "I like cocoa", shown["created_at"])
    ]
    assert [
        (row["event"], row["old_memory"], row["new_memory"]) for row in await faced.memory.history(one)
    ] == [
        ("ADD", None, "I like tea"),
        ("UPDATE", "I like tea", "I like coffee"),
        ("UPDATE", "I like coffee", "I like cocoa"),
    ]
    assert len(await faced.desk.judge_clean()) == 1


async def test_a_deletion_is_a_verified_forget(faced: FaceDesk) -> None:
    """A deleted memory is gone with all versions, from ledger and stores; its history has no text."""
    one = await faced.add("I like tea", metadata={"secret": "heron"})
    await faced.memory.update(one, "I like coffee")
    assert await faced.memory.delete(one) == {"message": "Memory deleted successfully!"}
    assert await faced.memory.get(one) is None
    assert (await faced.found("tea coffee"), await faced.listed()) == ([], [])
    rows = await faced.memory.history(one)
    assert [row["event"] for row in rows] == ["ADD", "UPDATE", "DELETE"]
    assert [row["is_deleted"] for row in rows] == [False, False, True]
    assert not any(row[name] for row in rows for name in ("old_memory", "new_memory", "role", "actor_id"))
    assert rows[0].keys() == {
        "id", "memory_id", "old_memory", "new_memory", "event", "created_at", "updated_at", "is_deleted",
        "actor_id", "role",
    }  # fmt: skip
    assert await faced.desk.judge_clean() == set()
    assert b"heron" not in faced.desk.path.read_bytes()


@pytest.mark.parametrize("call", ["update", "delete"])
async def test_what_is_not_there(faced: FaceDesk, call: str) -> None:
    """Updating or deleting what is unknown, or deleted, is Mem0's ValueError; get and history are empty."""
    one = await faced.add("I like tea")
    await faced.memory.delete(one)
    events = await faced.events()
    for memory_id in (one, "01234567-89ab-7def-8000-0123456789ab"):
        with pytest.raises(ValueError, match="not found"):
            await (
                faced.memory.update(memory_id, "x") if call == "update" else faced.memory.delete(memory_id)
            )
    assert await faced.memory.history("nobody") == []
    assert await faced.memory.get("nobody") is None
    assert await faced.events() == events


async def test_a_retraction_is_told(faced: FaceDesk) -> None:
    """What an operator retracts brings the version before it back, in get and in the history."""
    one = await faced.add("I like tea")
    await faced.memory.update(one, "I like coffee")
    (fact,) = await faced.desk.ledger.as_of()
    await faced.desk.retract(fact.fact_id)
    shown = await faced.memory.get(one)
    assert shown is not None
    assert shown["memory"] == "I like tea"
    last = (await faced.memory.history(one))[-1]
    assert (last["event"], last["old_memory"], last["new_memory"]) == (
        "UPDATE",
        "I like coffee",
        "I like tea",
    )
    (fact,) = await faced.desk.ledger.as_of()
    await faced.desk.retract(fact.fact_id)
    assert await faced.memory.get(one) is None
    assert (await faced.memory.history(one))[-1]["event"] == "DELETE"


async def test_filters_are_asked_of_the_ledger(faced: FaceDesk) -> None:
    """Metadata, roles and ids filter searches and listings alike, whatever the store makes of them."""
    await faced.add("tea one", metadata={"k": 1}, agent_id="bot")
    await faced.add("tea two", metadata={"k": 2})
    await faced.add("tea three", "eve", metadata={"k": 2}, agent_id="bot")
    await faced.add("tea four", None, agent_id="bot")
    assert await faced.listed(filters={"k": {"gte": 2}}) == ["tea two"]
    assert await faced.found("tea", filters={"k": 1}) == ["tea one"]
    assert await faced.found("tea", filters={"role": "assistant"}) == []
    mine = {"agent_id": "bot"}
    words = {one["memory"] for one in (await faced.memory.search("tea", filters=mine))["results"]}
    assert words == {"tea one", "tea three", "tea four"}
    answer = await faced.memory.get_all(filters={"agent_id": "bot", "NOT": [{"user_id": "*"}]})
    assert [one["memory"] for one in answer["results"]] == ["tea four"]
    answer = await faced.memory.get_all(filters={"user_id": "*"}, top_k=2)
    assert [one["memory"] for one in answer["results"]] == ["tea one", "tea two"]


async def test_sizes_and_thresholds(faced: FaceDesk) -> None:
    """`top_k` is the most there is, none for 0; the threshold cuts by the store's score."""
    for n in range(25):
        await faced.add(f"tea {n}")
    assert (len(await faced.listed()), len(await faced.listed(top_k=0)), len(await faced.found("tea"))) == (
        20,
        0,
        20,
    )
    assert await faced.found("tea", top_k=0) == []
    assert len(await faced.listed(top_k=5000)) == 25
    wide = await faced.memory.search("tea 3", filters={"user_id": "ada"}, threshold=0.9)
    assert [one["memory"] for one in wide["results"]] == ["tea 3"]
    assert "status" not in wide


async def test_expiration(faced: FaceDesk) -> None:
    """What expires is served to the end of its day, listed as expired afterwards, and may be renewed."""
    today = faced.desk.clock.now().date()
    one = await faced.add("tea today", expiration_date=today.isoformat())
    await faced.add("tea for ever")
    await faced.memory.update(await faced.add("old"), expiration_date=date(2030, 1, 1))
    assert len(await faced.listed()) == 3
    faced.desk.clock.advance(86_400)
    assert "tea today" not in [*await faced.listed(), *await faced.found("tea")]
    expired = await faced.memory.get_all(filters={"user_id": "ada"}, show_expired=True)
    assert {row["memory"] for row in expired["results"]} == {"tea today", "tea for ever", "old"}
    shown = await faced.memory.get(one)
    assert shown is not None
    assert shown["expiration_date"] == today.isoformat()
    await faced.memory.update(one, expiration_date=None)
    shown = await faced.memory.get(one)
    assert shown is not None
    assert "expiration_date" not in shown
    assert "tea today" in await faced.listed()
    told = [(row["old_memory"], row["new_memory"]) for row in await faced.memory.history(one)]
    assert told == [(None, "tea today"), ("tea today", "tea today")]
    await faced.memory.delete(one)
    assert await faced.listed(show_expired=True) == ["tea for ever", "old"]


async def test_it_began_before(faced: FaceDesk) -> None:
    """`created_at` in metadata is since when it is known, through every update, as in Mem0."""
    began = datetime(2025, 1, 12, 9, tzinfo=UTC)
    one = await faced.add("price 4200", metadata={"created_at": "2025-01-12T10:00:00+01:00"})
    await faced.memory.update(one, "price 3600", metadata={"created_at": "2020-01-01T00:00:00+00:00"})
    shown = await faced.memory.get(one)
    assert shown is not None
    assert (shown["created_at"], shown["metadata"]) == (began.isoformat(), None)
    (then,) = await faced.desk.ledger.as_of(valid_at=began + timedelta(days=1))
    assert then.text == "price 4200"


ADD: dict[str, Any] = {"messages": "x", "user_id": "ada", "infer": False}
SEARCH: dict[str, Any] = {"query": "x", "filters": {"user_id": "ada"}}
BLANK_SECOND = [{"role": "user", "content": "a"}, {"role": "user", "content": ""}]
REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("add", {"messages": "x", "user_id": "ada"}),
    ("add", {"messages": "x", "infer": False}),
    ("add", ADD | {"user_id": ""}),
    ("add", ADD | {"agent_id": " "}),
    ("add", ADD | {"user_id": "*"}),
    ("add", ADD | {"messages": 7}),
    ("add", ADD | {"messages": " "}),
    ("add", ADD | {"messages": BLANK_SECOND}),
    ("add", ADD | {"infer": "no"}),
    ("add", ADD | {"timestamp": 1}),
    ("add", ADD | {"metadata": [1]}),
    ("add", ADD | {"metadata": {"at": datetime(2026, 1, 1, tzinfo=UTC)}}),
    ("add", ADD | {"metadata": {"n": float("nan")}}),
    ("add", ADD | {"metadata": {"created_at": "yesterday"}}),
    ("add", ADD | {"metadata": {"created_at": "2025-01-12T09:00:00"}}),
    ("add", ADD | {"metadata": {"created_at": "2999-01-01T00:00:00Z"}}),
    ("add", ADD | {"expiration_date": "soon"}),
    ("add", ADD | {"expiration_date": "2020-01-01"}),
    ("add", ADD | {"expiration_date": "9999-12-31"}),
    ("add", ADD | {"memory_type": "episodic"}),
    ("add", ADD | {"agent_id": "bot", "memory_type": "procedural_memory"}),
    ("search", SEARCH | {"query": " "}),
    ("search", {"query": "x"}),
    ("search", SEARCH | {"top_k": -1}),
    ("search", SEARCH | {"top_k": 1001}),
    ("search", SEARCH | {"top_k": True}),
    ("search", SEARCH | {"threshold": 1.5}),
    ("search", SEARCH | {"threshold": "high"}),
    ("search", SEARCH | {"explain": True}),
    ("search", SEARCH | {"show_expired": True}),
    ("search", SEARCH | {"reference_date": "2026-01-01"}),
    ("search", SEARCH | {"limit": 5}),
    ("search", {"query": "x", "user_id": "ada"}),
    ("get_all", {}),
    ("get_all", {"user_id": "ada"}),
    ("get_all", {"filters": {"user_id": ""}}),
    ("get_all", {"filters": {"user_id": None}}),
    ("get_all", {"filters": {"user_id": "ada"}, "top_k": "5"}),
    ("get", {"memory_id": ""}),
    ("history", {"memory_id": "  "}),
    ("delete", {"memory_id": ""}),
    ("update", {"memory_id": "x"}),
    ("update", {"memory_id": "", "text": "x"}),
    ("delete_all", {}),
    ("delete_all", {"user_id": "*"}),
    ("delete_all", {"user_id": "ada", "run_id": ""}),
    ("confirm", {"memory_id": "x"}),
]


async def test_what_is_refused_does_nothing(faced: FaceDesk) -> None:
    """Bad input is a ValueError of one sentence, before any store or the ledger is touched."""
    for call, given in REFUSED:
        error = await error_of(getattr(faced.memory, call)(**given), InvalidInput)
        assert isinstance(error, ValueError)
        assert "\n" not in str(error)
        assert await faced.desk.untouched(), (call, given)


def test_reset_is_refused_with_a_way_out(faced: FaceDesk) -> None:
    """Reset would drop everybody's memories behind the ledger; it says what to call instead."""
    with pytest.raises(NotOffered, match="delete_all"):
        faced.memory.reset()


async def test_metadata_cannot_say_whose_it_is(faced: FaceDesk, caplog: pytest.LogCaptureFixture) -> None:
    """Identity in metadata is dropped with one warning that quotes nothing, as in Mem0."""
    with caplog.at_level(logging.WARNING):
        one = await faced.add("tea", metadata={"user_id": "heron", "actor_id": "x", "k": 1})
    shown = await faced.memory.get(one)
    assert shown is not None
    assert (shown["user_id"], shown["metadata"]) == ("ada", {"k": 1})
    assert len(caplog.records) == 1
    assert "heron" not in caplog.text


async def test_who_speaks(faced: FaceDesk) -> None:
    """Another actor's view shares everything but the name, and leaves the first one's as it was."""
    other = faced.memory.acting_as("user:ada", receipt_id="r-1")
    await other.add("tea", user_id="ada", infer=False)
    await faced.add("coffee")
    told = [(fact.actor, fact.receipt_id) for fact in await faced.desk.ledger.as_of()]
    assert told == [("user:ada", "r-1"), ("agent:7", None)]


async def test_other_facts_are_memories_too(faced: FaceDesk) -> None:
    """What the coordinator wrote in a user's space is shown under a fact's id that lasts over corrections."""
    first = await faced.desk.written("pro", space="user:ada")
    second = await faced.desk.written("free", space="user:ada", supersedes=first)
    note = (await faced.desk.custody.write(value="tea", space="user:ada", actor="x")).fact.fact_id
    answer = await faced.memory.get_all(filters={"user_id": "ada"})
    assert [(one["id"], one["memory"]) for one in answer["results"]] == [
        (first, "acct:42 plan: free"),
        (note, "tea"),
    ]
    shown = await faced.memory.get(first)
    assert shown is not None
    assert (shown["memory"], await faced.memory.get("user:ada")) == ("acct:42 plan: free", None)
    with pytest.raises(InvalidInput, match="fact of its own"):
        await faced.memory.update(second, "enterprise")
    await faced.memory.update(note, "coffee")
    shown = await faced.memory.get(note)
    assert shown is not None
    assert (shown["memory"], shown["id"]) == ("coffee", note)
    await faced.memory.delete(first)
    assert await faced.listed() == ["coffee"]
    await faced.memory.delete_all(user_id="ada")
    assert await faced.desk.judge_clean() == set()


@pytest.mark.parametrize(
    "scope", [{"user_id": "ada"}, {"user_id": "ada", "agent_id": "bot"}, {"agent_id": "bot"}]
)
async def test_delete_all_goes_on_with_what_a_store_refused(faced: FaceDesk, scope: dict[str, Any]) -> None:
    """The same call sees it through and tells until it is verified; what others deleted is not its own."""
    told: list[Any] = []
    memory = AsyncMemory(faced.desk.custody, on_pending=told.append)
    store = faced.desk.stores["agent"]
    store.faults.refuse("delete")
    others = [await faced.add("cocoa", "eve"), await faced.add("milk", None, agent_id="cat")]
    await faced.add("tea", agent_id="bot")
    for other in others:
        await faced.memory.delete(other)
    for n in (1, 2):
        await memory.delete_all(**scope)
        assert len(told) == n
    store.faults.allow()
    await memory.delete_all(**scope)
    assert len(told) == 2
    assert "tea" not in {entry.text async for entry in store.list_entries()}
    if "user_id" in scope:
        assert len(await faced.desk.ledger.pending()) == 2
    before = await faced.events()
    await memory.delete_all(**scope)
    assert (await faced.events(), len(told)) == (before, 2)
