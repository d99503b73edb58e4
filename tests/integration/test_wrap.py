"""Three callables become a guarded memory: it finds what the ledger believes, whatever the index has."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from fakes.plain_index import PlainIndex
from fix_wrap import Wrap

from custody_sync.errors import InvalidInput, OnHold
from custody_sync.faces.wrap import CallStore, Found, Wrapped
from custody_sync.recalled import Dropped
from custody_sync.sync import Coordinator

SHOWN = [("text", "score", "metadata"), ("text", "score"), ("text",), ("score",), ()]


# --- as before --------------------------------------------------------------------------------


@pytest.mark.parametrize("shows", SHOWN, ids=lambda shows: "+".join(shows) or "ids")
def test_whatever_a_search_shows_the_id_leads_to_the_ledger(wrapped: Wrap, shows: tuple[str, ...]) -> None:
    """Text and metadata come from the ledger, also where a search shows nothing but ids."""
    memory = wrapped(PlainIndex(shows))
    black = memory.add("I drink my coffee black", {"lang": "en", "tags": ["drinks"]})
    memory.add("I live in Lyon")
    (found,) = memory.search("coffee black", 1)
    assert (found.id, found.text) == (black, "I drink my coffee black")
    assert found.metadata == {"lang": "en", "tags": ["drinks"]}
    assert (found.score is not None) is ("score" in shows)


def number(n: int) -> UUID:
    """Return the n-th UUID."""
    return UUID(int=n)


@pytest.mark.parametrize("make", [int, str, number, "int:{}".format], ids=["int", "str", "UUID", "tagged"])
def test_ids_stay_what_they_are(wrapped: Wrap, make: Any) -> None:
    """Ids go in and out in the type that the index has, also through a second process."""
    index = PlainIndex(number=make)
    given = wrapped(index).add("a note")
    assert (type(given), given) == (type(make(1)), make(1))
    again = wrapped(index)
    assert [found.id for found in again.search("note")] == [given]
    assert again.delete(given)
    assert index.texts() == []


def test_ids_may_be_numbers_here_and_texts_there(wrapped: Wrap) -> None:
    """With `ids=int` a search that shows "1" finds what `add` called 1, and `delete` is given 1."""
    index = PlainIndex(("text",))
    memory = wrapped(
        index, ids=int, search=lambda query, k: [(str(row[0]), row[1]) for row in index.search(query, k)]
    )
    given = memory.add("a note")
    assert memory.search("note")[0].id == given == 1
    assert memory.delete("1")


def test_a_text_in_parts_is_one_memory(wrapped: Wrap) -> None:
    """Several ids of one text are returned as a list, found once, and removed together."""
    index = PlainIndex()
    memory = wrapped(index, add=lambda text, metadata: [index.add(text, metadata) for _ in range(3)])
    ids = memory.add("a long note")
    assert ids == [1, 2, 3]
    assert len(memory.search("note")) == 1
    shorter = memory.add("a short note", supersedes=ids)
    assert (memory.delete(2), index.texts()) == (False, ["a short note"] * 3)
    assert memory.delete(shorter)
    assert index.texts() == []


def test_several_are_deleted_one_by_one(wrapped: Wrap) -> None:
    """A list may name several memories; what is unknown among them makes the answer False."""
    index = PlainIndex()
    memory = wrapped(index)
    ids = [memory.add(f"note {n}") for n in range(4)]
    assert memory.delete([]) is False
    assert memory.delete(ids[:2]) is True
    assert memory.delete([ids[2], 99]) is False
    assert index.texts() == ["note 3"]


@pytest.mark.parametrize("given", ["", "  ", None, True, 1.5, {"x"}, ["  "]], ids=repr)
def test_what_is_no_id_is_refused_before_anything_is_done(wrapped: Wrap, given: Any) -> None:
    """An empty id, or none, is the caller's mistake: a sentence that blames no store, and nothing is gone."""
    index = PlainIndex()
    memory = wrapped(index)
    kept: Any = memory.add("a note")
    for ids in (given, [kept, *(given if isinstance(given, list) else [given])]):
        with pytest.raises(InvalidInput, match=r"^id: must be an id as add gave it \(.*\), not [\w ]+\.$"):
            memory.delete(ids)
    if given is not None:
        with pytest.raises(InvalidInput, match=r"^supersedes: must be an id as add gave it"):
            memory.add("another note", supersedes=given)
    assert index.texts() == ["a note"]
    assert [found.id for found in memory.search("note")] == [kept]


