"""`custody-sync card`: what is believed of one property, what was first stated, and all in between."""

from __future__ import annotations

from typing import Annotated

import typer

from custody_sync.cli.options import ConfigOption, JsonOption, LedgerOption, instant
from custody_sync.cli.output import Output
from custody_sync.cli.read import shown_value
from custody_sync.cli.session import basis_of, open_ledger, run
from custody_sync.model import Fact
from custody_sync.recalled import Card
from custody_sync.serving import cards_of
from custody_sync.settings import load_settings

NOTHING = 1


def card(
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", show_default=False)],
    predicate: Annotated[str, typer.Argument(metavar="PREDICATE", show_default=False)],
    space: Annotated[
        str | None,
        typer.Option("--space", metavar="SPACE", help="Only this space; otherwise one card a space."),
    ] = None,
    valid_at: Annotated[
        str | None, typer.Option("--valid-at", metavar="INSTANT", help="True in the world then.")
    ] = None,
    tx_at: Annotated[
        str | None, typer.Option("--tx-at", metavar="INSTANT", help="Known to the ledger then.")
    ] = None,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
    json: JsonOption = False,
) -> int:
    """Show one property of one subject: current, original, and the chain oldest to newest with receipts.

    The stores are not asked. Ends with 1 where the ledger has nothing on it.
    """

    async def work(output: Output) -> int:
        settings = load_settings(config, ledger)
        valid, known = instant("--valid-at", valid_at), instant("--tx-at", tx_at)
        async with open_ledger(settings, read_only=True) as opened:
            cards = await cards_of(opened, subject, predicate, space=space, valid_at=valid, tx_at=known)
            basis = await basis_of(opened)
        for number, found in enumerate(cards):
            if number:
                output.line("")
            _show(output, found)
        if not cards:
            output.line(f"No record of {predicate} of {subject}{'' if space is None else f' in {space}'}.")
        output.document({**basis, "cards": cards})
        return 0 if cards else NOTHING

    return run(work, json=json)


def _show(output: Output, card: Card) -> None:
    output.line(f"{card.subject} {card.predicate} in {card.space}")
    current, *others = card.current or (None,)
    output.pairs(
        [
            *_told("current", current),
            *(pair for fact in others for pair in _told("and", fact)),
            *_told("original", card.original),
        ]
    )
    output.table(
        "chain, oldest first",
        (
            "fact",
            "value",
            "is",
            "valid from",
            "valid to",
            "learned",
            "actor",
            "provenance",
            "receipt",
            "corrects",
        ),
        [
            (
                link.fact.fact_id,
                _value(link.fact),
                link.belief.value,
                link.fact.valid_from,
                link.fact.valid_to,
                link.fact.tx_time,
                link.fact.actor,
                link.fact.provenance.value,
                link.fact.receipt_id,
                link.fact.supersedes,
            )
            for link in card.chain
        ],
    )


def _told(name: str, fact: Fact | None) -> list[tuple[str, str]]:
    """Return what a fact says, and its id on a line of its own: no terminal breaks it there."""
    if fact is None:
        return [(name, "nothing")]
    return [(name, f"{_value(fact)} (since {fact.valid_from.date().isoformat()})"), ("fact", fact.fact_id)]


def _value(fact: Fact) -> str:
    return "(forgotten)" if fact.forgotten else shown_value(fact.value)


__all__ = ["card"]
