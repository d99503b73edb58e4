"""Holds, expiry and evidence from a shell."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from fix_cli import Cli

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.cli.main import run_command
from custody_sync.errors import LedgerFull
from custody_sync.testing import ManualClock, testing_runtime

OLD = datetime(2020, 1, 1, tzinfo=UTC)


def write_old(cli: Cli, *spaces: str) -> list[str]:
    """Write a fact into each space, years ago; return their ids."""

    async def write() -> list[str]:
        runtime = testing_runtime(clock=ManualClock(OLD))
        async with await Ledger.open(f"sqlite:///{cli.folder}/custody.db", runtime=runtime) as ledger:
            custody = AsyncCoordinator(ledger, stores=cli.stores, runtime=runtime)
            written = [
                await custody.write(value="old", subject="s", predicate="p", space=space, actor="a")
                for space in spaces
            ]
        return [result.fact.fact_id for result in written]

    return asyncio.run(write())


def soon() -> str:
    """Return an instant that everything written so far is older than."""
    return (datetime.now(UTC) + timedelta(minutes=1)).isoformat()


def retain(cli: Cli, *lines: str) -> None:
    """Add a [retention] table to custody.toml."""
    path = Path("custody.toml")
    path.write_text(path.read_text() + "\n[retention]\n" + "".join(f"{line}\n" for line in lines))


def believed(cli: Cli) -> list[str]:
    """Return the ids of what is believed, sorted."""
    return sorted(fact["fact_id"] for fact in cli.json("read")["facts"])


# --- holds ------------------------------------------------------------------------------------


def test_a_held_fact_is_not_forgotten(cli: Cli) -> None:
    """Hold and release name the holds that stand; a forget in between is refused with 4."""
    fact_id = cli.write()["fact"]["fact_id"]
    first = cli.json("hold", fact_id, "--hold-id", "case-1", "--reason", "litigation")
    assert first == {"fact_id": fact_id, "hold_id": "case-1", "holds": ["case-1"]}
    second = cli.json("hold", fact_id)["hold_id"]
    refused = cli.json("forget", fact_id, "--reason", "asked", "--yes", status=4)
    assert refused["failed"][0]["code"] == "on_hold"
    assert sorted(refused["failed"][0]["holds"]) == sorted(["case-1", second])
    assert f"Holds that stand: {second}." in cli("release", fact_id, "--hold-id", "case-1")
    assert cli.json("release", fact_id, "--hold-id", second)["holds"] == []
    assert cli.json("forget", fact_id, "--reason", "asked", "--yes")["complete"]
    shown = cli("history", fact_id)
    assert "litigation" in shown
    assert shown.count("case-1") == shown.count(second) == 2


def test_a_dry_run_shows_what_a_hold_keeps(cli: Cli) -> None:
    """Held facts are not shown as to be erased; with none left to erase it exits as the run would, with 4."""
    held, free = (cli.write(value)["fact"]["fact_id"] for value in ("a", "b"))
    cli("hold", held, "--hold-id", "case-1")
    dry = ("--reason", "asked", "--dry-run")
    planned = cli.json("forget", held, free, *dry, status=1)
    assert [fact["fact_id"] for fact in planned["planned"]] == [free]
    assert planned["held"] == [{"fact_id": held, "space": "org", "holds": ["case-1"]}]
    assert "kept by a hold" in cli.stderr
    assert cli.json("forget", held, *dry, status=4)["planned"] == []
    cli("forget", held, "--reason", "asked", "--yes", status=4)


def test_holds_are_refused_by_name(cli: Cli) -> None:
    """An unknown fact, an id in use and one that is not exit with 4."""
    fact_id = cli.write()["fact"]["fact_id"]
    cli("hold", fact_id, "--hold-id", "case")
    assert cli.json("hold", fact_id, "--hold-id", "case", status=4)["error"]["code"] == "duplicate_hold"
    assert cli.json("hold", "nope", status=4)["error"]["code"] == "unknown_fact"
    assert cli.json("release", fact_id, "--hold-id", "x", status=4)["error"]["code"] == "no_such_hold"
    cli("hold", fact_id, "--hold-id", " ", status=2)
    cli("release", fact_id, status=2)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ("--before 2020-01-01", "--before: needs --space, or --all-spaces"),
        ("--before 2020-01-01 --space a --all-spaces", "--before: needs --space, or --all-spaces"),
        ("--before 2020-01-01 --all-spaces --window a=P1D", "--before: does not go with --window"),
        ("--before 9999-01-01 --all-spaces", "--before: 9999-01-01T00:00:00.000000Z is still to come"),
        ("--window a=P1D --all-spaces", "--all-spaces: goes with --before"),
        ("--window a=P1D --age-from birth", "--age-from: must be"),
        ("--window a=P1D --space=", "--space: must not be"),
    ],
)
def test_what_does_not_go_together_is_said_in_options(cli: Cli, args: str, said: str) -> None:
    """A sentence at a shell names options, never arguments of Python."""
    cli("expire", *args.split(), "--yes", status=2)
    assert cli.stderr.startswith(said)


def test_a_space_without_a_window_is_said(cli: Cli) -> None:
    """Nothing is erased there, and a mistyped pattern does not go unnoticed."""
    write_old(cli, "org")
    cli("expire", "--window", "team:*=P1D", "--space", "org", "--dry-run")
    assert "No window is meant for the space 'org'" in cli.stderr
    cli("expire", "--window", "org=P1D", "--space", "org", "--dry-run", status=1)
    assert "No window" not in cli.stderr


def test_that_no_stores_are_configured_is_said_once(cli: Cli) -> None:
    """A command that looks first and then erases opens them twice."""
    write_old(cli, "org")
    cli.stores.clear()
    for command in (
        ("forget", "--space", "org", "--reason", "r", "--yes"),
        ("expire", "--window", "org=P1D", "--yes"),
    ):
        cli.capsys.readouterr()
        run_command(command)
        assert cli.capsys.readouterr().err.count("No stores are configured") == 1


def test_erasing_needs_yes_by_its_name(cli: Cli) -> None:
    """Where nobody can be asked the sentence is about the option, whatever the command."""
    assert cli.json("expire", "--window", "a=P1D", status=2)["error"]["field"] == "--yes"
    cli("expire", "--windw", "a=P1D", status=2)
    assert cli.stderr.rstrip().endswith("See custody-sync expire --help.")


# --- expiry -----------------------------------------------------------------------------------


def test_windows_of_the_settings_apply(cli: Cli) -> None:
    """[retention] decides; the most specific pattern wins, and a space without one keeps everything."""
    old = write_old(cli, "org", "team:support", "team:legal", "user:1")
    fresh = cli.write()["fact"]["fact_id"]
    retain(cli, 'org = "P90D"', '"team:*" = "P1D"', '"team:legal" = "P100Y"')
    planned = cli.json("expire", "--dry-run", status=1)
    assert sorted(fact["fact_id"] for fact in planned["planned"]) == sorted(old[:2])
    assert planned["planned"][0]["stores"] == ["alpha", "beta"]
    assert planned["counts"] == {"planned": 2, "forgotten": 0, "held": 0, "failed": 0}
    assert believed(cli) == sorted([*old, fresh])
    done = cli.json("expire", "--yes")
    assert (done["counts"]["forgotten"], done["complete"], done["stopped"]) == (2, True, None)
    assert set(done["head"]) == {"seq", "hash", "tx_time"}
    assert believed(cli) == sorted([*old[2:], fresh])
    assert cli.json("expire", "--yes")["facts"] == []
    nothing = cli.json("expire", "--dry-run")
    assert (nothing["planned"], nothing["actor"]) == ([], "operator:test")
    assert (nothing["stores"], set(nothing["head"])) == (["alpha", "beta"], {"seq", "hash", "tx_time"})
    assert "No fact; nothing was erased." in cli("expire", "--yes")


def test_windows_of_the_options_replace_them(cli: Cli) -> None:
    """--window is taken instead of the table, and may be given several times."""
    one, two = write_old(cli, "org", "user:1")
    retain(cli, 'org = "P1D"')
    done = cli.json("expire", "--window", "user:*=P1Y", "--window", "org=P100Y", "--yes")
    assert [fact["fact_id"] for fact in done["facts"]] == [two]
    assert believed(cli) == [one]


def test_before_needs_its_spaces(cli: Cli) -> None:
    """A date alone is refused; with a space it means that one, with --all-spaces every one."""
    one, two = write_old(cli, "org", "user:1")
    refused = cli.json("expire", "--before", "2021-01-01", "--yes", status=2)
    assert "--all-spaces" in refused["error"]["message"]
    done = cli.json("expire", "--before", "2021-01-01", "--space", "org", "--yes")
    assert [fact["fact_id"] for fact in done["facts"]] == [one]
    assert believed(cli) == [two]
    cli("expire", "--before", soon(), "--all-spaces", "--yes")
    assert believed(cli) == []


def test_only_what_was_superseded(cli: Cli) -> None:
    """--age-from superseded leaves alone what nothing replaced."""
    old = cli.write("pro")["fact"]["fact_id"]
    new = cli.write("team", "--supersedes", old)["fact"]["fact_id"]
    done = cli.json("expire", "--before", soon(), "--space", "org", "--age-from", "superseded", "--yes")
    assert [fact["fact_id"] for fact in done["facts"]] == [old]
    assert believed(cli) == [new]


def test_a_hold_is_named_and_leaves_the_expiry_complete(cli: Cli) -> None:
    """What is held stays, is shown with its hold, and is no failure of the night job."""
    free, held = write_old(cli, "org", "org")
    cli("hold", held, "--hold-id", "case-7")
    shown = cli("expire", "--window", "org=P1D", "--yes")
    assert "1 forgotten, 1 held" in shown
    assert "case-7" in shown
    assert "kept by a hold" in cli.stderr
    assert believed(cli) == [held]
    assert free not in believed(cli)


@pytest.mark.parametrize("duration", ["PT", "P0D", "-P1D", "P1.5D"])
def test_c11_a_wrong_duration_stops_every_command_that_reads_it(cli: Cli, duration: str) -> None:
    """C11: in the file it is refused when the file is loaded, as an option when it is given."""
    write_old(cli, "org")
    said = cli.json("expire", "--window", f"org={duration}", "--yes", status=2)["error"]["message"]
    assert f"'{duration}' is no duration" in said
    retain(cli, f'org = "{duration}"')
    for command in (("expire", "--yes"), ("read",)):
        said = cli.json(*command, status=2)["error"]["message"]
        assert f"retention.org: '{duration}' is no duration" in said


@pytest.mark.parametrize(
    "wrong",
    [
        (),
        ("--window", "org"),
        ("--window", "=P1D"),
        ("--window", "org=P1D", "--window", "org=P2D"),
        ("--window", "org=P1D", "--before", "2020-01-01", "--space", "org"),
        ("--before", "yesterday", "--space", "org"),
        ("--before", "2021-01-01", "--space", " "),
        ("--window", "org=P1D", "--age-from", "birth"),
        ("--window", "org=P1D", "--digest", "md5"),
    ],
)
def test_a_doubtful_expiry_is_a_usage_error(cli: Cli, wrong: tuple[str, ...]) -> None:
    """Nothing to go by, or two things at once: exit 2, and nothing is touched."""
    (old,) = write_old(cli, "org")
    cli("expire", *wrong, "--yes", status=2)
    assert believed(cli) == [old]


def test_expire_needs_yes_where_nobody_can_be_asked(cli: Cli) -> None:
    """Without a terminal and without --yes nothing is erased."""
    (old,) = write_old(cli, "org")
    assert "--yes" in cli.json("expire", "--window", "org=P1D", status=2)["error"]["message"]
    assert believed(cli) == [old]


@pytest.mark.parametrize(("answer", "status", "left"), [("n\n", 4, 1), ("\n", 4, 1), ("y\n", 0, 0)])
def test_on_a_terminal_it_asks(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, answer: str, status: int, left: int
) -> None:
    """Only a yes erases; anything else exits with 4 and leaves everything."""
    write_old(cli, "org")
    typed = StringIO(answer)
    monkeypatch.setattr(typed, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", typed)
    monkeypatch.setattr("custody_sync.cli.output.Output.interactive", property(lambda _: True))
    cli("expire", "--window", "org=P1D", status=status)
    assert "Erase 1 fact for good? [y/N]" in cli.stderr
    assert len(believed(cli)) == left


def test_a_store_that_is_down_is_partial(cli: Cli) -> None:
    """The removal that failed is listed by name, and the exit code is 3."""
    write_old(cli, "org")
    cli.stores[1].faults.refuse("delete")
    done = cli.json("expire", "--window", "org=P1D", "--yes", status=3)
    outcomes = {r["store"]: r["outcome"] for r in done["facts"][0]["removals"]}
    assert outcomes == {"alpha": "verified", "beta": "failed"}
    cli.stores[1].faults.allow()
    assert cli.json("repair")["complete"]


def test_a_ledger_that_is_gone_midway_exits_with_5(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report of what was done is printed all the same."""
    write_old(cli, "org", "org", "org")
    append, forgets = Ledger.append, iter(range(1))

    async def gone(self: Ledger, draft: Any) -> Any:
        if type(draft).__name__ == "Forget" and next(forgets, None) is None:
            raise LedgerFull(name="custody.db")
        return await append(self, draft)

    monkeypatch.setattr(Ledger, "append", gone)
    done = cli.json("expire", "--window", "org=P1D", "--yes", status=5)
    assert (done["stopped"], done["complete"], done["counts"]["forgotten"]) == ("ledger_full", False, 1)
    assert "running it again goes on" in cli.stderr


