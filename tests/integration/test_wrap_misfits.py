"""What does not fit a wrapped object, and what fails behind one: a sentence each, quoting no memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fakes.plain_index import PlainIndex, Refused, Trouble
from fix_wrap import Wrap, told

from custody_sync.errors import InvalidInput, InvalidStore, SharedEntry, StoreUnavailable, StoreWriteFailed
from custody_sync.faces.wrap import CallStore, Found, wrap
from custody_sync.model import Capability, Level


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "it gave None where a list of results belongs"),
        ("text", "it gave a str where a list of results belongs"),
        ({"ids": [[1]]}, "it gave a dict where a list of results belongs"),
        ([("a", 0.9)], "the text of a result is of type float"),
        (["a text"], "a result is of type str"),
        ([(None, "a text")], "an id must be a text that is not empty"),
    ],
)
def test_a_search_that_does_not_fit_is_named(wrapped: Wrap, answer: Any, said: str) -> None:
    """It is one sentence that says what to do, never an empty answer that looks complete."""
    memory = wrapped(PlainIndex(), search=lambda query, k: answer)
    with pytest.raises(InvalidStore, match=said) as refused:
        memory.search("secret question")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (None, "add_gave_no_id"),
        ([], "add_gave_no_id"),
        ("", "add_gave_no_id"),
        (1.5, "add_gave_an_id_of_type_float"),
    ],
)
def test_an_add_without_an_id_is_no_confirmation(wrapped: Wrap, answer: Any, cause: str) -> None:
    """Nothing is remembered, and the error says where something may be left."""
    memory = wrapped(PlainIndex(), add=lambda text, metadata: answer)
    with pytest.raises(StoreWriteFailed, match=cause) as failed:
        memory.add("a note")
    assert failed.value.fields["left"] == ["memories"]
    assert memory.search("note") == []


@pytest.mark.parametrize("verb", ["add", "search", "delete"])
def test_the_text_of_an_error_is_never_kept(
    wrapped: Wrap, verb: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What a callable raises may quote a memory: its type and status are all that is kept of it."""
    index = PlainIndex()
    results: list[Any] = []
    memory = wrapped(index, on_pending=results.append)
    given = memory.add("a note")
    index.before = Trouble(Refused("quoting 123-45-6789", 503), verbs=(verb,))
    said: list[str] = []
    try:
        done = {
            "add": lambda: memory.add("another"),
            "search": lambda: memory.search("note"),
            "delete": lambda: memory.delete(given),
        }[verb]()
        said.append(repr(done))
    except (StoreUnavailable, StoreWriteFailed) as failed:
        said += [str(failed), repr(failed), repr(failed.__cause__), repr(failed.__context__)]
    assert verb == "delete" or "Refused 503" in said[0]
    said += [repr(results), caplog.text]
    said += [path.read_bytes().decode("latin-1") for path in tmp_path.iterdir()]
    assert not [text for text in said if "123-45" in text]


def test_an_add_that_fails_after_the_fact_is_never_found(wrapped: Wrap) -> None:
    """An answer that was lost leaves a text that no search gives, and the error says so."""
    index = PlainIndex()
    memory = wrapped(index)
    index.after = Trouble(ConnectionResetError("quoted"), 1, verbs=("add",))
    with pytest.raises(StoreWriteFailed) as failed:
        memory.add("a note")
    assert failed.value.fields["left"] == ["memories"]
    assert (index.texts(), memory.search("note")) == (["a note"], [])


def test_an_unknown_id_is_deleted_already(wrapped: Wrap) -> None:
    """A delete that raises for an id that is gone has done its work, and the search proves it."""
    index = PlainIndex()
    memory = wrapped(index)
    given = memory.add("a note")
    memory.add("I live in Lyon")
    del index.rows[given]
    assert memory.delete(given) is True
    assert index.calls.count("delete") == 1, "nothing to try again"


