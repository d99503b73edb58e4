"""The command line as an operator uses it: what it prints, what it changes, how it exits."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fix_cli import Cli

from custody_sync.settings import load_settings
from custody_sync.testing import Faults

# --- init ------------------------------------------------------------------------------------


def test_init_makes_a_ledger_and_a_starter_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty folder becomes usable with one command, and the starter file is one that is read back."""
    monkeypatch.chdir(tmp_path)
    cli = Cli(tmp_path, capsys)
    made = cli.json("init")
    assert (made["created"], made["config_written"]) == (True, True)
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix in (".db", ".toml")) == [
        "custody.db",
        "custody.toml",
    ]
    assert cli.json("read")["facts"] == []
    written = cli.json("write", "--value", "a sentence", "--space", "user:1")
    assert written["fact"]["actor"].startswith("operator:")
    assert "No stores are configured" in cli.stderr


def test_init_overwrites_nothing(cli: Cli) -> None:
    """A second init finds what is there and leaves every byte of it."""
    fact = cli.write()["fact"]["fact_id"]
    config = (cli.folder / "custody.toml").read_bytes()
    again = cli.json("init")
    assert (again["created"], again["config_written"]) == (False, False)
    assert (cli.folder / "custody.toml").read_bytes() == config
    assert [f["fact_id"] for f in cli.json("read")["facts"]] == [fact]


def test_what_the_starter_file_suggests_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every setting there is stands in the starter file, and works once the mark before it is gone."""
    monkeypatch.chdir(tmp_path)
    assert Cli(tmp_path, capsys).json("init")["config_names_ledger"]
    path = tmp_path / "custody.toml"
    path.write_text(re.sub(r'^# (?=\[|["\w:*]+ = )', "", path.read_text(), flags=re.MULTILINE))
    found = load_settings(path, environ={})
    assert found.retention == {"org": "P10Y", "team:*": "P90D"}
    assert found.superseded == {"archive": "keep"}
    assert (found.factory, found.validators) == ("myapp.memory:stores", "myapp.memory:validators")
    assert found.forget_key_env == "CUSTODY_FORGET_KEY"


def test_init_says_what_a_server_needs(
    schema_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server's URL is not written down; init says why, and which variable leads the next command there."""
    monkeypatch.chdir(tmp_path)
    cli = Cli(tmp_path, capsys)
    made = cli.json("init", "--ledger", schema_url)
    assert (made["config_written"], made["config_names_ledger"]) == (True, False)
    assert "since a server's URL may carry a password: set CUSTODY_SYNC_LEDGER" in cli.stderr
    cli("read", status=2)
    monkeypatch.setenv("CUSTODY_SYNC_LEDGER", schema_url)
    assert cli.json("read")["facts"] == []


def test_init_says_that_the_settings_name_another_ledger(cli: Cli) -> None:
    """A custody.toml that is there already is left alone, and that it leads elsewhere is said."""
    made = cli.json("init", "--ledger", "sqlite:///other.db")
    assert (made["created"], made["config_names_ledger"]) == (True, False)
    assert "custody.toml does not name this ledger: set CUSTODY_SYNC_LEDGER" in cli.stderr
    cli.json("init")
    assert cli.stderr == ""


# --- write, read, history, confirm, retract ---------------------------------------------------


def test_write_reports_where_the_fact_is(cli: Cli) -> None:
    """The document is the result record: the fact, and per store the ids of its entries."""
    written = cli.write()
    assert set(written) == {
        "fact",
        "placements",
        "removals",
        "restored",
        "relabelled",
        "complete",
        "duplicate",
        "waiting",
    }
    assert written["fact"]["text"] == "acct:42 plan: pro"
    assert {store: len(ids) for store, ids in written["placements"].items()} == {"alpha": 1, "beta": 1}


def test_write_takes_json_only_when_told(cli: Cli) -> None:
    """A value is text unless --json-value says otherwise; what is no JSON is then refused."""
    assert cli.write("12")["fact"]["value"] == "12"
    assert cli.write("[1, {}]", "--json-value")["fact"]["value"] == [1, {}]
    for bad in ("{", "NaN", "[" * 100_000):
        assert "not a JSON value" in cli.write(bad, "--json-value", status=2)["error"]["message"]


def test_the_same_idempotency_key_answers_with_the_first_result(cli: Cli) -> None:
    """A repeated write is told as a duplicate and adds nothing."""
    first = cli.write("pro", "--idempotency-key", "k")
    second = cli.write("pro", "--idempotency-key", "k")
    assert second["duplicate"]
    assert not first["duplicate"]
    assert second["fact"]["fact_id"] == first["fact"]["fact_id"]
    assert cli.write("free", "--idempotency-key", "k", status=4)["error"]["code"] == "idempotency_conflict"


