"""Metrics of a command: written when its work has ended, however it ended, and never a reason to fail."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from custody_sync.cli.output import Output
from custody_sync.cli.session import Custody
from custody_sync.errors import CustodyError
from custody_sync.results import Status
from custody_sync.signals.metrics import check_file, render, write_file


@asynccontextmanager
async def measuring(custody: Custody, output: Output, path: Path | None) -> AsyncIterator[None]:
    """Write the metrics of a status after the body, also where the body was refused or stopped early.

    A sweep that found another one running still says how the ledger stands. Metrics that cannot be
    written are one sentence: what was done is done, and its exit status says how.

    Raises:
        InvalidInput: the file can be in no such place, or is another one; nothing was begun.
    """
    if path is None:
        yield
        return
    files = custody.ledger.files
    where = check_file(path, files)
    try:
        yield
    finally:
        try:
            # Once more: it may be the plan that was written meanwhile.
            write_file(check_file(path, files), render(await custody.coordinator.status()))
        except (CustodyError, OSError) as error:
            not_written(output, where, error)


def write_metrics(status: Status, output: Output, where: Path) -> None:
    """Write the metrics of a status that is there already, to a file that was checked."""
    try:
        write_file(where, render(status))
    except OSError as error:
        not_written(output, where, error)


def not_written(output: Output, path: Path, error: CustodyError | OSError) -> None:
    """Say that there are no new metrics, and why."""
    why = error.code if isinstance(error, CustodyError) else error.strerror or type(error).__name__
    output.notice(str(path), f"the metrics could not be written ({why}), and what was done stays done")


__all__ = ["measuring", "write_metrics"]
