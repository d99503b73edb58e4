"""A plan that is written, read and carried out: exactly its lines, each judged once more."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fix_custody import BRIEF, LATER, Crash, Desk, error_of, kinds_of, open_desk

from custody_sync import errors
from custody_sync.faultpoints import FaultPoint
from custody_sync.model import Capability
from custody_sync.testing import MemoryStore

BLIND = "its store cannot be asked for one fact, so nobody can say whose it is now: run repair"


async def leftovers(desk: Desk) -> dict[str, str]:
    """Leave an orphan, a stray, a pending removal and an ended fact; return their external ids by kind."""
    stray = await desk.written("x", subject="s:stray")
    await desk.retract(stray)
    pending = await desk.written("x", subject="s:pending")
    desk.stores["agent"].faults.refuse("delete")
    await desk.retract(pending)
    desk.stores["agent"].faults.allow()
    ended = await desk.written("x", subject="s:ended", valid_to=desk.clock.now() + timedelta(minutes=5))
    found = {"ended": desk.held_of(ended)["memories"][0], "pending": desk.held_of(pending)["agent"][0]}
    for n in range(4):
        await desk.written(n, subject=f"s:{n}")
    found["orphan"] = await desk.orphan("memories")
    found["stray"] = await desk.orphan("agent", fact_id=stray)
    desk.clock.advance(LATER)
    return found


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_a_plan_says_what_would_be_done_and_changes_nothing(desk: Desk, tmp_path: Path) -> None:
    """A header, a line for each removal without any text, and how many; nothing is recorded or touched."""
    there = await leftovers(desk)
    head, held = await desk.ledger.head(), desk.held()
    result = await desk.repair(plan=tmp_path / "plan")
    assert result.dry_run
    assert (await desk.ledger.head(), desk.held()) == (head, held)
    first, *lines, last = lines_of(tmp_path / "plan")
    assert first["custody_sync_plan"] == 1
    assert (first["ledger_id"], first["head"]["seq"]) == (desk.ledger.ledger_id, head.seq)
    assert {"time", "cutoff", "selection"} < first.keys()
    assert last == {"lines": len(lines)} == {"lines": len(result.repaired)}
    kinds = {line["external_id"]: line["kind"] for line in lines}
    assert kinds[there["orphan"]] == "orphan"
    assert kinds[there["stray"]] == kinds[there["ended"]] == "stray"
    assert kinds[there["pending"]] == "pending"
    assert "lost" not in (tmp_path / "plan").read_text()


async def test_a_plan_is_carried_out_and_nothing_else(desk: Desk, tmp_path: Path) -> None:
    """What came since is left; carried out again, there is nothing more to do."""
    await leftovers(desk)
    planned = await desk.repair(plan=tmp_path / "plan")
    later = await desk.orphan("memories")
    result = await desk.repair(apply=tmp_path / "plan")
    assert result.complete
    assert result.skipped == ()
    assert len(result.repaired) == len(planned.repaired) == 5
    assert {outcome for _, _, outcome in kinds_of(result)} == {"verified"}
    assert later in desk.stores["memories"].snapshot()
    assert await desk.ledger.pending() == []
    again = await desk.repair(apply=tmp_path / "plan")
    assert (again.repaired, again.complete) == ((), True)
    assert {skipped.settled for skipped in again.skipped} == {True}
    assert len(again.skipped) == 5
    assert kinds_of(await desk.repair()) == [("memories", "orphan", "verified")]
    await desk.judge_clean()


async def test_an_application_that_was_killed_is_applied_again(desk: Desk, tmp_path: Path) -> None:
    """What was done is skipped, and no entry is recorded twice."""
    await leftovers(desk)
    await desk.repair(plan=tmp_path / "plan")
    desk.fail_next(FaultPoint.AFTER_DELETE, Crash(), skip=2)
    with pytest.raises(Crash):
        await desk.repair(apply=tmp_path / "plan")
    desk.clock.advance(LATER)
    await desk.repair(apply=tmp_path / "plan")
    assert (await desk.repair()).complete
    await desk.judge_clean()
    repairs = [row["event"] async for row in desk.ledger.export() if row["event"]["kind"] == "repair"]
    assert len(repairs) == 1


async def test_lines_that_do_not_hold_any_more_are_skipped_with_the_reason(tmp_path: Path) -> None:
    """A placement, a foreign label, a store that is gone or silent, a young entry: none is touched."""
    stores = [MemoryStore("memories"), MemoryStore("silent"), MemoryStore("mute", without=[Capability.FIND])]
    async with open_desk(tmp_path, stores=stores, patience=BRIEF) as desk:
        kept = await desk.written("kept")
        orphans = {name: await desk.orphan(name) for name in desk.stores}
        foreign = await desk.orphan("memories")
        gone = await desk.orphan("memories")
        await desk.repair(plan=tmp_path / "plan")
        lines = lines_of(tmp_path / "plan")
        common = {
            "scope": None,
            "stored_at": "2020-01-01T00:00:00.000000Z",
            "kind": "orphan",
            "recorded": False,
        }
        held = desk.held_of(kept)
        common["owed"] = False
        forged = [
            {**common, "store": "memories", "external_id": held["memories"][0], "fact_id": kept},
            {**common, "store": "mute", "external_id": held["mute"][0], "fact_id": kept},
            {**common, "store": "nowhere", "external_id": "x", "fact_id": "x"},
            {**common, "store": "mute", "external_id": "y", "fact_id": "y", "stored_at": None},
        ]
        told = [lines[0], *lines[1:-1], *forged, {"lines": len(lines) - 2 + len(forged)}]
        (tmp_path / "plan").write_text("".join(json.dumps(line) + "\n" for line in told))
        memories = desk.stores["memories"]
        memories._held[foreign].metadata["ledger_id"] = "another"  # type: ignore[index]  # a dict, in truth
        memories.drop(gone)
        desk.stores["silent"].faults.refuse("find")
        result = await desk.repair(apply=tmp_path / "plan")
        reasons = {(s.store, s.external_id): (s.reason, s.settled) for s in result.skipped}
        placed = ("it is a current placement now", True)
        assert reasons == {
            ("memories", held["memories"][0]): placed,
            ("mute", held["mute"][0]): placed,
            ("nowhere", "x"): ("its store is not configured here, or was not selected", False),
            ("mute", "y"): (BLIND, False),
            ("mute", orphans["mute"]): (BLIND, False),
            ("memories", foreign): ("its store shows it under another ledger's label", False),
            ("memories", gone): ("its store does not show it any more", True),
            ("silent", orphans["silent"]): ("its store cannot be asked (refused)", False),
        }
        assert {r.external_id for r in result.repaired} == {orphans["memories"]}
        assert not result.complete
        assert foreign in memories.snapshot()
        assert await desk.current() == [kept]


async def test_a_line_that_stands_there_twice_is_one(desk: Desk, tmp_path: Path) -> None:
    """An entry is removed, recorded and counted once, however often a file names it."""
    await leftovers(desk)
    await desk.repair(plan=tmp_path / "plan")
    first, *lines, _ = (tmp_path / "plan").read_text().splitlines()
    thrice = [first, *lines, *lines, *lines, json.dumps({"lines": 3 * len(lines)})]
    (tmp_path / "plan").write_text("\n".join(thrice) + "\n")
    result = await desk.repair(apply=tmp_path / "plan")
    assert (len(result.repaired), result.skipped, result.complete) == (5, (), True)
    removals = [row["event"] async for row in desk.ledger.export() if row["event"]["kind"] == "remove"]
    said = [json.dumps([event["fact_id"], event["data"]], sort_keys=True) for event in removals]
    assert len(set(said)) == len(said)
    await desk.judge_clean()


async def test_a_limit_holds_for_a_plan_too(desk: Desk, tmp_path: Path) -> None:
    """At most so many; the next application does the rest."""
    await leftovers(desk)
    await desk.repair(plan=tmp_path / "plan")
    first = await desk.repair(apply=tmp_path / "plan", limit=3)
    assert (len(first.repaired), first.left_over, first.complete) == (3, 2, False)
    second = await desk.repair(apply=tmp_path / "plan")
    assert (len(second.repaired), second.complete) == (2, True)


DAMAGE: dict[str, tuple[Callable[[list[str]], list[str]], str]] = {
    "cut": (lambda lines: lines[:-1], "is cut short"),
    "half": (lambda lines: [*lines[:-2], lines[-2][:10]], "is damaged in line"),
    "less": (lambda lines: [lines[0], *lines[2:]], "is cut short, or something was added or taken out"),
    "more": (lambda lines: [*lines, lines[1]], "something was added"),
    "foreign": (lambda lines: [lines[0].replace('"ledger_id": "', '"ledger_id": "x'), *lines[1:]], "another"),
    "newer": (
        lambda lines: [lines[0].replace('plan": 1', 'plan": 2'), *lines[1:]],
        "no plan that this version",
    ),
    "other": (lambda lines: ["hello"], "is damaged in line 1"),
    "list": (lambda lines: ["[]"], "is damaged in line 1"),
    "kind": (lambda lines: [lines[0], lines[1].replace("orphan", "fact"), *lines[2:]], "damaged in line 2"),
    "id": (lambda lines: [lines[0], '{"store": "a"}', *lines[2:]], "damaged in line 2"),
    "empty": (lambda lines: [], "is damaged in line 1"),
}


@pytest.mark.parametrize("how", DAMAGE)
async def test_a_damaged_or_foreign_plan_is_one_sentence(desk: Desk, tmp_path: Path, how: str) -> None:
    """Said before anything is done, with the file's name."""
    await desk.orphan("memories")
    path = tmp_path / "plan"
    await desk.repair(plan=path)
    damage, said = DAMAGE[how]
    path.write_text("\n".join(damage(path.read_text().splitlines())))
    error = await error_of(desk.repair(apply=path), errors.InvalidInput)
    assert said in str(error)
    assert str(path) in str(error)
    assert (await desk.ledger.head()).seq == 0
    assert await desk.ledger.notes("lease") == []