def test_supersede_and_retract_move_what_is_believed(cli: Cli) -> None:
    """A correction replaces its target in ledger and stores; its retraction brings the target back."""
    old = cli.write("pro")["fact"]["fact_id"]
    new = cli.write("team", "--supersedes", old)
    assert [r["outcome"] for r in new["removals"]] == ["verified", "verified"]
    assert [f["value"] for f in cli.json("read")["facts"]] == ["team"]
    retracted = cli.json("retract", new["fact"]["fact_id"], "--reason", "a mistake")
    assert retracted["complete"]
    assert sorted(r["store"] for r in retracted["restored"]) == ["alpha", "beta"]
    assert [f["value"] for f in cli.json("read")["facts"]] == ["pro"]
    assert cli.json("retract", new["fact"]["fact_id"], "--reason", "again")["complete"]
    events = cli.json("history", new["fact"]["fact_id"])["events"]
    assert [event["kind"] for event in events].count("retract") == 1


def test_claimed_facts_wait_for_confirm(cli: Cli) -> None:
    """A claimed fact is read only on demand and is in no store until it is confirmed."""
    fact_id = cli.write("pro", "--provenance", "claimed")["fact"]["fact_id"]
    assert cli.json("read")["facts"] == []
    assert len(cli.json("read", "--include-claimed")["facts"]) == 1
    confirmed = cli.json("confirm", fact_id, "--reason", "checked")
    assert sorted(confirmed["placements"]) == ["alpha", "beta"]
    assert len(cli.json("read")["facts"]) == 1


def test_read_filters_and_pages(cli: Cli) -> None:
    """Filters narrow, a page says where the next one starts, and the last one says nothing."""
    for number in range(3):
        cli("write", "--value", f"note {number}", "--space", "user:1")
    cli.write()
    assert len(cli.json("read", "--space", "user:1")["facts"]) == 3
    assert len(cli.json("read", "--subject", "acct:42", "--predicate", "plan")["facts"]) == 1
    first = cli.json("read", "--space", "user:1", "--limit", "2")
    rest = cli.json("read", "--space", "user:1", "--limit", "2", "--after", str(first["next"]))
    assert [f["value"] for f in first["facts"] + rest["facts"]] == ["note 0", "note 1", "note 2"]
    assert rest["next"] is None


def test_read_answers_for_an_earlier_instant(cli: Cli) -> None:
    """--valid-at and --tx-at read the past."""
    start = ("--valid-from", "2020-01-01T00:00:00Z")
    old = cli.write("pro", *start)["fact"]
    cli.write("team", "--supersedes", old["fact_id"], "--valid-from", "2021-01-01T00:00:00+00:00")
    assert [f["value"] for f in cli.json("read", "--valid-at", "2020-06-01T00:00:00Z")["facts"]] == ["pro"]
    assert [f["value"] for f in cli.json("read", "--tx-at", old["tx_time"])["facts"]] == ["pro"]


def test_a_date_is_its_midnight_in_utc(cli: Cli) -> None:
    """--tx-at takes a date; nothing was known before it, and everything before the next one."""
    cli.write()
    today = datetime.now(UTC).date()
    assert cli.json("read", "--tx-at", today.isoformat())["facts"] == []
    assert len(cli.json("read", "--tx-at", (today + timedelta(days=2)).isoformat())["facts"]) == 1


@pytest.mark.parametrize("bad", ["2020-01-01T00:00:00", "2020-13-01", "20200101", "yesterday", ""])
def test_an_instant_without_an_offset_is_refused(cli: Cli, bad: str) -> None:
    """Nobody can know what a naive time means."""
    assert "--valid-at" in cli.json("read", "--valid-at", bad, status=2)["error"]["message"]


def test_history_says_when_a_fact_ends(cli: Cli) -> None:
    """One that is superseded from later on holds until then; one without an end has none."""
    first = cli.write("a")["fact"]["fact_id"]
    assert cli.json("history", first)["ends"] is None
    cli.write("b", "--supersedes", first, "--valid-from", "2999-01-01")
    assert cli.json("history", first)["ends"].startswith("2999-01-01")
    assert "It holds until 2999-01-01" in cli("history", first)


