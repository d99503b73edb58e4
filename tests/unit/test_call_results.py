"""Ids and results of callables: every form that is promised, and one sentence for any other."""

from __future__ import annotations

from collections import namedtuple
from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody_sync.adapters._call_results import Found, Ids, Results, metadata_of, value_of
from custody_sync.errors import InvalidStore
from custody_sync.model import ERASED_ID, Fact, Provenance

SOME = UUID("6f1f6bb5-7a7a-4bd8-9a38-2f0c0a0b9d11")
IDS = st.text(min_size=1) | st.integers() | st.uuids()


def results(read: Any = None) -> Results:
    """Return a reader for a store called `notes`."""
    return Results("notes", Ids("notes"), read)


@given(IDS)
def test_an_id_comes_back_in_its_own_type(one: Any) -> None:
    """Whatever its type, an id is the same after the ledger kept it as text."""
    ids = Ids("notes")
    back = ids.read(ids.write(one))
    assert (type(back), back) == (type(one), one)


@given(IDS, IDS)
def test_two_ids_never_share_a_text(one: Any, other: Any) -> None:
    """A number, a UUID and texts that look like them stay apart, and none looks erased."""
    ids = Ids("notes")
    assert (ids.write(one) == ids.write(other)) == (one == other)
    assert not ids.write(one).startswith(ERASED_ID)


@pytest.mark.parametrize("tricky", ["int:7", "uuid:7", "str:7", "erased~7", "7", "int", ":"])
def test_a_text_that_looks_tagged_is_a_text(tricky: str) -> None:
    """Texts with our own marks at the beginning come back as texts."""
    ids = Ids("notes")
    assert ids.read(ids.write(tricky)) == tricky


def test_a_text_of_another_kind_becomes_plain() -> None:
    """A subclass of str, as drivers and enums have, is kept as the text it is."""

    class Key(str):
        def __str__(self) -> str:
            return "something else"

    assert type(Ids("notes").write(Key("a"))) is str
    assert Ids("notes").write(Key("a")) == "a"


def test_a_kind_makes_texts_and_numbers_one_id() -> None:
    """With `ids=int` the 7 of one callable is the "7" of another, as without it before."""
    ids = Ids("notes", int)
    assert ids.write(7) == ids.write("7") == Ids("notes").write(7)
    assert ids.read(ids.write("7")) == 7
    assert Ids("notes", UUID).read(Ids("notes", UUID).write(SOME)) == SOME


def test_what_ids_cannot_read_is_not_quoted() -> None:
    """A text that is no number is refused in a sentence without it."""
    with pytest.raises(InvalidStore, match="ids= makes no id") as refused:
        Ids("notes", int).write("secret")
    assert "secret" not in repr(refused.value) + repr(refused.value.__context__)


def test_one_id_in_two_types_is_known() -> None:
    """7 and "7" are alike; an id and itself, or another one, are not."""
    ids = Ids("notes")
    seven, said = ids.write(7), ids.write("7")
    assert ids.is_alike(seven, said)
    assert ids.is_alike(ids.write(SOME), ids.write(str(SOME)))
    assert not ids.is_alike(seven, seven)
    assert not ids.is_alike(seven, ids.write("8"))
    assert "say ids=int" in str(ids.alike(seven))


@pytest.mark.parametrize("odd", [None, "", 1.5, True, b"7", ["7"], {"id": 7}])
def test_what_is_no_id_is_refused_by_type(odd: Any) -> None:
    """Anything that is no text, whole number or UUID is refused in a sentence that does not quote it."""
    with pytest.raises(
        InvalidStore, match=r"an id must be a text that is not empty, an int or a UUID"
    ) as refused:
        Ids("notes").write(odd)
    assert "{" not in str(refused.value)


Row = namedtuple("Row", "id text score metadata")  # a row as database drivers make it


