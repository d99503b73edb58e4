"""The command line as an operator uses it: what it prints, what it changes, how it exits."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from custody_sync.cli.main import run_command
from custody_sync.model import Fact, Label, Provenance
from custody_sync.runtime import SystemIds
from custody_sync.testing import Faults, MemoryStore
from custody_sync.validators import refuse

Json = dict[str, Any]


@dataclass
class Cli:
    """One folder with a ledger, a custody.toml and two stores that live as long as the test."""

    folder: Path
    capsys: pytest.CaptureFixture[str]
    stores: list[MemoryStore] = field(default_factory=lambda: [MemoryStore("alpha"), MemoryStore("beta")])

    def __call__(self, *args: str, status: int = 0) -> str:
        """Run a command, hold it to its exit status and return what it printed on stdout."""
        self.capsys.readouterr()
        found = run_command(args)
        shown = self.capsys.readouterr()
        self.stderr = shown.err
        assert found == status, f"{args} ended with {found}: {shown.err}{shown.out}"
        return shown.out

    def json(self, *args: str, status: int = 0) -> Json:
        """Run a command with --json and return the document."""
        document: Json = json.loads(self(*args, "--json", status=status))
        return document

    def write(self, value: str = "pro", *more: str, status: int = 0) -> Json:
        """Write one fact about acct:42."""
        statement = ("--subject", "acct:42", "--predicate", "plan", "--space", "org")
        return self.json("write", "--value", value, *statement, *more, status=status)


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    """A folder after `init`, with two memory stores from a factory."""
    monkeypatch.chdir(tmp_path)
    for name in ("CUSTODY_SYNC_CONFIG", "CUSTODY_SYNC_LEDGER", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    run = Cli(tmp_path, capsys)
    module = ModuleType("stores_of_this_test")
    module.__dict__["stores"] = lambda: run.stores
    monkeypatch.setitem(sys.modules, "stores_of_this_test", module)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "custody.toml").write_text(
        'ledger = "sqlite:///custody.db"\nfactory = "stores_of_this_test:stores"\nactor = "operator:test"\n'
    )
    run("init")
    return run


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


# --- write, read, history, confirm, retract ---------------------------------------------------


def test_write_reports_where_the_fact_is(cli: Cli) -> None:
    """The document is the result record: the fact, and per store the ids of its entries."""
    written = cli.write()
    assert set(written) == {"fact", "placements", "removals", "restored", "complete", "duplicate"}
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


# --- repair, verify, stores -------------------------------------------------------------------


def _leave_orphan(cli: Cli, store: MemoryStore, minutes: int, fact_id: str | None = None) -> str:
    """Put an entry with this ledger's label and no fact behind it, as a killed writer does."""
    ledger_id = cli.json("init")["ledger_id"]
    stored_at = datetime.now(UTC) - timedelta(minutes=minutes)
    fact_id = fact_id or SystemIds().fact_id(stored_at)
    common: Json = {"fact_id": fact_id, "space": "org", "actor": "agent:x", "valid_from": stored_at}
    fact = Fact(
        subject="s", predicate="p", value="[/] x", text="[/] x", provenance=Provenance.ATTESTED, **common
    )
    label = Label(
        ledger_id=ledger_id, stored_at=stored_at, generation="g", provenance=Provenance.ATTESTED, **common
    )
    asyncio.run(store.put(fact, label))
    return fact_id


def test_repair_finds_plans_and_removes_an_orphan(cli: Cli) -> None:
    """A dry run exits with 1 and changes nothing; the repair exits with 0; the next finds nothing."""
    cli.write()
    fact_id = _leave_orphan(cli, cli.stores[0], minutes=20)
    planned = cli.json("repair", "--dry-run", status=1)["repaired"]
    row = next(line for line in cli("repair", "--dry-run", status=1).splitlines() if fact_id in line)
    assert row.split() == ["alpha", f"{fact_id}.g", fact_id, "orphan", "20", "min"]
    assert [(r["store"], r["kind"], r["outcome"]) for r in planned] == [("alpha", "orphan", "planned")]
    shown = cli("repair", "--reason", "[/]")
    assert [word for word in shown.split() if word in ("alpha", "orphan", "verified")][:3] == [
        "alpha",
        "orphan",
        "verified",
    ]
    assert cli.json("repair")["repaired"] == []
    assert cli.json("history", fact_id)["events"][0]["kind"] == "repair"
    assert "[/]" in cli("history", fact_id)


def test_repair_leaves_a_young_orphan(cli: Cli) -> None:
    """What is younger than ten minutes may still be written; --before cannot change that."""
    _leave_orphan(cli, cli.stores[0], minutes=5)
    future = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    result = cli.json("repair", "--before", future)
    assert (len(result["young"]), result["repaired"]) == (1, [])
    shown = cli("repair")
    assert "1 entry is younger than ten minutes and was left alone; run again after " in shown
    past = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    assert "left alone; run again without --before." in cli("repair", "--before", past)


def test_repair_says_which_stores_it_could_not_check(cli: Cli) -> None:
    """A store that cannot list is named with the result, not beside it."""
    cli.stores[1] = MemoryStore("beta", without=["list_entries"])
    assert "Store 'beta' was not checked" in cli("repair")
    assert cli.json("repair")["unlisted"] == ["beta"]


def test_what_was_not_repaired_does_not_stand_under_repaired(cli: Cli) -> None:
    """A removal that failed has a table of its own."""
    _leave_orphan(cli, cli.stores[0], minutes=20)
    cli.stores[0].faults = Faults(silent_delete=True)
    lines = cli("repair", status=3).splitlines()
    assert lines[0] == "repaired: none"
    assert lines[1] == "not repaired"
    assert "still_indexed" in lines[3]


