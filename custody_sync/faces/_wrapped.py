"""What a wrapped object does, once for both of its faces: work for an asynchronous coordinator."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Generic, TypeAlias, TypedDict, TypeVar
from uuid import UUID

from custody_sync.adapters.calls import CallStore, Found, Id, metadata_of, value_of
from custody_sync.canonical import check_name, check_text, check_value
from custody_sync.coordinator import AsyncCoordinator
from custody_sync.errors import InvalidInput, OnHold
from custody_sync.faces._bridge import Work
from custody_sync.faces._partial import tell_partial
from custody_sync.faces._pending import tell_pending
from custody_sync.model import FREE_TEXT_PREDICATE, Entry, Fact, Json, PlacementState
from custody_sync.recall import Keep, Unlabelled
from custody_sync.recalled import Budget, Followed, Recalled, RecallResult
from custody_sync.results import ForgetResult, RepairResult, WriteResult

R = TypeVar("R")
Given: TypeAlias = "Id | Sequence[Id]"
"""An id, or the ids of the parts of a text, as `add` returned them."""
Pending: TypeAlias = Callable[[WriteResult | ForgetResult], object]

_DELETED = "deleted by the application"
_SWEPT = "asked for by the application"
_LOOKED_AT = 3
"""So many hits of a search are held against the ids that `add` gave, until one agrees."""


class RecallOptions(TypedDict, total=False):
    """What `recall` of a wrapped object takes; see `AsyncCoordinator.recall`."""

    k: int
    spaces: Sequence[str] | None
    valid_at: datetime | None
    tx_at: datetime | None
    include_claimed: bool
    with_history: bool
    unlabelled: Unlabelled
    budget: Budget | None
    keep: Keep | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place(Generic[R]):
    """In which store and space a face works, for whom, and how it shows what it found."""

    store: CallStore
    space: str
    actor: str
    show: Callable[[Found], R]
    receipt_id: str | None = None
    on_pending: Pending | None = None

    def speaking(self, actor: str, receipt_id: str | None) -> Place[R]:
        """Return the same for somebody else."""
        checked = None if receipt_id is None else check_name(receipt_id, "receipt_id")
        return replace(self, actor=check_name(actor, "actor"), receipt_id=checked)

    def within(self, space: str) -> Place[R]:
        """Return the same for another space."""
        return replace(self, space=check_name(space, "space"))

    # --- work -------------------------------------------------------------------------------

    def adding(
        self,
        text: str,
        metadata: Mapping[str, Json] | None,
        supersedes: Given | None,
        idempotency_key: str | None,
    ) -> Work[Id | list[Id]]:
        """Check and copy what is to be remembered, and return the work of writing it."""
        if not check_text(text, "text").strip():
            raise InvalidInput(field="text", problem="must not be empty")
        value = value_of(text, _copied(metadata))
        replaced = None if supersedes is None else _ids(supersedes, "supersedes")

        async def work(custody: AsyncCoordinator) -> Id | list[Id]:
            before = None if replaced is None else await self._replaced(custody, replaced)
            written = await custody.write(
                value=value,
                text=text,
                space=self.space,
                subject=before.subject if before else self.space,
                predicate=before.predicate if before else FREE_TEXT_PREDICATE,
                supersedes=before.fact_id if before else None,
                actor=self.actor,
                receipt_id=self.receipt_id,
                idempotency_key=idempotency_key,
            )
            tell_pending(self.on_pending, written)
            ids = [self.store.ids.read(one) for one in written.placements.get(self.store.name, ())]
            return ids[0] if len(ids) == 1 else ids

        return work

    def searching(self, query: str, k: int, keep: Keep | None) -> Work[list[Found]]:
        """Return the work of a search in this space."""

        async def work(custody: AsyncCoordinator) -> list[Found]:
            recalled = await custody.recall(query, k=k, spaces=[self.space], keep=keep, store=self.store.name)
            await self._refuse_mixed(custody, recalled.hits)
            tell_partial(recalled)
            return [await self._found(custody, hit) for hit in recalled.hits]

        return work

    def recalling(self, query: str, options: RecallOptions) -> Work[RecallResult]:
        """Return the work of a recall from this store, in this space unless others are named."""
        told: RecallOptions = {**options}
        if told.get("spaces") is None:
            # A face is in one space: nobody gets at another one's by leaving out what would limit it.
            told["spaces"] = [self.space]

        async def work(custody: AsyncCoordinator) -> RecallResult:
            return await custody.recall(query, store=self.store.name, **told)

        return work

    def deleting(self, given: Given) -> Work[bool]:
        """Check the ids, and return the work of forgetting what stands under them, and what it replaced."""
        ids = _ids(given, "id")

        async def work(custody: AsyncCoordinator) -> bool:
            facts = await self._behind(custody, ids, also_ended=True)
            _, chains = await custody.ledger.links([fact.fact_id for fact in facts if fact is not None])
            for chain in chains:
                await _refuse_held(custody, [link.fact for link in chain])
            done = [await self._forget(custody, [link.fact for link in chain]) for chain in chains]
            return bool(done) and all(done) and None not in facts

        return work

    async def _forget(self, custody: AsyncCoordinator, chain: Sequence[Fact]) -> bool:
        """Forget every version; the oldest first, so that whoever is interrupted can delete the rest."""
        complete = True
        for fact in chain:
            result = await custody.forget(
                fact.fact_id, actor=self.actor, reason=_DELETED, receipt_id=self.receipt_id
            )
            complete = complete and result.complete
            tell_pending(self.on_pending, result)
        return complete

    def repairing(self, dry_run: bool, reason: str | None) -> Work[RepairResult]:
        """Return the work of a sweep."""

        async def work(custody: AsyncCoordinator) -> RepairResult:
            return await custody.repair(
                actor=self.actor, reason=reason or _SWEPT, dry_run=dry_run, receipt_id=self.receipt_id
            )

        return work

    # --- from an id to its fact, and back -----------------------------------------------------

    async def _replaced(self, custody: AsyncCoordinator, ids: Sequence[Id]) -> Fact:
        facts = {fact.fact_id if fact else None: fact for fact in await self._behind(custody, ids)}
        fact = next(iter(facts.values()), None)
        if fact is None or len(facts) > 1:
            problem = f"no one memory that is believed in {self.space!r} stands under what was given"
            raise InvalidInput(field="supersedes", problem=problem)
        return fact

    async def _behind(
        self, custody: AsyncCoordinator, ids: Sequence[Id], *, also_ended: bool = False
    ) -> list[Fact | None]:
        """Return the facts of this space that ids lead to, whoever wrote them, each once; None for none."""
        entries = [
            Entry(store=self.store.name, external_id=self.store.ids.write(one)) for one in dict.fromkeys(ids)
        ]
        _, followed = await custody.ledger.follow(entries, include_claimed=also_ended)
        found: dict[str | None, Fact | None] = {}
        for asked, one in zip(entries, followed, strict=True):
            fact = one.fact
            if fact is None and also_ended and one.owner is not None:
                fact = await custody.ledger.get(one.owner)
            if fact is not None and (fact.space != self.space or not await self._stands(custody, one, asked)):
                fact = None
            found[fact.fact_id if fact else None] = fact
        return list(found.values())

    async def _stands(self, custody: AsyncCoordinator, one: Followed, asked: Entry) -> bool:
        """Tell whether an id stands for its fact still: what was seen gone may be another row's by now."""
        rows = [] if one.owner is None else await custody.ledger.placements(one.owner)
        return any(
            (row.store, row.external_id) == (asked.store, asked.external_id)
            and row.state is not PlacementState.GONE
            for row in rows
        )

    async def _refuse_mixed(self, custody: AsyncCoordinator, hits: Sequence[Recalled]) -> None:
        """Refuse a search that shows ids in another type than `add` gave, until one agreed."""
        ids = self.store.ids
        for hit in hits[:_LOOKED_AT]:
            if ids.agree:
                return
            rows = [row for row in await custody.ledger.placements(hit.fact_id) if row.store == hit.store]
            ids.agree = any(row.external_id == hit.external_id for row in rows)
            for row in rows:
                if not ids.agree and ids.is_alike(row.external_id, hit.external_id):
                    raise ids.alike(row.external_id)

    async def _found(self, custody: AsyncCoordinator, hit: Recalled) -> Found:
        """Return a hit with the ledger's text and metadata, under an id of the very fact."""
        external_id = hit.external_id
        if hit.fact.supersedes is not None:
            # What the store served may be an entry of what this fact replaced.
            rows = await custody.ledger.placements(hit.fact_id)
            held = [row for row in rows if (row.store, row.state) == (hit.store, PlacementState.HELD)]
            if held and external_id not in {row.external_id for row in held}:
                external_id = held[0].external_id
        return Found(self.store.ids.read(external_id), hit.text, hit.score, metadata_of(hit.fact))


