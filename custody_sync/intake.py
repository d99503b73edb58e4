"""What was in the stores before custody, and what a store that came later lacks.

The half of the operator's work that adds: entries become facts, claims become beliefs, facts go into
a new store. Each says first what it would do, and each can be stopped and run again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from custody_sync.canonical import check_name, check_reason
from custody_sync.errors import InvalidInput
from custody_sync.keeping import AsyncKeeping
from custody_sync.mended import AdoptResult, BackfillResult, ConfirmManyResult
from custody_sync.model import Capability, Entry, Fact, Provenance
from custody_sync.placing import Placer
from custody_sync.ports import Watch
from custody_sync.proposing import Proposals, read_provenance
from custody_sync.recording import check_place
from custody_sync.repair.adopting import Adopting
from custody_sync.repair.adoption import Mapper, Mapping
from custody_sync.repair.backfilling import Backfilling
from custody_sync.repair.confirming import Confirming
from custody_sync.repair.selection import check_count, select
from custody_sync.repair.verify import read_fact_ids
from custody_sync.results import WriteResult
from custody_sync.signals.operations import traced
from custody_sync.stores import Gate
from custody_sync.writing import Writer


class AsyncIntake(AsyncKeeping):
    """Adopts, confirms and fills; `AsyncCoordinator` is one."""

    _placer: Placer
    _proposals: Proposals
    _writer: Writer

    @traced("adopt")
    async def adopt(
        self,
        store: str,
        *,
        actor: str,
        space: str | Mapper,
        provenance: Provenance | str = Provenance.CLAIMED,
        dry_run: bool = True,
        limit: int | None = None,
        entries: Iterable[Entry] | None = None,
        receipt_id: str | None = None,
        watch: Watch | None = None,
    ) -> AdoptResult:
        """Make facts of a store's entries that have no label; their texts stay as they are.

        The ledger records each with its place, then the store is given the label where it takes one.
        Running it again does what is left. Adopted claims are quarantined until `confirm`.

        Args:
            store: the name of a configured store.
            actor: who answers for it.
            space: a template such as `user:{scope}`, or a function that returns an `Adoption` of an entry,
                a space, or None to leave it.
            provenance: `claimed`, or `attested` where you vouch for what the store holds.
            dry_run: only say what would be done.
            limit: the most entries to adopt.
            entries: only these, as this store just showed them with their texts; it is then not listed. One
                that it does not hold is refused; where it writes no labels and cannot be asked about an
                entry, the result is not complete and counts it as `unseen`.
            receipt_id: the caller's reference.
            watch: told how far it is.

        Raises:
            InvalidInput: an argument, or a store that cannot list what it holds.
            LedgerMoved: the ledger goes on in another place.
        """
        gate, mandate = self._gate_of(store), self._mandate(actor, receipt_id)
        if entries is None and not gate.can(Capability.LIST_ENTRIES):
            reason = gate.supports[Capability.LIST_ENTRIES].reason
            raise InvalidInput(field="store", problem=f"{store!r} cannot list what it holds ({reason})")
        adopting = Adopting(
            ledger=self.ledger,
            gate=gate,
            mapping=Mapping(space),
            proposals=self._proposals,
            placer=self._placer,
            recorder=self._recorder,
            runtime=self._runtime,
            mandate=mandate,
            provenance=read_provenance(provenance),
        )
        most, given = check_count(limit, "limit", 1), _read_given(entries)
        await self._check_writable(dry_run)
        return await adopting.run(dry_run=dry_run, limit=most, watch=watch or _unwatched, entries=given)

    @traced("backfill")
    async def backfill(
        self,
        store: str,
        *,
        actor: str,
        space: str | None = None,
        dry_run: bool = True,
        limit: int | None = None,
        receipt_id: str | None = None,
        watch: Watch | None = None,
    ) -> BackfillResult:
        """Put into a store every fact that is believed and that it does not hold.

        Args:
            store: the name of a configured store, as a rule one that was added later.
            actor: who orders it.
            space: only facts of this space, or of those that begin like it where it ends with a `*`.
            dry_run: only count.
            limit: the most facts to put.
            receipt_id: the caller's reference.
            watch: told how far it is.

        Raises:
            InvalidInput: an argument.
            LedgerMoved: the ledger goes on in another place.
        """
        backfilling = Backfilling(
            ledger=self.ledger,
            gate=self._gate_of(store),
            placer=self._placer,
            runtime=self._runtime,
            mandate=self._mandate(actor, receipt_id),
        )
        selection = select(self._gates, space=space)
        most = check_count(limit, "limit", 1)
        await self._check_writable(dry_run)
        return await backfilling.run(
            fits=selection.has_space, dry_run=dry_run, limit=most, watch=watch or _unwatched
        )

    @traced("confirm_many")
    async def confirm_many(
        self,
        *,
        actor: str,
        fact_ids: Sequence[str] | None = None,
        space: str | None = None,
        reason: str | None = None,
        dry_run: bool = True,
        receipt_id: str | None = None,
        watch: Watch | None = None,
    ) -> ConfirmManyResult:
        """Confirm the claims that are named, or all that wait in a space; see `confirm`.

        Args:
            actor: who takes them over.
            fact_ids: the claims; or give `space`.
            space: a space, or its beginning and a `*`; `*` is all of them.
            reason: why; recorded with each.
            dry_run: only count.
            receipt_id: the caller's reference.
            watch: told how far it is.

        Raises:
            InvalidInput: an argument; nothing was confirmed.
            LedgerMoved: the ledger goes on in another place.
        """
        self._check_open()
        mandate, why = self._mandate(actor, receipt_id), check_reason(reason)
        named = read_fact_ids(fact_ids)
        if (named is None) is (space is None):
            raise InvalidInput(field="fact_ids", problem="or a space say which claims; give one of them")
        if named == ():
            raise InvalidInput(field="fact_ids", problem="must be a list of at least one id")
        selection = select(self._gates, space=space)

        async def confirm(fact: Fact) -> WriteResult:
            return await self._writer.confirm(fact, mandate, why)

        await self._check_writable(dry_run)
        return await Confirming(self.ledger, confirm).run(
            fact_ids=named,
            space=None if space is None or space.endswith("*") else space,
            fits=selection.has_space,
            dry_run=dry_run,
            watch=watch or _unwatched,
        )

    def _gate_of(self, store: str) -> Gate:
        self._check_open()
        return self._gates[next(iter(select(self._gates, stores=[check_name(store, "store")]).stores or ()))]

    async def _check_writable(self, dry_run: bool) -> None:
        if not dry_run:
            self._proposals.check_writable()
            self._proposals.check_clock()
        await check_place(self.ledger)


def _read_given(entries: Iterable[Entry] | None) -> Iterable[Entry] | None:
    if entries is None:
        return None
    if isinstance(entries, str | bytes | dict) or not isinstance(entries, Iterable):
        raise InvalidInput(field="entries", problem="must be entries as the store showed them")
    return entries


def _unwatched(step: str, done: int, of: int | None) -> None:
    """Take no notice."""


__all__ = ["AsyncIntake"]
