"""How the command line words an error: the library's sentence, in the terms of a shell.

An error's own sentence names arguments and calls of Python; whoever types commands has options.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import PurePath
from typing import Any

from custody_sync.cli.problems import OutsideProblem
from custody_sync.errors import (
    BreakerOpen,
    CustodyError,
    InvalidInput,
    LedgerNotFound,
    MissingExtra,
    TooManyPuts,
)

_PLAIN = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError)
_OPTIONS = {
    "after": "--after",
    "age_from": "--age-from",
    "all_spaces": "--all-spaces",
    "apply": "--apply",
    "before": "--before",
    "budget.characters": "--chars",
    "budget.per_fact": "--per-fact",
    "budget.seconds": "--seconds",
    "digest": "--digest",
    "fact_id": "FACT_ID",
    "fact_ids": "FACT_ID",
    "fix": "--fix",
    "idempotency_key": "--idempotency-key",
    "k": "-k",
    "limit": "--limit",
    "max_puts": "--max-puts",
    "max_removals": "--max-removals",
    "plan": "--plan",
    "predicate": "--predicate",
    "query": "QUERY",
    "reason": "--reason",
    "receipt_id": "--receipt-id",
    "salvage": "--salvage",
    "since": "--since",
    "space": "--space",
    "spaces": "--space",
    "store": "--store",
    "stores": "--store",
    "subject": "--subject",
    "supersedes": "--supersedes",
    "unlabelled": "--unlabelled",
    "tx_at": "--tx-at",
    "valid_at": "--valid-at",
    "valid_from": "--valid-from",
    "valid_to": "--valid-to",
    "value": "--value",
}
"""What arguments of the library are called on the command line, where it has them as an option."""
_PLACES = {
    "adopt": {"store": "STORE", "stores": "STORE"},
    "backfill": {"store": "STORE", "stores": "STORE"},
    "card": {"subject": "SUBJECT", "predicate": "PREDICATE"},
}
"""By command, what it takes in a place of its own instead."""
_ARGUMENT = re.compile(r"\bmax_(removals|puts)=")
_INSTALL = re.compile(r"pip install 'custody-sync\[(\w+)\]'")
_FILE = re.compile(r"(?:^|=)(?:sqlite|jsonl):///")
"""What begins like this names a file, and has no room for a password."""
_PASSWORD = re.compile(r"://[^@]*:[^@]*@|://.*password", re.IGNORECASE | re.DOTALL)
_secret: ContextVar[tuple[str, ...]] = ContextVar("secret", default=())
"""Which arguments of the command that runs are URLs with a password."""
_command: ContextVar[str] = ContextVar("command", default="")
"""The name of the command that runs."""


def sentence(error: CustodyError) -> str:
    """Return an error's sentence for people at a shell, ended by one full stop."""
    said = str(error)
    if isinstance(error, BreakerOpen | TooManyPuts):
        said = _ARGUMENT.sub(r"--max-\1 ", said)
    elif isinstance(error, LedgerNotFound):
        said = said.replace(" or Ledger.open(..., create=True)", ", or check the path")
    elif isinstance(error, MissingExtra):
        said = _INSTALL.sub(r"\g<0> (in a checkout: pip install -e '.[\1]')", said)
    elif isinstance(error, InvalidInput) and (option := _option(str(error.fields.get("field")))):
        said = re.sub(r"^[\w.]+:", f"{option}:", said)
    return ended(said)


def _option(field: str) -> str | None:
    return _PLACES.get(_command.get(), {}).get(field, _OPTIONS.get(field))


def ended(said: str) -> str:
    """End a sentence with one full stop, whatever of it came from somewhere that had its own."""
    if said.endswith(("?", "!", "...", "…")):
        return said
    return f"{said.rstrip('.')}."


def counted(count: int, one: str, many: str) -> str:
    """Return a count with its noun, such as `1 fact` and `2 facts`."""
    return f"{count} {one if count == 1 else many}"


def discreet(said: Any, args: Sequence[str]) -> Any:
    """Cut every URL of a command line to its scheme, wherever a text or a document repeats it.

    A URL may carry a password, and what was typed in the wrong place comes back in an error.
    """
    if isinstance(said, str):
        for tail in sorted(_tails(args), key=len, reverse=True):
            said = said.replace(tail, "://...")
        return said
    if isinstance(said, dict):
        return {name: discreet(part, args) for name, part in said.items()}
    if isinstance(said, list):
        return [discreet(part, args) for part in said]
    return said


@contextmanager
def speaking_of(args: Sequence[str]) -> Iterator[None]:
    """Let `sentence` and `without_passwords` know a command line while its command runs."""
    command = _command.set(next((arg for arg in args if not arg.startswith("-")), ""))
    secret = _secret.set(tuple(arg for arg in args if _PASSWORD.search(arg)))
    try:
        yield
    finally:
        _secret.reset(secret)
        _command.reset(command)


def without_passwords(said: Any) -> Any:
    """Cut the URLs with a password of the command that runs, whatever repeats them: a result as well.

    Other URLs stay in a result, where they may be what was asked for: a value, a subject, a space.
    """
    secret = _secret.get()
    return discreet(said, secret) if secret else said


def _tails(args: Sequence[str]) -> set[str]:
    """Return what follows the scheme of each URL, in every form in which an error could repeat it."""
    found: set[str] = set()
    for arg in args:
        tail = arg.partition("://")[2]
        if tail and not (_FILE.search(arg) and "://" not in tail):
            # As a path a URL has lost a slash, and its end where only the folder is named.
            paths = [os.path.normpath(f":/{tail}"), str(PurePath(f":/{tail}"))]
            folders = [str(folder) for path in paths for folder in PurePath(path).parents]
            for whole in (f"://{tail}", *paths, *folders):
                # Quoted, some of its characters are escapes.
                found |= {form for form in (whole, repr(whole)[1:-1]) if len(form.strip(":/.")) > 0}
    return found


def told(error: CustodyError) -> dict[str, Any]:
    """Return what the JSON document says of an error."""
    return {**error.to_dict(), "message": sentence(error)}


def outside(error: OSError) -> OutsideProblem:
    """Word an error of the system; its number only helps where the text alone says little."""
    text = error.strerror or str(error)
    if not isinstance(error, _PLAIN) and error.errno is not None:
        text = f"[Errno {error.errno}] {text}"
    return OutsideProblem(problem=text if error.filename is None else f"{error.filename}: {text}")
