"""How a command gets its ledger, its stores and its coordinator, and gives them back."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import typer

from custody_sync.cli.output import Output
from custody_sync.coordinator import AsyncCoordinator
from custody_sync.ledger import Ledger
from custody_sync.settings import Settings, open_stores

BROKEN_PIPE = 141

T = TypeVar("T")


def run(work: Callable[[Output], Coroutine[Any, Any, T]], *, json: bool) -> T:
    """Run one command's work on an event loop of its own and return what it returns."""
    try:
        return asyncio.run(work(Output(json=json)))
    except BrokenPipeError:
        # Whoever read our output left. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(BROKEN_PIPE) from None


@asynccontextmanager
async def open_ledger(settings: Settings, *, read_only: bool = False) -> AsyncIterator[Ledger]:
    """Open the configured ledger; a missing one is an error, never made."""
    ledger = await Ledger.open(
        settings.ledger_url(),
        read_only=read_only,
        forget_key=None if read_only else settings.forget_key(),
    )
    async with ledger:
        yield ledger


@asynccontextmanager
async def open_custody(settings: Settings, output: Output) -> AsyncIterator[tuple[Ledger, AsyncCoordinator]]:
    """Open the ledger, then the stores: a ledger that cannot be used is told before any store is reached."""
    async with (
        open_ledger(settings) as ledger,
        open_stores(settings) as stores,
        AsyncCoordinator(ledger, stores=stores, superseded=settings.superseded or "remove") as custody,
    ):
        yield ledger, custody
    if not stores:
        output.note("No stores are configured, only the ledger was used; factory in custody.toml names them.")
