"""The entry point of `custody-sync`: its commands, and how every error becomes one sentence and a status.

Exit codes: 0 done, 1 a finding, 2 usage or configuration, 3 partial, 4 refused, 5 ledger
unavailable, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any

import typer

from custody_sync.cli.journal import is_wanted, journal
from custody_sync.cli.output import Output, abandon, prepare_streams
from custody_sync.cli.problems import Interrupted, UnexpectedProblem, UsageProblem
from custody_sync.cli.sentences import ended, outside, speaking_of
from custody_sync.errors import CustodyError

COMMANDS: Mapping[str, str] = {
    "init": "init.init",
    "write": "write.write",
    "import": "importing.import_",
    "read": "read.read",
    "recall": "recall.recall",
    "card": "card.card",
    "history": "history.history",
    "where": "where.where",
    "confirm": "confirm.confirm",
    "retract": "retract.retract",
    "hold": "hold.hold",
    "release": "hold.release",
    "forget": "forget.forget",
    "expire": "expire.expire",
    "adopt": "adopt.adopt",
    "backfill": "backfill.backfill",
    "repair": "repair.repair",
    "reconcile": "reconcile.reconcile",
    "verify": "verify.verify",
    "status": "status.status",
    "stores": "stores.stores",
    "contract": "contract.contract",
    "demo": "demo.demo",
}
"""Each command's function, in a module of `custody_sync.cli` that is loaded when it is needed."""

GROUPS: Mapping[str, Mapping[str, str]] = {
    "ledger": {
        "verify": "ledger.verify_ledger",
        "head": "ledger.head_of_ledger",
        "export": "ledger_moving.export_ledger",
        "import": "ledger_moving.import_ledger",
        "copy": "ledger_moving.copy_ledger",
    },
}
_ABOUT = {"ledger": "Check the ledger itself, and move it."}


def application(named: str | None = None) -> typer.Typer:
    """Return the command line; of one that names a command no other command is loaded.

    To load them all takes several times as long as most of them run.
    """
    # Markup stays off: it would eat the brackets of custody-sync[mem0] out of a help text.
    app = typer.Typer(
        name="custody-sync",
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_root)
    is_known = named in COMMANDS or named in GROUPS
    for name, place in COMMANDS.items():
        if name == named or not is_known:
            app.command(name)(_load(place))
    for noun, commands in GROUPS.items():
        if noun == named or not is_known:
            group = typer.Typer(rich_markup_mode=None)
            group.callback(invoke_without_command=True)(_group)
            for name, place in commands.items():
                group.command(name)(_load(place))
            app.add_typer(group, name=noun, help=_ABOUT[noun])
    return app


def _load(place: str) -> Callable[..., int]:
    module, _, name = place.partition(".")
    command: Callable[..., int] = getattr(import_module(f"custody_sync.cli.{module}"), name)
    return command


def _root(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Keep a ledger of facts under the memory stores that are already there.

    Settings come from custody.toml in the current folder, or where CUSTODY_SYNC_CONFIG points.
    Exit codes: 0 done, 1 a finding, 2 usage or configuration, 3 partial, 4 refused, 5 ledger
    unavailable, 130 interrupted.
    """
    if show_version:
        sys.stdout.write(f"custody-sync {version('custody-sync')}\n")
    elif context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")


def _group(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")


def main() -> None:
    """Run the command line of this process and exit with its status."""
    sys.exit(run_command(sys.argv[1:]))


def run_command(args: Sequence[str]) -> int:
    """Run one command line and return its status; no exception and no traceback gets out.

    Only where `CUSTODY_SYNC_DEBUG` is set one does that nobody expected.
    """
    try:
        command = _named(args)
        with journal.of(command, is_wanted(args)), speaking_of(args):
            status = _run_command(args)
            journal.ended(command, status)
    except BaseException as error:
        return _failed(_as_custody_error(error), args)
    return status


def _named(args: Sequence[str]) -> str:
    """Return which command a command line names; what is none of them is not repeated."""
    words = [arg for arg in args if not arg.startswith("-")][:2]
    if words and words[0] in GROUPS and len(words) > 1 and words[1] in GROUPS[words[0]]:
        return " ".join(words)
    return words[0] if words and words[0] in (*COMMANDS, *GROUPS) else "?"


def _run_command(args: Sequence[str]) -> int:
    try:
        prepare_streams()
        status: Any = application(args[0] if args else None)(
            args=list(args), prog_name="custody-sync", standalone_mode=False
        )
        sys.stdout.flush()
    except BaseException as error:
        # Code of a factory or of a vendor may try to end the process, or cancel what is not its own.
        return _failed(_as_custody_error(error), args)
    if status == Interrupted.exit_code:
        return _failed(Interrupted(), args)
    return status if isinstance(status, int) else 0


def _failed(error: CustodyError, args: Sequence[str]) -> int:
    journal.failed(error)
    # A full disk may refuse the report as well; the status is then all there is to say.
    with contextlib.suppress(Exception):
        Output(json="--json" in args).error(error, args)
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError):
            # What was closed has no number any more.
            with contextlib.suppress(OSError, ValueError):
                abandon(stream)
    return error.exit_code


def _as_custody_error(error: BaseException) -> CustodyError:
    if isinstance(error, CustodyError):
        return error
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return Interrupted()
    told = getattr(error, "format_message", None)
    if callable(told):
        command = getattr(getattr(error, "ctx", None), "command_path", "custody-sync")
        # As it is declared: what was typed may be anything.
        options = getattr(getattr(error, "param", None), "opts", None)
        named = {"field": str(options[0])} if options else {}
        return UsageProblem(problem=ended(str(told())), command=command, **named)
    if isinstance(error, OSError):
        return outside(error)
    if isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        return _as_custody_error(error.exceptions[0])
    if os.environ.get("CUSTODY_SYNC_DEBUG"):
        raise error
    return UnexpectedProblem(type=type(error).__name__, place=_place(error.__traceback__))


def _place(trace: TracebackType | None) -> str:
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "?" if trace is None else f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"


if __name__ == "__main__":
    main()