@pytest.mark.parametrize(
    "form",
    [
        Found("a", "hi", 0.5, {"n": 1}),
        ("a", "hi", 0.5, {"n": 1}),
        ["a", "hi", 0.5, {"n": 1}],
        Row("a", "hi", 0.5, {"n": 1}),
        {"id": "a", "text": "hi", "score": 0.5, "metadata": {"n": 1}, "vector": [0.1]},
        SimpleNamespace(id="a", text="hi", score=0.5, metadata={"n": 1}, page=3),
    ],
    ids=["Found", "tuple", "list", "namedtuple", "mapping", "object"],
)
def test_a_result_is_read_in_each_form(form: Any) -> None:
    """Tuples in our order, mappings and objects with our names say the same."""
    assert results().found(form) == Found("a", "hi", 0.5, {"n": 1})


@pytest.mark.parametrize("form", [("a",), {"id": "a"}, SimpleNamespace(id="a"), Found("a")])
def test_a_result_may_be_an_id_alone(form: Any) -> None:
    """What a result does not show is None."""
    assert results().found(form) == Found("a", None, None, None)


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("a text", "a result is of type str"),
        (7, "a result is of type int"),
        (None, "a result is None"),
        ((), "a result is of type tuple"),
        (tuple("abcde"), "a result is of type tuple"),
        ({"text": "secret"}, "a result is of type dict"),
        (("a", 0.9), "the text of a result is of type float"),
        (("a", "hi", "near"), "the score of a result is of type str"),
        (("a", "hi", True), "the score of a result is of type bool"),
        (("a", "hi", 0.5, "secret"), "the metadata of a result is of type str"),
    ],
)
def test_another_form_is_refused_in_a_sentence(form: Any, said: str) -> None:
    """It is named by type, with what to do, and quotes nothing of the result."""
    with pytest.raises(InvalidStore, match=said) as refused:
        results().found(form)
    assert "give wrap a read= that makes Found(id, text, score, metadata) of one" in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_reader_has_to_make_a_found() -> None:
    """`read=` is used for every result, and what else it gives is refused."""
    assert results(lambda row: Found(row["key"])).found({"key": "a"}) == Found("a")
    with pytest.raises(InvalidStore, match=r"what read= gave is of type tuple"):
        results(lambda row: (row,)).found("a")


@pytest.mark.parametrize(
    ("score", "kept"), [(1, 1.0), (float("nan"), None), (float("inf"), None), (None, None)]
)
def test_a_score_is_a_number_or_none(score: Any, kept: float | None) -> None:
    """Scores become floats; what is not finite ranks nothing."""
    assert results().found(("a", None, score)).score == kept


def test_a_decimal_is_no_score() -> None:
    """A decimal is no real number to Python, so it is refused like any other type."""
    with pytest.raises(InvalidStore, match="Decimal"):
        results().found(("a", None, Decimal("0.5")))


def test_a_text_says_nothing_where_no_label_is_shown() -> None:
    """A search may show a text cut or trimmed; without metadata beside it, the id alone counts."""
    assert results().entry(Found("a", "hi")).text is None
    assert results().entry(Found("a", "hi", None, {})).text == "hi"


def fact(value: Any, predicate: str = "memory") -> Fact:
    """Return a fact of a value."""
    return Fact(
        fact_id="f",
        space="s",
        subject="s",
        predicate=predicate,
        value=value,
        text="t",
        actor="a",
        provenance=Provenance.ATTESTED,
        valid_from=datetime(2026, 1, 1, tzinfo=UTC),
    )


def test_metadata_is_part_of_the_value() -> None:
    """A text alone is its value; with metadata both are, and each reader gets a copy."""
    assert value_of("hi", None) == value_of("hi", {}) == "hi"
    one = fact(value_of("hi", {"tags": ["a"]}))
    metadata_of(one)["tags"].append("b")  # type: ignore[union-attr,arg-type]  # it is a list
    assert metadata_of(one) == {"tags": ["a"]}


@pytest.mark.parametrize("value", ["hi", {"metadata": {"a": 1}}, {"metadata": 1, "text": "hi"}, [1], None])
def test_other_values_have_no_metadata(value: Any) -> None:
    """What was not written by a wrapped object has none."""
    assert metadata_of(fact(value)) == {}
    assert metadata_of(fact({"metadata": {"a": 1}, "text": "hi"}, predicate="plan")) == {}
