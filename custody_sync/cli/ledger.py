"""`custody-sync ledger verify` and `ledger head`: is the ledger whole, and the line that proves it later."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Iterator
from dataclasses import replace
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer

from custody_sync import rawfiles
from custody_sync.cli.options import ConfigOption, JsonOption, LedgerOption
from custody_sync.cli.output import Output, plain
from custody_sync.cli.sentences import outside
from custody_sync.cli.session import open_ledger, run
from custody_sync.errors import InvalidInput, LedgerBroken
from custody_sync.ledger import Ledger
from custody_sync.ledger.verifying import Verification, of_broken
from custody_sync.ledger.witness import head_line, read_head
from custody_sync.model import Head
from custody_sync.settings import load_settings


def verify_ledger(
    head: Annotated[
        str | None,
        typer.Option(
            "--head", metavar="FILE", help="Heads kept elsewhere, one a line, as `ledger head` prints."
        ),
    ] = None,
    log_only: Annotated[
        bool, typer.Option("--log-only", help="Do not replay the log to compare what is answered from it.")
    ] = False,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
    json: JsonOption = False,
) -> int:
    """Check that the ledger was not changed.

    It is intact if every event is what its hash says and follows the one before it; complete if it
    has all that the witness and the heads of --head have seen; consistent if its answers are those
    that a replay of its log gives. Exits with 1 for a finding, and with 3 if something was not checked
    or the ledger is empty.
    """

    async def work(output: Output) -> int:
        settings = load_settings(config, ledger)
        witness: Path | None = None
        kept = [] if head is None else list(_heads(head))
        try:
            async with open_ledger(settings, read_only=True) as opened:
                foreign = await _foreign(opened, head, kept)
                with output.working("checking the ledger"):
                    result = await opened.verify([found for _, found in kept], replay=not log_only)
                witness, name = opened.witness.path, opened.name
        except LedgerBroken as error:
            # Of a log of lines nothing can be asked: opening it is what finds the place.
            foreign, name, result = None, error.fields["name"], of_broken(error)
        if foreign is not None:
            result = replace(result, complete=False, missing=foreign)
        _show(output, name, result)
        document = {
            **plain(result),
            "events": result.events,
            "witness": None if witness is None else str(witness),
        }
        output.document({**document, "passed": result.passed})
        return 0 if result.passed else 1 if result.found else 3

    return run(work, json=json)


async def _foreign(opened: Ledger, path: str | None, kept: list[tuple[str, Head]]) -> str | None:
    """Return what is wrong where a head of another ledger stands in this log."""
    said: str | None = None
    for whose, found in kept:
        if whose == opened.ledger_id:
            continue
        if not await opened.has(found):
            raise InvalidInput(field="--head", problem=f"{path} has a head of another ledger, {whose}")
        said = f"event {found.seq} is of the ledger {whose}: this is a copy of it, or its id was changed"
    return said


def _heads(path: str) -> Iterator[tuple[str, Head]]:
    try:
        with rawfiles.opened(path) as raw, TextIOWrapper(raw, "utf-8") as file:
            text = file.read()
    except OSError as error:
        raise outside(error) from None
    except UnicodeDecodeError:
        raise InvalidInput(field="--head", problem=f"{path} is no text") from None
    for document in _documents(path, text):
        try:
            whose, found = read_head(document)
        except ValueError:
            raise InvalidInput(field="--head", problem=f"{path} has a line that is no head") from None
        if whose is None:
            problem = f"{path} has a head that does not say of which ledger it is (ledger_id)"
            raise InvalidInput(field="--head", problem=problem)
        yield whose, found


def _documents(path: str, text: str) -> list[Any]:
    try:
        return [jsonlib.loads(text)]
    except (ValueError, RecursionError):
        pass
    try:
        found = [jsonlib.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError):
        found = []
    if not found:
        raise InvalidInput(field="--head", problem=f"{path} has no head in it")
    return found


_SAID = {True: "yes", False: "no", None: "not checked"}


def _show(output: Output, name: str, result: Verification) -> None:
    erased = ", ".join(f"{count} {section}" for section, count in sorted(result.erased.items()))
    output.pairs(
        [
            ("ledger", name),
            ("id", result.ledger_id),
            ("events", result.events),
            ("head", f"{result.head.seq}: {result.head.hash}"),
            ("erased sections", erased),
            ("intact", _SAID[result.intact]),
            ("complete", _SAID[result.complete]),
            ("consistent", _SAID[result.consistent]),
        ]
    )
    if result.problem is not None:
        output.line(f"Event {result.first_bad}: {result.problem}.")
    if result.missing is not None:
        output.line(f"Not complete: {result.missing}.")
    if result.inconsistent:
        output.line("These answers do not follow from the log (fact id and what of it):")
        for row in result.inconsistent:
            output.line(f"  {row}")
    for what in result.not_checked:
        output.note(f"Not checked: {what}.")


def head_of_ledger(
    accept: Annotated[
        bool,
        typer.Option(
            "--accept", help="Let the witness begin anew here, after a backup was put back on purpose."
        ),
    ] = False,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
    json: JsonOption = False,
) -> int:
    """Print the last event's place and hash as one line to keep elsewhere.

    Whoever keeps such a line can show later that nothing up to it was changed or lost, with
    `ledger verify --head`. Lines may be collected in one file.
    """

    async def work(output: Output) -> int:
        settings = load_settings(config, ledger)
        async with open_ledger(settings, read_only=True) as opened:
            head = await opened.head()
            if accept:
                path = await opened.witness.accept(head)
                output.note(f"The witness {path} now stands at event {head.seq}.")
            line = head_line(opened.ledger_id, head)
        # Not for people: the line has to be the same whatever the terminal is.
        output.raw(line)
        output.document(jsonlib.loads(line))
        return 0

    return run(work, json=json)
