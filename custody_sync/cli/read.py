"""`custody-sync read`: what is believed, now or at two instants."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Sequence
from typing import Annotated

import typer

from custody_sync.cli.options import ConfigOption, JsonOption, LedgerOption, instant
from custody_sync.cli.output import Output
from custody_sync.cli.session import basis_of, open_ledger, run
from custody_sync.model import Fact, Observation
from custody_sync.settings import load_settings


def read(
    space: Annotated[str | None, typer.Option("--space", metavar="SPACE", help="Only this space.")] = None,
    subject: Annotated[
        str | None, typer.Option("--subject", metavar="SUBJECT", help="Only this subject.")
    ] = None,
    predicate: Annotated[
        str | None, typer.Option("--predicate", metavar="PREDICATE", help="Only this predicate.")
    ] = None,
    valid_at: Annotated[
        str | None, typer.Option("--valid-at", metavar="INSTANT", help="True in the world then.")
    ] = None,
    tx_at: Annotated[
        str | None, typer.Option("--tx-at", metavar="INSTANT", help="Known to the ledger then.")
    ] = None,
    include_claimed: Annotated[
        bool, typer.Option("--include-claimed", help="Also facts that wait for a confirmation.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="At most so many facts.")] = 100,
    after: Annotated[
        int | None,
        typer.Option("--after", metavar="N", min=0, help="Go on where the page before this one said."),
    ] = None,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
    json: JsonOption = False,
) -> int:
    """List the facts that are believed; the stores are not asked."""

    async def work(output: Output) -> int:
        settings = load_settings(config, ledger)
        valid, known = instant("--valid-at", valid_at), instant("--tx-at", tx_at)
        async with open_ledger(settings, read_only=True) as opened:
            page = await opened.as_of(
                space=space,
                subject=subject,
                predicate=predicate,
                valid_at=valid,
                tx_at=known,
                include_claimed=include_claimed,
                limit=limit,
                after=after,
            )
            basis = await basis_of(opened)
        _show(output, page)
        if page.next is not None:
            output.note(f"There are more: --after {page.next}")
        output.document({**basis, "facts": list(page), "head": page.head, "next": page.next})
        return 0

    return run(work, json=json)


def _show(output: Output, facts: Sequence[Fact]) -> None:
    columns: tuple[str, ...] = (
        "fact", "space", "subject", "predicate", "value", "valid from", "valid to", "actor", "provenance",
    )  # fmt: skip
    rows: list[tuple[object, ...]] = [
        (
            fact.fact_id,
            fact.space,
            fact.subject,
            fact.predicate,
            "(forgotten)" if fact.forgotten else shown_value(fact.value),
            fact.valid_from,
            fact.valid_to,
            fact.actor,
            fact.provenance.value,
        )
        for fact in facts
    ]
    if any(fact.evidence for fact in facts):
        columns = (*columns, "evidence")
        rows = [(*row, shown_evidence(fact.evidence)) for row, fact in zip(rows, facts, strict=True)]
    output.table("facts", columns, rows)


def shown_evidence(evidence: Observation | None) -> str:
    """Show where a value was looked up: the source, then the part of it."""
    return "" if evidence is None else f"{evidence.source} {evidence.path}"


def shown_value(value: object) -> str:
    """Show a text as it is and anything else as JSON."""
    return value if isinstance(value, str) else jsonlib.dumps(value, ensure_ascii=False)
