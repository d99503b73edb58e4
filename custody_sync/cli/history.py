"""`custody-sync history`: everything the ledger recorded about one fact id."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import typer

from custody_sync.cli.options import ConfigOption, FactArgument, JsonOption, LedgerOption
from custody_sync.cli.output import Output
from custody_sync.cli.read import shown_evidence
from custody_sync.cli.session import open_ledger, run
from custody_sync.errors import UnknownFact
from custody_sync.ledger import Ledger
from custody_sync.ledger.chain import read_evidence
from custody_sync.ledger.outstanding import UNTRIED
from custody_sync.model import Event, Fact, PlacementState, format_instant
from custody_sync.repair.backoff import retries
from custody_sync.settings import load_settings

COLUMNS: tuple[str, ...] = ("seq", "when", "event", "store", "outcome", "actor", "reason", "receipt")


def history(
    fact_id: FactArgument,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also show all that each event carries, as JSON.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Show every event of one fact id.

    The id may also be one that was repaired and never was a fact.
    """

    async def work(output: Output) -> int:
        settings = load_settings(config, ledger)
        async with open_ledger(settings, read_only=True) as opened:
            events = await opened.history(fact_id)
            left = await _left(opened, fact_id)
            ends = await _end(opened, fact_id)
            now = opened.now()
        if not events:
            raise UnknownFact(fact_id=fact_id)
        columns, rows = COLUMNS, rows_of(events)
        if any("hold_id" in event.data for event in events):
            columns = (*columns, "hold")
            rows = [(*row, event.data.get("hold_id")) for row, event in zip(rows, events, strict=True)]
        if verbose:
            columns = (*columns, "details")
            rows = [(*row, details(event)) for row, event in zip(rows, events, strict=True)]
        output.table(f"history of {fact_id}", columns, rows)
        for event in events:
            if (evidence := read_evidence(event.sealed.get("content", {}))) is not None:
                output.line(f"Verified against {shown_evidence(evidence)}")
        if ends is not None:
            holds = "It holds" if ends > now else "It held"
            output.line(f"{holds} until {format_instant(ends)}.")
        if left:
            output.table(
                "still to do",
                ("store", "external id", "what", "last outcome", "tried again"),
                [(to.store, to.external_id, to.what, to.outcome, to.next_at) for to in left],
            )
        output.document({"fact_id": fact_id, "events": list(events), "ends": ends, "left": left})
        return 0

    return run(work, json=json)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToDo:
    """Something that is still to do for one fact in one store.

    `next_at` is when a store that did not answer is tried again, or when a fact begins; without it the
    next repair does it.
    """

    store: str
    what: str
    external_id: str | None = None
    outcome: str | None = None
    next_at: datetime | None = None


async def _left(ledger: Ledger, fact_id: str) -> list[ToDo]:
    """Return what is still pending of a fact, and where it is to be placed."""
    tried = await retries(ledger)
    next_at = {store: retry.next_at for store, retry in tried.items()}
    left = [
        ToDo(
            store=row.store,
            what="remove",
            external_id=row.external_id,
            outcome=UNTRIED if row.outcome is None else row.outcome.value,
            next_at=next_at.get(row.store),
        )
        for row in await ledger.placements(fact_id)
        if row.state is PlacementState.DUE
    ]
    owed = await ledger.owed(fact_id)
    left += [ToDo(store=store, what="place", next_at=next_at.get(store)) for _, store in owed]
    fact = await ledger.get(fact_id)
    if fact is None or fact.seq is None:
        return left
    waiting = [row for row in await ledger.waiting(limit=1, after=fact.seq - 1) if row.fact_id == fact_id]
    return left + [ToDo(store=row.store, what="place when it begins", next_at=row.due_at) for row in waiting]


async def _end(ledger: Ledger, fact_id: str) -> datetime | None:
    """Return when a fact ends, by its own words or because its successor begins."""
    fact = await ledger.get(fact_id)
    if fact is None:
        return None
    successor = await _successor(ledger, fact)
    ends = [fact.valid_to, None if successor is None else successor.valid_from]
    return min((end for end in ends if end is not None), default=None)


async def _successor(ledger: Ledger, fact: Fact) -> Fact | None:
    """Look for the fact that covers this one among what was learned of its subject since."""
    if fact.seq is None or not fact.space:
        return None
    covered_at: datetime | None = None
    after: int | None = fact.seq - 1
    while after is not None:
        page = await ledger.accounts(space=fact.space, subject=fact.subject, after=after)
        for account in page:
            if account.fact_id == fact.fact_id:
                covered_at = account.superseded_at
            elif account.learned_at == covered_at:
                found = await ledger.get(account.fact_id)
                if found is not None and found.supersedes == fact.fact_id:
                    return found
        after = None if covered_at is None else page.next
    return None


def rows_of(events: Sequence[Event]) -> list[tuple[object, ...]]:
    """Return a row of `COLUMNS` for each event."""
    return [
        (e.seq, e.tx_time, e.kind.value, _stores(e), e.data.get("outcome"), e.actor, e.reason, e.receipt_id)
        for e in events
    ]


def _stores(event: Event) -> str:
    """Name the stores that an event is about: a removal has one, a fact was put into several."""
    one, several = event.data.get("store"), event.data.get("stores")
    if isinstance(one, str):
        return one
    owed = event.data.get("owes")
    later = [f"{store} (when it begins)" for store in owed] if isinstance(owed, list) else []
    return ", ".join([*map(str, several), *later]) if isinstance(several, list) else ""


def details(event: Event) -> str:
    """Show what an event carries besides its reason, as one line of JSON."""
    parts = {name: part for name, part in carried(event).items() if name != "reason"}
    return jsonlib.dumps(parts, ensure_ascii=False, default=str)


def carried(event: Event) -> dict[str, Any]:
    """Return what an event says, the erasable parts that are still there included."""
    return {
        **event.data,
        **{name: part for section in event.sealed.values() for name, part in section.items()},
    }
