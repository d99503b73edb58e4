"""Where an item of the LangGraph face stands: namespaces and keys survive whatever is in them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest

from custody_sync.errors import InvalidInput
from custody_sync.faces._langgraph_layout import Layout, joined, split
from custody_sync.model import Fact, Provenance

LABELS = ("a", "a/b", "%", "%2F", "a%2Fb", "größe", "🦊 fox", " x ", "*", "line\nbreak", "..")


def fact_of(layout: Layout, namespace: tuple[str, ...], key: str, **more: Any) -> Fact:
    """Return a fact as a put writes it."""
    space, subject = layout.address(namespace, key)
    fact = Fact(
        fact_id="f-1",
        space=space,
        subject=subject,
        predicate="item",
        value={"n": 1},
        text="n",
        actor="app",
        provenance=Provenance.ATTESTED,
        valid_from=datetime(2026, 1, 1, tzinfo=UTC),
    )
    return replace(fact, **more)


def test_no_two_items_share_a_subject_and_each_is_read_back() -> None:
    """Slashes, percent signs and anything else in labels and keys come back as they were."""
    layout, subjects = Layout(), set()
    places = [*product(LABELS, repeat=2), *product(LABELS[:4], repeat=3)]
    for place in places:
        kept = layout.read(fact_of(layout, place[:-1], place[-1]))
        assert kept is not None
        assert (*kept.namespace, kept.key) == place
        subjects.add(kept.fact.subject)
    assert len(subjects) == len(places)


@pytest.mark.parametrize("path", ["", "a//b", "/a", "a/", "a%2fb", "a%", "a%20b", " /a"])
def test_what_was_not_written_as_a_path_is_none(path: str) -> None:
    """A subject that only looks like a path is no item."""
    assert split(path) is None


def test_the_space_is_the_namespace_unless_a_function_says_otherwise() -> None:
    """By default each namespace has a space of its own, readable and reversible."""
    assert Layout().address(("memories", "user/42"), "tea") == (
        "memories/user%2F42",
        "memories/user%2F42/tea",
    )
    ruled = Layout(lambda namespace: f"user:{namespace[-1]}")
    assert ruled.address(("memories", "42"), "tea") == ("user:42", "memories/42/tea")


def test_a_fact_of_another_kind_or_place_is_no_item() -> None:
    """A fact in another space, without a dictionary, or of another predicate is left out."""
    layout = Layout()
    whole = fact_of(layout, ("a",), "k")
    assert layout.read(whole) is not None
    for other in (
        replace(whole, space="b"),
        replace(whole, predicate="plan"),
        replace(whole, value="text"),
        replace(whole, value=None, text=None, forgotten=True),
        replace(whole, subject="a"),
        replace(whole, subject="a//k"),
        replace(whole, subject="", space="", predicate=""),
    ):
        assert layout.read(other) is None


@pytest.mark.parametrize(
    ("namespace", "key"),
    [
        ((), "k"),
        (("",), "k"),
        (("a", "  "), "k"),
        ("a", "k"),
        ((1,), "k"),
        (None, "k"),
        (("a",), ""),
        (("a",), "  "),
        (("a" * 600,), "k" * 500),
        (("a\x00",), "k"),
    ],
)
def test_an_item_that_has_no_place_is_refused(namespace: Any, key: str) -> None:
    """Empty and blank labels and keys are refused in one sentence, and so is what is too long together."""
    with pytest.raises(InvalidInput):
        Layout().address(namespace, key)


def test_functions_are_checked() -> None:
    """`space` and `below` are functions, `below` goes with `space`, and a space is never blank."""
    for wrong in ({"space": "org"}, {"below": lambda prefix: None}, {"space": joined, "below": "org"}):
        with pytest.raises(InvalidInput):
            Layout(**wrong)  # type: ignore[arg-type]  # what a caller without a type checker does
    with pytest.raises(InvalidInput, match=r"^space: "):
        Layout(lambda namespace: " ").address(("a",), "k")


def test_a_rule_that_knows_no_such_namespace_makes_it_no_item() -> None:
    """A function of the caller's that fails refuses a put in one sentence, and takes no reading down."""
    ruled = Layout(lambda namespace: f"user:{namespace[1]}")
    assert ruled.address(("memories", "42"), "tea").space == "user:42"
    assert ruled.read(fact_of(Layout(), ("short",), "k")) is None
    with pytest.raises(InvalidInput, match="IndexError"):
        ruled.address(("short",), "k")
