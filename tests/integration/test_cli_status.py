"""What is left to do, as `status`, `history` and `verify` tell an operator."""

from __future__ import annotations

import asyncio
import signal

import pytest
from fix_cli import Cli

from custody_sync.cli import verify as command
from custody_sync.errors import StoreUnavailable
from custody_sync.repair import verify

DOWN = StoreUnavailable(store="beta", operation="any", cause="ConnectionRefusedError")


def _stop(cli: Cli) -> None:
    for operation in ("put", "delete", "find", "verify_deleted", "list_entries"):
        cli.stores[1].faults.refuse(operation, DOWN)


def _removed(cli: Cli, count: int) -> list[str]:
    ids = [cli.write(f"v{n}")["fact"]["fact_id"] for n in range(count)]
    for fact_id in ids:
        cli("retract", fact_id, "--reason", "wrong")
    return ids


def test_status_of_a_ledger_with_nothing_to_do(cli: Cli) -> None:
    """Exit 0, every configured store with zeros, and that nothing was swept yet."""
    cli.write()
    found = cli.json("status")
    assert [(s["store"], s["configured"], s["pending"], s["owed"]) for s in found["stores"]] == [
        ("alpha", True, 0, 0),
        ("beta", True, 0, 0),
    ]
    assert (found["pending"], found["last_sweep"], found["sweeping"]) == (False, None, None)
    assert found["head"]["seq"] == 1
    assert "Nothing was swept yet." in cli("status")


def test_status_says_what_is_pending_and_when_it_is_tried_again(cli: Cli) -> None:
    """Exit 1 while something is; a store that was down is named with its next try."""
    fact_id = cli.write()["fact"]["fact_id"]
    _stop(cli)
    cli("retract", fact_id, "--reason", "wrong", status=3)
    before = cli.json("status", status=1)
    assert before["stores"][1]["by_outcome"] == {"failed": 1}
    assert before["stores"][1]["retry"] is None
    assert before["stores"][1]["oldest_pending"] is not None
    cli("repair", status=3)
    found = cli.json("status", status=1)
    assert found["stores"][1]["retry"]["failures"] == 1
    assert found["last_sweep"]["complete"] is False
    shown = cli("status", status=1)
    assert "1 failed" in shown
    assert "(no answer once)" in shown
    assert "something was left" in shown
    cli.stores[1].faults.allow()
    cli("repair")
    assert cli.json("status")["stores"][1]["retry"] is None


def test_status_works_while_the_stores_cannot_even_be_made(cli: Cli) -> None:
    """The ledger answers; which stores are configured is then said not to be known."""
    fact_id = cli.write()["fact"]["fact_id"]
    _stop(cli)
    cli("retract", fact_id, "--reason", "wrong", status=3)
    config = cli.folder / "custody.toml"
    lines = config.read_text().splitlines()
    config.write_text("\n".join('factory = "no_such_module:stores"' if "factory" in x else x for x in lines))
    found = cli.json("status", status=1)
    assert [s["store"] for s in found["stores"] if s["pending"]] == ["beta"]
    assert any("could not be made" in said for said in found["notices"])


def test_history_says_what_is_still_to_do(cli: Cli) -> None:
    """Of this fact, in which store, what came of it last, and when the store is tried again."""
    fact_id = cli.write()["fact"]["fact_id"]
    assert cli.json("history", fact_id)["left"] == []
    assert "still to do" not in cli("history", fact_id)
    _stop(cli)
    cli("retract", fact_id, "--reason", "wrong", status=3)
    cli("repair", status=3)
    (left,) = cli.json("history", fact_id)["left"]
    assert (left["store"], left["what"], left["outcome"]) == ("beta", "remove", "failed")
    assert left["next_at"] == cli.json("status", status=1)["stores"][1]["retry"]["next_at"]
    assert "still to do" in cli("history", fact_id)


def test_history_says_where_a_fact_is_still_owed(cli: Cli) -> None:
    """A fact that is believed again is to be placed in the store that was down."""
    first = cli.write("a")["fact"]["fact_id"]
    second = cli.write("b", "--supersedes", first)["fact"]["fact_id"]
    _stop(cli)
    cli("retract", second, "--reason", "wrong", status=3)
    assert [(to["store"], to["what"]) for to in cli.json("history", first)["left"]] == [("beta", "place")]


def test_verify_narrows_what_is_asked(cli: Cli) -> None:
    """By space, store and time; what narrows is not said together with --all."""
    (fact_id,) = _removed(cli, 1)
    assert cli.json("verify", "--all")["asked"] == 2
    assert cli.json("verify", "--store", "alpha")["outcomes"] == {"alpha": {"verified": 1}}
    assert cli.json("verify", "--space", "nobody", status=3)["asked"] == 0
    assert cli.json("verify", "--since", "2999-01-01", status=3)["asked"] == 0
    assert cli.json("verify", "--all", fact_id, status=2)["error"]["field"] == "--all"
    assert cli.json("verify", "--store", "gamma", status=2)["error"]["code"] == "invalid_input"


def test_verify_of_many_facts_is_summed_up_for_people_only(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The document has every answer; the table has a line per store and outcome, and what is not proven."""
    monkeypatch.setattr(command, "FEW", 3)
    monkeypatch.setattr(verify, "PAGE", 2)
    _removed(cli, 5)
    cli.stores[1].faults.refuse("verify_deleted", DOWN)
    cli.stores[1].faults.refuse("find", DOWN)
    found = cli.json("verify", status=3)
    assert len([r for r in found["removals"] if r["outcome"] == "verified"]) == 5
    assert len(found["removals"]) == found["asked"]
    shown = cli("verify", status=3)
    assert "removed facts" not in shown
    assert ["alpha", "verified", "5"] in [line.split() for line in shown.splitlines()]
    assert "not proven gone" in shown
    assert "beta: did not answer" in cli.stderr


def test_a_stopped_verify_is_mentioned_and_gone_on_with(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted with 130, the next one says so, and --resume goes on and says what is from when."""
    monkeypatch.setattr(verify, "PAGE", 2)
    _removed(cli, 5)
    ask = cli.stores[0].verify_deleted
    asked = 0

    async def stop_at_the_fourth(entry: object) -> bool:
        nonlocal asked
        asked += 1
        if asked == 4:
            # As a terminal does.
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(10)
        return await ask(entry)  # type: ignore[arg-type]  # an entry, as it was given

    monkeypatch.setattr(cli.stores[0], "verify_deleted", stop_at_the_fourth)
    cli("verify", "--store", "alpha", status=130)
    monkeypatch.setattr(cli.stores[0], "verify_deleted", ask)
    shown = cli("verify", "--store", "alpha", "--resume")
    assert ["alpha", "verified", "5"] in [line.split() for line in shown.splitlines()]
    assert "2 answers are from" in shown
    assert cli.json("verify", "--store", "alpha")["unfinished"] is None
