"""`custody-sync import`: write the facts of a file, a line each, safely more than once."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from custody_sync.cli.lines import Identity, Line, read_lines
from custody_sync.cli.options import ActorOption, ConfigOption, JsonOption, LedgerOption, provenance
from custody_sync.cli.output import Output
from custody_sync.cli.sentences import ended, sentence, told
from custody_sync.cli.session import open_custody, run
from custody_sync.coordinator import AsyncCoordinator
from custody_sync.errors import CustodyError, Forgotten, IdempotencyConflict, InvalidInput, LedgerError
from custody_sync.model import Provenance
from custody_sync.rawfiles import opened
from custody_sync.settings import load_settings

AT_ONCE = 32
SHOWN = 20
"""More failures than these are counted for people and listed only in the JSON document."""


@dataclass(frozen=True, slots=True)
class Written:
    """As much of a line's result as is told at the end: a file may have a hundred thousand lines."""

    fact_id: str
    duplicate: bool
    complete: bool


@dataclass(slots=True)
class Imported:
    """What became of a file's lines so far."""

    results: dict[int, Written] = field(default_factory=dict)
    failures: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Code, sentence and fields of each line's error, by the line's number."""
    ledger_gone: LedgerError | None = None

    @property
    def duplicates(self) -> int:
        """How many lines had been written before."""
        return sum(result.duplicate for result in self.results.values())

    @property
    def written(self) -> int:
        """How many lines became facts now."""
        return len(self.results) - self.duplicates

    @property
    def complete(self) -> bool:
        """True when every line is a fact and every store has caught up."""
        return not self.failures and all(result.complete for result in self.results.values())


def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="One JSON object a line; - is stdin.")],
    level: Annotated[
        str,
        typer.Option(
            "--provenance",
            metavar="LEVEL",
            help="How far the file is trusted: claimed or attested.",
        ),
    ] = Provenance.CLAIMED.value,
    actor: ActorOption = None,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
    json: JsonOption = False,
) -> int:
    """Write the facts of a file, one a line.

    A line is a JSON object with the arguments of `write` as its fields. `ref` names a line
    and `supersedes_ref` the earlier line that it corrects. Every line is checked before the first
    is written. Importing a file again writes only what is not there yet; what was forgotten since
    stays forgotten, and its line is reported.
    """

    async def work(output: Output) -> int:
        settings = load_settings(config, ledger)
        trusted = provenance("--provenance", level)
        raw = read_file(file)
        lines = read_lines(raw, actor=actor if actor is not None else settings.actor, provenance=trusted)
        async with open_custody(settings, output, validating=True) as custody:
            with output.working("importing", len(lines)) as step:
                imported = await write_lines(custody.coordinator, lines, step)
        return _show(output, file, lines, imported)

    return run(work, json=json)


def read_file(file: str) -> bytes:
    """Return what a file holds; only a regular one surely ends, and only stdin may be anything else."""
    if file == "-":
        return sys.stdin.buffer.read()
    path = Path(file)
    if path.exists() and not path.is_file():
        raise InvalidInput(field="file", problem=f"{file} is not a regular file; - reads standard input")
    with opened(path) as whole:
        return whole.read()


async def write_lines(
    custody: AsyncCoordinator, lines: Sequence[Line], step: Callable[[], None] = lambda: None
) -> Imported:
    """Write checked lines, several at once; a correction waits for the line that it corrects.

    A line that fails does not stop the others, but a ledger that cannot be used does.
    """
    imported = Imported()
    settled = {line.number: asyncio.Event() for line in lines}
    waiting = iter(lines)

    async def work_off() -> None:
        # Lines are taken in the file's order, so the line that a correction waits for is already in
        # another worker's hands, and the workers cannot all be waiting.
        for line in waiting:
            if line.corrects is not None:
                await settled[line.corrects].wait()
            if imported.ledger_gone is None:
                await _write_line(custody, line, imported)
            settled[line.number].set()
            step()

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work_off())
    return imported


async def _write_line(custody: AsyncCoordinator, line: Line, imported: Imported) -> None:
    arguments: dict[str, Any] = dict(line.arguments)
    if line.corrects is not None:
        target = imported.results.get(line.corrects)
        if target is None:
            message = f"line {line.corrects}, which it supersedes, was not written"
            imported.failures[line.number] = {"code": "target_failed", "message": message}
            return
        arguments["supersedes"] = target.fact_id
    try:
        result = await custody.write(**arguments)
        imported.results[line.number] = Written(result.fact.fact_id, result.duplicate, result.complete)
    except LedgerError as error:
        imported.ledger_gone = error
        imported.failures[line.number] = told(error)
    except CustodyError as error:
        imported.failures[line.number] = {**told(error), "message": _about(line, error)}


def _about(line: Line, error: CustodyError) -> str:
    """Word a line's error in terms of the file: whoever wrote it knows refs, not idempotency keys."""
    if isinstance(error, Forgotten):
        return f"{sentence(error)} The line was not written again; take it out of the file."
    if isinstance(error, InvalidInput):
        # What is wrong is a field of the line, not an option.
        return ended(str(error))
    if not isinstance(error, IdempotencyConflict) or line.identity is Identity.KEY:
        return sentence(error)
    if line.identity is Identity.REF:
        space = line.arguments["space"]
        return f"ref {line.ref!r} was used before in space {space!r}, for something else; give it a new ref."
    return "The same line was imported before, by another actor or with another --provenance."


def _show(output: Output, file: str, lines: Sequence[Line], imported: Imported) -> int:
    untried = len(lines) - len(imported.results) - len(imported.failures)
    output.line(
        f"{imported.written} written, {imported.duplicates} there before, {len(imported.failures)} failed"
        + (f", {untried} not tried" if untried else "")
        + "."
    )
    failures = sorted(imported.failures.items())
    for number, problem in failures[:SHOWN]:
        output.note(f"line {number}: {problem['message']}")
    if len(failures) > SHOWN:
        output.note(f"... and {len(failures) - SHOWN} more; --json lists all.")
    refs = {line.number: line.ref for line in lines}
    output.document(
        {
            "file": file,
            "lines": len(lines),
            "written": imported.written,
            "duplicates": imported.duplicates,
            "failed": len(imported.failures),
            "untried": untried,
            "complete": imported.complete and not untried,
            "failures": [{"line": number, "ref": refs[number], **problem} for number, problem in failures],
            "facts": [
                {"line": number, "ref": refs[number], "fact_id": result.fact_id}
                for number, result in sorted(imported.results.items())
            ],
        }
    )
    if imported.ledger_gone is not None:
        return imported.ledger_gone.exit_code
    return 0 if imported.complete else 3
