"""The comparison under faults: its script runs, its judge finds everybody wrong, its page is up to date."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PEERS = ROOT / "benchmarks" / "peers"
PAGE = ROOT / "docs" / "peers.md"


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Load the script, and forget it and its parts afterwards."""
    monkeypatch.syspath_prepend(PEERS)
    spec = importlib.util.spec_from_file_location("peer_faults", PEERS / "faults.py")
    assert spec is not None
    assert spec.loader is not None
    # Under a name of its own: a folder of the tests is called as the script is.
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    for name in [name for name in sys.modules if name.startswith(("peer_faults", "_faults"))]:
        del sys.modules[name]


async def counted(faults: Any, side: str, fault: str) -> dict[str, Any]:
    """Try one side under one fault, hold the page to what comes of it, and return that."""
    cases = await faults.tried(faults.SIDES[side], [faults.Fault(fault)])
    found: dict[str, Any] = faults.summed(cases)
    assert f"| {faults.cell(found)} |" in row_of(faults.SIDES[side.removesuffix("-custody")].title, fault)
    return found


def row_of(title: str, fault: str) -> str:
    """Return the page's row of a fault, out of the table of a peer."""
    lines = PAGE.read_text().splitlines()
    begins = lines.index(next(line for line in lines if line.startswith(f"| fault | {title} |")))
    return next(line for line in lines[begins:] if line.startswith(f"| {fault} |"))


async def test_a_delete_that_does_nothing_is_believed_by_langgraph_and_not_by_custody(faults: Any) -> None:
    """On the same store, with the same fault: the bare one lies and keeps, ours says so and mends."""
    theirs = await counted(faults, "langgraph", "a delete that does nothing")
    assert (theirs["lied"], theirs["after"]) == (3, {"kept": 3})
    ours = await counted(faults, "langgraph-custody", "a delete that does nothing")
    assert (ours["lied"], ours["after"]) == (0, {})
    assert ours["runs"] >= theirs["runs"]


async def test_a_reply_lost_leaves_what_no_clean_up_of_langchain_finds(faults: Any) -> None:
    """What the store took and the record did not is on no record; ours takes it back or finds it."""
    theirs = await counted(faults, "langchain", "reply lost")
    assert theirs["after"] == {"kept": 2, "stale": 1}
    ours = await counted(faults, "langchain-custody", "reply lost")
    assert (ours["lied"], ours["after"]) == (0, {})


async def test_two_stores_at_once_part_when_one_is_down(faults: Any) -> None:
    """While one store is away, what was put at once is in the other one alone."""
    theirs = await counted(faults, "gather", "one of two stores down")
    assert theirs["runs"] == 18
    assert theirs["before"]


async def test_mem0_takes_its_stores_word_for_one_memory(faults: Any, mem0: Any) -> None:
    """A delete by id is not looked at again, as its documentation says; deleting all of a user's is."""
    theirs = await counted(faults, "mem0", "a delete that does nothing")
    assert (theirs["runs"], theirs["lied"], theirs["after"]) == (3, 1, {"kept": 1})


async def test_mem0_has_nothing_twice_when_a_put_is_done_again(faults: Any, mem0: Any) -> None:
    """Whoever does a put again looks under the key first, with Mem0 alone as under custody-sync."""
    theirs = await counted(faults, "mem0", "reply lost")
    assert (theirs["runs"], theirs["after"]) == (10, {})


async def test_the_judge_finds_custody_wrong_where_it_is(
    faults: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If ours said that all is done whatever came of it, it would be counted as lying like anybody else."""
    custody = sys.modules["_faults_custody"].Custody
    forget = custody.delete_person

    async def optimistic(self: Any, step: Any) -> bool:
        await forget(self, step)
        return True

    monkeypatch.setattr(custody, "delete_person", optimistic)
    cases = await faults.tried(faults.SIDES["langgraph-custody"], [faults.Fault.NOT_DELETED])
    assert faults.summed(cases)["lied"] > 0


@pytest.mark.parametrize(
    ("may_be", "before", "held", "expected"),
    [
        ({"new"}, set(), [["new"], ["new"]], ""),
        ({"new"}, set(), [["new"], []], "lost"),
        ({"new", "old"}, set(), [[], []], "lost"),
        ({"new", "old"}, set(), [["old"], ["old"]], ""),
        ({"new", None}, set(), [["new"], []], "stray"),
        ({"new", None}, set(), [[], []], ""),
        ({"new"}, {"old"}, [["new", "old"], ["new", "old"]], "stray"),
        ({"new"}, set(), [["new", "new"], ["new"]], "stray"),
        ({None}, {"old"}, [["old"], []], "kept"),
        ({None}, set(), [["never acknowledged"], []], "stray"),
    ],
)
def test_what_is_wrong_with_a_memory_is_named(
    faults: Any, may_be: set[str | None], before: set[str], held: list[list[str]], expected: str
) -> None:
    """What a caller may rely on, against what each store holds, whoever keeps it."""
    story = sys.modules["_faults_story"]
    promise = story.Promise(may_be=may_be, before=before)
    assert story.wrong_with(promise, dict(zip("ab", held, strict=True))) == expected


def test_a_dead_process_reaches_nobody(faults: Any) -> None:
    """After it died no call is carried out, neither of a store nor of a ledger, until a new one begins."""
    wires = sys.modules["_faults_wire"]
    done: list[str] = []

    class Client:
        def put(self, text: str) -> None:
            done.append(text)

    wire = wires.Wire(wires.Strike(fault=wires.Fault.DIES_AFTER, at=1))
    client = Client()
    wire.attach(client, "it", {"put": wires.Kind.PUT})
    wire.operation = 1
    for text in ("carried out", "not"):
        with pytest.raises(wires.Died):
            client.put(text)
    with pytest.raises(wires.Died):
        wire.reach("ledger.before_commit")
    wire.revive()
    client.put("again")
    assert done == ["carried out", "again"]
