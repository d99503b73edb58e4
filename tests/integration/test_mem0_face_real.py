"""The Mem0 face over Mem0 itself: a local library with a stub for its models, and the service's stand-in."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
from fix_custody import error_of
from fix_mem0 import open_memory

from custody_sync.errors import InsideEventLoop, InvalidInput
from custody_sync.faces.mem0 import AsyncMemory, Memory, as_memory

CALLS = ["add", "search", "get", "get_all", "update", "delete", "delete_all", "history"]
ADA: dict[str, Any] = {"user_id": "ada"}


class Model:
    """What Mem0 asks of a language model: it finds the same two memories in everything."""

    def generate_response(self, messages: Any, **options: Any) -> str:
        """Return what Mem0 reads as extracted memories."""
        found = [{"id": "0", "text": "Ada likes tea"}, {"id": "1", "text": "Ada lives in Oslo"}]
        return json.dumps({"memory": found})


@pytest.mark.parametrize("name", CALLS)
def test_each_call_takes_what_mem0s_does(mem0: Any, name: str) -> None:
    """Arguments have the names, the order, the kinds and the defaults of the installed mem0ai."""
    for ours, theirs in ((Memory, mem0.Memory), (AsyncMemory, mem0.AsyncMemory)):
        source = inspect.signature(getattr(theirs, name)).parameters
        taken = inspect.signature(getattr(ours, name)).parameters
        assert list(taken) == list(source)
        assert [one.kind for one in taken.values()] == [one.kind for one in source.values()]
        defaults = {arg: one.default for arg, one in source.items() if arg != "expiration_date"}
        assert {arg: one.default for arg, one in taken.items() if arg != "expiration_date"} == defaults
        assert inspect.iscoroutinefunction(getattr(ours, name)) is (ours is AsyncMemory)


def test_answers_have_mem0s_shape(mem0_memory: Any, tmp_path: Path) -> None:
    """The same calls on Mem0 and on the face over it return the same keys, in the same places."""
    shapes = []
    face = Memory.over(mem0_memory, f"sqlite:///{tmp_path}/l.db")
    for memory, user_id in ((mem0_memory, "eve"), (face, "ada")):
        said = [
            {"role": "user", "content": "I like tea", "name": "a"},
            {"role": "assistant", "content": "Tea!"},
        ]
        added = memory.add(said, user_id=user_id, run_id="r-1", infer=False, metadata={"k": 1})
        one = added["results"][0]["id"]
        updated = memory.update(one, "I like black tea")
        got, listed = memory.get(one), memory.get_all(filters={"user_id": user_id})
        found = memory.search("tea", filters={"user_id": user_id})
        deleted = memory.delete(one)
        rest = memory.delete_all(user_id=user_id)
        history = memory.history(one)
        answers = [added["results"], [got], listed["results"], found["results"], history]
        keys = [{frozenset(row) for row in rows} for rows in answers]
        shapes.append((keys, updated, deleted, rest, [row["event"] for row in history], memory.get(one)))
    assert shapes[0] == shapes[1]
    face.close()


def test_a_whole_life_over_a_local_mem0(mem0_memory: Any, tmp_path: Path) -> None:
    """Add, search, update and delete reach the vector store, and nothing deleted is left there."""
    with Memory.over(mem0_memory, f"sqlite:///{tmp_path}/l.db", actor="agent:7") as face:
        (one,) = face.add("I like tea", **ADA, infer=False, metadata={"k": 1})["results"]
        face.update(one["id"], "I like coffee")
        (hit,) = face.search("coffee", filters={**ADA, "k": 1})["results"]
        assert (hit["id"], hit["memory"], hit["score"] > 0.5) == (one["id"], "I like coffee", True)
        (row,) = mem0_memory.get_all(filters=ADA)["results"]
        assert row["memory"] == "I like coffee"
        face.delete(one["id"])
        assert mem0_memory.get_all(filters=ADA)["results"] == []
        assert face.search("tea coffee", filters=ADA) == {"results": []}
    assert mem0_memory.db is not None


def test_inference_is_adopted_as_claims(mem0_memory: Any, tmp_path: Path) -> None:
    """What Mem0's model wrote is on record under Mem0's ids, and waits to be confirmed."""
    mem0_memory.llm = Model()
    face = Memory.over(mem0_memory, f"sqlite:///{tmp_path}/l.db", infer="adopt")
    answer = face.add([{"role": "user", "content": "I am Ada"}], **ADA, metadata={"k": 1}, run_id="r-1")
    tea, oslo = answer["results"]
    assert [one["memory"] for one in answer["results"]] == ["Ada likes tea", "Ada lives in Oslo"]
    assert mem0_memory.get(tea["id"])["memory"] == "Ada likes tea"
    assert face.get(tea["id"]) is None
    assert face.search("tea", filters=ADA)["results"] == []
    with pytest.raises(InvalidInput, match="confirm"):
        face.update(tea["id"], "Ada likes coffee")
    assert face.confirm(tea["id"]) == {"message": "Memory confirmed successfully!"}
    with pytest.raises(InvalidInput, match="no claim"):
        face.confirm(tea["id"])
    (hit,) = face.search("tea", filters={**ADA, "run_id": "r-1"})["results"]
    assert (hit["id"], hit["memory"], hit["metadata"]) == (tea["id"], "Ada likes tea", {"k": 1})
    face.update(tea["id"], "Ada likes coffee")
    assert [row["memory"] for row in mem0_memory.get_all(filters=ADA)["results"]].count("Ada likes tea") == 0
    face.delete(oslo["id"])
    assert mem0_memory.get(oslo["id"]) is None
    face.delete_all(user_id="ada")
    assert mem0_memory.get_all(filters=ADA)["results"] == []
    face.close()


def test_claims_are_served_where_that_is_chosen(mem0_memory: Any, tmp_path: Path) -> None:
    """With `include_claimed` what was inferred is served at once; without a user nothing is inferred."""
    mem0_memory.llm = Model()
    face = Memory.over(mem0_memory, f"sqlite:///{tmp_path}/l.db", infer="adopt", include_claimed=True)
    face.add("I am Ada", **ADA)
    assert len(face.get_all(filters=ADA)["results"]) == 2
    assert [one["memory"] for one in face.search("tea", filters=ADA, top_k=1)["results"]] == ["Ada likes tea"]
    with pytest.raises(InvalidInput, match="user_id"):
        face.add("I am Ada", agent_id="bot")
    assert len(mem0_memory.get_all(filters={"agent_id": "bot"})["results"]) == 0
    face.close()


def test_what_was_there_before_keeps_its_id(mem0_memory: Any, tmp_path: Path) -> None:
    """Memories from before are not served until they are adopted; then they go on under their own ids."""
    old = mem0_memory.add("Ada has a cat", **ADA, infer=False)["results"][0]["id"]
    face = Memory.over(mem0_memory, f"sqlite:///{tmp_path}/l.db")
    assert (face.get(old), face.search("cat", filters=ADA)["results"]) == (None, [])
    custody = face.custody
    done = custody.adopt("mem0", actor="ops", space=as_memory, provenance="attested", dry_run=False)
    assert (done.adopted, done.elsewhere, done.complete) == (1, 0, True)
    (hit,) = face.search("cat", filters=ADA)["results"]
    assert (hit["id"], hit["user_id"]) == (old, "ada")
    face.update(old, "Ada has two cats")
    assert [row["memory"] for row in mem0_memory.get_all(filters=ADA)["results"]] == ["Ada has two cats"]
    face.close()


async def test_awaited_over_an_asynchronous_mem0(mem0_async_memory: Any, tmp_path: Path) -> None:
    """`aover` works in the caller's loop, `over` is refused there, and `aclose` closes what was opened."""
    url = f"sqlite:///{tmp_path}/l.db"
    with pytest.raises(InsideEventLoop, match=r"AsyncMemory\.aover"):
        AsyncMemory.over(mem0_async_memory, url)
    async with await AsyncMemory.aover(mem0_async_memory, url) as face:
        (one,) = (await face.add("I like tea", **ADA, infer=False))["results"]
        assert (await face.search("tea", filters=ADA))["results"][0]["id"] == one["id"]
        await face.delete_all(**ADA)
        assert await face.get(one["id"]) is None
        with pytest.raises(InsideEventLoop, match=r"AsyncMemory\.aclose"):
            face.close()
        other = face.acting_as("user:ada")
        await other.aclose()
        assert (await face.get_all(filters=ADA))["results"] == []
    assert mem0_async_memory.db is not None


