"""How the command line words an error: the library's sentence, in the terms of a shell.

An error's own sentence names arguments and calls of Python; whoever types commands has options.
"""

from __future__ import annotations

import re
from typing import Any

from custody_sync.cli.problems import OutsideProblem
from custody_sync.errors import BreakerOpen, CustodyError, LedgerNotFound, MissingExtra

_PLAIN = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError)
_ARGUMENT = re.compile(r"\bmax_removals=")
_INSTALL = re.compile(r"pip install 'custody-sync\[(\w+)\]'")


def sentence(error: CustodyError) -> str:
    """Return an error's sentence for people at a shell, ended by one full stop."""
    said = str(error)
    if isinstance(error, BreakerOpen):
        said = _ARGUMENT.sub("--max-removals ", said)
    elif isinstance(error, LedgerNotFound):
        said = said.replace(" or Ledger.open(..., create=True)", ", or check the path")
    elif isinstance(error, MissingExtra):
        said = _INSTALL.sub(r"\g<0> (in a checkout: pip install -e '.[\1]')", said)
    return ended(said)


def ended(said: str) -> str:
    """End a sentence with one full stop, whatever of it came from somewhere that had its own."""
    if said.endswith(("?", "!", "...", "…")):
        return said
    return f"{said.rstrip('.')}."


def told(error: CustodyError) -> dict[str, Any]:
    """Return what the JSON document says of an error."""
    return {**error.to_dict(), "message": sentence(error)}


def outside(error: OSError) -> OutsideProblem:
    """Word an error of the system; its number only helps where the text alone says little."""
    text = error.strerror or str(error)
    if not isinstance(error, _PLAIN) and error.errno is not None:
        text = f"[Errno {error.errno}] {text}"
    return OutsideProblem(problem=text if error.filename is None else f"{error.filename}: {text}")