def test_an_id_that_comes_again_is_refused(wrapped: Wrap) -> None:
    """Two memories under one id could not be told apart, so the second is none, and it says what to do."""
    index = PlainIndex(number=lambda _: 1)
    memory = wrapped(index)
    memory.add("a note")
    with pytest.raises(SharedEntry, match="an id that never comes again, such as a UUID, since"):
        memory.add("another note")
    assert [fact.text for fact in memory.custody.as_of()] == ["a note"]


@pytest.mark.parametrize("text", ["", "  ", None, 7])
def test_an_empty_text_is_refused(wrapped: Wrap, text: Any) -> None:
    """Nothing is called for a text that is none."""
    index = PlainIndex()
    with pytest.raises(InvalidInput, match="text"):
        wrapped(index).add(text)
    assert index.calls == []


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"when": {1, 2}}, r"metadata\['when'\]"),
        ({"n": float("nan")}, r"metadata\['n'\]"),
        ({7: "x"}, "metadata key"),
        (["x"], "metadata"),
    ],
)
def test_metadata_that_is_no_json_is_refused_by_key(wrapped: Wrap, metadata: Any, said: str) -> None:
    """One sentence names the key, and nothing is written."""
    index = PlainIndex()
    with pytest.raises(InvalidInput, match=said):
        wrapped(index).add("a note", metadata)
    assert index.calls == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"search": None},
        {"delete": "delete"},
        {"get": 7},
        {"search": lambda query: []},
        {"add": lambda text: 1},
        {"delete": lambda: None},
        {"entries": lambda after: []},
        {"space": " "},
        {"actor": ""},
        {"threads": 0},
        {"on_pendin": print},
    ],
)
def test_a_wrong_argument_makes_no_ledger(tmp_path: Path, wrong: dict[str, Any]) -> None:
    """It is refused by name before anything is created."""
    with pytest.raises((InvalidInput, TypeError), match=next(iter(wrong))):
        wrap(**told(tmp_path, PlainIndex(), **wrong))
    assert list(tmp_path.iterdir()) == []


def test_capabilities_are_what_the_callables_allow() -> None:
    """What three callables cannot do is said with its reason, and each further one changes that."""
    index = PlainIndex()
    three = CallStore(search=index.search, add=index.add, delete=index.delete)
    assert {capability: said.level for capability, said in three.capabilities.items()} == {
        Capability.FIND: Level.NONE,
        Capability.LIST_ENTRIES: Level.NONE,
        Capability.SEARCH: Level.PARTIAL,
        Capability.VERIFY_DELETED: Level.PARTIAL,
    }
    assert all(said.reason for said in three.capabilities.values())
    more = CallStore(
        search=lambda query, k, spaces: index.search(query, k),
        add=index.add,
        delete=index.delete,
        get=index.get,
        entries=index.entries,
    )
    assert set(more.capabilities) == {Capability.FIND}


@pytest.mark.parametrize("broken", [KeyError("secret"), OSError("secret"), Refused("secret", 404)])
def test_a_lookup_that_fails_proves_nothing(wrapped: Wrap, broken: Exception) -> None:
    """Only None says that there is nothing: an error, in the lookup or in reading it, is none."""
    index = PlainIndex()
    results: list[Any] = []

    def get(given: Any) -> Any:
        raise broken

    memory = wrapped(index, get=get, on_pending=results.append)
    given = memory.add("a note")
    assert memory.delete(given) is False
    assert [removal.outcome for result in results for removal in result.removals] == ["failed"]


def test_a_reader_that_fails_proves_nothing(wrapped: Wrap) -> None:
    """A `read` that cannot make sense of what is still there does not make it gone."""
    index = PlainIndex()

    def read(row: Any) -> Found:
        return {"known": Found(row[0])}[row[1]]

    memory = wrapped(index, get=index.get, read=read)
    given = memory.add("a note")
    index.lies = True
    assert memory.delete(given) is False