def test_history_tells_every_event(cli: Cli) -> None:
    """Events come in order, with actor and reason; an unknown id is refused."""
    fact_id = cli.write()["fact"]["fact_id"]
    cli("retract", fact_id, "--reason", "because [/] of it", "--actor", "user:x")
    events = cli.json("history", fact_id)["events"]
    assert [event["kind"] for event in events[:2]] == ["assert", "retract"]
    assert events[1]["actor"] == "user:x"
    shown = cli("history", fact_id)
    assert "because [/] of it" in shown
    assert "{" not in shown
    assert "alpha, beta" in shown
    assert "verified" in shown
    assert '"provenance": "attested"' in cli("history", fact_id, "--verbose")
    assert cli.json("history", "nope", status=4)["error"]["code"] == "unknown_fact"


def test_a_failing_store_leaves_nothing_and_exits_with_3(cli: Cli) -> None:
    """A write that a store does not take is compensated, recorded nowhere and told as partial."""
    cli.stores[1].faults.refuse("put")
    assert cli.write(status=3)["error"]["code"] == "store_write_failed"
    assert cli.json("read")["facts"] == []


# --- forget -----------------------------------------------------------------------------------


def test_forget_needs_yes_where_nobody_can_be_asked(cli: Cli) -> None:
    """Without a terminal and without --yes nothing is erased."""
    fact_id = cli.write()["fact"]["fact_id"]
    assert "--yes" in cli.json("forget", fact_id, "--reason", "asked", status=2)["error"]["message"]
    cli("forget", fact_id, "--reason", "asked", status=2)
    assert len(cli.json("read")["facts"]) == 1


def test_forget_erases_from_stores_and_files(cli: Cli) -> None:
    """The preview names fact and stores and not the value; afterwards no file of the ledger has it."""
    fact_id = cli.write("Tamsin Quillfeather")["fact"]["fact_id"]
    forgotten = cli.json("forget", fact_id, "--reason", "asked", "--yes")
    assert fact_id in cli.stderr
    assert "alpha, beta" in cli.stderr
    assert "Tamsin" not in cli.stderr
    assert forgotten["complete"]
    (result,) = forgotten["forgotten"]
    assert forgotten["ledger_id"] == cli.json("init")["ledger_id"]
    assert set(forgotten["head"]) == {"seq", "hash", "tx_time"}
    assert [r["outcome"] for r in result["removals"]] == ["verified", "verified"]
    assert result["erasure"] == "done"
    assert not any(b"Tamsin" in path.read_bytes() for path in cli.folder.iterdir() if path.is_file())
    assert cli.json("history", fact_id)["events"][0]["kind"] == "assert"


def test_forget_dry_run_is_a_finding(cli: Cli) -> None:
    """--dry-run shows the plan, exits with 1 and changes nothing."""
    fact_id = cli.write()["fact"]["fact_id"]
    planned = cli.json("forget", fact_id, "--reason", "asked", "--dry-run", status=1)["planned"]
    assert planned == [
        {
            "fact_id": fact_id,
            "space": "org",
            "subject": "acct:42",
            "predicate": "plan",
            "stores": ["alpha", "beta"],
        }
    ]
    assert len(cli.json("read")["facts"]) == 1


def test_forget_of_several_checks_all_ids_first(cli: Cli) -> None:
    """One unknown id erases none of the others; several known ones are all erased."""
    ids = [cli.write(value)["fact"]["fact_id"] for value in ("a", "b")]
    refused = cli.json("forget", *ids, "nope", "--reason", "asked", "--yes", status=4)
    assert refused["error"]["code"] == "unknown_fact"
    assert len(cli.json("read")["facts"]) == 2
    assert len(cli.json("forget", *ids, "--reason", "asked", "--yes")["forgotten"]) == 2
    assert cli.json("forget", ids[0], "--reason", "asked", "--yes")["complete"]
    events = cli.json("history", ids[0])["events"]
    assert [event["kind"] for event in events].count("forget") == 1


def test_an_unverified_removal_is_partial(cli: Cli) -> None:
    """A store whose delete does nothing never counts as done: exit 3, and repair finishes it later."""
    fact_id = cli.write()["fact"]["fact_id"]
    cli.stores[0].faults = Faults(silent_delete=True)
    outcome = cli.json("retract", fact_id, "--reason", "wrong", status=3)
    assert {r["store"]: r["outcome"] for r in outcome["removals"]} == {
        "alpha": "still_indexed",
        "beta": "verified",
    }
    assert cli.json("verify", status=3)["complete"] is False
    cli.stores[0].faults = Faults()
    repaired = cli.json("repair")["repaired"]
    assert [(r["store"], r["kind"], r["outcome"]) for r in repaired] == [("alpha", "pending", "verified")]
    assert cli.json("verify")["complete"] is True