def test_results_are_read_and_shown_in_the_callers_form(wrapped: Wrap) -> None:
    """`read` takes the caller's own results, `show` gives them back, with the ledger's text."""
    index = PlainIndex()

    def search(query: str, k: int) -> list[dict[str, Any]]:
        return [{"key": row[0], "body": row[1].upper()} for row in index.search(query, k)]

    memory = wrapped(
        index,
        search=search,
        read=lambda row: Found(row["key"], row["body"]),
        show=lambda found: {"key": found.id, "body": found.text},
    )
    memory.add("a note")
    assert memory.search("note") == [{"key": 1, "body": "a note"}]


def test_metadata_reaches_the_index_beside_the_label(wrapped: Wrap) -> None:
    """`add` is given what was remembered with a text, and seven keys of custody, which win there."""
    index = PlainIndex()
    memory = wrapped(index)
    given = memory.add("a note", {"page": 3, "source": "hr.pdf"})
    (_, metadata) = index.rows[given]
    assert (metadata["page"], metadata["source"], metadata["space"]) == (3, "custody-sync", "memories")
    assert memory.search("note")[0].metadata == {"page": 3, "source": "hr.pdf"}


# --- guarded ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shows", SHOWN, ids=lambda shows: "+".join(shows) or "ids")
def test_what_is_forgotten_is_not_found(wrapped: Wrap, shows: tuple[str, ...]) -> None:
    """While the index still serves a deleted text, nobody is given it, and the delete is not called done."""
    index = PlainIndex(shows)
    pending: list[Any] = []
    memory = wrapped(index, on_pending=pending.append)
    given = memory.add("my number is 123-45-6789")
    memory.add("I live in Lyon")
    index.lag = math.inf
    assert memory.delete(given) is False
    assert [found.text for found in memory.search("my number", 5)] == ["I live in Lyon"]
    assert [result.complete for result in pending] == [False]


def test_a_delete_that_did_nothing_is_seen(wrapped: Wrap, caplog: pytest.LogCaptureFixture) -> None:
    """An index that says it deleted and did not is found out by its own search; the log has no content."""
    index = PlainIndex()
    memory = wrapped(index)
    given = memory.add("my number is 123-45-6789")
    index.lies = True
    with caplog.at_level(logging.WARNING, "custody_sync.faces"):
        assert memory.delete(given) is False
    assert index.texts() == ["my number is 123-45-6789"]
    assert memory.search("number") == []
    assert [record.message for record in caplog.records] == [
        "a removal is recorded and not yet verified in every store: run repair"
    ]


def test_what_was_there_before_is_not_called_deleted(wrapped: Wrap) -> None:
    """An entry that nobody recorded is left in the index, and its delete is no success, as of no entry."""
    index = PlainIndex()
    memory = wrapped(index)
    old = index.add("an old note", {})
    assert (memory.delete(old), memory.delete(99)) == (False, False)
    mine = memory.add("a note")
    assert memory.delete([mine, old]) is False
    assert index.texts() == ["an old note"]


def test_a_search_that_was_cut_short_says_so(wrapped: Wrap, caplog: pytest.LogCaptureFixture) -> None:
    """An index that gives three at most is told apart from one that has three; the log has no content."""
    memory = wrapped(PlainIndex(most=3))
    for n in range(3):
        memory.add(f"note {n}")
    assert len(memory.search("note", 5)) == 3
    assert not caplog.records
    memory.add("note 3")
    with caplog.at_level(logging.WARNING, "custody_sync.faces"):
        assert len(memory.search("note", 5)) == 3
    assert [record.message for record in caplog.records] == ["a search was answered in part: short"]


