"""Adopting, confirming many, filling a store and salvaging, from the command line."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import pytest
from fix_cli import Cli

from custody_sync.model import Entry, Fact, Label, Provenance
from custody_sync.repair.adoption import Adoption
from custody_sync.testing import MemoryStore

CANARY = "I drink my coffee black"


def fill(cli: Cli, count: int = 3) -> None:
    """Hold texts of others in the first store."""
    for n in range(count):
        cli.stores[0].put_raw(f"{CANARY} {n}", scope=f"{n}")


def test_what_would_be_done_comes_first(cli: Cli) -> None:
    """Without --apply nothing is changed, no text is shown, and what was found is a finding."""
    fill(cli)
    cli.stores[0].put_raw(" ", scope="9")
    shown = cli("adopt", "alpha", "--space", "user:{scope}", status=1)
    assert "3 of 4 entries in alpha would become facts." in shown
    assert "Nothing was changed; --apply does it." in shown
    assert "its text must not be empty or blank" in shown
    assert "user:2" in shown
    assert CANARY not in shown + cli.stderr
    document = cli.json("adopt", "alpha", "--space", "user:{scope}", status=1)
    assert (document["adopted"], document["dry_run"], CANARY in str(document)) == (3, True, False)
    assert all(entry.fact_id is None for entry in cli.stores[0].snapshot().values())


def test_adopt_confirm_and_retract(cli: Cli) -> None:
    """Claims wait until they are confirmed together; one is taken out again."""
    fill(cli)
    shown = cli("adopt", "alpha", "--space", "user:ada", "--apply")
    assert "3 of 3 entries in alpha became facts." in shown
    assert cli.json("adopt", "alpha", "--space", "user:ada", "--apply")["adopted"] == 0
    assert cli.json("read", "--space", "user:ada")["facts"] == []
    assert cli.json("confirm", "--space", "user:*", "--dry-run", status=1)["claimed"] == 3
    assert "3 of 3 claims were confirmed." in cli("confirm", "--space", "user:ada")
    facts = cli.json("read", "--space", "user:ada")["facts"]
    assert [fact["text"] for fact in facts] == [f"{CANARY} {n}" for n in range(3)]
    assert len(cli.stores[1].snapshot()) == 3
    cli("retract", facts[0]["fact_id"], "--reason", "not so")
    assert len(cli.stores[0].snapshot()) == 2
    assert cli.json("verify")["complete"] is True


def test_ids_from_a_file(cli: Cli) -> None:
    """The claims of a file are confirmed; an unknown id is named and does not keep the others."""
    fill(cli)
    samples = cli.json("adopt", "alpha", "--space", "org", "--apply")["samples"]
    lines = [samples[0]["fact_id"], "", samples[1]["fact_id"], "unknown"]
    (cli.folder / "ids.txt").write_text("\n".join(lines))
    document = cli.json("confirm", "--file", "ids.txt", status=3)
    assert (document["confirmed"], document["refused"]) == (2, {"unknown_fact": 1})
    cli("confirm", "--file", "ids.txt", "--space", "org", status=2)
    assert "give one" in cli.stderr
    (cli.folder / "latin.txt").write_bytes(b"\xff")
    cli("confirm", "--file", "latin.txt", status=2)
    again = cli.json("confirm", samples[0]["fact_id"], samples[2]["fact_id"])
    assert (again["claimed"], again["confirmed"]) == (1, 1)


def test_a_function_that_maps(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--map` names a function of the entry; one of the two ways to say a space is needed, and no more."""

    def becomes(entry: Entry) -> Adoption | None:
        return None if entry.scope == "0" else Adoption(space="org", subject="acct", predicate="said")

    module = ModuleType("mapping_of_this_test")
    module.__dict__.update(becomes=becomes, number=42)
    monkeypatch.setitem(sys.modules, "mapping_of_this_test", module)
    fill(cli)
    document = cli.json("adopt", "alpha", "--map", "mapping_of_this_test:becomes", "--apply")
    assert (document["adopted"], document["skipped"]) == (2, 1)
    for wrong in ((), ("--space", "org", "--map", "a:b"), ("--map", "mapping_of_this_test:number")):
        cli("adopt", "alpha", *wrong, status=2)
    cli("adopt", "gamma", "--space", "org", status=2)
    assert "STORE: 'gamma' is not configured here; alpha, beta are" in cli.stderr


def test_what_is_left_exits_with_3(cli: Cli) -> None:
    """A label that cannot be written, and an entry that cannot become a fact, are named."""
    fill(cli, 1)
    cli.stores[0].put_raw("tagged", {"source": "handbook.pdf"})
    shown = cli("adopt", "alpha", "--space", "org", "--apply", status=3)
    assert "store_refused" in shown or "StoreRefused" in shown or "keys_of_the_label_are_taken" in shown
    assert cli.stores[0].metadata("raw-2") == {"source": "handbook.pdf"}


def test_a_store_that_came_later(cli: Cli) -> None:
    """What is believed is put into it; without --apply it is only counted, and a limit says what it left."""
    for n in range(3):
        cli.write(f"v{n}", "--idempotency-key", f"k{n}")
    cli.stores.append(MemoryStore("gamma"))
    assert "3 facts were not in gamma; 3 would be put." in cli("backfill", "gamma", status=1)
    assert cli.stores[2].snapshot() == {}
    shown = cli("backfill", "gamma", "--limit", "1", "--apply", status=3)
    assert "More than 1 fact was not in gamma; 1 was put." in shown
    assert "More is left because of --limit" in cli.stderr
    assert "2 were put" in cli("backfill", "gamma", "--apply")
    assert len(cli.stores[2].snapshot()) == 3
    document = cli.json("backfill", "gamma")
    assert (document["lacking"], document["complete"]) == (0, True)


async def _orphan(store: MemoryStore, ledger_id: str) -> None:
    then = datetime.now(UTC) - timedelta(hours=1)
    fact = Fact(
        fact_id="lost",
        space="org",
        subject="org",
        predicate="memory",
        value=CANARY,
        text=CANARY,
        actor="a",
        provenance=Provenance.ATTESTED,
        valid_from=then,
    )
    label: dict[str, Any] = {
        "fact_id": "lost",
        "space": "org",
        "actor": "a",
        "generation": "g",
        "provenance": Provenance.ATTESTED,
    }
    await store.put(fact, Label(ledger_id=ledger_id, stored_at=then, valid_from=then, **label))


def test_orphans_are_salvaged(cli: Cli) -> None:
    """`repair --salvage` makes a claim of an orphan, which a confirm believes."""
    import asyncio

    ledger_id = cli.json("verify", status=3)["ledger_id"]
    asyncio.run(_orphan(cli.stores[0], ledger_id))
    shown = cli("repair", "--salvage")
    assert "salvaged, waiting to be confirmed" in shown
    assert CANARY not in shown
    cli("confirm", "lost")
    assert [f["text"] for f in cli.json("read", "--space", "org")["facts"]] == [CANARY]
