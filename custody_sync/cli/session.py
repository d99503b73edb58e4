"""How a command gets its ledger, its stores and its coordinator, and gives them back."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import typer

from custody_sync.cli.output import Output, abandon
from custody_sync.coordinator import AsyncCoordinator
from custody_sync.ledger import Ledger
from custody_sync.model import Head
from custody_sync.ports import Store
from custody_sync.runtime import Runtime
from custody_sync.settings import Settings, load_validators, open_stores
from custody_sync.signals.tracing import VARIABLE as TRACES
from custody_sync.signals.tracing import tracer_of

BROKEN_PIPE = 141

T = TypeVar("T")


def run(work: Callable[[Output], Coroutine[Any, Any, T]], *, json: bool) -> T:
    """Run one command's work on an event loop of its own and return what it returns."""
    try:
        return asyncio.run(work(Output(json=json)))
    except BrokenPipeError:
        # Whoever read our output left.
        abandon(sys.stdout)
        raise typer.Exit(BROKEN_PIPE) from None


@asynccontextmanager
async def open_ledger(settings: Settings, *, read_only: bool = False) -> AsyncIterator[Ledger]:
    """Open the configured ledger; a missing one is an error, never made."""
    ledger = await Ledger.open(
        settings.ledger_url(),
        read_only=read_only,
        forget_key=None if read_only else settings.forget_key(),
    )
    told: set[str] = set()
    async with ledger:
        if not ledger.writable:
            await ledger.mark()
        _tell(ledger, told)
        yield ledger
    _tell(ledger, told)


def _tell(ledger: Ledger, told: set[str]) -> None:
    """Say what a ledger noticed, each remark once; some are made when it is closed."""
    for said in ledger.notices:
        if said not in told:
            told.add(said)
            Output(json=False).notice(ledger.name, said)


@dataclass(frozen=True, slots=True)
class Custody:
    """What a command works with: the open ledger, the configured stores, and the coordinator of both."""

    ledger: Ledger
    stores: Sequence[Store]
    coordinator: AsyncCoordinator

    @property
    def names(self) -> list[str]:
        """The names of the stores that are asked, in alphabetical order."""
        return sorted(store.name for store in self.stores)


async def basis_of(ledger: Ledger) -> dict[str, Any]:
    """Say on what an answer of the ledger stands, in the terms of a `Proof`; no store was asked."""
    return {
        "ledger_id": ledger.ledger_id,
        "head": await ledger.head(),
        "time": ledger.now(),
        "stores": [],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What the stores' answers need to be a proof later: which ledger, up to where, when, who asked whom."""

    ledger_id: str
    head: Head
    time: datetime
    actor: str
    stores: Sequence[str]


async def proof_of(custody: Custody, actor: str, asked: Collection[str] | None = None) -> Proof:
    """Say on what a result that was just obtained stands.

    Args:
        custody: what it was obtained with.
        actor: who asked.
        asked: the stores that it is about; None is every configured one. One that is not configured
            was asked by nobody.
    """
    return Proof(
        ledger_id=custody.ledger.ledger_id,
        head=await custody.ledger.head(),
        time=custody.ledger.now(),
        actor=actor,
        stores=[name for name in custody.names if asked is None or name in asked],
    )


@asynccontextmanager
async def open_custody(
    settings: Settings, output: Output, *, validating: bool = False, again: bool = False
) -> AsyncIterator[Custody]:
    """Open the ledger, then the stores: a ledger that cannot be used is told before any store is reached.

    Validators are only loaded for what states or confirms a fact: one that cannot be imported must
    not keep anything from being removed. What a command opens again was remarked on before.
    """
    validators = await load_validators(settings) if validating else ()
    runtime = Runtime(tracer=tracer_of(os.environ.get(TRACES, "")))
    async with (
        open_ledger(settings) as ledger,
        open_stores(settings) as stores,
        AsyncCoordinator(
            ledger,
            stores=stores,
            validators=validators,
            runtime=runtime,
            superseded=settings.superseded or "remove",
            paces=settings.paces,
        ) as coordinator,
    ):
        yield Custody(ledger, stores, coordinator)
    if not (stores or again):
        output.note("No stores are configured, only the ledger was used; factory in custody.toml names them.")
