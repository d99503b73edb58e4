"""A removal takes what has this ledger's label, or the adopted text and no label; nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from langgraph.store.memory import InMemoryStore

from custody_sync import AsyncCoordinator, Ledger
from custody_sync.adapters.langgraph import LangGraphStore
from custody_sync.model import Entry, Outcome
from custody_sync.ports import Whose, whose
from custody_sync.testing import MemoryStore

_NAMESPACE = ("memories", "u1")


def _raw() -> InMemoryStore:
    raw = InMemoryStore()
    raw.put(_NAMESPACE, "profile", {"text": "likes tea"})
    for n in range(4):
        raw.put(_NAMESPACE, f"o{n}", {"text": f"other {n}"})
    return raw


async def _adopted(custody: AsyncCoordinator, ledger: Ledger) -> str:
    await custody.adopt("langgraph", actor="o", space="{scope[1]}", provenance="attested", dry_run=False)
    return next(fact.fact_id for fact in await ledger.as_of(space="u1") if fact.text == "likes tea")


@pytest.mark.parametrize("verb", ["retract", "forget"])
async def test_what_the_application_wrote_under_an_adopted_id_stays(tmp_path: Path, verb: str) -> None:
    """What an application wrote under the id of an adopted fact stays, and the fact's entry is gone."""
    raw = _raw()
    async with (
        await Ledger.open(f"sqlite:///{tmp_path}/c.db", create=True) as ledger,
        AsyncCoordinator(ledger, stores=[LangGraphStore(raw)]) as custody,
    ):
        fact_id = await _adopted(custody, ledger)
        raw.put(_NAMESPACE, "profile", {"text": "moved to Berlin"})
        done = await getattr(custody, verb)(fact_id, actor="o", reason="r")
        assert [removal.outcome for removal in done.removals] == [Outcome.VERIFIED]
        # Once it was seen gone, nothing that has its id since makes it owed again.
        await custody.forget(fact_id, actor="o", reason="r")
        assert (await custody.verify(actor="o")).complete
        await custody.repair(actor="o", reason="r")
    item = raw.get(_NAMESPACE, "profile")
    assert item is not None
    assert item.value["text"] == "moved to Berlin"


async def test_a_copy_of_a_ledger_leaves_the_original_s_entries(tmp_path: Path) -> None:
    """What another ledger labelled stays, whatever the own one has on record, and that is said."""
    store, raw = MemoryStore(), InMemoryStore()
    url = f"sqlite:///{tmp_path}/a.db"
    async with (
        await Ledger.open(url, create=True) as ledger,
        AsyncCoordinator(ledger, stores=[store, LangGraphStore(raw)]) as custody,
    ):
        fact_id = (await custody.write(value="live", space="u1", actor="o")).fact.fact_id
        (entry,) = store.snapshot().values()
        (item,) = raw.search(_NAMESPACE)
        other = "11111111-1111-4111-8111-111111111111"
        raw.put(_NAMESPACE, item.key, {**item.value, "ledger_id": other})
        theirs = Entry(store="memory", external_id=entry.external_id, fact_id=fact_id, ledger_id=other)
        await store.delete(theirs)
        done = await custody.retract(fact_id, actor="o", reason="r")
    ended = {removal.store: (removal.outcome, removal.detail) for removal in done.removals}
    assert ended["memory"] == (Outcome.VERIFIED, "")
    assert ended["langgraph"] == (Outcome.FAILED, "its label names another ledger")
    assert raw.get(_NAMESPACE, item.key) is not None


def test_only_the_label_or_else_the_text_says_whose_an_entry_is() -> None:
    """The label decides; without one only an equal and known text does."""
    asked = Entry(store="s", external_id="1", fact_id="f", ledger_id="l", text="t")
    forgotten = Entry(store="s", external_id="1", fact_id="f", ledger_id="l")
    bare = Entry(store="s", external_id="1", text="t")
    assert whose(asked, asked) is Whose.OURS
    assert whose(asked, bare) is Whose.OURS
    assert whose(forgotten, bare) is Whose.UNKNOWN
    assert whose(asked, Entry(store="s", external_id="1", text="u")) is Whose.REPLACED
    theirs = Entry(store="s", external_id="1", fact_id="f", ledger_id="m", text="t")
    assert whose(asked, theirs) is Whose.ANOTHER_LEDGER
