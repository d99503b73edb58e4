"""`custody-sync forget`: erase facts for good, from every store and from the ledger's own files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from custody_sync.canonical import check_name, check_optional
from custody_sync.cli.erasing import (
    DONE,
    FINDING,
    NOTHING_KNOWN,
    PARTIAL,
    REFUSED,
    agreed,
    check_asked,
    document_of,
    erase_many,
    fate_of,
    known_fact,
    preview_fates,
    show_fates,
    status_of,
)
from custody_sync.cli.options import (
    ActorOption,
    ConfigOption,
    DigestOption,
    IdentityOption,
    JsonOption,
    LedgerOption,
    ReasonOption,
    ReceiptOption,
    YesOption,
    actor_of,
)
from custody_sync.cli.output import Output, plain
from custody_sync.cli.sentences import sentence, told
from custody_sync.cli.session import Proof, open_custody, open_ledger, proof_of, run
from custody_sync.coordinator import AsyncCoordinator
from custody_sync.errors import CustodyError, InvalidInput, LedgerError
from custody_sync.model import Erasure
from custody_sync.recording import check_place
from custody_sync.results import FactFate, Fate, ForgetResult, ForgetWhereResult, Seen
from custody_sync.settings import Settings, load_settings


def forget(
    reason: ReasonOption,
    fact_ids: Annotated[list[str] | None, typer.Argument(metavar="FACT_ID", show_default=False)] = None,
    space: Annotated[
        str | None, typer.Option("--space", metavar="SPACE", help="Every fact of this space, instead of ids.")
    ] = None,
    subject: Annotated[
        str | None, typer.Option("--subject", metavar="SUBJECT", help="Of the space, only this subject.")
    ] = None,
    actor: ActorOption = None,
    digest: DigestOption = None,
    identity: IdentityOption = False,
    yes: YesOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be erased; exit with 1 if there is anything.")
    ] = False,
    receipt_id: ReceiptOption = None,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
    json: JsonOption = False,
) -> int:
    """Erase facts for good, everywhere.

    The value leaves every store and the ledger's files; that it was erased stays on record. What will
    be erased is shown first. On a terminal you are asked; anywhere else, and with --json, --yes is
    needed. With --space all facts of the space go, whatever their state, and the answer is one
    certificate over all of them; it exits with 0 only if nothing is left.
    """
    _check_what(fact_ids, space, subject)
    settings = load_settings(config, ledger)
    check_asked(Output(json=json), yes=yes, dry_run=dry_run)
    how: dict[str, Any] = {
        "actor": actor_of(actor, settings),
        "reason": reason,
        "digest": digest,
        "identity": identity,
        "receipt_id": receipt_id,
    }
    if space is not None:
        return _forget_where(settings, {"space": space, "subject": subject} | how, yes, dry_run, json)
    return _forget_each(settings, fact_ids or [], how, yes, dry_run, json)


def _check_what(fact_ids: Sequence[str] | None, space: str | None, subject: str | None) -> None:
    if bool(fact_ids) == (space is not None):
        raise InvalidInput(field="forget", problem="give either fact ids or --space, not both or neither")
    if space is not None:
        # A blank space never means all of them.
        check_name(space, "--space")
    elif subject is not None:
        raise InvalidInput(field="--subject", problem="needs the --space that it is in")
    check_optional(subject, "--subject")


# --- a whole space ----------------------------------------------------------------------------


def _forget_where(settings: Settings, asked: dict[str, Any], yes: bool, dry_run: bool, json: bool) -> int:
    async def plan(output: Output) -> tuple[int, int]:
        async with open_custody(settings, output) as custody:
            with output.working("looking"):
                result = await custody.coordinator.forget_where(**asked, dry_run=True)
            planned = await preview_fates(custody.ledger, result.facts, output)
            known = await custody.ledger.accounts(space=asked["space"], subject=asked["subject"], limit=1)
            proof = await proof_of(custody, asked["actor"])
        count = len(result.with_fate(Fate.PLANNED))
        if dry_run:
            _show_entries(output, result)
            if not known:
                output.line(f"{NOTHING_KNOWN.capitalize()}.")
            document = {**plain(proof), **plain(result), **document_of(result), "planned": planned}
            output.document(document)
        return count, _status_of_plan(result, known=bool(known))

    async def erase(output: Output) -> int:
        async with open_custody(settings, output, again=True) as custody:
            result = await erase_many(
                output,
                count,
                lambda progress: custody.coordinator.forget_where(**asked, progress=progress),
            )
            proof = await proof_of(custody, asked["actor"])
        return _show_certificate(output, result, proof)

    count, finding = run(plan, json=json)
    if dry_run:
        return finding
    if count and not yes and not agreed(Output(json=json), count):
        Output(json=json).note("Nothing was erased.")
        return REFUSED
    return run(erase, json=json)


def _status_of_plan(result: ForgetWhereResult, *, known: bool) -> int:
    """Return 1 where there is something to do; else the status that the run itself would have."""
    if result.with_fate(Fate.PLANNED) or result.leftovers or result.young:
        return FINDING
    if result.facts:
        return REFUSED
    return DONE if known else PARTIAL


def _show_certificate(output: Output, result: ForgetWhereResult, proof: Proof) -> int:
    show_fates(output, result)
    _show_entries(output, result)
    for line in result.not_reached:
        output.line(f"Not reached: {line}.")
    if result.later:
        output.line(f"Stated meanwhile, so run it again: {', '.join(result.later)}.")
    if not result.facts:
        output.line(f"{NOTHING_KNOWN.capitalize()}.")
    for line in result.beyond:
        output.note(line)
    output.document({**plain(proof), **plain(result), **document_of(result)})
    return status_of(result)


def _show_entries(output: Output, result: ForgetWhereResult) -> None:
    """Name what the stores hold in the space that no fact accounts for."""
    what = (
        (result.young, "young, perhaps of a write under way; run it again after ten minutes"),
        (result.leftovers, "not accounted for; run repair"),
    )
    rows = [(*_cells(seen), said) for entries, said in what for seen in entries]
    if rows:
        output.table("also in the stores", ("store", "external id", "fact", "what it is"), rows)


def _cells(seen: Seen) -> tuple[str, str, str]:
    return seen.store, seen.external_id, seen.fact_id


# --- facts by id ------------------------------------------------------------------------------


def _forget_each(
    settings: Settings, fact_ids: Sequence[str], how: dict[str, Any], yes: bool, dry_run: bool, json: bool
) -> int:
    async def plan(output: Output) -> list[FactFate]:
        async with open_ledger(settings, read_only=True) as opened:
            await check_place(opened)
            facts = [await known_fact(opened, fact_id) for fact_id in dict.fromkeys(fact_ids)]
            fates = [await fate_of(opened, fact) for fact in facts]
            planned = await preview_fates(opened, fates, output)
        if dry_run:
            held = [fate for fate in fates if fate.fate is Fate.HELD]
            output.document({"planned": planned, "held": [_held(fate) for fate in held]})
        return fates

    async def erase(output: Output) -> int:
        async with open_custody(settings, output) as custody:
            with output.working("erasing", len(known)) as step:
                results, failures = await _erase(custody.coordinator, known, step, **how)
            proof = await proof_of(custody, how["actor"])
        return _show(output, results, failures, proof)

    fates = run(plan, json=json)
    known = [fate.fact_id for fate in fates]
    count = sum(fate.fate is Fate.PLANNED for fate in fates)
    if dry_run:
        return FINDING if count else REFUSED
    # Asked between two event loops: inside one, Ctrl-C would have to be pressed twice.
    if count and not yes and not agreed(Output(json=json), count):
        Output(json=json).note("Nothing was erased.")
        return REFUSED
    return run(erase, json=json)


def _held(fate: FactFate) -> dict[str, object]:
    return {"fact_id": fate.fact_id, "space": fate.space, "holds": list(fate.holds)}


async def _erase(
    custody: AsyncCoordinator, fact_ids: Sequence[str], step: Callable[[], None], **how: Any
) -> tuple[list[ForgetResult], list[CustodyError]]:
    """Erase one after the other; a refusal does not stop the rest, a ledger that is gone does."""
    results: list[ForgetResult] = []
    failures: list[CustodyError] = []
    for fact_id in fact_ids:
        try:
            results.append(await custody.forget(fact_id, **how))
        except LedgerError:
            raise
        except CustodyError as error:
            failures.append(error)
        step()
    return results, failures


def _show(
    output: Output,
    results: Sequence[ForgetResult],
    failures: Sequence[CustodyError],
    proof: Proof,
) -> int:
    for result in results:
        output.line(f"Forgot {result.fact_id}; erasure from the ledger's files: {result.erasure.value}.")
        output.follow_up(result.removals, result.restored)
        if result.erasure is Erasure.PENDING:
            output.note(
                "A reader keeps the erased value in the ledger's files; `custody-sync repair` finishes it."
            )
    for note in dict.fromkeys(note for result in results for note in result.notes):
        output.note(note)
    for failure in failures:
        output.note(sentence(failure))
    complete = not failures and all(result.complete for result in results)
    output.document(
        {
            **plain(proof),
            "forgotten": list(results),
            "failed": [{**told(failure), "exit_code": failure.exit_code} for failure in failures],
            "complete": complete,
        }
    )
    if failures and not results:
        return failures[0].exit_code
    return DONE if complete else PARTIAL
