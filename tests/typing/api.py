"""The public surface as a caller types it: `make lint` runs mypy --strict and basedpyright over this file.

Nothing here is executed. `assert_type` fails the check where an answer's type is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, assert_type

from custody_sync import (
    AsyncCoordinator,
    Budget,
    Coordinator,
    CustodyError,
    Entry,
    Erasure,
    Event,
    Fact,
    ForgetResult,
    Label,
    Ledger,
    Outcome,
    Page,
    Provenance,
    Recalled,
    RecallResult,
    RepairResult,
    RetractResult,
    Runtime,
    Store,
    VerifyResult,
    WriteResult,
)
from custody_sync.faces.mem0 import Memory
from custody_sync.faces.tool import recall_tool
from custody_sync.faces.wrap import Found, Wrapped, awrap, wrap
from custody_sync.model import Observation, Standing
from custody_sync.ports import View
from custody_sync.recalled import Dropped, Link, RecallStatus
from custody_sync.results import ExpireResult, FactFate, Fate, ForgetManyResult, ForgetWhereResult, HoldResult


class OwnStore:
    """The smallest thing that is a store: a name and two verbs, no base class."""

    name = "own"

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        """Take an entry."""
        return [label.key]

    async def delete(self, entry: Entry) -> None:
        """Drop an entry."""


async def no_secrets(fact: Fact, view: View) -> Fact:
    """Validate as a caller would."""
    assert_type(await view.as_of(space=fact.space), Page[Fact])
    return fact


async def asynchronous(store: Store) -> None:
    """Use every verb of the coordinator and every read of the ledger."""
    ledger = await Ledger.open("sqlite:///custody.db", create=True, runtime=Runtime())
    assert_type(ledger, Ledger)
    async with AsyncCoordinator(ledger, stores=[store, OwnStore()], validators=[no_secrets]) as custody:
        written = await custody.write(
            subject="acct:42",
            predicate="plan",
            value={"name": "pro", "seats": [1, 2.5, None]},
            space="org",
            actor="agent:support",
            text=None,
            supersedes=None,
            valid_from=datetime(2026, 1, 1, tzinfo=UTC),
            valid_to=None,
            receipt_id=None,
            idempotency_key="plan-42",
            provenance="attested",
        )
        assert_type(written, WriteResult)
        assert_type(written.fact.text, str | None)
        fact_id = written.fact.fact_id
        assert_type(fact_id, str)
        await custody.write(value="I drink my coffee black", space="user:42", actor="agent:chat")
        await custody.write(value="so they say", space="org", actor="import", provenance=Provenance.CLAIMED)
        assert_type(await custody.confirm(fact_id, actor="me", reason=None), WriteResult)
        assert_type(await custody.retract(fact_id, actor="me", reason="wrong"), RetractResult)
        forgotten = await custody.forget(fact_id, actor="me", reason="asked to", digest=None, identity=False)
        assert_type(forgotten, ForgetResult)
        assert_type(forgotten.erasure, Erasure)
        assert_type([removal.outcome for removal in forgotten.removals], list[Outcome])
        seen = Observation(source="crm", path="/plan", value="pro")
        await custody.write(value="pro", space="user:42", actor="agent:crm", evidence=seen)
        held = await custody.hold(fact_id, actor="counsel", hold_id="case-7", reason=None)
        assert_type(held, HoldResult)
        assert_type(held.holds, tuple[str, ...])
        assert_type(await custody.release(fact_id, hold_id="case-7", actor="counsel"), HoldResult)
        certificate = await custody.forget_where(
            space="user:42", subject=None, actor="dpo", progress=lambda fact: print(fact.fate.value)
        )
        assert_type(certificate, ForgetWhereResult)
        assert_type(certificate.with_fate(Fate.HELD), tuple[FactFate, ...])
        expired = await custody.expire(
            actor="job", windows={"org": "P1Y"}, age_from="superseded", dry_run=True
        )
        assert_type(expired, ExpireResult)
        assert_type(expired.stopped, str | None)
        swept = await custody.repair(
            actor="ops", reason="after the outage", before=None, dry_run=True, max_removals=None
        )
        assert_type(swept, RepairResult)
        assert_type(await custody.verify(actor="ops", fact_ids=None), VerifyResult)
        found = await custody.recall(
            "which plan",
            k=3,
            spaces=["org"],
            valid_at=None,
            tx_at=datetime(2026, 1, 1, tzinfo=UTC),
            include_claimed=False,
            with_history=True,
            store="own",
            unlabelled="show",
            budget=Budget(characters=4000, per_fact=500, seconds=2.5),
            keep=lambda fact: fact.subject == "acct:42",
        )
        assert_type(found, RecallResult)
        assert_type(found.hits, tuple[Recalled, ...])
        assert_type(found.facts, tuple[Fact, ...])
        assert_type(found.status, RecallStatus)
        assert_type(found.dropped.get(Dropped.ORPHAN), int | None)
        assert_type(found.unlabelled, tuple[Entry, ...])
        assert_type([hit.history for hit in found.hits], list[tuple[Link, ...]])
        assert_type([hit.text for hit in found.hits], list[str])
    page = await ledger.as_of(space="org", subject="acct:42", predicate="plan", valid_at=None, tx_at=None)
    assert_type(page, Page[Fact])
    assert_type(page.next, int | None)
    assert_type(await ledger.history(fact_id), Page[Event])
    assert_type(await ledger.get(fact_id), Fact | None)
    assert_type(await ledger.known([fact_id]), dict[str, Standing])
    await ledger.close()


def synchronous(store: Store) -> None:
    """Use the twin for synchronous code: the same verbs, without `await`."""
    with Coordinator("sqlite:///custody.db", create=True, stores=[store]) as custody:
        written = custody.write(value="I drink my coffee black", space="user:42", actor="agent:chat")
        assert_type(written, WriteResult)
        assert_type(custody.retract(written.fact.fact_id, actor="me", reason="wrong"), RetractResult)
        assert_type(custody.forget(written.fact.fact_id, actor="me", reason="asked to"), ForgetResult)
        assert_type(custody.hold(written.fact.fact_id, actor="counsel"), HoldResult)
        assert_type(custody.forget_where(space="user:42", actor="dpo"), ForgetWhereResult)
        many = custody.forget_many([written.fact.fact_id], actor="dpo", reason="asked to")
        assert_type(many, ForgetManyResult)
        assert_type(many.facts, tuple[FactFate, ...])
        memory = Memory(custody, actor="agent:chat")
        assert_type(memory.add("tea", user_id="42", infer=False), dict[str, Any])
        assert_type(memory.get("id"), dict[str, Any] | None)
        assert_type(memory.acting_as("user:42"), Memory)
        assert_type(custody.expire(actor="job", windows={"org": "P1Y"}), ExpireResult)
        assert_type(custody.repair(actor="ops", reason="weekly"), RepairResult)
        assert_type(custody.verify(actor="ops"), VerifyResult)
        assert_type(custody.as_of(space="org"), Page[Fact])
        assert_type(custody.recall("which plan", k=3), RecallResult)
        assert_type(custody.history(written.fact.fact_id), Page[Event])
        assert_type(custody.get(written.fact.fact_id), Fact | None)


def failing(error: CustodyError) -> None:
    """Read an error by its code and fields."""
    assert_type(error.code, str)
    assert_type(error.exit_code, int)


def faces(custody: Coordinator) -> None:
    """Wrap three callables, with results as they come and in a form of one's own; make a tool."""

    def search(query: str, k: int) -> list[tuple[int, str]]:
        return []

    def add(text: str, metadata: dict[str, object]) -> int:
        return len(text)

    def delete(number: int) -> None:
        return None

    memory = wrap(search=search, add=add, delete=delete, ledger="sqlite:///custody.db", threads=4)
    assert_type(memory, Wrapped[Found])
    assert_type(memory.within("user:42").acting_as("ana").search("coffee"), list[Found])
    given = memory.add("I live in Lyon", {"turn": 3})
    memory.add("I live in Paris", supersedes=given)
    assert_type(memory.delete(given), bool)
    assert_type(memory.recall("Lyon", k=3, with_history=True), RecallResult)
    shown = wrap(search=search, add=add, delete=delete, show=lambda found: found.text or "")
    assert_type(shown.search("coffee"), list[str])
    assert_type(recall_tool(custody, spaces=["org"])("coffee"), str)


async def awaited_faces() -> None:
    """The same, awaited."""
    async with await awrap(search=max, add=max, delete=print) as memory:
        assert_type(await memory.search("coffee"), list[Found])
        assert_type(await memory.delete([7, "7"]), bool)
