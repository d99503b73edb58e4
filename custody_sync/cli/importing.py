"""`custody-sync import`: write the facts of a file, a line each, safely more than once."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from custody_sync.cli.lines import Line, read_lines
from custody_sync.cli.options import ActorOption, ConfigOption, JsonOption, LedgerOption, provenance
from custody_sync.cli.output import Output
from custody_sync.cli.session import open_custody, run
from custody_sync.coordinator import AsyncCoordinator
from custody_sync.errors import CustodyError, LedgerError
from custody_sync.model import Provenance, WriteResult
from custody_sync.settings import load_settings

AT_ONCE = 8
SHOWN = 20
"""More failures than these are counted for people and listed only in the JSON document."""


@dataclass(slots=True)
class Imported:
    """What became of a file's lines so far."""

    results: dict[int, WriteResult] = field(default_factory=dict)
    failures: dict[int, CustodyError | str] = field(default_factory=dict)
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
    is written. Importing a file again writes only what is not there yet.
    """

    async def work(output: Output) -> int:
        settings = load_settings(config, ledger)
        trusted = provenance("--provenance", level)
        raw = _read(file)
        lines = read_lines(raw, actor=actor if actor is not None else settings.actor, provenance=trusted)
        async with open_custody(settings, output) as (_, custody):
            with output.working("importing", len(lines)) as step:
                imported = await write_lines(custody, lines, step)
        return _show(output, file, lines, imported)

    return run(work, json=json)


def _read(file: str) -> bytes:
    return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()


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
            imported.failures[line.number] = f"line {line.corrects}, which it supersedes, was not written"
            return
        arguments["supersedes"] = target.fact.fact_id
    try:
        imported.results[line.number] = await custody.write(**arguments)
    except LedgerError as error:
        imported.ledger_gone = error
        imported.failures[line.number] = error
    except CustodyError as error:
        imported.failures[line.number] = error


def _show(output: Output, file: str, lines: Sequence[Line], imported: Imported) -> int:
    untried = len(lines) - len(imported.results) - len(imported.failures)
    output.line(
        f"{imported.written} written, {imported.duplicates} there before, {len(imported.failures)} failed"
        + (f", {untried} not tried" if untried else "")
        + "."
    )
    failures = sorted(imported.failures.items())
    for number, problem in failures[:SHOWN]:
        output.note(f"line {number}: {problem}")
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
            "failures": [
                {"line": number, "ref": refs[number], **_told(problem)} for number, problem in failures
            ],
            "facts": [
                {"line": number, "ref": refs[number], "fact_id": result.fact.fact_id}
                for number, result in sorted(imported.results.items())
            ],
        }
    )
    if imported.ledger_gone is not None:
        return imported.ledger_gone.exit_code
    return 0 if imported.complete else 3


def _told(problem: CustodyError | str) -> dict[str, Any]:
    if isinstance(problem, str):
        return {"code": "target_failed", "message": problem}
    return problem.to_dict()
