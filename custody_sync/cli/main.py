"""The entry point of `custody-sync`: its commands, and how every error becomes one sentence and a status.

Exit codes: 0 done, 1 a finding, 2 usage or configuration, 3 partial, 4 refused, 5 ledger
unavailable, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any

import typer

from custody_sync.cli.adopt import adopt
from custody_sync.cli.backfill import backfill
from custody_sync.cli.confirm import confirm
from custody_sync.cli.contract import contract
from custody_sync.cli.demo import demo
from custody_sync.cli.expire import expire
from custody_sync.cli.forget import forget
from custody_sync.cli.history import history
from custody_sync.cli.hold import hold, release
from custody_sync.cli.importing import import_
from custody_sync.cli.init import init
from custody_sync.cli.journal import is_wanted, journal
from custody_sync.cli.ledger import head_of_ledger, verify_ledger
from custody_sync.cli.ledger_moving import copy_ledger, export_ledger, import_ledger
from custody_sync.cli.output import Output, abandon, prepare_streams
from custody_sync.cli.problems import Interrupted, OutsideProblem, UnexpectedProblem, UsageProblem
from custody_sync.cli.read import read
from custody_sync.cli.reconcile import reconcile
from custody_sync.cli.repair import repair
from custody_sync.cli.retract import retract
from custody_sync.cli.sentences import ended, keeping_passwords, outside
from custody_sync.cli.status import status
from custody_sync.cli.stores import stores
from custody_sync.cli.verify import verify
from custody_sync.cli.where import where
from custody_sync.cli.write import write
from custody_sync.errors import CustodyError

COMMANDS: dict[str, Callable[..., int]] = {
    "init": init,
    "write": write,
    "import": import_,
    "read": read,
    "history": history,
    "where": where,
    "confirm": confirm,
    "retract": retract,
    "hold": hold,
    "release": release,
    "forget": forget,
    "expire": expire,
    "adopt": adopt,
    "backfill": backfill,
    "repair": repair,
    "reconcile": reconcile,
    "verify": verify,
    "status": status,
    "stores": stores,
    "contract": contract,
    "demo": demo,
}

GROUPS: dict[str, dict[str, Callable[..., int]]] = {
    "ledger": {
        "verify": verify_ledger,
        "head": head_of_ledger,
        "export": export_ledger,
        "import": import_ledger,
        "copy": copy_ledger,
    },
}
_ABOUT = {"ledger": "Check the ledger itself, and move it."}

# Markup stays off: it would eat the brackets of custody-sync[mem0] out of a help text.
app = typer.Typer(
    name="custody-sync",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _name, _command in COMMANDS.items():
    app.command(_name)(_command)
for _noun, _commands in GROUPS.items():
    _group = typer.Typer(rich_markup_mode=None, no_args_is_help=True)
    for _name, _command in _commands.items():
        _group.command(_name)(_command)
    app.add_typer(_group, name=_noun, help=_ABOUT[_noun])


@app.callback(invoke_without_command=True)
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


def main() -> None:
    """Run the command line of this process and exit with its status."""
    sys.exit(run_command(sys.argv[1:]))


def run_command(args: Sequence[str]) -> int:
    """Run one command line and return its status; no exception and no traceback gets out."""
    try:
        wanted = is_wanted(args)
    except CustodyError as error:
        return _failed(error, args)
    command = _named(args)
    with journal.of(command, wanted), keeping_passwords(args):
        status = _run_command(args)
        journal.ended(command, status)
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
        status: Any = app(args=list(args), prog_name="custody-sync", standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        return _failed(Interrupted(), args)
    except Exception as error:
        return _failed(_as_custody_error(error), args)
    if status == Interrupted.exit_code:
        return _failed(Interrupted(), args)
    return status if isinstance(status, int) else 0


def _failed(error: CustodyError, args: Sequence[str]) -> int:
    journal.failed(error)
    # A full disk may refuse the report as well; the status is then all there is to say.
    with contextlib.suppress(OSError, OutsideProblem):
        Output(json="--json" in args).error(error, args)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            abandon(stream)
    return error.exit_code


def _as_custody_error(error: Exception) -> CustodyError:
    if isinstance(error, CustodyError):
        return error
    told = getattr(error, "format_message", None)
    if callable(told):
        command = getattr(getattr(error, "ctx", None), "command_path", "custody-sync")
        # As it is declared: what was typed may be anything.
        options = getattr(getattr(error, "param", None), "opts", None)
        named = {"field": str(options[0])} if options else {}
        return UsageProblem(problem=ended(str(told())), command=command, **named)
    if isinstance(error, OSError):
        return outside(error)
    if isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
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
