"""`repair`, `verify` and `stores` as an operator uses them: what they find, what they say, how they exit."""

from __future__ import annotations

import asyncio
import shutil
import sys
from datetime import UTC, datetime, timedelta
from types import ModuleType

import pytest
from fix_cli import Cli, Json

from custody_sync.model import Fact, Label, Provenance, read_instant
from custody_sync.runtime import SystemIds
from custody_sync.testing import Faults, MemoryStore
from custody_sync.validators import refuse


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
    since = read_instant(result["young"][0]["since"])
    assert since is not None
    assert f"run again after {since + timedelta(minutes=10, seconds=1):%H:%M:%S} UTC" in shown
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


def test_a_plan_is_written_and_applied(cli: Cli) -> None:
    """A plan exits with 1 and changes nothing; applied it does these lines, and again nothing."""
    cli.write()
    _leave_orphan(cli, cli.stores[0], minutes=20)
    shown = cli("repair", "--plan", "plan.jsonl", status=1)
    assert "custody-sync repair --apply plan.jsonl" in shown
    _leave_orphan(cli, cli.stores[0], minutes=20)
    assert len(cli.json("repair", "--apply", "plan.jsonl")["repaired"]) == 1
    again = cli.json("repair", "--apply", "plan.jsonl")["skipped"]
    assert [skipped["reason"] for skipped in again] == ["its removal was recorded meanwhile"]
    assert len(cli.json("repair", "--dry-run", status=1)["repaired"]) == 1
    (cli.folder / "plan.jsonl").write_text("{}\n")
    error = cli.json("repair", "--apply", "plan.jsonl", status=2)["error"]
    assert error["message"] == "--apply: plan.jsonl is no plan that this version can read."
    assert cli.json("repair", "--apply", "p", "--dry-run", status=2)["error"]["field"] == "apply"


def test_what_comes_from_the_future_is_named(cli: Cli) -> None:
    """With its time; a dry run says how a repair will end. A plan of nothing is not to be carried out."""
    _leave_orphan(cli, cli.stores[0], minutes=-60)
    (key,) = cli.stores[0].snapshot()
    shown = cli("repair", "--plan", "plan.jsonl")
    assert "is empty" in shown
    assert "--apply" not in shown
    assert f"alpha/{key} (" in cli.stderr
    assert "exits with 3" in cli.stderr
    cli("repair", status=3)
    assert "from the future" in cli.stderr
    assert "exits with 3" not in cli.stderr


def test_an_error_names_the_option_and_no_argument_of_python(cli: Cli) -> None:
    """What a store, a cutoff or a file is called on the command line."""
    said = {
        "--store: ": ("repair", "--store", "nobody"),
        "--fix: ": ("reconcile", "--fix", "nothing"),
        "--apply: no.jsonl cannot be used: ": ("repair", "--apply", "no.jsonl"),
    }
    for begin, command in said.items():
        assert cli.json(*command, status=2)["error"]["message"].startswith(begin)


def test_a_selection_and_a_limit(cli: Cli) -> None:
    """Only one store, and only so much of it; what is left exits with 3 and is counted."""
    for store in cli.stores:
        for _ in range(2):
            _leave_orphan(cli, store, minutes=20)
    assert cli.json("repair", "--store", "alpha", "--limit", "1", status=3)["left_over"] == 1
    assert "1 removals are left because of --limit" not in cli("repair", "--store", "alpha")
    assert cli.json("repair", "--space", "team:*")["repaired"] == []
    error = cli.json("repair", "--store", "gamma", status=2)["error"]
    assert "'gamma' is not configured here" in error["message"]
    assert {r["store"] for r in cli.json("repair", "--store", "beta")["repaired"]} == {"beta"}


def test_what_went_on_is_said(cli: Cli) -> None:
    """A resumed sweep says since when, and --fresh begins anew."""
    for _ in range(2):
        _leave_orphan(cli, cli.stores[0], minutes=20)
    cli("repair", "--limit", "1", status=3)
    shown = cli("repair")
    assert "This went on with the sweep that began at " in shown
    _leave_orphan(cli, cli.stores[0], minutes=20)
    _leave_orphan(cli, cli.stores[0], minutes=20)
    cli("repair", "--limit", "1", status=3)
    assert "This went on with" not in cli("repair", "--fresh")


def test_a_copied_ledger_is_refused_and_said_to_have_moved(cli: Cli) -> None:
    """Exit 4 with what to do; --moved once is enough."""
    cli.write()
    cli("repair")
    shutil.copy(cli.folder / "custody.db", cli.folder / "copy.db")
    copy = ("--ledger", "sqlite:///copy.db")
    assert "swept before at" in cli("repair", "--dry-run", *copy) + cli.stderr
    error = cli.json("repair", *copy, status=4)["error"]
    assert error["code"] == "ledger_elsewhere"
    assert "--moved" in error["message"]
    cli("repair", "--moved", *copy)
    cli("repair", *copy)


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
