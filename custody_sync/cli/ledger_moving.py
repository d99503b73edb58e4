"""`custody-sync ledger export`, `import` and `copy`: a ledger as a file, and a ledger in another place."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Annotated

import typer

from custody_sync import rawfiles
from custody_sync.cli.options import ConfigOption, JsonOption, LedgerOption
from custody_sync.cli.output import Output, plain
from custody_sync.cli.problems import UsageProblem
from custody_sync.cli.sentences import outside
from custody_sync.cli.session import open_ledger, run
from custody_sync.ledger import Ledger
from custody_sync.ledger.exporting import export_file, export_lines
from custody_sync.ledger.moving import (
    FileSource,
    LedgerSource,
    Moved,
    move,
    take_over,
)
from custody_sync.ledger.storage import Identity
from custody_sync.runtime import Runtime
from custody_sync.settings import load_settings, resolve_ledger

EXPORT = "custody-sync ledger export"
"""What a usage error of it points at."""


def export_ledger(
    url: Annotated[str | None, typer.Argument(metavar="URL", show_default=False)] = None,
    to: Annotated[
        str,
        typer.Option("--to", metavar="FILE", help="Where to write it; - is stdout, and then --json is not."),
    ] = "-",
    force: Annotated[
        bool, typer.Option("--force", help="Replace FILE if it is there; never a file of the ledger itself.")
    ] = False,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
    json: JsonOption = False,
) -> int:
    """Write the whole log as a file, one line per event.

    Without URL it is the ledger that --ledger or the settings name. The file is a JSONL ledger: it can
    be checked, imported and opened as one. It holds every value that was not erased before it was done.
    """

    async def work(output: Output) -> int:
        if to == "-" and json:
            raise UsageProblem(
                problem="The export itself goes to stdout; with --json, --to has to name a file.",
                command=EXPORT,
            )
        settings = load_settings(config, ledger if url is None else url)
        async with open_ledger(settings, read_only=True) as opened:
            if to == "-":
                with output.working("exporting") as done:
                    async for line in export_lines(opened, lambda _: done()):
                        sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()
                return 0
            path = Path(to)
            _check_place(path, opened.files, force=force)
            with _whole(path) as file, output.working(f"exporting to {path.name}") as done:
                await export_file(opened, file, lambda _: done())
            head = await opened.head()
        output.line(f"Wrote {path}.")
        output.document({"ledger_id": opened.ledger_id, "file": str(path), "head": plain(head)})
        return 0

    return run(work, json=json)


def _check_place(path: Path, files: Sequence[Path], *, force: bool) -> None:
    """Refuse to replace what the ledger is in, and anything else unless that was asked for."""
    for file in files:
        if os.path.realpath(path) == str(file) or (path.exists() and file.exists() and path.samefile(file)):
            raise UsageProblem(
                problem=f"{path} is a file of the ledger itself; export it to another one.", command=EXPORT
            )
    if path.exists() and not path.is_file():
        # To replace a device or a pipe would take it from everybody else.
        raise UsageProblem(problem=f"{path} is no regular file.", command=EXPORT)
    if os.path.lexists(path) and not force:
        raise UsageProblem(problem=f"{path} is there already; --force replaces it.", command=EXPORT)


@contextlib.contextmanager
def _whole(path: Path) -> Iterator[IO[bytes]]:
    """Write a file beside its place and rename it, so that a half of one never has its name."""
    try:
        handle, fresh = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise outside(error) from None
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(fresh)
        raise


def import_ledger(
    file: Annotated[str, typer.Argument(metavar="FILE", show_default=False)],
    same: Annotated[
        bool, typer.Option("--move", help="Keep the ledger id: the ledger that was exported is used no more.")
    ] = False,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
    json: JsonOption = False,
) -> int:
    """Make a ledger of an exported one.

    The ledger is made if it is missing. If it has the first of the file's events already, the rest is
    appended: an import that was interrupted is continued by running it again. A copy gets an id of its
    own, so the entries that stores hold stay those of the other ledger.
    """

    async def work(output: Output) -> int:
        settings = load_settings(config, ledger, missing_ok=True)
        with _opened(file) as lines:
            source = FileSource(file, lines)
            identity = Identity(source.ledger_id, Runtime().ids.secret(32)) if same else None
            url = settings.ledger_url()
            async with _target(url, identity) as target:
                with output.working("importing") as done:
                    result = await take_over(source, target, lambda _: done())
                name = target.name
        return _told(output, name, result)

    return run(work, json=json)


@contextlib.contextmanager
def _opened(file: str) -> Iterator[IO[bytes]]:
    if file == "-":
        yield sys.stdin.buffer
        return
    with rawfiles.opened(file) as raw:
        yield raw


@asynccontextmanager
async def _target(url: str, identity: Identity | None) -> AsyncIterator[Ledger]:
    async with await Ledger.open(url, create=True, identity=identity) as target:
        yield target


def copy_ledger(
    source: Annotated[str, typer.Argument(metavar="FROM-URL", show_default=False)],
    target: Annotated[str, typer.Argument(metavar="TO-URL", show_default=False)],
    same: Annotated[
        bool,
        typer.Option(
            "--move", help="Go on in the new place under the same id; the old one takes nothing more."
        ),
    ] = False,
    json: JsonOption = False,
) -> int:
    """Copy a ledger into a new one, of any storage.

    A copy gets an id of its own: stores' entries belong to the old ledger, and a repair with the copy
    leaves them alone. With --move the new ledger is the old one in another place, and the old one
    refuses further events; it still has every value, so delete it once the new place is in use. An
    interrupted copy is continued by running it again; until a move is complete neither place takes events.
    """

    async def work(output: Output) -> int:
        here = Path.cwd()
        urls = resolve_ledger(source, here), resolve_ledger(target, here)
        if urls[0] == urls[1]:
            raise UsageProblem(problem="The two ledgers are one.", command="custody-sync ledger copy")
        async with await Ledger.open(urls[0], read_only=not same) as old:
            async with _target(urls[1], old.identity if same else None) as new:
                with output.working("moving" if same else "copying") as done:
                    if same:
                        result = await move(old, new, new.name, lambda _: done())
                    else:
                        result = await take_over(LedgerSource(old), new, lambda _: done())
                name = new.name
            if same:
                output.note(f"{old.name} refuses further events; name the new place in custody.toml.")
                for sentence in result.remains:
                    output.note(f"{sentence}.")
        return _told(output, name, result)

    return run(work, json=json)


def _told(output: Output, name: str, result: Moved) -> int:
    output.line(
        f"Ledger {name} with id {result.ledger_id} has {result.head.seq} events, {result.added} of them new."
    )
    output.line(f"Head {result.head.seq}: {result.head.hash}")
    output.document({"ledger": name, **plain(result)})
    return 0