def test_c17_equal_texts_are_no_proof(wrapped: Wrap) -> None:
    """C17: thirteen equal texts, a search that shows ten at most, a delete that did nothing: not verified."""
    index = PlainIndex(most=10)
    memory = wrapped(index)
    for _ in range(13):
        memory.add("the very same note")
    shown = {result[0] for result in index.search("the very same note", 100)}
    (hidden, *_) = set(index.rows) - shown
    index.lies = True
    assert memory.delete(hidden) is False


def test_a_retracted_text_is_searched_for_while_the_ledger_has_it(wrapped: Wrap) -> None:
    """A retraction is verified with the ledger's text, now and later; after a forget nobody has that."""
    index = PlainIndex()
    memory = wrapped(index)
    memory.add("I live in Lyon")
    fact_id = memory.recall("I live in Lyon").hits[0].fact_id
    index.lag = math.inf
    done = memory.custody.retract(fact_id, actor="app", reason="a mistake")
    assert [removal.outcome for removal in done.removals] == ["still_indexed"]
    index.lag = 0
    assert memory.repair().repaired[0].outcome == "verified"
    memory.custody.forget(fact_id, actor="app", reason="asked to")
    (asked,) = memory.custody.verify(actor="app").removals
    assert (asked.outcome, asked.detail) == ("unverified", "its answer proves nothing (TextNotGiven)")


def test_a_removal_is_proved_later_where_it_can_be_looked_up(wrapped: Wrap) -> None:
    """Without its text only `get` can tell; with it a repair ends what an index that lagged had left."""
    index = PlainIndex()
    memory = wrapped(index, get=index.get)
    given = memory.add("my number is 123-45-6789")
    index.lag = math.inf
    assert memory.delete(given) is False
    index.lag = 0
    assert memory.repair().repaired[0].outcome == "verified"
    assert memory.delete(given) is False, "nothing is known of it any more"


def test_a_delete_goes_on_where_it_was_left(wrapped: Wrap) -> None:
    """Deleting again what is still pending deletes and asks again."""
    index = PlainIndex()
    memory = wrapped(index, get=index.get)
    given = memory.add("a note")
    index.lies = True
    assert memory.delete(given) is False
    index.lies = False
    assert memory.delete(given) is True
    assert index.texts() == []


def test_a_replacement_is_found_in_its_stead(wrapped: Wrap) -> None:
    """What is superseded leads to what replaced it, under an id that can be deleted, and once."""
    index = PlainIndex()
    memory = wrapped(index)
    lyon = memory.add("I live in Lyon", {"since": 2019})
    index.lag = math.inf
    paris = memory.add("I live in Paris", {"since": 2026}, supersedes=lyon)
    (found,) = memory.search("I live in Lyon", 5)
    assert (found.id, found.text, found.metadata) == (paris, "I live in Paris", {"since": 2026})
    for nothing in (99, [], [paris, 99]):
        with pytest.raises(InvalidInput, match="supersedes: no one memory that is believed in 'memories'"):
            memory.add("I live in Rome", supersedes=nothing)


def test_a_delete_forgets_what_was_replaced_too(wrapped: Wrap) -> None:
    """The text of every version is erased, not only that of the last one."""
    index = PlainIndex()
    memory = wrapped(index)
    first = memory.add("I live in Lyon")
    last = memory.add("I live in Paris", supersedes=first)
    assert memory.delete(last)
    history = memory.custody.call(memory.custody.ledger.accounts(space="memories"))
    assert [account.forgotten for account in history] == [True, True]
    assert (index.texts(), memory.search("live")) == ([], [])


def test_what_others_added_is_left_out_and_left_alone(wrapped: Wrap) -> None:
    """A text that was added past custody is not found, is counted, and survives a repair."""
    index = PlainIndex()
    memory = wrapped(index, entries=index.entries)
    index.add("somebody else's note", {})
    assert memory.search("note") == []
    assert memory.recall("note").dropped == {Dropped.UNLABELLED: 1}
    assert memory.delete(1) is False
    assert memory.repair().complete
    assert index.texts() == ["somebody else's note"]