async def test_files_that_cannot_be_opened_are_one_sentence(desk: Desk, tmp_path: Path) -> None:
    """A missing plan, one that is no text, and a folder that is not there."""
    await desk.orphan("memories")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for told, said in (
        ({"apply": tmp_path / "none"}, "No such file"),
        ({"apply": tmp_path / "bytes"}, "not UTF-8"),
        ({"plan": tmp_path / "none" / "plan"}, "No such file"),
    ):
        error = await error_of(desk.repair(**told), errors.InvalidInput)
        assert said in str(error)
    assert (await desk.ledger.head()).seq == 0


@pytest.mark.parametrize(
    "more", [{"plan": "p"}, {"dry_run": True}, {"max_removals": 1}, {"fresh": True}, {"space": "org"}]
)
async def test_what_does_not_go_with_apply(desk: Desk, more: dict[str, Any]) -> None:
    """A plan says all that is done; what would change that is refused."""
    error = await error_of(desk.repair(apply="x", **more), errors.InvalidInput)
    assert error.field == "apply"


async def test_a_plan_may_go_to_a_device(desk: Desk) -> None:
    """What is no regular file keeps its mode, and is neither asked whether it is a plan nor made anew."""
    await desk.orphan(next(iter(desk.stores)))
    ours, theirs = os.openpty()
    try:
        mode = os.fstat(theirs).st_mode
        assert not (await desk.repair(plan=os.ttyname(theirs))).complete
        assert os.fstat(theirs).st_mode == mode
        assert os.read(ours, 1000).startswith(b'{"')
    finally:
        os.close(ours)
        os.close(theirs)


async def test_a_plan_is_written_over_nothing_but_a_plan(desk: Desk, tmp_path: Path) -> None:
    """The ledger, what SQLite keeps beside it, and whatever else is in a file stay as they are."""
    await leftovers(desk)
    note = tmp_path / "note"
    note.write_text("mine")
    (tmp_path / "link").symlink_to(desk.path)
    for path in (desk.path, f"{desk.path}-wal", f"{desk.path}-journal", tmp_path / "link", note):
        error = await error_of(desk.repair(plan=path), errors.InvalidInput)
        assert error.field == "plan"
    assert note.read_text() == "mine"
    for _ in range(2):
        assert (await desk.repair(plan=tmp_path / "plan")).dry_run
    (tmp_path / "empty").touch()
    assert (await desk.repair(plan=tmp_path / "empty")).dry_run
    assert (tmp_path / "empty").read_text().startswith('{"custody_sync_plan"')


@pytest.mark.parametrize("path", ["a\0b", 3])
async def test_what_is_no_path_is_refused_by_name(desk: Desk, path: Any) -> None:
    """No number, which could be an open file, and no NUL character."""
    for argument in ("plan", "apply"):
        error = await error_of(desk.repair(**{argument: path}), errors.InvalidInput)
        assert error.field == argument
