"""Where a ledger is: what a copy of it, byte for byte the same, does not share with it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """The place of a ledger, and the time of the server that keeps it, where one does."""

    place: str
    server_time: datetime | None = None


def of_file(path: Path, *, numbered: bool) -> Whereabouts:
    """Return where a file is; `numbered` where it is never written anew, so that its number is its own."""
    place = str(path)
    return Whereabouts(f"{place}, file {os.stat(path).st_ino}" if numbered else place)


__all__ = ["Whereabouts", "of_file"]
