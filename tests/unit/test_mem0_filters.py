"""Mem0's filters, answered from the ledger's facts: what each operator means, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from custody_sync.errors import InvalidInput
from custody_sync.faces._mem0_filters import read_filters
from custody_sync.faces._mem0_scope import Scope, ids_in, read_id, read_scope, space_of, user_of_space

ROW = {"user_id": "ada", "k": 10, "tags": ["a", "b"], "city": "Oslo", "flag": True, "none": None}


def matches(**asked: Any) -> bool:
    """Ask about one row of ada's."""
    return read_filters({"user_id": "ada", **asked}, {}).matches(ROW)


@pytest.mark.parametrize(
    ("asked", "right"),
    [
        ({"k": 10}, True),
        ({"k": 11}, False),
        ({"k": {"eq": 10, "ne": 11}}, True),
        ({"k": {"ne": 10}}, False),
        ({"missing": {"ne": 10}}, True),
        ({"k": {"gt": 9, "lte": 10}}, True),
        ({"k": {"gt": 10}}, False),
        ({"k": {"gte": 10}}, True),
        ({"k": {"lt": 10}}, False),
        ({"k": {"lt": 9.5}}, False),
        ({"k": {"gte": "9"}}, False),
        ({"city": {"gte": "Oslo", "lt": "P"}}, True),
        ({"missing": {"gt": 1}}, False),
        ({"flag": {"gte": 1}}, False),
        ({"flag": True}, True),
        ({"flag": 1}, False),
        ({"k": {"in": [1, 10]}}, True),
        ({"k": [1, 10]}, True),
        ({"k": {"nin": [1, 10]}}, False),
        ({"missing": {"nin": [1]}}, True),
        ({"tags": "a"}, True),
        ({"tags": ["a", "z"]}, True),
        ({"tags": {"contains": "b"}}, True),
        ({"tags": {"contains": "z"}}, False),
        ({"city": {"contains": "osl"}}, False),
        ({"city": {"icontains": "OSL"}}, True),
        ({"k": {"contains": "1"}}, False),
        ({"k": "*"}, True),
        ({"missing": "*"}, False),
        ({"none": "*"}, False),
        ({"OR": [{"k": 1}, {"city": "Oslo"}]}, True),
        ({"OR": [{"k": 1}, {"city": "Bergen"}]}, False),
        ({"NOT": [{"k": 1}, {"city": "Bergen"}]}, True),
        ({"NOT": [{"k": 1}, {"city": "Oslo"}]}, False),
        ({"AND": [{"k": 10}, {"OR": [{"tags": "z"}, {"NOT": [{"flag": False}]}]}]}, True),
        ({"AND": [{"k": 10}, {"city": "Bergen"}]}, False),
        ({"metadata": {"city": "Oslo", "k": {"gt": 1}}}, True),
        ({"metadata": {"city": "Bergen"}}, False),
    ],
)
def test_each_operator(asked: dict[str, Any], right: bool) -> None:
    """A condition holds as Mem0's page says; what cannot be compared does not match, and nothing raises."""
    assert matches(**asked) is right


@pytest.mark.parametrize(
    "asked",
    [
        {},
        None,
        "ada",
        {"city": "Oslo"},
        {"user_id": ""},
        {"user_id": "  "},
        {"user_id": None},
        {"user_id": "a da"},
        {"user_id": {"in": ["ada"]}},
        {"user_id": "ada", "agent_id": ""},
        {"AND": [{"city": "Oslo"}]},
        {"AND": [{"user_id": ""}]},
        {"user_id": "ada", "k": {}},
        {"user_id": "ada", "k": {"like": 1}},
        {"user_id": "ada", "k": {"in": 1}},
        {"user_id": "ada", "OR": []},
        {"user_id": "ada", "NOT": {"k": 1}},
        {"user_id": "ada", "OR": ["k"]},
        {"user_id": "ada", 7: 1},
    ],
)
def test_what_is_no_filter_is_refused(asked: Any) -> None:
    """Filters without an owner, with an empty one, or with what nobody knows are refused in one sentence."""
    with pytest.raises(InvalidInput):
        read_filters(asked, {})


@pytest.mark.parametrize(
    ("name", "said"), [("user_id", "filters="), ("limit", "top_k"), ("topk", "no argument")]
)
def test_arguments_that_have_another_place(name: str, said: str) -> None:
    """An id at the top is sent to the filters, and what would be left out in silence is refused."""
    with pytest.raises(InvalidInput, match=said):
        read_filters({"user_id": "ada"}, {name: "x"})


def test_the_services_form() -> None:
    """Ids may stand in a list under AND, and still say in which space to look."""
    asked = read_filters({"AND": [{"user_id": "ada"}, {"run_id": 7}]}, {})
    assert asked.scope == Scope(user_id="ada", run_id="7")
    assert asked.matches({"user_id": "ada", "run_id": "7"})
    assert not asked.matches({"user_id": "ada", "run_id": "8"})


def test_filters_are_copied() -> None:
    """What the caller changes afterwards changes nothing."""
    wanted: dict[str, Any] = {"user_id": "ada", "k": {"in": [1]}}
    asked = read_filters(wanted, {})
    wanted["k"]["in"].append(10)
    assert not asked.matches(ROW)


def test_the_space_of_a_memory() -> None:
    """A memory is its user's, else its agent's, else its run's, and only a user's space is known whole."""
    both = read_scope("ada", "bot", None)
    assert (space_of(both.given), both.space) == ("user:ada", "user:ada")
    assert (space_of({"agent_id": "bot"}), Scope(agent_id="bot").space) == ("agent:bot", None)
    assert Scope(user_id="*").space is None
    assert (ids_in("user:ada"), ids_in("run:1"), ids_in("org")) == ({"user_id": "ada"}, {"run_id": "1"}, {})
    assert ids_in("user:") == {}
    assert [user_of_space(space) for space in ("user:ada", "agent:bot", "org")] == ["ada", "agent:bot", "org"]


@pytest.mark.parametrize("given", [None, True, b"ada", ["ada"], {"in": ["ada"]}, "", " \t", "a da"])
def test_ids_that_are_none(given: object) -> None:
    """An id is one text or number, without white space; nothing else comes to mean everybody."""
    with pytest.raises(InvalidInput):
        read_id(given, "user_id")


def test_ids_as_mem0_reads_them() -> None:
    """Numbers are taken as texts, and what surrounds an id is cut off."""
    assert [read_id(given, "user_id") for given in (7, " ada ", "*")] == ["7", "ada", "*"]


@pytest.mark.parametrize(
    "scope", [(None, None, None), ("", None, None), (None, " ", None), ("*", None, None), ("ada", "", None)]
)
def test_scopes_that_are_none(scope: tuple[Any, Any, Any]) -> None:
    """A write or a deletion needs one owner by name; none, a blank one and the wildcard are refused."""
    with pytest.raises(InvalidInput):
        read_scope(*scope)
