"""`custody-sync verify`: ask every store again about everything that was removed."""

from __future__ import annotations

import json as jsonlib
import tempfile
from collections.abc import Iterator, Sequence
from typing import IO, Annotated, Any

import typer

from custody_sync.cli.measuring import measuring
from custody_sync.cli.options import (
    ActorOption,
    ConfigOption,
    JsonOption,
    LedgerOption,
    LogOption,
    MetricsOption,
    ReceiptOption,
    SpaceOption,
    StoresOption,
    actor_of,
    instant,
)
from custody_sync.cli.output import Output, plain
from custody_sync.cli.session import Proof, open_custody, proof_of, run
from custody_sync.errors import InvalidInput
from custody_sync.model import Outcome, format_instant
from custody_sync.results import Removal, VerifyResult
from custody_sync.settings import load_settings

_BY_WEIGHT = (
    Outcome.VERIFIED,
    Outcome.PLANNED,
    Outcome.STARTED,
    Outcome.UNVERIFIED,
    Outcome.FAILED,
    Outcome.STILL_INDEXED,
)
"""From proven gone to proven there; of several entries the last of these counts."""


FEW = 300
"""More facts than these are summed up for people; the JSON document has them all."""


def verify(
    fact_ids: Annotated[list[str] | None, typer.Argument(metavar="FACT_ID", show_default=False)] = None,
    space: SpaceOption = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="INSTANT", help="Only what was removed, or tried again, since then."),
    ] = None,
    stores: StoresOption = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Everything that was removed, as without any selection.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the last run over the same that was stopped.")
    ] = False,
    actor: ActorOption = None,
    receipt_id: ReceiptOption = None,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
    metrics_file: MetricsOption = None,
    log: LogOption = None,
    json: JsonOption = False,
) -> int:
    """Ask the stores about what was removed.

    Every store is asked whether it still has what was retracted, superseded, forgotten or repaired.
    A run that was stopped can be gone on with. Exits with 3 if any answer is not a proof, and if there
    was nothing to ask about.
    """

    async def work(output: Output) -> int:
        settings = load_settings(config, ledger)
        who, recorded = actor_of(actor, settings), instant("--since", since)
        if everything and (fact_ids or space is not None or recorded is not None):
            raise InvalidInput(field="--all", problem="is everything; leave out what narrows it")
        with _Answers(keep=json) as answers:
            async with open_custody(settings, output) as custody, measuring(custody, output, metrics_file):
                with output.watching("asking the stores") as watch:
                    result = await custody.coordinator.verify(
                        actor=who,
                        fact_ids=fact_ids or None,
                        space=space,
                        since=recorded,
                        stores=stores or None,
                        resume=resume,
                        receipt_id=receipt_id,
                        watch=watch,
                        tell=answers,
                    )
                answering = [store for store, outcomes in result.outcomes.items() if outcomes]
                proof = await proof_of(custody, who, answering)
            _show(output, result, proof, answers)
            document = {**plain(proof), **plain(result)}
            del document["removals"]
            output.document(document, under="removals", rows=answers.rows())
        return 0 if result.complete and result.asked else 3

    return run(work, json=json)


class _Answers:
    """Takes the answers as they come: a few facts for a table, and all of them in a file for a document.

    The file has no name and is gone with the process; it holds ids, no texts.
    """

    def __init__(self, *, keep: bool) -> None:
        self.cells: dict[str, dict[str, list[Outcome]]] = {}
        """By fact and store, of one fact more than a table shows."""
        self._file: IO[str] | None = None
        if keep:
            self._file = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  # closed on exit

    def __enter__(self) -> _Answers:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def __call__(self, removal: Removal) -> None:
        if removal.fact_id in self.cells or len(self.cells) <= FEW:
            self.cells.setdefault(removal.fact_id, {}).setdefault(removal.store, []).append(removal.outcome)
        if self._file is not None:
            self._file.write(jsonlib.dumps(plain(removal)) + "\n")

    def rows(self) -> Iterator[Any]:
        """Yield what was told, in that order."""
        if self._file is not None:
            self._file.seek(0)
            for line in self._file:
                yield jsonlib.loads(line)


def _show(output: Output, result: VerifyResult, proof: Proof, answers: _Answers) -> None:
    stores = sorted({*result.outcomes})
    # Of an earlier part only what proved nothing is known fact by fact.
    if len(answers.cells) <= FEW and len(result.parts) == 1:
        output.table(
            "removed facts",
            ("fact", *stores),
            [(fact, *(_worst(row.get(s, ())) for s in stores)) for fact, row in answers.cells.items()],
        )
    else:
        output.table(
            "answers",
            ("store", "outcome", "answers"),
            [(s, outcome, n) for s in stores for outcome, n in result.outcomes[s].items()],
        )
    unproven = [r for r in result.removals if r.outcome is not Outcome.VERIFIED]
    if unproven:
        output.table(
            "not proven gone",
            ("fact", "store", "external id", "outcome", "detail"),
            [(r.fact_id, r.store, r.external_id, r.outcome.value, r.detail) for r in unproven],
        )
    if result.unnamed:
        output.note(f"{result.unnamed} more answers prove nothing and are only counted.")
    _remark(output, result)
    asked = ", ".join(proof.stores) or "no store"
    output.line(f"Asked {asked} at {format_instant(proof.time)}, by {proof.actor}.")
    output.line(f"Ledger {proof.ledger_id}, head {proof.head.seq}: {proof.head.hash}")


def _remark(output: Output, result: VerifyResult) -> None:
    for said in result.notes:
        output.note(f"{said}.")
    if len(result.parts) > 1:
        for part in result.parts:
            since, until = format_instant(part.since), format_instant(part.until)
            output.line(f"{part.asked} answers are from {since} to {until}.")
    if result.unfinished is not None:
        began = format_instant(result.unfinished)
        output.note(f"A run over the same that began at {began} was stopped; this one began anew (--resume).")
    if result.asked == 0:
        output.note("There was nothing to ask about, which proves nothing.")


def _worst(outcomes: Sequence[Outcome]) -> str:
    """Return the outcome of a store's entry that is furthest from a proof."""
    return max(outcomes, key=_BY_WEIGHT.index).value if outcomes else "-"
