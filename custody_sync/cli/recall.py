"""`custody-sync recall`: search a store, and show only what the ledger believes of what it serves."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from custody_sync.cli.options import ConfigOption, JsonOption, LedgerOption, instant
from custody_sync.cli.output import Output
from custody_sync.cli.read import shown_value
from custody_sync.cli.session import Custody, open_custody, run
from custody_sync.errors import InvalidInput
from custody_sync.recall import Unlabelled
from custody_sync.recalled import Budget, RecallResult, RecallStatus
from custody_sync.settings import load_settings

NOTHING, PARTIAL = 1, 3
_CUT_SHORT = (RecallStatus.TIMED_OUT, RecallStatus.BUDGET_TOO_SMALL)


def recall(
    query: Annotated[str, typer.Argument(metavar="QUERY", show_default=False)],
    k: Annotated[int, typer.Option("-k", metavar="N", min=1, help="At most so many facts.")] = 10,
    space: Annotated[
        list[str] | None,
        typer.Option("--space", metavar="SPACE", help="Only this space; may be given several times."),
    ] = None,
    valid_at: Annotated[
        str | None, typer.Option("--valid-at", metavar="INSTANT", help="True in the world then.")
    ] = None,
    tx_at: Annotated[
        str | None, typer.Option("--tx-at", metavar="INSTANT", help="Known to the ledger then.")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="NAME", help="Search this store; otherwise the first that can be."),
    ] = None,
    history: Annotated[
        bool,
        typer.Option(
            "--history", help="Each fact with the chain of those it corrected; claims only with --claimed."
        ),
    ] = False,
    claimed: Annotated[
        bool, typer.Option("--claimed", help="Also adopted facts that wait for a confirmation.")
    ] = False,
    unlabelled: Annotated[
        str,
        typer.Option(
            "--unlabelled",
            metavar="POLICY",
            help="Entries that nobody stands behind: drop them, show them apart, or refuse.",
        ),
    ] = "drop",
    chars: Annotated[
        int | None,
        typer.Option("--chars", metavar="N", min=1, help="At most so many characters of text in all."),
    ] = None,
    per_fact: Annotated[
        int | None,
        typer.Option(
            "--per-fact",
            metavar="N",
            min=2,
            help="Cut each text to so many, at least 2; a correction is never cut.",
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds",
            metavar="N",
            help="Return what is known after so many seconds; at exit a client that cannot be interrupted is "
            "waited for.",
        ),
    ] = None,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
    json: JsonOption = False,
) -> int:
    """Search a store and show what the ledger believes of what it serves, with the ledger's texts.

    What was forgotten, retracted or superseded is left out, whatever the store still has, and counted.
    Ends with 1 where no fact was found, and with 3 where the time was over or --chars had no room for
    a correction, or for anything. That a store served less than the ledger has is said, and ends with 0.
    """

    async def work(output: Output) -> int:
        settings = load_settings(config, ledger)
        valid, known = instant("--valid-at", valid_at), instant("--tx-at", tx_at)
        # Whether it is one is checked where it is used.
        policy = cast(Unlabelled, unlabelled)
        async with open_custody(settings, output) as custody:
            if not custody.stores:
                problem = "none is configured to be searched; factory in custody.toml names them"
                raise InvalidInput(field="store", problem=problem)
            found = await custody.coordinator.recall(
                query,
                k=k,
                spaces=space,
                valid_at=valid,
                tx_at=known,
                include_claimed=claimed,
                with_history=history,
                store=store,
                unlabelled=policy,
                budget=Budget(characters=chars, per_fact=per_fact, seconds=seconds),
            )
            _document(output, custody, found)
        _show(output, found)
        return _status(found)

    return run(work, json=json)


def _status(found: RecallResult) -> int:
    if found.status in _CUT_SHORT:
        return PARTIAL
    if found.hits:
        return 0
    return PARTIAL if found.status is RecallStatus.BUDGET_SPENT else NOTHING


def _document(output: Output, custody: Custody, found: RecallResult) -> None:
    output.document(
        {
            "ledger_id": custody.ledger.ledger_id,
            "head": found.head,
            "time": custody.ledger.now(),
            "stores": [found.store],
            "status": found.status,
            "complete": found.complete,
            "valid_at": found.valid_at,
            "seen": found.seen,
            "dropped": found.dropped,
            "notes": found.notes,
            "hits": found.hits,
            "unlabelled": found.unlabelled,
        }
    )


def _show(output: Output, found: RecallResult) -> None:
    output.table(
        "facts",
        ("fact", "space", "text", "valid from", "valid to", "actor", "provenance", "receipt", "score"),
        [
            (
                hit.fact_id,
                hit.space,
                hit.text,
                hit.valid_from,
                hit.valid_to,
                hit.actor,
                hit.provenance.value,
                hit.receipt_id,
                None if hit.score is None else f"{hit.score:.3g}",
            )
            for hit in found.hits
        ],
    )
    chains = [(hit.fact_id, link) for hit in found.hits for link in hit.history if len(hit.history) > 1]
    if chains:
        output.table(
            "history",
            ("of", "fact", "value", "is", "valid from", "actor", "receipt"),
            [
                (
                    fact_id,
                    link.fact.fact_id,
                    "(forgotten)" if link.fact.forgotten else shown_value(link.fact.value),
                    link.belief.value,
                    link.fact.valid_from,
                    link.fact.actor,
                    link.fact.receipt_id,
                )
                for fact_id, link in chains
            ],
        )
    if found.dropped:
        output.table("left out", ("why", "entries"), [(why.value, n) for why, n in found.dropped.items()])
    if found.unlabelled:
        output.table(
            "without a fact",
            ("store", "external id", "text"),
            [(entry.store, entry.external_id, entry.text) for entry in found.unlabelled],
        )
    for said in found.notes:
        output.note(f"{found.store}: {said}.")
    if found.status in _SENTENCES:
        output.note(_SENTENCES[found.status])


# A recall's own notes say the rest.
_SENTENCES = {
    RecallStatus.EXHAUSTED: "That is all there is.",
    RecallStatus.BUDGET_SPENT: "There was no room for more: --chars.",
    RecallStatus.BUDGET_TOO_SMALL: "A correction did not fit, and nothing was put in its place: --chars.",
}