async def _refuse_held(custody: AsyncCoordinator, chain: Sequence[Fact]) -> None:
    """Refuse to forget anything of a memory while a version of it is held.

    Raises:
        OnHold: one is.
    """
    for fact in chain:
        if fact.seq is None or fact.forgotten:
            continue
        (account,) = await custody.ledger.accounts(limit=1, after=fact.seq - 1)
        if account.holds:
            raise OnHold(fact_id=account.fact_id, holds=list(account.holds))


def _ids(given: Given, field: str) -> list[Id]:
    """Return a caller's ids; refuse what `add` cannot have given, since an empty id is mostly a mistake."""
    ids: list[Any] = [*given] if isinstance(given, list | tuple) else [given]
    for one in ids:
        known = isinstance(one, str | numbers.Integral | UUID) and not isinstance(one, bool)
        if not known or (isinstance(one, str) and not one.strip()):
            named = "an empty text" if known else "None" if one is None else f"of type {type(one).__name__}"
            problem = f"must be an id as add gave it (a text, a whole number or a UUID), not {named}"
            raise InvalidInput(field=field, problem=problem)
    return ids


def _copied(metadata: Mapping[str, Any] | None) -> dict[str, Json]:
    if not isinstance(metadata, Mapping | None):
        raise InvalidInput(field="metadata", problem=f"must be a dict, not {type(metadata).__name__}")
    copied: dict[str, Json] = {}
    for key, value in (metadata or {}).items():
        copied[check_text(key, "metadata key")] = check_value(value, f"metadata[{key!r}]")
    return copied


__all__ = ["Given", "Pending", "Place", "RecallOptions"]