# --- evidence ---------------------------------------------------------------------------------


def test_evidence_verifies_a_value(cli: Cli) -> None:
    """With an equal observation the fact is verified, and read and history say where it was looked up."""
    seen = ("--evidence-source", "crm [prod]", "--evidence-path", "/42/plan", "--evidence-value")
    fact = cli.write("pro", *seen, "pro")["fact"]
    assert fact["provenance"] == "verified"
    assert fact["evidence"] == {"source": "crm [prod]", "path": "/42/plan", "value": "pro"}
    assert "crm [prod] /42/plan" in cli("read")
    assert "Verified against crm [prod] /42/plan" in cli("history", fact["fact_id"])
    assert cli.json("read")["facts"][0]["evidence"]["path"] == "/42/plan"
    assert cli.write("team", *seen, "free", status=4)["error"]["code"] == "evidence_differs"
    assert cli.write("[1]", "--json-value", *seen, "[1.0]")["fact"]["provenance"] == "verified"
    cli("forget", fact["fact_id"], "--reason", "asked", "--yes")
    assert "crm" not in cli("history", fact["fact_id"])


def test_evidence_has_three_parts(cli: Cli) -> None:
    """A part of an observation proves nothing, and `verified` cannot be said."""
    for part in ("source", "path", "value"):
        said = cli.write("pro", f"--evidence-{part}", "x", status=2)["error"]["message"]
        assert "given together" in said
    assert "verified" in cli.write("pro", "--provenance", "verified", status=2)["error"]["message"]
    whole = ("--evidence-source", "a", "--evidence-path", "b", "--evidence-value", "pro")
    cli.write("pro", *whole, "--provenance", "claimed", status=2)
    assert believed(cli) == []


def test_an_import_verifies_nothing(cli: Cli) -> None:
    """A line that says `verified` refuses the file, whatever the command grants."""
    Path("facts.jsonl").write_text('{"space": "org", "value": "x", "provenance": "verified"}\n')
    for level in ("attested", "claimed"):
        said = cli.json("import", "facts.jsonl", "--provenance", level, status=2)["error"]["message"]
        assert "verified is more than" in said
    cli.json("import", "facts.jsonl", "--provenance", "verified", status=2)
