"""`custody-sync card`: what is believed of one property, what was first stated, and the chain."""

from __future__ import annotations

from typing import Any

from fix_cli import Cli

PLAN = ("acct:42", "plan")


def chain(cli: Cli) -> tuple[str, str]:
    """Write a plan and its correction, and return both fact ids."""
    first = fact_of(cli.write("silver", "--valid-from", "2026-01-12", "--receipt-id", "ticket-17"))
    second = fact_of(
        cli.write("gold", "--valid-from", "2026-03-03", "--receipt-id", "ticket-52", "--supersedes", first)
    )
    return first, second


def fact_of(written: dict[str, Any]) -> str:
    """Return a written fact's id."""
    return str(written["fact"]["fact_id"])


def links(card: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return what a card says of each link."""
    return [(link["fact"]["value"], link["belief"], link["fact"]["receipt_id"]) for link in card["chain"]]


def test_a_card_has_the_current_the_original_and_the_chain(cli: Cli) -> None:
    """In a document and for people; the stores are not asked."""
    first, second = chain(cli)
    asked = [len(store.calls) for store in cli.stores]
    document = cli.json("card", *PLAN)
    (card,) = document["cards"]
    assert (card["space"], card["subject"], card["predicate"]) == ("org", *PLAN)
    assert [fact["fact_id"] for fact in card["current"]] == [second]
    assert card["original"]["fact_id"] == first
    assert links(card) == [("silver", "superseded", "ticket-17"), ("gold", "believed", "ticket-52")]
    assert document["head"] == card["head"]
    assert document["stores"] == []
    shown = cli("card", *PLAN)
    lines = [line.split() for line in shown.splitlines() if line.strip()]
    assert lines[0] == ["acct:42", "plan", "in", "org"]
    assert lines[1][:2] == ["current", "gold"]
    # An id has a line of its own, which no value pushes over the edge of a terminal.
    assert lines[2] == ["fact", second]
    assert lines[3][:2] == ["original", "silver"]
    assert lines[4] == ["fact", first]
    assert [line[1:3] for line in lines[-2:]] == [["silver", "superseded"], ["gold", "believed"]]
    assert [len(store.calls) for store in cli.stores] == asked


def test_a_card_of_a_date_shows_what_was_true_then(cli: Cli) -> None:
    """With --valid-at what held then is current; with --tx-at what nobody had said yet is not there."""
    first, _ = chain(cli)
    (card,) = cli.json("card", *PLAN, "--valid-at", "2026-02-09")["cards"]
    assert [fact["fact_id"] for fact in card["current"]] == [first]
    assert [belief for _, belief, _ in links(card)] == ["believed", "later"]
    assert cli.json("card", *PLAN, "--tx-at", "2020-01-01", status=1)["cards"] == []


def test_nothing_stated_is_a_sentence_and_ends_with_one(cli: Cli) -> None:
    """Whatever it was that is not there."""
    chain(cli)
    assert cli("card", "acct:43", "plan", status=1) == "No record of plan of acct:43.\n"
    assert cli("card", *PLAN, "--space", "user:7", status=1) == "No record of plan of acct:42 in user:7.\n"
    assert cli.json("card", "acct:42", "color", status=1)["cards"] == []


def test_each_space_has_a_card(cli: Cli) -> None:
    """In order of space, with their own chains; one space can be asked for alone."""
    chain(cli)
    cli.write("bronze", "--space", "acme")
    cards = cli.json("card", *PLAN)["cards"]
    assert [(card["space"], [value for value, *_ in links(card)]) for card in cards] == [
        ("acme", ["bronze"]),
        ("org", ["silver", "gold"]),
    ]
    assert [card["space"] for card in cli.json("card", *PLAN, "--space", "acme")["cards"]] == ["acme"]


def test_facts_that_do_not_correct_each_other_are_all_current(cli: Cli) -> None:
    """A card does not choose between them: it lists both, oldest first."""
    chain(cli)
    cli.write("platinum")
    (card,) = cli.json("card", *PLAN)["cards"]
    assert [fact["value"] for fact in card["current"]] == ["gold", "platinum"]
    assert [value for value, *_ in links(card)] == ["silver", "gold", "platinum"]
    shown = cli("card", *PLAN)
    assert "current   gold" in shown
    assert "and       platinum" in shown


def test_a_forgotten_link_is_shown_as_such(cli: Cli) -> None:
    """Its value is nowhere, and what it covered does not come back."""
    first, second = chain(cli)
    cli("forget", second, "--reason", "asked to", "--yes")
    (card,) = cli.json("card", *PLAN)["cards"]
    assert card["current"] == []
    assert links(card) == [("silver", "superseded", "ticket-17"), (None, "forgotten", "ticket-52")]
    shown = cli("card", *PLAN)
    assert "current   nothing" in shown
    assert "(forgotten)" in shown
    assert "gold" not in shown
    cli("forget", first, "--reason", "asked to", "--identity", "--yes")
    (card,) = cli.json("card", *PLAN)["cards"]
    assert [link["fact"]["fact_id"] for link in card["chain"]] == [first, second]
    assert (card["subject"], card["original"]["subject"]) == ("acct:42", "")
    cli("forget", second, "--reason", "asked to", "--identity", "--yes")
    assert cli.json("card", *PLAN, status=1)["cards"] == []


def test_what_a_terminal_would_obey_is_shown_as_an_escape(cli: Cli) -> None:
    """Values, names and receipts are untrusted."""
    bad = "\x1b[2J\u202egold\n"
    cli.write(bad, "--subject", "acct:\x1b[31m", "--actor", "a\x07gent", "--receipt-id", "r\rt")
    shown = cli("card", "acct:\x1b[31m", "plan")
    assert not any(char in shown for char in "\x1b\u202e\x07\r")
    assert "\\x1b[2J\\u202egold\\n" in shown
    missing = cli("card", "no\x1b]0;x\x07body", "plan", status=1)
    assert missing == "No record of plan of no\\x1b]0;x\\x07body.\n"


def test_bad_input_is_one_sentence(cli: Cli) -> None:
    """An instant that is none, a name that is empty, a ledger that is not there."""
    assert cli.json("card", *PLAN, "--valid-at", "soon", status=2)["error"]["message"].startswith(
        "--valid-at"
    )
    assert cli.json("card", "", "plan", status=2)["error"]["message"].startswith("SUBJECT: ")
    assert cli.json("card", "acct:42", " ", status=2)["error"]["message"].startswith("PREDICATE: ")
    assert cli.json("card", *PLAN, "--space", " ", status=2)["error"]["message"].startswith("--space: ")
    cli.json("card", *PLAN, "--ledger", "sqlite:///none.db", status=5)
