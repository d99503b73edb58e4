"""The options that several commands share, and how their text becomes a value."""

from __future__ import annotations

import json
import re
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from custody_sync.errors import InvalidInput
from custody_sync.model import Json, Provenance, read_instant
from custody_sync.settings import CONFIG_VARIABLE, LEDGER_VARIABLE, Settings

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


class LogForm(StrEnum):
    """The forms that a log can have."""

    JSON = "json"


ConfigOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help=f"Settings to use instead of {CONFIG_VARIABLE} or ./custody.toml.",
    ),
]
LedgerOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="URL",
        help=f"Ledger to use instead of {LEDGER_VARIABLE} or the one in custody.toml; "
        "a relative path starts at the current folder.",
    ),
]
JsonOption: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout, also for an error.")
]
MetricsOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--metrics-file",
        metavar="FILE",
        help="Replace this file by metrics for Prometheus of how the ledger stands afterwards.",
    ),
]
# Only its presence counts, and is looked for before a command line is read: an error in it is logged, too.
LogOption: TypeAlias = Annotated[
    LogForm | None,
    typer.Option(
        "--log",
        metavar="json",
        help="Write a log as lines of JSON on stderr, without content, instead of sentences.",
    ),
]
ActorOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--actor", metavar="NAME", help="Who does this; otherwise the actor in custody.toml."),
]
ReasonOption: TypeAlias = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why; it is recorded in the ledger.")
]
OptionalReason: TypeAlias = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Why; it is recorded in the ledger.")
]
ReceiptOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--receipt-id", metavar="ID", help="Id of the receipt, ticket or message behind this."),
]
DigestOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--digest",
        metavar="KIND",
        help="What stays of the value: hmac-sha256 (needs forget_key_env), sha256 or none.",
    ),
]
IdentityOption: TypeAlias = Annotated[
    bool, typer.Option("--identity", help="Erase subject, predicate, space and reasons as well.")
]
YesOption: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Erase without asking.")]
StoresOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--store", metavar="NAME", help="Only this store; may be given several times."),
]
SpaceOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--space", metavar="SPACE", help="Only this space, or its beginning and a *."),
]
MaxRemovalsOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--max-removals", metavar="N", min=0, help="Allow so many removals where the breaker stops."
    ),
]
MovedOption: TypeAlias = Annotated[
    bool, typer.Option("--moved", help="This ledger swept at another place, and is the one to go on.")
]
ApplyOption: TypeAlias = Annotated[
    bool, typer.Option("--apply", help="Do it; without it, only say what would be done.")
]
FactArgument: TypeAlias = Annotated[str, typer.Argument(metavar="FACT_ID", show_default=False)]


def instant(option: str, raw: str | None) -> datetime | None:
    """Read an instant that carries its offset, or a date, which is its midnight in UTC.

    A time without an offset is refused, never guessed at.
    """
    if raw is None:
        return None
    parsed = read_instant(f"{raw}T00:00:00Z" if _DATE.fullmatch(raw) else raw)
    if parsed is None:
        problem = f"{raw!r} is neither an instant such as 2026-01-31T12:00:00Z nor a date such as 2026-01-31"
        raise InvalidInput(field=option, problem=problem)
    return parsed


def actor_of(actor: str | None, settings: Settings) -> str:
    """Return who acts: the option, else the settings; nobody is an error, since custody is about who."""
    named = actor if actor is not None else settings.actor
    if named is None:
        raise InvalidInput(field="actor", problem="give --actor or set actor in custody.toml")
    return named


def provenance(option: str, raw: str) -> Provenance:
    """Read a provenance level that a caller may choose; `verified` comes from comparing evidence only."""
    if raw not in (Provenance.CLAIMED, Provenance.ATTESTED):
        raise InvalidInput(field=option, problem=f"{raw!r} is neither claimed nor attested")
    return Provenance(raw)


def json_value(option: str, raw: str) -> Json:
    """Read a JSON value; NaN and infinities, which Python would take, are refused."""
    try:
        value: Any = json.loads(raw, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise InvalidInput(field=option, problem="not a JSON value") from None
    return value  # type: ignore[no-any-return]  # what json.loads returns is Json by construction


def _no_constant(name: str) -> None:
    raise ValueError(name)
