"""`custody-sync adopt`: entries that were in a store before custody become facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, cast

import typer

from custody_sync.cli.options import (
    ActorOption,
    ApplyOption,
    ConfigOption,
    JsonOption,
    LedgerOption,
    LogOption,
    ReceiptOption,
    actor_of,
    provenance,
)
from custody_sync.cli.output import Output
from custody_sync.cli.sentences import counted
from custody_sync.cli.session import open_custody, run
from custody_sync.errors import InvalidInput
from custody_sync.mended import AdoptResult, Left
from custody_sync.model import Provenance
from custody_sync.repair.adoption import Mapper
from custody_sync.settings import Settings, import_target, load_settings

DONE, FINDING, PARTIAL = 0, 1, 3
SHOWN = 20
"""More entries or spaces than these are only counted for people; --json lists more."""


def adopt(
    store: Annotated[str, typer.Argument(metavar="STORE", show_default=False)],
    space: Annotated[
        str | None,
        typer.Option(
            "--space",
            metavar="TEMPLATE",
            help="Which space each fact belongs to, such as org or user:{scope}.",
        ),
    ] = None,
    mapping: Annotated[
        str | None,
        typer.Option(
            "--map",
            metavar="MODULE:NAME",
            help="A function that says what an entry becomes, instead of --space.",
        ),
    ] = None,
    level: Annotated[
        str,
        typer.Option(
            "--provenance",
            metavar="LEVEL",
            help="How far the store is trusted: claimed waits to be confirmed, attested is believed.",
        ),
    ] = Provenance.CLAIMED.value,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", min=1, help="At most so many entries; the next run goes on."),
    ] = None,
    apply: ApplyOption = False,
    actor: ActorOption = None,
    receipt_id: ReceiptOption = None,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
    log: LogOption = None,
    json: JsonOption = False,
) -> int:
    """Make facts of a store's entries that have no label.

    Their texts stay as they are. Each is recorded, then labelled where the store lets a label be
    written; running it again does what is left. Without --apply nothing is changed, and no text is
    ever shown. Exits with 1 where a run without --apply found something, with 3 where something could
    not be adopted or labelled.
    """

    async def work(output: Output) -> int:
        settings = load_settings(config, ledger)
        who, trusted = actor_of(actor, settings), provenance("--provenance", level)
        becomes = _mapping(settings, space, mapping)
        async with open_custody(settings, output, validating=True) as custody:
            with output.watching("adopting") as watch:
                result = await custody.coordinator.adopt(
                    store,
                    actor=who,
                    space=becomes,
                    provenance=trusted,
                    dry_run=not apply,
                    limit=limit,
                    receipt_id=receipt_id,
                    watch=watch,
                )
        _show(output, result, trusted)
        output.document(result)
        return _status(result)

    return run(work, json=json)


def _mapping(settings: Settings, space: str | None, mapping: str | None) -> str | Mapper:
    if (space is None) is (mapping is None):
        raise InvalidInput(field="space", problem="give --space or --map, and not both")
    if space is not None:
        return space
    found: Any = import_target(settings.folder, "--map", mapping or "")
    if not callable(found):
        raise InvalidInput(field="--map", problem=f"{mapping} is not callable")
    return cast(Mapper, found)


def _status(result: AdoptResult) -> int:
    if not result.dry_run:
        return DONE if result.complete else PARTIAL
    if result.stopped is not None:
        return PARTIAL
    found = result.adopted or result.labelled or not result.complete
    return FINDING if found else DONE


def _show(output: Output, result: AdoptResult, trusted: Provenance) -> None:
    would = "would become" if result.dry_run else "became"
    entries, facts = counted(result.scanned, "entry", "entries"), "a fact" if result.adopted == 1 else "facts"
    output.line(f"{result.adopted} of {entries} in {result.store} {would} {facts}.")
    output.pairs(
        [
            ("adopted before", result.adopted_before or None),
            ("labels to write" if result.dry_run else "labels written", result.labelled or None),
            ("with this ledger's label", result.ours or None),
            ("with another ledger's label", result.foreign or None),
            ("left by the mapping", result.skipped or None),
        ]
    )
    if result.spaces:
        counts = _most_first(result.spaces)
        output.table("spaces", ("space", "facts"), counts[:SHOWN])
        if len(counts) > SHOWN:
            output.line(f"... and {len(counts) - SHOWN} more spaces; --json lists them.")
    if result.samples:
        rows = [(s.external_id, s.scope, s.space, s.fact_id) for s in result.samples]
        output.table("first entries", ("external id", "scope", "space", "fact"), rows)
    show_left(output, "cannot become facts", result.refused, result.refusals)
    show_left(output, "have no label", result.unlabelled, result.without_label)
    _remark(output, result, trusted)


def _remark(output: Output, result: AdoptResult, trusted: Provenance) -> None:
    if result.no_labels and result.adopted:
        output.note(f"No labels are written in {result.store}: {result.no_labels}.")
    if result.elsewhere:
        lie = counted(result.elsewhere, "entry lies", "entries lie")
        output.note(
            f"{lie} in another scope than new facts of their space would; a search in that space finds "
            "nothing of that. Choose --space so that the store's scope follows from it."
        )
    if result.more:
        output.note("More is left because of --limit; run it again.")
    if result.stopped is not None:
        output.note(f"It ended early ({result.stopped}); run it again.")
    if result.dry_run and result.adopted:
        output.line("Nothing was changed; --apply does it.")
    elif result.adopted and trusted is Provenance.CLAIMED:
        output.line("They wait: custody-sync confirm --space SPACE believes them, retract takes one out.")


def show_left(output: Output, title: str, counts: Mapping[str, int], named: Sequence[Left]) -> None:
    """Print what was left by reason, and the first of it by id."""
    if not counts:
        return
    output.table(title, ("reason", "count"), _most_first(counts))
    rows = [(left.external_id, left.fact_id, left.detail) for left in named[:SHOWN]]
    output.table(f"{title}: the first", ("external id", "fact", "reason"), rows)


def _most_first(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: -item[1])
