"""`reconcile` as an operator uses it: what it finds, what it says, how it exits."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from fix_cli import Cli

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.testing import MemoryStore


def _drift(cli: Cli) -> tuple[str, str]:
    """Write two facts, lose the first's entry in the first store and edit the second's; return their ids."""
    lost, edited = (cli.write(value)["fact"]["fact_id"] for value in ("kept in mind", "canary-4711"))
    store = cli.stores[0]
    by_fact = {entry.fact_id: key for key, entry in store.snapshot().items()}
    store.drop(by_fact[lost])
    _edit(store, by_fact[edited])
    return lost, edited


def _edit(store: MemoryStore, key: str) -> None:
    store._held[key] = replace(store._held[key], text="an intruder's words")


async def _write_many(cli: Cli, count: int) -> None:
    """Write facts without a process's start for each."""
    ledger = await Ledger.open("sqlite:///custody.db")
    async with ledger, AsyncCoordinator(ledger, stores=cli.stores) as custody:
        for number in range(count):
            await custody.write(value=f"note {number}", space="org", actor="agent:a")


def test_reconcile_shows_and_mends(cli: Cli) -> None:
    """Without --fix it shows and exits with 1; with it mends, and then there is nothing: 0."""
    lost, edited = _drift(cli)
    shown = cli("reconcile", status=1)
    assert lost in shown
    assert "altered_text" in shown
    for text in ("intruder", "canary-4711"):
        assert text not in shown
    found = cli.json("reconcile", status=1)
    assert found["found"]["alpha"] == {"missing": 1, "altered_text": 1}
    assert (found["dry_run"], found["complete"]) == (True, False)
    assert cli.json("reconcile", "--fix", "missing", status=1)["outcomes"] == {"alpha": {"mended": 1}}
    mended = cli.json("reconcile", "--fix", "altered-text")
    assert [(d["fact_id"], d["outcome"]) for d in mended["differences"]] == [(edited, "mended")]
    assert cli.json("reconcile", "--fix", "all")["differences"] == []


def test_reconcile_says_what_is_left(cli: Cli) -> None:
    """What could not be mended is named, and the exit status is 3."""
    _drift(cli)
    cli.stores[0].faults.refuse("put")
    said = cli("reconcile", "--fix", "all", status=3)
    assert "put failed" in said


def test_reconcile_refuses_what_cannot_be_mended(cli: Cli) -> None:
    """A kind that cannot be mended, and a store that is not there, are usage errors."""
    cli.write()
    assert "altered_text" in cli.json("reconcile", "--fix", "foreign", status=2)["error"]["message"]
    assert "nobody" in cli.json("reconcile", "--store", "nobody", status=2)["error"]["message"]


def test_reconcile_stops_at_an_emptied_store(cli: Cli) -> None:
    """The breaker exits with 4 and names the option that goes past it."""
    asyncio.run(_write_many(cli, 101))
    for key in list(cli.stores[0].snapshot()):
        cli.stores[0].drop(key)
    error = cli.json("reconcile", "--fix", "missing", status=4)["error"]
    assert (error["code"], "--max-puts 101" in error["message"]) == ("too_many_puts", True)
    assert cli.json("reconcile", "--fix", "missing", "--max-puts", "101")["complete"]
