"""`custody-sync recall`: what a store's search leads to, for people and as one document."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fix_cli import Cli

from custody_sync.testing import FOREVER, Faults, MemoryStore


@pytest.fixture
def told(cli: Cli) -> Cli:
    """A ledger with a corrected and a forgotten fact, over a store that lets go of nothing."""
    cli.stores = [MemoryStore("alpha", faults=Faults(index_lag=FOREVER), without=["verify_deleted", "find"])]
    old = cli.write("pro", "--receipt-id", "r-1")["fact"]["fact_id"]
    cli.write("free", "--supersedes", old, "--receipt-id", "r-2", status=3)
    gone = cli.write("secret", "--text", "acct:42 plan: secret 123-45")["fact"]["fact_id"]
    cli("forget", gone, "--reason", "asked to", "--yes", status=3)
    cli.stores[0].put_raw("acct:42 from elsewhere")
    return cli


def test_people_see_facts_and_what_was_left_out(told: Cli) -> None:
    """The current value with its receipt, why entries were left out, and what to do about them."""
    shown = told("recall", "acct:42 plan")
    assert "acct:42 plan: free" in shown
    assert "r-2" in shown
    assert "plan: pro" not in shown
    assert "123-45" not in shown + told.stderr
    for line in ("repeated     1", "forgotten    1", "unlabelled   1"):
        assert " ".join(line.split()) in " ".join(shown.split())
    assert "alpha: 1 entry without a label was left out: run adopt." in told.stderr
    assert "That is all there is." in told.stderr
    chain = told("recall", "acct:42 plan", "--history")
    assert "superseded" in chain
    assert "r-1" in chain


def test_the_document(told: Cli) -> None:
    """It names ledger, head and store, and has every hit whole."""
    found = told.json("recall", "acct:42 plan", "-k", "3", "--history", "--unlabelled", "show")
    (hit,) = found["hits"]
    assert (hit["text"], hit["fact"]["value"], hit["store"], hit["cut"]) == (
        "acct:42 plan: free", "free", "alpha", False,
    )  # fmt: skip
    assert [link["belief"] for link in hit["history"]] == ["superseded", "believed"]
    assert (found["status"], found["complete"], found["stores"]) == ("exhausted", True, ["alpha"])
    assert found["head"]["seq"] > 0
    assert found["ledger_id"]
    assert found["dropped"]["repeated"] == 1
    assert [entry["text"] for entry in found["unlabelled"]] == ["acct:42 from elsewhere"]
    before = told.json(
        "recall", "acct:42 plan", "--tx-at", "2020-01-01", "--valid-at", "2020-01-01", status=1
    )
    assert (before["hits"], before["valid_at"]) == ([], "2020-01-01T00:00:00.000000Z")


def test_exit_codes(told: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """0 with an answer, 2 for a wrong call, 3 where it was cut short or a store is down, 4 where refused."""
    assert "There was no room" not in told("recall", "plan", "--chars", "500")
    assert told.json("recall", "plan", "--per-fact", "5")["hits"][0]["cut"] is False
    assert told.json("recall", "plan", "--chars", "5", status=3)["status"] == "budget_too_small"
    told("recall", "plan", "--chars", "5", status=3)
    assert "A correction did not fit, and nothing was put in its place: --chars." in told.stderr
    assert told.json("recall", "acct:42", "--unlabelled", "refuse", status=4)["error"]["count"] == 1
    for wrong in (
        (" ",), ("plan", "-k", "0"), ("plan", "-k", "1001"), ("plan", "--space", " "),
        ("plan", "--store", "no"), ("plan", "--valid-at", "yesterday"),
        ("plan", "--seconds", "0"), ("plan", "--unlabelled", "hide"), ("plan", "--per-fact", "1"),
    ):  # fmt: skip
        assert told.json("recall", *wrong, status=2)["error"]["message"].count("\n") == 0
    assert told.json("recall", "acct:42", "--space", "org", "--space", "user:1")["hits"]
    assert told.json("recall", "acct:42", "--space", "user:1", status=1)["hits"] == []
    assert told.json("recall", "plan", "--per-fact", "2", "--chars", "1", status=3)["hits"] == []

    async def hang(*_: object) -> None:
        await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        patch.setattr(told.stores[0], "search", hang)
        late = told.json("recall", "plan", "--seconds", "0.01", status=3)
        assert (late["status"], late["head"], late["complete"]) == ("timed_out", None, False)
        assert late["notes"] == ["the time was over before anything of the ledger was read"]
        told("recall", "plan", "--seconds", "0.01", status=3)
        assert told.stderr.count("the time was over") + told.stderr.count("The time was over") == 1
    told.stores[0].faults.refuse("search")
    assert told.json("recall", "plan", status=3)["error"]["store"] == "alpha"


def test_a_store_that_serves_less_than_the_ledger_has(cli: Cli) -> None:
    """With facts it is done, with none it is a finding; what tells more is named, and said once."""
    cli.write("pro")
    cli.stores.insert(0, MemoryStore("late"))
    assert cli.json("recall", "plan", status=1)["status"] == "short"
    cli("recall", "plan", status=1)
    assert cli.stderr.count("the ledger has more facts here") == 1
    assert "reconcile" in cli.stderr
    assert "backfill" in cli.stderr
    assert "There may be more" not in cli.stderr
    cli.write("acme", "--supersedes", cli.json("read")["facts"][0]["fact_id"])
    cli.write("free", "--space", "user:1")
    assert cli.json("recall", "plan", "-k", "2", "--store", "late")["status"] == "full"
    cli.write("seats", "--space", "user:2")
    cli.stores.insert(0, MemoryStore("later"))
    cli.write("five", "--space", "user:3")
    assert cli.json("recall", "plan", "--store", "later")["status"] == "short"


@pytest.mark.parametrize(
    ("option", "given"),
    [("--space", " "), ("--seconds", "0"), ("-k", "1001"), ("--unlabelled", "hide"), ("--valid-at", "soon")],
)
def test_a_wrong_option_is_named_as_it_was_typed(cli: Cli, option: str, given: str) -> None:
    """Not the argument of Python."""
    said = cli.json("recall", "plan", option, given, status=2)["error"]["message"]
    assert said.startswith(f"{option}: ")


def test_without_a_store_and_without_a_ledger(cli: Cli) -> None:
    """One sentence: there is nothing to search, or no ledger to ask."""
    cli.stores = [MemoryStore("alpha", without=["search"])]
    assert "none of alpha can be searched" in cli.json("recall", "plan", status=2)["error"]["message"]
    cli.stores = []
    none = cli.json("recall", "plan", status=2)["error"]["message"]
    assert none == "--store: none is configured to be searched; factory in custody.toml names them."
    cli.stores = [MemoryStore("alpha"), MemoryStore("beta")]
    wrong = cli.json("recall", "plan", "--store", "nope", status=2)["error"]["message"]
    assert wrong == "--store: 'nope' is no configured store; alpha, beta can be searched."
    missing = cli.json("recall", "plan", "--ledger", "sqlite:///missing.db", status=5)
    assert missing["error"]["code"] == "ledger_not_found"
    assert not (cli.folder / Path("missing.db")).exists()