def test_repair_stops_at_the_breaker_unless_allowed(cli: Cli) -> None:
    """Many removals out of few entries exit with 4 and change nothing; --max-removals lets them."""
    for _ in range(5):
        _leave_orphan(cli, cli.stores[0], minutes=20)
    stopped = cli.json("repair", status=4)["error"]
    assert stopped["code"] == "breaker_open"
    assert "--max-removals 5" in stopped["message"]
    assert "--max-removals 5" in cli.stderr
    assert len(cli.json("repair", "--max-removals", "5")["repaired"]) == 5


def test_verify_of_nothing_proves_nothing(cli: Cli) -> None:
    """Nothing removed, nothing asked: that is no pass."""
    assert cli.json("verify", status=3)["asked"] == 0


def test_verify_shows_fact_by_store(cli: Cli) -> None:
    """The table has a row per removed fact and a column per store."""
    fact_id = cli.write()["fact"]["fact_id"]
    cli("retract", fact_id, "--reason", "wrong")
    shown = cli("verify")
    row = next(line for line in shown.splitlines() if fact_id in line)
    assert row.count("verified") == 2
    assert "alpha" in shown
    assert "beta" in shown
    assert "not proven gone" not in shown


def test_verify_carries_what_a_proof_needs(cli: Cli) -> None:
    """Which ledger up to where, when, who asked whom, and each entry's answer; the table says it too."""
    fact_id = cli.write()["fact"]["fact_id"]
    cli("retract", fact_id, "--reason", "wrong")
    proof = cli.json("verify", "--actor", "auditor")
    event = cli.json("history", fact_id)["events"][-1]
    assert proof["ledger_id"] == cli.json("init")["ledger_id"]
    assert proof["head"] == {name: event[name] for name in ("seq", "hash", "tx_time")}
    assert (proof["actor"], proof["stores"]) == ("auditor", ["alpha", "beta"])
    assert datetime.fromisoformat(proof["time"]).tzinfo is not None
    assert [(r["fact_id"], r["store"], r["outcome"], r["detail"]) for r in proof["removals"]] == [
        (fact_id, "alpha", "verified", ""),
        (fact_id, "beta", "verified", ""),
    ]
    assert all(r["external_id"] for r in proof["removals"])
    shown = cli("verify", "--actor", "auditor")
    assert f"Ledger {proof['ledger_id']}, head {event['seq']}: {event['hash']}" in shown
    assert "Asked alpha, beta at " in shown


def test_one_entry_that_is_still_there_is_what_a_cell_says(cli: Cli) -> None:
    """Of a fact's entries in a store the worst counts, and each that is not proven gone is listed."""
    fact_id = cli.write()["fact"]["fact_id"]
    cli("retract", fact_id, "--reason", "wrong")
    _leave_orphan(cli, cli.stores[0], minutes=20, fact_id=fact_id)
    lines = cli("verify", status=3).splitlines()
    assert lines[2].split() == [fact_id, "still_indexed", "verified"]
    assert lines[3] == "not proven gone"
    assert lines[5].split()[:4] == [fact_id, "alpha", f"{fact_id}.g", "still_indexed"]


def test_a_believed_fact_has_nothing_to_verify(cli: Cli) -> None:
    """Asking about it is refused, since no answer would mean anything."""
    fact_id = cli.write()["fact"]["fact_id"]
    assert cli.json("verify", fact_id, status=4)["error"]["code"] == "not_removed"


def test_validators_check_what_the_command_line_states(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """What states or confirms a fact needs them; a broken module keeps nothing from being removed."""
    claimed = cli.write("a secret", "--provenance", "claimed")["fact"]["fact_id"]
    believed = cli.write("fine")["fact"]["fact_id"]
    module = ModuleType("validators_of_this_test")
    module.__dict__["validators"] = lambda: [refuse("secret", because="it is one")]
    monkeypatch.setitem(sys.modules, "validators_of_this_test", module)
    config = cli.folder / "custody.toml"
    config.write_text(config.read_text() + 'validators = "validators_of_this_test:validators"\n')
    assert cli.write("my secret", status=4)["error"]["code"] == "validator_failed"
    (cli.folder / "f.jsonl").write_text('{"space": "s", "value": "their secret"}\n')
    assert cli.json("import", "f.jsonl", status=3)["failures"][0]["code"] == "validator_failed"
    module.__dict__["validators"] = None
    for command in (("write", "--value", "more", "--space", "s"), ("confirm", claimed)):
        assert cli.json(*command, status=2)["error"]["field"] == "validators"
    assert cli.json("retract", believed, "--reason", "wrong")["complete"]


def test_repair_of_a_clean_installation_exits_with_0(cli: Cli) -> None:
    """Nothing found is done, dry or not, and what was scanned is shown."""
    cli.write()
    assert cli.json("repair", "--dry-run")["scanned"] == {"alpha": 1, "beta": 1}
    assert cli.json("repair")["complete"] is True


def test_stores_prints_the_capabilities_from_the_code(cli: Cli) -> None:
    """Each configured store's level per capability, with the reason where it is not full."""
    cli.stores[1] = MemoryStore("beta", without=["list_entries"])
    table = cli.json("stores")["stores"]
    assert table["alpha"]["list_entries"] == {"level": "full", "reason": ""}
    assert table["beta"]["list_entries"]["level"] == "none"
    shown = cli("stores")
    assert "this memory store was built without it" in shown


def test_stores_knows_the_adapters_without_a_factory(cli: Cli) -> None:
    """--known lists every adapter there is."""
    assert set(cli.json("stores", "--known")["stores"]) >= {"langgraph", "pgvector"}
