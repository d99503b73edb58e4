"""`custody-sync expire`: forget the facts that are older than their space keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from custody_sync.canonical import check_optional
from custody_sync.cli.erasing import (
    DONE,
    FINDING,
    REFUSED,
    agreed,
    check_asked,
    document_of,
    erase_many,
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
    OptionalReason,
    ReceiptOption,
    YesOption,
    actor_of,
    instant,
)
from custody_sync.cli.output import Output, plain
from custody_sync.cli.session import open_custody, proof_of, run
from custody_sync.errors import InvalidInput
from custody_sync.model import format_instant
from custody_sync.results import Fate
from custody_sync.retention import AGES, read_windows
from custody_sync.settings import Settings, load_settings


def expire(
    before: Annotated[
        str | None,
        typer.Option(
            "--before", metavar="INSTANT", help="Older than this; with --space, or with --all-spaces."
        ),
    ] = None,
    window: Annotated[
        list[str] | None,
        typer.Option(
            "--window",
            metavar="PATTERN=DURATION",
            help="How long spaces keep facts, as org=P90D or 'team:*=P1Y'; may be repeated.",
        ),
    ] = None,
    space: Annotated[str | None, typer.Option("--space", metavar="SPACE", help="Only this space.")] = None,
    all_spaces: Annotated[
        bool, typer.Option("--all-spaces", help="--before is meant for every space.")
    ] = False,
    age_from: Annotated[
        str,
        typer.Option(
            "--age-from", metavar="WHEN", help="learned, or superseded: only what was replaced, from then on."
        ),
    ] = "learned",
    reason: OptionalReason = None,
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
    """Forget what is too old.

    Without --before and --window, the windows of [retention] in custody.toml apply. The space itself
    beats a longer prefix, which beats a shorter one; a space without a window keeps everything. What
    a hold keeps stays and is named. What will be erased is shown first; on a terminal you are asked,
    anywhere else, and with --json, --yes is needed.
    """
    _check_scope(before, window, space, all_spaces, age_from)
    settings = load_settings(config, ledger)
    check_asked(Output(json=json), yes=yes, dry_run=dry_run)
    asked: dict[str, Any] = {
        "actor": actor_of(actor, settings),
        "reason": reason,
        "before": instant("--before", before),
        "windows": _windows(window, before, settings),
        "space": space,
        "all_spaces": all_spaces,
        "age_from": age_from,
        "identity": identity,
        "digest": digest,
        "receipt_id": receipt_id,
    }

    async def plan(output: Output) -> int:
        async with open_custody(settings, output) as custody:
            with output.working("looking"):
                result = await custody.coordinator.expire(**asked, dry_run=True)
            cutoffs = [(pattern, format_instant(cutoff)) for pattern, cutoff in result.cutoffs.items()]
            output.preview(f"{age_from} before", ("spaces", "instant"), cutoffs)
            planned = await preview_fates(custody.ledger, result.facts, output)
            proof = await proof_of(custody, asked["actor"])
        windows = asked["windows"]
        if windows and space is not None and read_windows(windows).pattern_of(space) is None:
            output.note(f"No window is meant for the space {space!r}, so all of it is kept.")
        if dry_run:
            output.document({**plain(proof), **plain(result), **document_of(result), "planned": planned})
        return len(result.with_fate(Fate.PLANNED))

    async def erase(output: Output) -> int:
        async with open_custody(settings, output, again=True) as custody:
            result = await erase_many(
                output, count, lambda progress: custody.coordinator.expire(**asked, progress=progress)
            )
            proof = await proof_of(custody, asked["actor"])
        show_fates(output, result)
        output.document({**plain(proof), **plain(result), **document_of(result)})
        return DONE if result.complete else status_of(result)

    count = run(plan, json=json)
    if dry_run:
        return FINDING if count else DONE
    if count and not yes and not agreed(Output(json=json), count):
        Output(json=json).note("Nothing was erased.")
        return REFUSED
    return run(erase, json=json)


def _check_scope(
    before: str | None, window: Sequence[str] | None, space: str | None, all_spaces: bool, age_from: str
) -> None:
    """Refuse what does not go together in the terms of a shell: the library would name its arguments."""
    check_optional(space, "--space")
    if age_from not in AGES:
        raise InvalidInput(field="--age-from", problem="must be learned or superseded")
    if before is None:
        if all_spaces:
            raise InvalidInput(field="--all-spaces", problem="goes with --before; windows name their spaces")
        return
    if window:
        raise InvalidInput(field="--before", problem="does not go with --window; give one of them")
    if (space is not None) == all_spaces:
        problem = "needs --space, or --all-spaces to mean every one; not both"
        raise InvalidInput(field="--before", problem=problem)


def _windows(given: Sequence[str] | None, before: str | None, settings: Settings) -> dict[str, str] | None:
    """Return the windows of the options, else of the settings; None where a date was given instead."""
    windows: dict[str, str] = {}
    for one in given or ():
        pattern, separator, duration = one.rpartition("=")
        if not separator or pattern in windows:
            problem = "is given twice" if pattern in windows else "is not of the form PATTERN=DURATION"
            raise InvalidInput(field="--window", problem=f"{one!r} {problem}")
        windows[pattern] = duration
    if windows or before is not None:
        return windows or None
    if not settings.retention:
        problem = "give --before or --window, or a [retention] table in custody.toml"
        raise InvalidInput(field="expire", problem=problem)
    return dict(settings.retention)
