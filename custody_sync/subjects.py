"""Forgetting a space, or one subject of it, as one act with one certificate.

The facts come from the ledger, whatever their state. The stores are then listed for entries of
the same space that no fact accounts for; those are named and left to `repair`, since a young one
may belong to a write under way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime

from custody_sync.canonical import quoted
from custody_sync.errors import CustodyError, StoreError
from custody_sync.forgetting import Run
from custody_sync.ledger import Ledger
from custody_sync.ledger.storage import Account, Note, Unaccounted
from custody_sync.model import (
    MAX_SKEW,
    REPAIR_MIN_AGE,
    Capability,
    Entry,
    Standing,
    read_instant,
)
from custody_sync.removal import NOT_CONFIGURED
from custody_sync.repair.listing import BATCH, Listing
from custody_sync.results import FactFate, Fate, ForgetWhereResult, Seen
from custody_sync.stores import Gate, describe

BEYOND = (
    "Backups, replicas and write-ahead logs of the ledger and of the stores follow their own retention.",
    "A fact whose identity was erased before is in no space any more, and no part of this.",
)
RESUMED = 1000
"""Facts of an earlier run that are looked up at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """A space, or one subject of it."""

    space: str
    subject: str | None


@dataclass(slots=True)
class Listed:
    """What listing the stores came to."""

    scanned: dict[str, int] = field(default_factory=dict)
    young: list[Seen] = field(default_factory=list)
    leftovers: list[Seen] = field(default_factory=list)
    not_reached: list[str] = field(default_factory=list)
    unlisted: list[str] = field(default_factory=list)

    @property
    def named(self) -> bool:
        """Whether anything of the scope was left, or not looked at."""
        return bool(self.young or self.leftovers or self.not_reached)


class SubjectErasure:
    """One run of `forget_where`.

    Args:
        ledger: what there is, and what is left of an earlier run.
        gates: the configured stores by name.
        run: forgets, and collects each fact's fate.
        scope: what is to be forgotten.
        identity: whether the facts leave their space with it.
    """

    def __init__(
        self, ledger: Ledger, gates: Mapping[str, Gate], run: Run, scope: Scope, *, identity: bool
    ) -> None:
        self._ledger = ledger
        self._gates = gates
        self._run = run
        self._scope = scope
        self._begun = _Begun(ledger, scope) if identity else None
        self._last = 0

    async def forget(self, batch: int) -> ForgetWhereResult:
        """Forget everything in the scope, then say what of it was seen gone and what was not reached."""
        listed, head = Listed(), await self._ledger.head()
        later: tuple[str, ...] = ()
        try:
            if not self._run.dry_run:
                await self._resume(batch)
            await self._forget_all(batch)
            if self._run.stopped is None:
                await self._list_all(listed)
                page = await self._accounts(limit=RESUMED)
                later = tuple(account.fact_id for account in page if not account.forgotten)
                if self._begun is not None:
                    await self._run.let_go(empty=None if listed.named or later else self._scope.space)
                head = await self._ledger.head()
        except CustodyError as error:
            if not self._run.facts:
                raise
            self._run.stopped = error
        run = self._run
        not_reached = [*_unconfigured(run.facts), *listed.not_reached]
        named = bool(listed.named or later or not_reached)
        held = any(fact.fate is Fate.HELD for fact in run.facts)
        return ForgetWhereResult(
            ledger_id=self._ledger.ledger_id,
            space=self._scope.space,
            subject=self._scope.subject,
            head=head,
            time=self._ledger.now(),
            facts=tuple(run.facts),
            scanned=listed.scanned,
            young=tuple(listed.young),
            leftovers=tuple(listed.leftovers),
            later=later,
            not_reached=tuple(not_reached),
            beyond=(*(_unlisted(name) for name in listed.unlisted), *BEYOND),
            erasure=run.erasure,
            notes=run.notes,
            stopped=None if run.stopped is None else run.stopped.code,
            dry_run=run.dry_run,
            complete=bool(run.facts) and run.forgotten_all and not named and not held,
        )

    async def _accounts(self, *, limit: int) -> Sequence[Account]:
        return await self._ledger.accounts(
            space=self._scope.space, subject=self._scope.subject, limit=limit, after=self._last
        )

    async def _resume(self, batch: int) -> None:
        """Go on with facts that an earlier run took out of their space and did not finish."""
        if self._begun is None:
            return
        accounts = [account for account in await self._begun.accounts() if account.identity_gone]
        for start in range(0, len(accounts), batch):
            await self._take(accounts[start : start + batch])

    async def _forget_all(self, batch: int) -> None:
        while self._run.stopped is None and (page := await self._accounts(limit=batch)):
            self._last = page[-1].seq
            await self._take(page)

    async def _take(self, accounts: Sequence[Account]) -> None:
        if self._run.dry_run:
            await self._run.take([account for account in accounts if self._is_planned(account)])
            return
        if self._begun is None:
            await self._run.take(accounts)
            return
        await self._begun.note([account.fact_id for account in accounts])
        fates = await self._run.take(accounts)
        await self._begun.drop([fact.fact_id for fact in fates if fact.complete or fact.fate is Fate.HELD])

    def _is_planned(self, account: Account) -> bool:
        return not (account.forgotten if self._begun is None else account.identity_gone)

    # --- what the stores show of the scope --------------------------------------------------

    async def _list_all(self, listed: Listed) -> None:
        now = self._ledger.now()
        facts = {fact.fact_id for fact in self._run.facts}
        told = {(r.store, r.external_id) for fact in self._run.facts for r in fact.removals}
        for gate in self._gates.values():
            if not gate.can(Capability.LIST_ENTRIES):
                listed.unlisted.append(gate.name)
                continue
            listing = Listing()
            try:
                async with aclosing(gate.pages(BATCH)) as pages:
                    async for page in pages:
                        ours = listing.take(page, self._ledger.ledger_id)
                        near = [e for e in ours if self._is_near(e) or e.fact_id in facts]
                        entries = [e for e in near if (e.store, e.external_id) not in told]
                        await self._sort(gate, entries, facts, now, listed)
                        if listing.circles:
                            listed.not_reached.append(f"{gate.name}: its listing runs in a circle")
                            break
            except StoreError as error:
                listed.not_reached.append(f"{gate.name}: cannot list: {describe(error)}")
            listed.scanned[gate.name] = listing.scanned
            if spoiled := len(listing.spoiled) + listing.spoiled_more:
                listed.not_reached.append(f"{gate.name}: {spoiled} entries cannot be used")

    def _is_near(self, entry: Entry) -> bool:
        """An entry of this space, or one whose label does not say its space."""
        return entry.space in (None, self._scope.space)

    async def _sort(
        self, gate: Gate, ours: list[Entry], facts: set[str], now: datetime, listed: Listed
    ) -> None:
        """Name what is unaccounted for; of an entry that was never a fact the subject is not known."""
        entries = {entry.external_id: entry for entry in ours}
        pairs = {external_id: entry.fact_id or "" for external_id, entry in entries.items()}
        for found in await self._ledger.unaccounted(gate.name, pairs, keep=gate.keeps):
            is_known = found.fact_id not in facts and found.standing is Standing.ASSERTED
            if is_known and not await self._lost_its_space(found.fact_id):
                continue
            entry = entries[found.external_id]
            seen = Seen(store=gate.name, external_id=entry.external_id, fact_id=found.fact_id)
            if _may_be_under_way(entry, found, now):
                listed.young.append(seen)
            else:
                listed.leftovers.append(seen)

    async def _lost_its_space(self, fact_id: str) -> bool:
        """Tell whether a fact's identity was erased before: then only a label says where it belonged."""
        fact = await self._ledger.get(fact_id)
        return fact is not None and fact.forgotten and not fact.space


