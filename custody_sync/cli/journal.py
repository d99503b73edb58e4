"""The log of one command, where one is wanted: begun, how far, how many in which store, ended how."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from custody_sync.errors import CustodyError, InvalidInput
from custody_sync.ports import Watch
from custody_sync.signals.logs import counts_of, fields_of, json_lines, say

VARIABLE = "CUSTODY_SYNC_LOG"
JSON = "json"
_LOGGER = logging.getLogger("custody_sync.cli")


class Journal:
    """What is written of the command under way; nothing while `on` is false."""

    def __init__(self) -> None:
        self.on = False
        self._began = 0.0

    @contextmanager
    def of(self, command: str, wanted: bool) -> Iterator[None]:
        """Log a command from its beginning to its end, if that is wanted."""
        if not wanted:
            yield
            return
        with json_lines(sys.stderr):
            self.on, self._began = True, time.monotonic()
            try:
                say(_LOGGER, "started", command=command)
                yield
            finally:
                self.on = False

    def ended(self, command: str, status: int) -> None:
        """Log how a command ended, and after how long."""
        if self.on:
            seconds = round(time.monotonic() - self._began, 3)
            say(_LOGGER, "ended", command=command, exit_code=status, seconds=seconds)

    def failed(self, error: CustodyError) -> None:
        """Log what went wrong, by code."""
        if self.on:
            say(_LOGGER, "failed", logging.ERROR, **fields_of(error))

    def noticed(self, said: str) -> None:
        """Log a remark about the ledger itself, its files and its witness."""
        if self.on:
            say(_LOGGER, "noticed", logging.WARNING, said=said)

    def counted(self, document: object) -> None:
        """Log what a result says of each store."""
        if self.on and isinstance(document, Mapping):
            for store, counts in sorted(counts_of(document).items()):
                say(_LOGGER, "store", store=store, **counts)
            if isinstance(complete := document.get("complete"), bool):
                say(_LOGGER, "result", complete=complete)

    def watching(self, watch: Watch) -> Watch:
        """Return a watch that also logs how far the work is, every few seconds."""
        if not self.on:
            return watch

        def logged(step: str, done: int, of: int | None) -> None:
            say(_LOGGER, "progress", step=step, done=done, of=of)
            watch(step, done, of)

        return logged


journal = Journal()


def is_wanted(args: Sequence[str], environ: Mapping[str, str] = os.environ) -> bool:
    """Tell whether a command line or the environment asks for a log.

    Raises:
        InvalidInput: the variable says what is no form of a log.
    """
    asked = zip(args, [*args, ""][1:], strict=True)
    if any((arg, value) == ("--log", JSON) or arg == f"--log={JSON}" for arg, value in asked):
        return True
    said = environ.get(VARIABLE, "")
    if said not in ("", JSON):
        raise InvalidInput(field=VARIABLE, problem="must be json or nothing")
    return said == JSON


__all__ = ["JSON", "VARIABLE", "is_wanted", "journal"]
