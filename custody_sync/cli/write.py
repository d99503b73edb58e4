"""`custody-sync write`: state one fact, in every store and in the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer

from custody_sync.cli.options import (
    ActorOption,
    ConfigOption,
    JsonOption,
    LedgerOption,
    ReceiptOption,
    actor_of,
    instant,
    json_value,
    provenance,
)
from custody_sync.cli.output import Output
from custody_sync.cli.read import shown_evidence
from custody_sync.cli.session import open_custody, run
from custody_sync.errors import InvalidInput
from custody_sync.model import Observation, Provenance, format_instant
from custody_sync.results import (
    WriteResult,
)
from custody_sync.settings import load_settings

DONE, PARTIAL = 0, 3


def write(
    value: Annotated[
        str, typer.Option("--value", metavar="VALUE", help="What is stated; text unless --json-value.")
    ],
    space: Annotated[
        str, typer.Option("--space", metavar="SPACE", help="Who or what it belongs to: org, team:x, user:42.")
    ],
    subject: Annotated[
        str | None, typer.Option("--subject", metavar="SUBJECT", help="What it is about; free text has none.")
    ] = None,
    predicate: Annotated[
        str | None, typer.Option("--predicate", metavar="PREDICATE", help="Which property of the subject.")
    ] = None,
    actor: ActorOption = None,
    text: Annotated[
        str | None,
        typer.Option(
            "--text", metavar="TEXT", help="What stores index; 'subject predicate: value' otherwise."
        ),
    ] = None,
    json_flag: Annotated[
        bool, typer.Option("--json-value", help="Read --value as JSON: a number, a list, an object.")
    ] = False,
    supersedes: Annotated[
        str | None, typer.Option("--supersedes", metavar="FACT_ID", help="The fact that this one replaces.")
    ] = None,
    valid_from: Annotated[
        str | None, typer.Option("--valid-from", metavar="INSTANT", help="True from then on; now otherwise.")
    ] = None,
    valid_to: Annotated[
        str | None, typer.Option("--valid-to", metavar="INSTANT", help="True until then; open otherwise.")
    ] = None,
    receipt_id: ReceiptOption = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option("--idempotency-key", metavar="KEY", help="The same key again returns the first result."),
    ] = None,
    level: Annotated[
        str,
        typer.Option(
            "--provenance", metavar="LEVEL", help="attested, or claimed: recorded and kept from the stores."
        ),
    ] = Provenance.ATTESTED.value,
    evidence_source: Annotated[
        str | None,
        typer.Option(
            "--evidence-source", metavar="SOURCE", help="Where you looked it up: a document, URL or system."
        ),
    ] = None,
    evidence_path: Annotated[
        str | None,
        typer.Option("--evidence-path", metavar="PATH", help="Which part of it: a JSON pointer, a page."),
    ] = None,
    evidence_value: Annotated[
        str | None,
        typer.Option(
            "--evidence-value", metavar="VALUE", help="What stood there; read as --value is. Equal: verified."
        ),
    ] = None,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
    json: JsonOption = False,
) -> int:
    """State one fact: validate it, put it in every store, record it.

    A claimed fact is only recorded; it is in no store until `confirm`. With evidence, given by all
    three options, the fact is verified if the value equals what was observed, and refused if not.
    """

    async def work(output: Output) -> int:
        settings = load_settings(config, ledger)
        who = actor_of(actor, settings)
        stated = json_value("--value", value) if json_flag else value
        starts, ends = instant("--valid-from", valid_from), instant("--valid-to", valid_to)
        trusted = provenance("--provenance", level)
        evidence = _evidence(evidence_source, evidence_path, evidence_value, json_flag)
        async with open_custody(settings, output, validating=True) as custody:
            result = await custody.coordinator.write(
                subject=subject,
                predicate=predicate,
                value=stated,
                space=space,
                actor=who,
                text=text,
                supersedes=supersedes,
                valid_from=starts,
                valid_to=ends,
                receipt_id=receipt_id,
                idempotency_key=idempotency_key,
                provenance=trusted,
                evidence=evidence,
            )
        return show_write(output, result)

    return run(work, json=json)


def _evidence(source: str | None, path: str | None, value: str | None, as_json: bool) -> Observation | None:
    """Return what was observed; a part of an observation is none."""
    if source is None and path is None and value is None:
        return None
    if source is None or path is None or value is None:
        problem = "--evidence-source, --evidence-path and --evidence-value are given together"
        raise InvalidInput(field="evidence", problem=problem)
    observed = json_value("--evidence-value", value) if as_json else value
    return Observation(source=source, path=path, value=observed)


def shown_waiting(stores: Sequence[str], begins: datetime) -> str:
    """Say when stores get what does not begin yet."""
    return f"{', '.join(stores)}: is placed when it begins ({format_instant(begins)}), by repair"


def show_write(output: Output, result: WriteResult) -> int:
    """Show a recorded fact and return 0, or 3 while a store still owes something for it."""
    fact = result.fact
    held = "; ".join(f"{store} ({', '.join(ids)})" for store, ids in result.placements.items())
    output.pairs(
        [
            ("fact", fact.fact_id),
            ("space", fact.space),
            ("text", fact.text),
            ("provenance", fact.provenance.value),
            ("evidence", shown_evidence(fact.evidence)),
            ("supersedes", fact.supersedes),
            ("stores", held or "none"),
            ("later", shown_waiting(result.waiting, fact.valid_from) if result.waiting else None),
            ("duplicate", "yes, this is the first write's result" if result.duplicate else None),
        ]
    )
    output.follow_up(result.removals, result.restored)
    if not result.complete:
        output.note("Recorded, but not every store has caught up; `custody-sync repair` finishes it.")
    output.document(result)
    return DONE if result.complete else PARTIAL
