"""One id in two types, searches that are not as promised: nothing live is lost, or called gone."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fakes.plain_index import PlainIndex
from fix_wrap import Wrap

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.adapters.calls import CallStore
from custody_sync.errors import InvalidStore, OnHold, StoreUnavailable, StoreWriteFailed
from custody_sync.repair import listing
from custody_sync.testing import ManualClock, MemoryStore, testing_runtime


class TextIds(PlainIndex):
    """Gives numbers when it adds, and shows texts everywhere else, as clients over HTTP do."""

    def add(self, text: str, metadata: dict[str, Any]) -> Any:
        """Return a number for what is kept under a text."""
        given = super().add(text, metadata)
        self.rows[str(given)] = self.rows.pop(given)
        return given

    def delete(self, given: Any) -> None:
        """Take either."""
        super().delete(str(given))

    def get(self, given: Any) -> tuple[Any, ...] | None:
        """Take either."""
        return super().get(str(given))


def test_one_id_in_two_types_is_refused_by_the_first_search(wrapped: Wrap) -> None:
    """Where `add` gives 1 and a search shows "1", one sentence says what to do."""
    memory = wrapped(TextIds())
    memory.add("a note")
    with pytest.raises(InvalidStore, match=r"ids of another type than add gave them.*say ids=int"):
        memory.search("note")


def test_a_sweep_never_takes_what_is_live_for_a_stray(wrapped: Wrap) -> None:
    """A listing that shows live entries under "1" is refused; with `ids=int` said later all is well."""
    index, clock = TextIds(), ManualClock()
    runtime = testing_runtime(clock=clock)
    memory = wrapped(index, get=index.get, entries=index.entries, runtime=runtime)
    for n in range(2):
        memory.add(f"note {n}")
    clock.advance(timedelta(days=2))
    again = wrapped(index, get=index.get, entries=index.entries, runtime=runtime)
    (said,) = again.repair().still_held
    assert said.startswith("memories: cannot list: ")
    assert said.endswith("say ids=int")
    (said,) = again.custody.reconcile(actor="ops", fix=["stray"]).unanswered
    assert said.endswith("say ids=int")
    assert index.texts() == ["note 0", "note 1"]
    told = wrapped(index, get=index.get, entries=index.entries, runtime=runtime, ids=int)
    assert told.repair().complete
    (found,) = told.search("note 1", 1)
    assert (found.id, told.delete("2"), index.texts()) == (2, True, ["note 0"])


async def test_a_store_that_shows_other_ids_stops_no_other(tmp_path: Path) -> None:
    """Its own orphans stay as well, also those that it showed before; the other store's go."""
    index, clock, other = TextIds(), ManualClock(), MemoryStore("other")
    runtime = testing_runtime(clock=clock)
    odd = CallStore(
        search=index.search, add=index.add, delete=index.delete, get=index.get, entries=index.entries
    )
    told = {"subject": "acct:42", "predicate": "note", "space": "org", "actor": "app"}
    async with (
        await Ledger.open(f"sqlite:///{tmp_path}/c.db", create=True, runtime=runtime) as ledger,
        AsyncCoordinator(ledger, stores=[odd, other], runtime=runtime) as custody,
    ):
        fact = (await custody.write(value="it is live", **told)).fact
        (text, label), (entry,) = index.rows["1"], other.snapshot().values()
        lost = "01900000-0000-7000-8000-000000000000"
        index.rows = {"0": ("an orphan", label | {"fact_id": lost})} | index.rows
        orphan = other.put_raw("an orphan", other.metadata(entry.external_id) | {"fact_id": lost})
        clock.advance(timedelta(days=2))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(listing, "BATCH", 2)
            result = await custody.repair(actor="ops", reason="after an outage")
            compared = await custody.reconcile(actor="ops")
        assert [(item.store, item.external_id) for item in result.repaired] == [("other", orphan)]
        assert [said[:6] for said in result.still_held] == ["calls:"]
        assert not result.complete
        assert [said[:6] for said in compared.unanswered] == ["calls:"]
        assert list(other.snapshot()) == [entry.external_id]
        assert index.texts() == ["an orphan", text]
        assert [found.fact_id for found in await ledger.as_of()] == [fact.fact_id]


@pytest.mark.parametrize("shows", [("text", "score", "metadata"), ("text", "score"), ("text",)])
def test_what_a_search_shows_under_another_id_is_not_gone(wrapped: Wrap, shows: tuple[str, ...]) -> None:
    """A delete that did nothing is no success because the search shows "1" for the 1 that is asked for."""
    index = TextIds(shows)
    memory = wrapped(index)
    given = memory.add("my number is 123-45-6789")
    memory.add("I live in Lyon")
    index.lies = True
    assert memory.delete(given) is False