def test_spaces_are_kept_apart(wrapped: Wrap) -> None:
    """A view of another space finds and deletes nothing of this one, whatever the index serves."""
    index = PlainIndex()
    ana = wrapped(index).within("user:ana")
    ben = ana.within("user:ben")
    of_ana, of_ben = ana.add("my pet is a cat"), ben.add("my pet is a dog")
    assert [found.id for found in ana.search("my pet", 5)] == [of_ana]
    assert ben.delete(of_ana) is False
    with pytest.raises(InvalidInput):
        ben.add("my pet is a bird", supersedes=of_ana)
    both = ana.recall("my pet", spaces=["user:ana", "user:ben"])
    assert len(both.hits) == 2
    assert [hit.space for hit in ana.recall("my pet", spaces=None).hits] == ["user:ana"]
    assert (ana.space, ben.space, of_ben) == ("user:ana", "user:ben", 2)


def test_a_search_that_takes_spaces_is_given_them(wrapped: Wrap) -> None:
    """A parameter `spaces` is filled in, and its answer is checked all the same."""
    index, asked = PlainIndex(), list[Any]()

    def search(query: str, k: int, spaces: list[str] | None) -> Any:
        asked.append(spaces)
        return index.search(query, k)

    memory = wrapped(index, search=search)
    memory.add("a note")
    memory.within("other").add("a note of another")
    assert [found.text for found in memory.search("note")] == ["a note"]
    assert asked[0] == ["memories"]


# --- who and what -----------------------------------------------------------------------------


def test_another_speaker_is_another_view(wrapped: Wrap) -> None:
    """`acting_as` says who remembers, with a receipt, and changes nothing for anybody else."""
    memory = wrapped(PlainIndex(), actor="app")
    ana = memory.acting_as("user:ana", receipt_id="chat-7")
    ana.add("a note")
    memory.add("another one")
    facts = [hit.fact for hit in memory.recall("note").hits]
    assert {(fact.actor, fact.receipt_id) for fact in facts} == {("user:ana", "chat-7"), ("app", None)}
    ana.close()
    assert memory.search("note"), "closing a view closes nothing"


def test_a_repeated_add_is_remembered_once(wrapped: Wrap) -> None:
    """The same idempotency key answers with the id of the first one."""
    index = PlainIndex()
    memory = wrapped(index)
    assert {memory.add("a note", idempotency_key="k") for _ in range(2)} == {1}
    assert index.texts() == ["a note"]


def test_what_is_held_is_not_deleted(wrapped: Wrap) -> None:
    """A hold refuses the delete before anything is done."""
    memory = wrapped(PlainIndex())
    given = memory.add("a note")
    memory.custody.hold(memory.recall("note").hits[0].fact_id, actor="legal", reason="a case")
    with pytest.raises(OnHold):
        memory.delete(given)
    assert [found.id for found in memory.search("note")] == [given]


def test_a_face_over_a_coordinator_leaves_it_open(tmp_path: Path) -> None:
    """The store may be one of several; whoever opened the coordinator closes it."""
    index, other = PlainIndex(), PlainIndex()
    stores = [
        CallStore(search=one.search, add=one.add, delete=one.delete, name=name)
        for name, one in (("notes", index), ("copy", other))
    ]
    with Coordinator(f"sqlite:///{tmp_path}/custody.db", create=True, stores=stores) as custody:
        with Wrapped[Found](custody, stores[1], actor="app") as memory:
            memory.add("a note")
            assert memory.search("note")[0].text == "a note"
        assert index.texts() == other.texts() == ["a note"]
        assert custody.recall("note").store == "notes"
        with pytest.raises(InvalidInput, match="must be a CallStore"):
            Wrapped(custody, index)  # type: ignore[arg-type]  # it is what this is about
