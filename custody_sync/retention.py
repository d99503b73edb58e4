"""Retention: which facts are too old, by space, and an expiry that forgets them.

Ages are counted on the ledger's own clock at both ends: from when it learned of a fact, or of the
one that supersedes it, to its present time. A fact's own validity plays no part.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from custody_sync.canonical import check_name
from custody_sync.durations import Duration, read_duration
from custody_sync.errors import CustodyError, InvalidInput
from custody_sync.forgetting import Run
from custody_sync.ledger import Ledger
from custody_sync.ledger.storage import Account
from custody_sync.results import ExpireResult

AgeFrom: TypeAlias = Literal["learned", "superseded"]
AGES = ("learned", "superseded")
PAGE = 1000
"""Spaces, or facts, that are looked at with one question."""


@dataclass(frozen=True, slots=True)
class Windows:
    """How long facts are kept, by pattern of spaces."""

    by_pattern: Mapping[str, Duration]

    def pattern_of(self, space: str) -> str | None:
        """Return the most specific pattern: the space itself, else the longest prefix; None for none."""
        if space in self.by_pattern and not space.endswith("*"):
            return space
        prefixes = (p for p in self.by_pattern if p.endswith("*") and space.startswith(p[:-1]))
        return max(prefixes, key=len, default=None)


def read_windows(windows: object, field: str = "windows") -> Windows:
    """Return retention windows, or refuse them all: half of them would keep or erase the wrong facts.

    Args:
        windows: durations by pattern; a pattern is a space, or the beginning of one and a `*`.
        field: what a refusal calls them.

    Raises:
        InvalidInput: names the pattern, and the text that is no duration.
    """
    if not isinstance(windows, Mapping) or not windows:
        problem = "must name at least one pattern of spaces and its duration"
        raise InvalidInput(field=field, problem=problem)
    read: dict[str, Duration] = {}
    for pattern, duration in windows.items():
        named = check_name(pattern, field)
        if "*" in named[:-1]:
            problem = f"{named!r} has a * that is not its end; a pattern is a space, or its beginning and a *"
            raise InvalidInput(field=field, problem=problem)
        read[named] = read_duration(duration, f"{field}.{named}")
    return Windows(read)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """What an expiry forgets: in which spaces, how old, and from when an age counts."""

    cutoffs: Mapping[str, datetime]
    cutoff_of: Callable[[str], datetime | None]
    """Before when a fact of a space must have been learned, or superseded; None keeps all of it."""
    space: str | None
    age_from: AgeFrom
    identity: bool

    def takes(self, account: Account, cutoff: datetime) -> bool:
        """Tell whether a fact is old enough, and not forgotten as thoroughly already."""
        since = account.learned_at if self.age_from == "learned" else account.superseded_at
        done = account.identity_gone if self.identity else account.forgotten
        return not done and since is not None and since < cutoff


async def expire(ledger: Ledger, expiry: Expiry, run: Run, batch: int) -> ExpireResult:
    """Forget what is old enough, a batch at a time; an error half-way ends the run, not the report."""
    try:
        async with aclosing(_batches(ledger, expiry, batch)) as batches:
            async for accounts in batches:
                await run.take(accounts)
                if run.stopped is not None:
                    break
        if expiry.identity:
            await run.let_go()
    except CustodyError as error:
        if not run.facts:
            raise
        run.stopped = error
    return ExpireResult(
        age_from=expiry.age_from,
        cutoffs=expiry.cutoffs,
        facts=tuple(run.facts),
        erasure=run.erasure,
        notes=run.notes,
        stopped=None if run.stopped is None else run.stopped.code,
        dry_run=run.dry_run,
        complete=run.forgotten_all,
    )


async def _batches(ledger: Ledger, expiry: Expiry, batch: int) -> AsyncGenerator[list[Account]]:
    due: list[Account] = []
    async for space in _spaces(ledger, expiry):
        cutoff = expiry.cutoff_of(space)
        after: int | None = None
        while cutoff is not None:
            page = await ledger.accounts(space=space, limit=PAGE, after=after)
            due += [account for account in page if expiry.takes(account, cutoff)]
            while len(due) >= batch:
                yield due[:batch]
                del due[:batch]
            after = page.next
            # Accounts come in the order they were learned.
            learned_later = expiry.age_from == "learned" and bool(page) and page[-1].learned_at >= cutoff
            if after is None or learned_later:
                break
    if due:
        yield due


async def _spaces(ledger: Ledger, expiry: Expiry) -> AsyncIterator[str]:
    if expiry.space is not None:
        yield expiry.space
        return
    after = ""
    while spaces := await ledger.spaces(limit=PAGE, after=after):
        for space in spaces:
            yield space
        after = spaces[-1]


__all__ = ["AGES", "AgeFrom", "Expiry", "Windows", "expire", "read_windows"]
