"""Where a fact belongs in a store: fixed, by a template of its space, or as the caller's function says."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from custody_sync.adapters._scopes import LooseNotes, OncePerFact, PerSpace, Scope
from custody_sync.errors import InvalidInput
from custody_sync.model import Fact, Provenance


def fact(space: str = "user:42") -> Fact:
    """Return a fact of a space."""
    return Fact(
        fact_id="f",
        space=space,
        subject=space,
        predicate="memory",
        value="x",
        text="x",
        actor="a",
        provenance=Provenance.ATTESTED,
        valid_from=datetime(2026, 9, 1, tzinfo=UTC),
    )


def test_a_fixed_scope() -> None:
    """Every fact and every search has the one value, encoded as the vendor needs it."""
    scope = Scope("user_id", "acme", str.upper)
    assert (scope.fixed, scope.is_per_space) == ("ACME", False)
    assert (scope.of_fact(fact()), scope.of_space("anything")) == ("ACME", "ACME")
    assert scope.among(None) == scope.among(["user:1", "user:2"]) == ["ACME"]


def test_a_scope_of_each_space() -> None:
    """A template gives every space a value of its own, and a search looks where its spaces are, once each."""
    scope = Scope("graph", "acme-{space}", lambda value: value.replace(":", "_"))
    assert (scope.fixed, scope.is_per_space) == (None, True)
    assert scope.of_fact(fact("user:1")) == scope.of_space("user:1") == "acme-user_1"
    assert scope.among(["user:1", "user:2", "user:1"]) == ["acme-user_1", "acme-user_2"]
    assert scope.among([]) == []
    assert scope.among(None) is None


def test_braces_in_a_space_are_kept() -> None:
    """What stands in a space's name is not read as a placeholder again."""
    assert Scope("user_id", "{space}").of_space("{space}{x}") == "{space}{x}"


def test_a_function_of_the_fact() -> None:
    """The caller's function decides for a fact; a search by spaces cannot ask it, and looks everywhere."""
    scope = Scope("user_id", lambda one: one.subject.upper(), lambda value: f"<{value}>")
    assert (scope.fixed, scope.is_per_space) == (None, False)
    assert scope.of_fact(fact("user:1")) == "<USER:1>"
    assert scope.among(["user:1"]) is None
    with pytest.raises(InvalidInput, match="user_id: a function of the fact has no value for a space"):
        scope.of_space("user:1")


@pytest.mark.parametrize("answer", [None, "", "  ", 7, ["user:1"]])
def test_a_function_that_says_nothing(answer: Any) -> None:
    """It has to return a text; anything else is refused by the vendor's word for the scope."""
    with pytest.raises(InvalidInput, match="user_id: the function must return a text"):
        Scope("user_id", lambda _: answer).of_fact(fact())


def test_a_function_is_asked_once_for_a_fact() -> None:
    """One that goes by a turn or a clock would say another place to the put than to the ledger."""
    answers = iter("abc")
    scope = Scope("user_id", lambda _: next(answers))
    one, other = fact(), replace(fact(), fact_id="g")
    assert [scope.of_fact(one), scope.of_fact(other), scope.of_fact(one)] == ["a", "b", "a"]


def test_few_answers_are_remembered() -> None:
    """The one that was used least recently is let go of; a refusal is not remembered at all."""
    asked: list[str] = []

    def ask(one: Fact) -> str:
        asked.append(one.fact_id)
        if len(asked) == 1:
            raise InvalidInput(field="user_id", problem="not now")
        return one.fact_id

    once = OncePerFact(ask, most=2)
    with pytest.raises(InvalidInput):
        once(fact())
    for fact_id in "f", "g", "f", "h", "f", "g":
        assert once(replace(fact(), fact_id=fact_id)) == fact_id
    assert asked == ["f", "f", "g", "h", "g"]


@pytest.mark.parametrize("template", ["", "{user}", "{space", "a}b", None, 7])
def test_a_template_is_checked_when_made(template: Any) -> None:
    """Only `{space}` is filled in; another placeholder would end up in a scope as it stands."""
    with pytest.raises(InvalidInput) as caught:
        Scope("dataset", template)
    assert caught.value.field == "dataset"


async def test_notes_without_a_ledger() -> None:
    """They keep the first claim until it is dropped, and hand out copies."""
    notes = LooseNotes()
    assert (await notes.get("a"), await notes.claim("a", "1"), await notes.claim("a", "2")) == (
        None,
        "1",
        "1",
    )
    read = dict(await notes.read())
    await notes.claim("b", "")
    assert (read, await notes.get("b")) == ({"a": "1"}, "")
    await notes.drop("a", "2")
    assert await notes.get("a") == "1"
    await notes.drop("a", "1")
    assert await notes.get("a") is None
    await notes.drop("a")
    await notes.drop("a")
    assert await notes.claim("a", "3") == "3"


def test_a_function_of_the_space() -> None:
    """It gives facts and searches the same value, encoded, so that a search knows where to look."""
    scope = Scope("user_id", PerSpace(lambda space: space.removeprefix("user:")), str.upper)
    assert (scope.fixed, scope.is_per_space) == (None, True)
    assert (scope.of_fact(fact("user:ada")), scope.of_space("org")) == ("ADA", "ORG")
    assert scope.among(["user:ada", "ada", "org"]) == ["ADA", "ORG"]
    assert scope.among(None) is None


@pytest.mark.parametrize("answer", ["", "  ", None, 7])
def test_a_function_of_the_space_that_returns_no_text(answer: Any) -> None:
    """What it returns has to be a text, for a fact and for a search alike."""
    scope = Scope("user_id", PerSpace(lambda _: answer))
    for ask in (lambda: scope.of_fact(fact()), lambda: scope.among(["org"])):
        with pytest.raises(InvalidInput, match="user_id"):
            ask()
