"""What is held about somebody, and its erasure as a whole, from a shell."""

from __future__ import annotations

import asyncio
import json
import signal

import pytest
from fix_cli import Cli, Json

from custody_sync.coordinator import AsyncCoordinator
from custody_sync.results import ForgetWhereResult

USER = "user:42"
FORGET = ("forget", "--space", USER, "--reason", "request 2026-03")


def write(cli: Cli, value: str, subject: str = "s-1", space: str = USER, *more: str) -> str:
    """Write a fact and return its id."""
    statement = ("--subject", subject, "--predicate", "p", "--space", space, *more)
    written: Json = cli.json("write", "--value", value, *statement)
    return str(written["fact"]["fact_id"])


@pytest.mark.parametrize("blank", ["", "  ", "\t"])
def test_p3_a_blank_space_is_a_usage_error(cli: Cli, blank: str) -> None:
    """P3: a blank space never means everybody: exit 2, nothing shown, nothing erased."""
    for user in ("u-1", "u-2"):
        write(cli, "mine", space=user)
    for command in (
        ("where", "--space", blank),
        ("where", "--space", "u-1", "--subject", blank),
        ("forget", "--space", blank, "--reason", "asked", "--yes"),
        ("forget", "--space", "u-1", "--subject", blank, "--reason", "asked", "--yes"),
    ):
        error = cli.json(*command, status=2)["error"]
        assert "must not be empty or blank" in error["message"]
        assert "u-2" not in str(error)
    assert len(cli.json("read")["facts"]) == 2
    cli("where", status=2)


def test_where_says_what_is_held_and_in_which_store(cli: Cli) -> None:
    """Every fact is listed with its state and, by store, the state of its entries."""
    old = write(cli, "old", "s-1")
    new = write(cli, "new", "s-1", USER, "--supersedes", old)
    claimed = write(cli, "claim", "s-2", USER, "--provenance", "claimed")
    wrong = write(cli, "wrong", "s-3")
    gone = write(cli, "gone", "s-4")
    ended = write(
        cli,
        "ended",
        "s-5",
        USER,
        "--valid-from",
        "2020-01-01T00:00:00Z",
        "--valid-to",
        "2021-01-01T00:00:00Z",
    )
    write(cli, "other", "s-1", "user:43")
    cli("retract", wrong, "--reason", "a mistake")
    cli("forget", gone, "--reason", "asked", "--yes")
    cli("hold", new, "--hold-id", "case-7")
    facts = {fact["fact_id"]: fact for fact in cli.json("where", "--space", USER)["facts"]}
    assert {fact_id: fact["state"] for fact_id, fact in facts.items()} == {
        old: "superseded",
        new: "believed",
        claimed: "claimed",
        wrong: "retracted",
        gone: "forgotten",
        ended: "ended",
    }
    assert (facts[new]["holds"], facts[new]["value"], facts[gone]["value"]) == (["case-7"], "new", None)
    places = {(p["store"], p["state"]) for p in facts[new]["placements"]}
    assert places == {("alpha", "held"), ("beta", "held")}
    assert {p["state"] for p in facts[old]["placements"]} == {"gone"}
    only = cli.json("where", "--space", USER, "--subject", "s-1")
    assert (
        only["ledger_id"] == cli.json("read")["ledger_id"] == json.loads(cli("ledger", "head"))["ledger_id"]
    )
    assert (only["stores"], cli.json("read")["stores"]) == ([], [])
    assert only["time"] <= cli.json("read")["time"]
    assert {fact["fact_id"] for fact in only["facts"]} == {old, new}
    shown = cli("where", "--space", USER)
    assert "alpha (stored), beta (stored)" in shown
    assert "(forgotten)" in shown


def test_where_nothing_is(cli: Cli) -> None:
    """An unknown space has nothing, and nothing is invented."""
    write(cli, "mine")
    assert cli.json("where", "--space", "user:24")["facts"] == []
    assert "Nothing is recorded here." in cli("where", "--space", "user:24")


def test_a_space_is_forgotten_as_one(cli: Cli) -> None:
    """The preview has no values; the certificate stands on ledger, head and stores."""
    ids = {write(cli, f"Tamsin {n}", f"s-{n}") for n in range(3)}
    other = write(cli, "stays", "s-1", "user:43")
    done = cli.json(*FORGET, "--yes")
    assert all(fact_id in cli.stderr for fact_id in ids)
    assert "Tamsin" not in cli.stderr
    assert (done["complete"], done["space"], done["subject"]) == (True, USER, None)
    assert {fact["fact_id"] for fact in done["facts"]} == ids
    assert (done["stores"], done["actor"]) == (["alpha", "beta"], "operator:test")
    assert set(done["head"]) == {"seq", "hash", "tx_time"}
    assert done["counts"]["forgotten"] == 3
    assert [fact["fact_id"] for fact in cli.json("read")["facts"]] == [other]
    assert not any(b"Tamsin" in path.read_bytes() for path in cli.folder.iterdir() if path.is_file())