def test_over_the_service(mem0_client: Any, tmp_path: Path) -> None:
    """The same calls work over Mem0's service; equal texts are two memories, and both can be deleted."""
    face = Memory.over(mem0_client, f"sqlite:///{tmp_path}/l.db")
    one, two = (face.add("I like tea", **ADA, infer=False)["results"][0]["id"] for _ in range(2))
    face.update(one, "I like coffee")
    assert {row["id"] for row in face.search("tea coffee", filters=ADA)["results"]} == {one, two}
    face.delete(two)
    assert [row["memory"] for row in mem0_client.get_all(filters=ADA)["results"]] == ["I like coffee"]
    face.close()


async def test_over_the_service_awaited(mem0_async_client: Any, tmp_path: Path) -> None:
    """The asynchronous client is awaited in its own loop."""
    async with await AsyncMemory.aover(mem0_async_client, f"sqlite:///{tmp_path}/l.db") as face:
        (one,) = (await face.add("I like tea", **ADA, infer=False))["results"]
        await face.delete(one["id"])
        await error_of(face.delete(one["id"]), InvalidInput)


def test_from_a_configuration(mem0: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`from_config` takes Mem0's configuration and makes Mem0 by it."""
    made: list[Any] = []

    def from_config(kind: Any, config: dict[str, Any]) -> Any:
        made.append(open_memory(original, tmp_path / str(len(made)), **config))
        return made[-1]

    original = type("Original", (mem0.Memory,), {"from_config": mem0.Memory.from_config})
    monkeypatch.setattr(mem0.Memory, "from_config", classmethod(from_config))
    face = Memory.from_config({"version": "v1.1"}, ledger=f"sqlite:///{tmp_path}/l.db", actor="agent:7")
    face.add("tea", **ADA, infer=False)
    assert len(made[0].get_all(filters=ADA)["results"]) == 1
    face.close()
    assert made[0].db is None
    with pytest.raises(InvalidInput):
        Memory.from_config({}, ledger=f"sqlite:///{tmp_path}/l.db", actor="")
    assert made[1].db is None
    for memory in made:
        memory.vector_store.client.close()


def test_a_face_that_cannot_be_made_opens_nothing(mem0_memory: Any, tmp_path: Path) -> None:
    """A wrong argument closes what was opened on the way."""
    with pytest.raises(InvalidInput):
        Memory.over(mem0_memory, f"sqlite:///{tmp_path}/l.db", actor=" ")
    assert mem0_memory.db is not None


def test_an_inference_that_was_cut_off_is_not_served(mem0_memory: Any, tmp_path: Path) -> None:
    """Killed between Mem0's write and the record, rows have no fact: not served, and found by `adopt`."""
    mem0_memory.llm = Model()
    face = Memory.over(mem0_memory, f"sqlite:///{tmp_path}/l.db", infer="adopt", include_claimed=True)
    reach, face.custody._custody.adopt = face.custody._custody.adopt, killed  # type: ignore[attr-defined]
    with pytest.raises(Killed):
        face.add("I am Ada", **ADA)
    face.custody._custody.adopt = reach  # type: ignore[attr-defined]
    assert len(mem0_memory.get_all(filters=ADA)["results"]) == 2
    assert face.search("Ada likes tea", filters=ADA)["results"] == []
    done = face.custody.adopt("mem0", actor="ops", space=as_memory, dry_run=False)
    assert (done.adopted, done.complete) == (2, True)
    assert len(face.search("Ada likes tea", filters=ADA)["results"]) == 2
    face.close()


class Killed(BaseException):
    """The process ends here."""


async def killed(*args: Any, **more: Any) -> Any:
    """End the process instead of adopting."""
    raise Killed


async def test_an_inference_of_the_service(mem0_async_client: Any, mem0_api: Any, tmp_path: Path) -> None:
    """The service infers while it is waited for, and what it names is adopted; a refusal writes nothing."""
    url = f"sqlite:///{tmp_path}/l.db"
    mem0_api.switches.infers = True
    async with await AsyncMemory.aover(mem0_async_client, url, infer="adopt") as face:
        (one,) = (await face.add("I like tea", **ADA))["results"]
        assert one["id"] in mem0_api.memories
        assert await face.get(one["id"]) is None
        await face.confirm(one["id"])
        shown = await face.get(one["id"])
        assert shown is not None
        assert shown["memory"] == "I like tea"
    async with await AsyncMemory.aover(mem0_async_client, url) as face:
        before = len(mem0_api.memories)
        await error_of(face.add("I like coffee", **ADA), InvalidInput)
        assert len(mem0_api.memories) == before
