"""How long facts are kept: holds, forgetting one fact or many, and expiry.

The half of the coordinator that decides on facts already recorded. Ledger first, then the stores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from custody_sync.canonical import check_name, check_optional, check_reason
from custody_sync.errors import InvalidInput, RepairedId, UnknownFact
from custody_sync.finishing import Finishing
from custody_sync.following import FollowUp
from custody_sync.forgetting import Forgetter, Order, Progress, Run
from custody_sync.ledger import Hold, Release
from custody_sync.ledger.storage import Account
from custody_sync.model import MAX_SKEW, Fact, Standing, format_instant
from custody_sync.proposing import read_when
from custody_sync.recording import Recorder, check_place
from custody_sync.removal import Mandate
from custody_sync.repair.verify import read_fact_ids
from custody_sync.results import (
    ExpireResult,
    Fate,
    ForgetManyResult,
    ForgetResult,
    ForgetWhereResult,
    HoldResult,
)
from custody_sync.retention import AGES, AgeFrom, Expiry, expire, read_windows
from custody_sync.serving import AsyncServing, check_flag
from custody_sync.signals.operations import traced
from custody_sync.subjects import Scope, SubjectErasure

BATCH = 100
LARGEST_BATCH = 1000
EVERYWHERE = "*"


class AsyncKeeping(AsyncServing):
    """Holds, forgets and expires; `AsyncCoordinator` is one."""

    _recorder: Recorder
    _following: FollowUp
    _finishing: Finishing

    # --- holds ------------------------------------------------------------------------------

    @traced("hold")
    async def hold(
        self,
        fact_id: str,
        *,
        actor: str,
        reason: str | None = None,
        hold_id: str | None = None,
        receipt_id: str | None = None,
    ) -> HoldResult:
        """Keep a fact from being forgotten, expired ones included, until this hold is released.

        Holds stack: each is released by its own id. One says nothing about whether a fact is believed.

        Args:
            fact_id: the fact, whatever its state.
            actor: who orders it.
            reason: why.
            hold_id: names the hold, as a case number; it stays on record. Made up if not given.
            receipt_id: the caller's reference to the order.

        Raises:
            Refused: unknown or forgotten, or it has a hold of this id.
            LedgerUnavailable: nobody can say whether it was recorded.
        """
        self._check_open()
        mandate = self._mandate(actor, receipt_id)
        draft = Hold(
            event_id=self._runtime.ids.event_id(),
            fact_id=check_name(fact_id, "fact_id"),
            actor=mandate.actor,
            receipt_id=mandate.receipt_id,
            reason=check_reason(reason),
            hold_id=check_optional(hold_id, "hold_id") or self._runtime.ids.generation(),
        )
        await check_place(self.ledger)
        fact = await self._known_fact(draft.fact_id)
        await self._recorder.append(draft)
        return await self._held(fact, draft.hold_id)

    @traced("release")
    async def release(
        self,
        fact_id: str,
        *,
        hold_id: str,
        actor: str,
        reason: str | None = None,
        receipt_id: str | None = None,
    ) -> HoldResult:
        """End one hold; the result names the ones that still stand.

        Raises:
            Refused: unknown, or no hold of this id stands.
            LedgerUnavailable: nobody can say whether it was recorded.
        """
        self._check_open()
        mandate = self._mandate(actor, receipt_id)
        draft = Release(
            event_id=self._runtime.ids.event_id(),
            fact_id=check_name(fact_id, "fact_id"),
            actor=mandate.actor,
            receipt_id=mandate.receipt_id,
            reason=check_reason(reason),
            hold_id=check_name(hold_id, "hold_id"),
        )
        await check_place(self.ledger)
        fact = await self._known_fact(draft.fact_id)
        await self._recorder.append(draft)
        return await self._held(fact, draft.hold_id)

    async def _held(self, fact: Fact, hold_id: str) -> HoldResult:
        account = await self._account_of(fact)
        return HoldResult(fact_id=fact.fact_id, hold_id=hold_id, holds=account.holds)

    async def _account_of(self, fact: Fact) -> Account:
        assert fact.seq is not None  # noqa: S101  # it comes from the ledger
        return (await self.ledger.accounts(limit=1, after=fact.seq - 1))[0]

    # --- forgetting -------------------------------------------------------------------------

    @traced("forget")
    async def forget(
        self,
        fact_id: str,
        *,
        actor: str,
        reason: str,
        digest: str | None = None,
        identity: bool = False,
        receipt_id: str | None = None,
    ) -> ForgetResult:
        """Erase a fact's value and text from the ledger, then from every store, and verify both.

        Calling it again goes on with what is still pending.

        Args:
            fact_id: the fact.
            actor: who orders it.
            reason: why; it stays as the record of the erasure, so keep personal data out of it.
            digest: what may remain of the value: `hmac-sha256`, `sha256` or `none`.
            identity: also erase subject, predicate, space and reasons.
            receipt_id: the caller's reference to the order.

        Raises:
            Refused: unknown, repaired, or under a legal hold.
            LedgerUnavailable: it was not recorded; nothing was erased.
        """
        self._check_open()
        order = self._order(actor, receipt_id, check_name(reason, "reason"), digest, identity)
        await check_place(self.ledger)
        fact = await self._known_fact(fact_id)
        return await self._forgetter.forget(fact, order)

    @traced("forget_many")
    async def forget_many(
        self,
        fact_ids: Sequence[str],
        *,
        actor: str,
        reason: str,
        digest: str | None = None,
        identity: bool = False,
        batch: int = BATCH,
        receipt_id: str | None = None,
    ) -> ForgetManyResult:
        """Forget facts as `forget` does each, and clear the ledger's files once a batch.

        A hold keeps its fact, and is named. Calling it again goes on with what is left. As with `forget`,
        `notes` name earlier links of their chains that are not forgotten.

        Args:
            fact_ids: the facts, at least one.
            actor: who orders it.
            reason: why; keep personal data out of it.
            digest: what may remain of each value: `hmac-sha256`, `sha256` or `none`.
            identity: also erase subject, predicate, space and reasons.
            batch: how many facts are taken up between two clearings of the ledger's files.
            receipt_id: the caller's reference to the order.

        Raises:
            InvalidInput: an argument; nothing was touched.
            Refused: one of them is unknown or repaired; nothing was touched.
            LedgerError: nothing was forgotten. Later, an error ends the run and is named in the result.
        """
        self._check_open()
        order = self._order(actor, receipt_id, check_name(reason, "reason"), digest, identity)
        named, size = read_fact_ids(fact_ids), _read_batch(batch)
        if not named:
            # What was meant to find them found none, and nobody should take that for an erasure.
            raise InvalidInput(field="fact_ids", problem="must be a list of at least one id")
        await check_place(self.ledger)
        accounts: list[Account] = []
        later: list[str] = []
        for fact_id in named:
            fact = await self._known_fact(fact_id)
            accounts.append(await self._account_of(fact))
            if fact.supersedes is not None:
                later.append(fact_id)
        run = Run(self._forgetter, order, dry_run=False, progress=None)
        for start in range(0, len(accounts), size):
            await run.take(accounts[start : start + size])
            if run.stopped is not None:
                break
        if identity:
            await run.let_go()
        left = () if run.stopped is not None else await self._following.links_left(later)
        held = any(fact.fate is Fate.HELD for fact in run.facts)
        place = {fact_id: at for at, fact_id in enumerate(named)}
        return ForgetManyResult(
            facts=tuple(sorted(run.facts, key=lambda fact: place[fact.fact_id])),
            erasure=run.erasure,
            notes=(*run.notes, *left),
            stopped=None if run.stopped is None else run.stopped.code,
            complete=run.forgotten_all and not held,
        )

    @traced("forget_where")
    async def forget_where(
        self,
        *,
        space: str,
        subject: str | None = None,
        actor: str,
        reason: str | None = None,
        identity: bool = False,
        digest: str | None = None,
        dry_run: bool = False,
        batch: int = BATCH,
        progress: Progress | None = None,
        receipt_id: str | None = None,
    ) -> ForgetWhereResult:
        """Forget every fact of a space, or of one subject in it, and certify what came of it.

        Facts of every state count: believed, claimed, superseded, retracted, ended, and those
        forgotten before, whose stores are asked again. What a hold keeps is named. Calling it again
        goes on with what is left, also after the process was killed.

        Args:
            space: the space; there is no way to mean all of them.
            subject: only facts about it.
            actor: who orders it.
            reason: why; keep personal data out of it.
            identity: also erase subject, predicate, space and reasons.
            digest: what may remain of each value: `hmac-sha256`, `sha256` or `none`.
            dry_run: change nothing, and say what would be forgotten and what is held.
            batch: how many facts are taken up between two clearings of the ledger's files.
            progress: called with each fact's fate as soon as it is known.
            receipt_id: the caller's reference to the order.

        Raises:
            InvalidInput: an argument, a blank space or subject above all; nothing was touched.
            LedgerMoved: the ledger goes on in another place, also in a dry run.
            LedgerError: nothing was forgotten. Later, an error ends the run and is named in the result.
        """
        self._check_open()
        scope = Scope(space=check_name(space, "space"), subject=check_optional(subject, "subject"))
        order = self._order(actor, receipt_id, check_reason(reason), digest, identity)
        size = _read_batch(batch)
        await check_place(self.ledger)
        run = Run(self._forgetter, order, dry_run=check_flag(dry_run, "dry_run"), progress=progress)
        erasure = SubjectErasure(self.ledger, self._gates, run, scope, identity=identity)
        return await erasure.forget(size)

    # --- expiry -----------------------------------------------------------------------------

    @traced("expire")
    async def expire(
        self,
        *,
        actor: str,
        reason: str | None = None,
        before: datetime | None = None,
        windows: Mapping[str, str] | None = None,
        space: str | None = None,
        all_spaces: bool = False,
        age_from: AgeFrom = "learned",
        identity: bool = False,
        digest: str | None = None,
        dry_run: bool = False,
        batch: int = BATCH,
        progress: Progress | None = None,
        receipt_id: str | None = None,
    ) -> ExpireResult:
        """Forget the facts that are older than their space keeps them; what a hold keeps is named.

        Ages count from when the ledger learned of a fact, or of the one that supersedes it. Facts of
        every state count. Running it again goes on where it ended.

        Args:
            actor: who orders it.
            reason: why; what the facts were too old for, if not given.
            before: forget what is older than this; with a `space`, or with `all_spaces` said aloud.
            windows: how long facts are kept, as ISO 8601 durations by pattern of spaces: `org`,
                `team:*`. The space itself beats a longer prefix, which beats a shorter one; a space that
                none of them matches is left alone.
            space: only this space.
            all_spaces: `before` is meant for every space.
            age_from: `learned`, or `superseded`, which leaves alone what nothing superseded.
            identity: also erase subject, predicate, space and reasons, of forgotten facts as well.
            digest: what may remain of each value: `hmac-sha256`, `sha256` or `none`.
            dry_run: change nothing, and say what would be forgotten and what is held.
            batch: how many facts are taken up between two clearings of the ledger's files.
            progress: called with each fact's fate as soon as it is known.
            receipt_id: the caller's reference.

        Raises:
            InvalidInput: an argument; nothing was touched.
            LedgerMoved: the ledger goes on in another place, also in a dry run.
            LedgerError: nothing was forgotten. Later, an error ends the run and is named in the result.
        """
        self._check_open()
        if age_from not in AGES:
            raise InvalidInput(field="age_from", problem="must be learned or superseded")
        everywhere = check_flag(all_spaces, "all_spaces")
        only = check_optional(space, "space")
        cutoffs, cutoff_of = self._cutoffs(before, windows, only, everywhere)
        said = check_reason(reason) or _why(age_from, cutoffs if windows is None else {})
        order = self._order(actor, receipt_id, said, digest, identity)
        size = _read_batch(batch)
        await check_place(self.ledger)
        run = Run(self._forgetter, order, dry_run=check_flag(dry_run, "dry_run"), progress=progress)
        expiry = Expiry(
            cutoffs=cutoffs, cutoff_of=cutoff_of, space=only, age_from=age_from, identity=identity
        )
        return await expire(self.ledger, expiry, run, size)

    def _cutoffs(
        self, before: datetime | None, windows: Mapping[str, str] | None, space: str | None, everywhere: bool
    ) -> tuple[Mapping[str, datetime], Callable[[str], datetime | None]]:
        """Return the cut-off by pattern, and of each space; exactly one way of saying it is taken."""
        if (before is None) == (windows is None):
            raise InvalidInput(field="before", problem="give either before or windows, not both or neither")
        now = self.ledger.now()
        if before is None:
            if everywhere:
                raise InvalidInput(field="all_spaces", problem="goes with before; windows name their spaces")
            read = read_windows(windows)
            cutoffs = {pattern: duration.before(now) for pattern, duration in read.by_pattern.items()}
            return cutoffs, lambda one: cutoffs.get(read.pattern_of(one) or "")
        if (space is not None) == everywhere:
            problem = "before needs a space, or all_spaces=True to mean every one; not both"
            raise InvalidInput(field="space", problem=problem)
        cutoff = read_when(before, "before")
        if cutoff > now + MAX_SKEW:
            raise InvalidInput(field="before", problem=f"{format_instant(cutoff)} is still to come")
        return {space or EVERYWHERE: cutoff}, lambda _: cutoff

    # --- shared -----------------------------------------------------------------------------

    @property
    def _forgetter(self) -> Forgetter:
        return Forgetter(self.ledger, self._recorder, self._following, self._finishing, self._runtime)

    def _order(
        self, actor: object, receipt_id: object, reason: str | None, digest: str | None, identity: object
    ) -> Order:
        # Refused here, and not once for every fact.
        self.ledger.digest("", digest)
        return Order(
            mandate=self._mandate(actor, receipt_id),
            reason=reason,
            digest=digest,
            identity=check_flag(identity, "identity"),
        )

    def _mandate(self, actor: object, receipt_id: object) -> Mandate:
        return Mandate(actor=check_name(actor, "actor"), receipt_id=check_optional(receipt_id, "receipt_id"))

    async def _known_fact(self, fact_id: str) -> Fact:
        fact = await self.ledger.get(fact_id)
        if fact is not None:
            return fact
        standing = (await self.ledger.known([fact_id]))[fact_id]
        raise RepairedId(fact_id=fact_id) if standing is Standing.REPAIRED else UnknownFact(fact_id=fact_id)


def _why(age_from: AgeFrom, cutoffs: Mapping[str, datetime]) -> str:
    """Return the reason on record where none was given; a pattern may name a person, so none is in it."""
    limit = next((f"before {format_instant(cutoff)}" for cutoff in cutoffs.values()), "its window ago")
    return f"expired: {age_from} {limit}"


def _read_batch(batch: object) -> int:
    if type(batch) is not int or not 1 <= batch <= LARGEST_BATCH:
        raise InvalidInput(field="batch", problem=f"must be a whole number from 1 to {LARGEST_BATCH}")
    return batch


__all__ = ["AsyncKeeping"]