def test_a_dry_run_is_a_finding(cli: Cli) -> None:
    """--dry-run lists what would go and exits with 1; where nothing would, as the run itself does."""
    fact_id = write(cli, "mine")
    planned = cli.json(*FORGET, "--dry-run", status=1)
    assert [fact["fact_id"] for fact in planned["planned"]] == [fact_id]
    assert planned["planned"][0]["stores"] == ["alpha", "beta"]
    assert len(cli.json("read")["facts"]) == 1
    assert (planned["actor"], planned["stores"]) == ("operator:test", ["alpha", "beta"])
    assert (planned["erasure"], planned["incomplete"]) == (None, ["this was a dry run"])
    nothing = ("forget", "--space", "user:24", "--reason", "asked")
    assert "proves nothing" in cli(*nothing, "--dry-run", status=3)
    assert cli.json(*nothing, "--yes", status=3)["erasure"] is None
    cli(*FORGET, "--yes")
    assert cli.json(*FORGET, "--dry-run")["planned"] == []


def test_nothing_found_proves_nothing(cli: Cli) -> None:
    """A mistyped space exits with 3 and says so."""
    write(cli, "mine")
    shown = cli("forget", "--space", "user:24", "--reason", "asked", "--yes", status=3)
    assert "proves nothing" in shown


def test_what_is_held_is_named(cli: Cli) -> None:
    """Some held: 3; all held: 4; the hold is in the answer."""
    held, _ = write(cli, "a", "s-1"), write(cli, "b", "s-2")
    cli("hold", held, "--hold-id", "case-7")
    assert "case-7" in cli(*FORGET, "--yes", status=3)
    refused = cli.json(*FORGET, "--subject", "s-1", "--yes", status=4)
    assert [(fact["fate"], fact["holds"]) for fact in refused["facts"]] == [("held", ["case-7"])]
    assert (refused["erasure"], refused["incomplete"]) == (None, ["facts kept by a hold: 1"])
    assert "1 held; nothing was erased." in cli(*FORGET, "--subject", "s-1", "--yes", status=4)
    cli(*FORGET, "--subject", "s-1", "--dry-run", status=4)
    cli("release", held, "--hold-id", "case-7")
    assert cli.json(*FORGET, "--yes")["complete"]


def test_a_repeated_erasure_of_identity_says_why_it_is_not_complete(cli: Cli) -> None:
    """What left its space with its identity is not found again, and the document names that reason."""
    write(cli, "mine")
    done = cli.json(*FORGET, "--identity", "--yes")
    assert (done["complete"], done["erasure"], done["incomplete"]) == (True, "done", [])
    again = cli.json(*FORGET, "--identity", "--yes", status=3)
    assert again["complete"] is False
    assert again["incomplete"] == ["no fact of this space and subject is known, which proves nothing"]


def test_nobody_is_asked_about_nothing(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal, with nothing to erase, the answer comes at once."""
    held = write(cli, "mine")
    cli("hold", held, "--hold-id", "case-7")
    monkeypatch.setattr("custody_sync.cli.output.Output.interactive", property(lambda _: True))
    for what, status in ((("--space", "user:24"), 3), (("--space", USER), 4), ((held,), 4)):
        cli("forget", *what, "--reason", "asked", status=status)
        assert "for good?" not in cli.stderr


def test_ids_and_a_space_are_two_ways(cli: Cli) -> None:
    """Both, neither, and a subject without its space are usage errors."""
    fact_id = write(cli, "mine")
    for wrong in ((fact_id, "--space", USER), (), (fact_id, "--subject", "s-1"), ("--subject", "s-1")):
        cli("forget", *wrong, "--reason", "asked", "--yes", status=2)
    assert len(cli.json("read")["facts"]) == 1


def test_a_space_needs_yes_where_nobody_can_be_asked(cli: Cli) -> None:
    """Without a terminal and without --yes nothing is erased."""
    write(cli, "mine")
    assert "--yes" in cli.json(*FORGET, status=2)["error"]["message"]
    assert len(cli.json("read")["facts"]) == 1


def test_what_the_stores_show_besides_is_listed(cli: Cli) -> None:
    """An entry that no fact accounts for is shown with what to do, and the exit code is 3."""
    fact_id = write(cli, "mine")
    (entry,) = cli.stores[0].snapshot().values()
    label = {**cli.stores[0].metadata(entry.external_id), "fact_id": "019a0000-0000-7000-8000-00000000abcd"}
    young = cli.stores[0].put_raw("mine too", label)
    old = cli.stores[0].put_raw("mine too", label | {"stored_at": "2020-01-01T00:00:00.000000Z"})
    done = cli.json(*FORGET, "--yes", status=3)
    assert [fact["fact_id"] for fact in done["facts"]] == [fact_id]
    assert [seen["external_id"] for seen in done["young"]] == [young]
    assert [seen["external_id"] for seen in done["leftovers"]] == [old]
    shown = cli(*FORGET, "--yes", status=3)
    assert "run repair" in shown
    assert "run it again after ten minutes" in shown


def test_interrupted_it_says_how_far_it_came(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends with 130, after saying what was forgotten."""
    write(cli, "mine")
    forget_where = AsyncCoordinator.forget_where

    async def interrupted(self: AsyncCoordinator, **asked: object) -> ForgetWhereResult:
        result = await forget_where(self, **asked)
        if not asked.get("dry_run"):
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(10)
        return result

    monkeypatch.setattr(AsyncCoordinator, "forget_where", interrupted)
    cli(*FORGET, "--yes", status=130)
    assert "1 of 1 facts were forgotten; running it again goes on." in cli.stderr
