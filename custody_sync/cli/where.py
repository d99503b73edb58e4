"""`custody-sync where`: what there is about somebody, and in which store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import typer

from custody_sync.canonical import check_name, check_optional
from custody_sync.cli.options import ConfigOption, JsonOption, LedgerOption
from custody_sync.cli.output import Output
from custody_sync.cli.read import shown_value
from custody_sync.cli.session import basis_of, open_ledger, run
from custody_sync.ledger import Ledger
from custody_sync.ledger.storage import Account
from custody_sync.model import Fact, Json, Placement, PlacementState, Provenance
from custody_sync.settings import load_settings

_STATES = {PlacementState.HELD: "stored"}
"""What a table says of an entry; "held" also means that a legal hold keeps the fact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """One fact, what became of it, and every place it is or was in."""

    fact_id: str
    subject: str
    predicate: str
    value: Json
    state: str
    holds: tuple[str, ...]
    learned_at: datetime
    placements: Sequence[Placement]


def where(
    space: Annotated[str, typer.Option("--space", metavar="SPACE", help="Who or what it is about.")],
    subject: Annotated[
        str | None, typer.Option("--subject", metavar="SUBJECT", help="Of the space, only this subject.")
    ] = None,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
    json: JsonOption = False,
) -> int:
    """Show what is held about somebody, and in which store.

    Facts of every state are listed: believed, claimed, superseded, retracted, ended and forgotten.
    This is what the ledger knows; the stores are not asked. A fact whose identity was erased is in no
    space any more.
    """

    async def work(output: Output) -> int:
        # A blank space never means all of them.
        check_name(space, "--space")
        check_optional(subject, "--subject")
        settings = load_settings(config, ledger)
        async with open_ledger(settings, read_only=True) as opened:
            found = await _find(opened, space, subject)
            basis = await basis_of(opened)
        _show(output, found)
        output.document({**basis, "space": space, "subject": subject, "facts": found})
        return 0

    return run(work, json=json)


async def _find(ledger: Ledger, space: str, subject: str | None) -> list[Whereabouts]:
    found: list[Whereabouts] = []
    after: int | None = None
    while True:
        page = await ledger.accounts(space=space, subject=subject, after=after)
        for account in page:
            fact = await ledger.get(account.fact_id)
            assert fact is not None  # noqa: S101  # the ledger has an account of it
            places = await ledger.placements(account.fact_id)
            found.append(
                Whereabouts(
                    fact_id=account.fact_id,
                    subject=account.subject,
                    predicate=account.predicate,
                    value=fact.value,
                    state=_state(account, fact, ledger.now()),
                    holds=account.holds,
                    learned_at=account.learned_at,
                    placements=places,
                )
            )
        after = page.next
        if after is None:
            return found


def _state(account: Account, fact: Fact, now: datetime) -> str:
    """Say in one word what became of a fact."""
    if account.forgotten:
        return "forgotten"
    if account.retracted:
        return "retracted"
    if fact.provenance is Provenance.CLAIMED and not fact.confirmed:
        return "claimed"
    if account.superseded_at is not None:
        return "superseded"
    return "ended" if fact.valid_to is not None and fact.valid_to <= now else "believed"


def _show(output: Output, found: Sequence[Whereabouts]) -> None:
    if not found:
        output.line("Nothing is recorded here.")
        return
    output.table(
        "facts",
        ("fact", "subject", "predicate", "value", "state", "holds", "learned", "stores"),
        [
            (
                fact.fact_id,
                fact.subject,
                fact.predicate,
                "(forgotten)" if fact.state == "forgotten" else shown_value(fact.value),
                fact.state,
                ", ".join(fact.holds),
                fact.learned_at,
                ", ".join(f"{store} ({state})" for store, state in _places(fact)),
            )
            for fact in found
        ],
    )
    counts = Counter(place for fact in found for place in _places(fact))
    rows = [(store, state, count) for (store, state), count in sorted(counts.items())]
    output.table("stores", ("store", "state", "facts"), rows)


def _places(fact: Whereabouts) -> list[tuple[str, str]]:
    """Return each store and state of a fact's entries once."""
    return sorted({(place.store, _STATES.get(place.state, place.state.value)) for place in fact.placements})