def test_a_label_under_a_foreign_id_is_not_gone(wrapped: Wrap) -> None:
    """A search that numbers its results anew shows by the label that it still has the entry."""
    index = PlainIndex()

    def search(query: str, k: int) -> list[Any]:
        return [(f"row-{n}", *found[1:]) for n, found in enumerate(index.search(query, k))]

    memory = wrapped(index, search=search)
    given = memory.add("my number is 123-45-6789")
    memory.add("I live in Lyon")
    index.lies = True
    assert memory.delete(given) is False


@pytest.mark.parametrize("lies", [True, False])
def test_a_search_that_is_not_ranked_proves_nothing_while_it_is_full(wrapped: Wrap, lies: bool) -> None:
    """Only an answer that is shorter than asked shows that an entry is missing where order says nothing."""
    index = PlainIndex()

    def search(query: str, k: int) -> list[Any]:
        return [(given, text) for given, (text, _) in list(index.rows.items())[:k]]

    memory = wrapped(index, search=search)
    for n in range(103):
        index.add(f"other {n}", {})
    given = memory.add("my number is 123-45-6789")
    index.lies = lies
    assert memory.delete(given) is not lies


def test_what_is_scored_alike_keeps_its_order(wrapped: Wrap) -> None:
    """A store that has the same score for everything is in order all the same."""
    index = PlainIndex()

    def search(query: str, k: int) -> list[Any]:
        return [(row[0], row[1], 0.0, row[3]) for row in index.search(query, k)]

    memory = wrapped(index, search=search)
    for text in ("I have a cat", "the weather is fine", "I live in Lyon"):
        memory.add(text)
    assert memory.search("where do I live", 1)[0].text == "I live in Lyon"
    served = [row[0] for row in index.search("I live in Lyon", 3)]
    assert [found.id for found in memory.search("I live in Lyon", 3)] == served


def test_an_id_that_ids_cannot_read_is_never_recorded(wrapped: Wrap) -> None:
    """An `add` that gives "abc" under `ids=int` is a write that failed, in a sentence without the id."""
    memory = wrapped(PlainIndex(), add=lambda text, metadata: "abc", ids=int)
    with pytest.raises(StoreWriteFailed, match="add_gave_an_id_that_ids_cannot_read") as failed:
        memory.add("a note")
    assert "abc" not in str(failed.value)
    assert failed.value.fields["left"] == ["memories"]
    assert list(memory.custody.as_of()) == []


def test_a_hold_on_any_version_keeps_all_of_them(wrapped: Wrap) -> None:
    """Neither an earlier version nor another memory of the call is forgotten before a hold refuses it."""
    index = PlainIndex()
    memory = wrapped(index)
    other, lyon = memory.add("I have a cat"), memory.add("I live in Lyon")
    paris = memory.add("I live in Paris", supersedes=lyon)
    memory.custody.hold(memory.recall("I live", k=1).hits[0].fact_id, actor="legal", reason="a case")
    with pytest.raises(OnHold):
        memory.delete([other, paris])
    accounts = memory.custody.call(memory.custody.ledger.accounts(space="memories"))
    assert [account.forgotten for account in accounts] == [False] * 3
    assert index.texts() == ["I have a cat", "I live in Paris"]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_callable_that_exits_ends_nothing_but_its_call(wrapped: Wrap, error: type[BaseException]) -> None:
    """What exits in a callable failed as a store does; the next call is answered."""
    index, left = PlainIndex(), [error]

    def search(query: str, k: int) -> list[Any]:
        if left:
            raise left.pop()
        return index.search(query, k)

    memory = wrapped(index, search=search)
    memory.add("a note")
    with pytest.raises(StoreUnavailable, match=error.__name__):
        memory.search("note")
    assert memory.search("note")[0].text == "a note"


def test_an_asynchronous_callable_that_exits_ends_nothing_but_its_call(wrapped: Wrap) -> None:
    """The loop in which it runs goes on for everybody else."""
    index, left = PlainIndex(), [SystemExit]

    async def search(query: str, k: int) -> list[Any]:
        if left:
            raise left.pop()
        return index.search(query, k)

    memory = wrapped(index, search=search)
    memory.add("a note")
    with pytest.raises(StoreUnavailable, match="SystemExit"):
        memory.search("note")
    assert memory.search("note")[0].text == "a note"


def test_a_filter_that_exits_is_carried_to_its_caller(wrapped: Wrap) -> None:
    """An exit out of a function of the caller's is the caller's; the next call is answered."""
    memory = wrapped(PlainIndex())
    memory.add("a note")

    def keep(_: object) -> bool:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        memory.search("note", keep=keep)
    assert memory.search("note")[0].text == "a note"