class _Begun:
    """The facts of a scope whose identity is being erased, beside the log until each is done.

    Once its identity is gone no question about the scope finds a fact again: without this a run
    that was killed half-way could never say that the rest of it was seen gone.
    """

    def __init__(self, ledger: Ledger, scope: Scope) -> None:
        self._ledger = ledger
        # Under the ledger's secret, so that the note does not say whom it is about.
        self._topic = f"forget_where {ledger.keyed_id(scope.space, quoted(scope.subject))}"

    async def note(self, fact_ids: Sequence[str]) -> None:
        now = self._ledger.now()
        await self._ledger.put_notes(
            [Note(topic=self._topic, key=fact_id, value='""', since=now) for fact_id in fact_ids]
        )

    async def drop(self, fact_ids: Sequence[str]) -> None:
        await self._ledger.drop_notes(self._topic, fact_ids)

    async def accounts(self) -> list[Account]:
        """Return what the ledger has on each of them."""
        found: list[Account] = []
        after = ""
        while notes := await self._ledger.notes(self._topic, limit=RESUMED, after=after):
            for note in notes:
                fact = await self._ledger.get(note.key)
                if fact is not None and fact.seq is not None:
                    found += await self._ledger.accounts(limit=1, after=fact.seq - 1)
            after = notes[-1].key
        return found


def _may_be_under_way(entry: Entry, found: Unaccounted, now: datetime) -> bool:
    since = entry.stored_at or read_instant(entry.created_at)
    if found.standing is not Standing.UNKNOWN:
        return False
    return since is None or now - REPAIR_MIN_AGE < since <= now + MAX_SKEW


def _unconfigured(facts: Sequence[FactFate]) -> list[str]:
    missing = {r.store for fact in facts for r in fact.removals if r.detail.startswith(NOT_CONFIGURED)}
    return [f"{store}: {NOT_CONFIGURED}" for store in sorted(missing)]


def _unlisted(name: str) -> str:
    return f"{name}: it cannot list what it holds, so what no fact stands behind was not looked for."


__all__ = ["Scope", "SubjectErasure"]
