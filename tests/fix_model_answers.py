"""What a ledger has to answer, read off the model's lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from fix_model import DUE, GONE, HELD, KEPT, NEVER, Fate, Model, Spot
from fix_model_events import Record, lasting, sections

from custody_sync.ledger import Repair
from custody_sync.ledger.storage import Account, Compared, Held, Unaccounted, Waiting
from custody_sync.model import ERASED_ID, Entry, Event, Fact, Observation, Placement, Provenance, Standing
from custody_sync.recalled import Belief, Followed, Link

T = TypeVar("T")


class Answers:
    """The questions of `Ledger`, asked of a model at a moment of some clock."""

    def __init__(self, model: Model, now: datetime) -> None:
        self._model = model
        self._tx = model.log[-1].tx if model.log else None
        self._now = now
        self._present = now if self._tx is None else max(now, self._tx)

    def as_of(
        self,
        valid_at: datetime | None = None,
        tx_at: datetime | None = None,
        include_claimed: bool = False,
        **only: str,
    ) -> tuple[list[Fact], int]:
        """Return what was believed, and the head that the answer is of."""
        valid_at, head = self.instants(valid_at, tx_at)
        believed = [
            known
            for known in self._model.facts.values()
            if self._counts(known, valid_at, head, include_claimed)
            and all(known.name(which) == wanted for which, wanted in only.items())
        ]
        return [self._fact(known, head) for known in believed], head

    def instants(self, valid_at: datetime | None, tx_at: datetime | None) -> tuple[datetime, int]:
        """Return the valid time and the head that a question is answered at."""
        times = [record.tx for record in self._model.log]
        head = sum(tx_at is None or time <= tx_at for time in times)
        if valid_at is None:
            valid_at = max(self._now, times[head - 1]) if head else self._now
        return valid_at, head

    def _counts(self, known: Fate, valid_at: datetime, head: int, include_claimed: bool) -> bool:
        fact = known.fact
        if known.seq > head or known.retract <= head or known.forget <= head:
            return False
        if fact.valid_from > valid_at or (fact.valid_to is not None and fact.valid_to <= valid_at):
            return False
        return include_claimed if known.effect > head else not self._is_covered(known, valid_at, head)

    def _is_covered(self, known: Fate, valid_at: datetime, head: int) -> bool:
        return any(
            known.effect < link.effect <= head < link.retract and link.fact.valid_from <= valid_at
            for link in self._model.chain(known)
        )

    def follow(
        self, entries: Sequence[Entry], valid_at: datetime | None, tx_at: datetime | None, claimed: bool
    ) -> list[Followed]:
        """Return where entries lead: to what `as_of` has of their chain, or to a claim itself."""
        at, head = self.instants(valid_at, tx_at)
        return [self._followed(entry, at, head, claimed) for entry in entries]

    def _followed(self, entry: Entry, valid_at: datetime, head: int, claimed: bool) -> Followed:
        owner = entry.fact_id
        if owner is None:
            # What stands for an erased id is no entry's own; what was seen gone may have come back.
            is_own = not entry.external_id.startswith(ERASED_ID)
            spots = self._model.found_at(entry.store, entry.external_id) if is_own else []
            spots = [spot for spot in spots if spot.scope == entry.scope]
            owner = max(spots, key=lambda spot: (spot.state is not GONE, spot.at)).fact_id if spots else None
        known = self._model.facts.get(owner or "")
        if known is not None and entry.fact_id is None:
            # Another text under the id is somebody else's; of a forgotten one nobody can tell.
            texts = {entry.text, self._fact(known, head).text} - {None}
            if len(texts) > 1:
                return Followed(Belief.UNKNOWN, None, None)
        if known is None:
            return Followed(self._of_no_fact(owner or "", head), owner, None)
        if claimed and head < known.effect and self._counts(known, valid_at, head, claimed):
            return Followed(Belief.CLAIMED, owner, self._fact(known, head))
        live = [link for link in self._model.chain(known) if self._counts(link, valid_at, head, False)]
        assert len(live) <= 1, "two links of a chain are believed"
        belief = self._belief(known, valid_at, head)
        return Followed(belief, owner, self._fact(live[0], head) if live else None)

    def _of_no_fact(self, fact_id: str, head: int) -> Belief:
        log = self._model.log
        repairs = [r.seq for r in log if isinstance(r.draft, Repair) and r.draft.fact_id == fact_id]
        if not repairs:
            return Belief.UNKNOWN
        return Belief.REPAIRED if repairs[0] <= head else Belief.LATER

    def _belief(self, known: Fate, valid_at: datetime, head: int) -> Belief:
        fact = known.fact
        for belief, holds in (
            (Belief.LATER, known.seq > head),
            (Belief.FORGOTTEN, known.forget <= head),
            (Belief.RETRACTED, known.retract <= head),
            (Belief.CLAIMED, known.effect > head),
            (Belief.LATER, fact.valid_from > valid_at),
            (Belief.SUPERSEDED, self._is_covered(known, valid_at, head)),
            (Belief.ENDED, fact.valid_to is not None and fact.valid_to <= valid_at),
        ):
            if holds:
                return belief
        return Belief.BELIEVED

    def links(
        self, fact_ids: Sequence[str], valid_at: datetime | None, tx_at: datetime | None
    ) -> list[tuple[Link, ...]]:
        """Return the chains of facts as the ledger knew them."""
        at, head = self.instants(valid_at, tx_at)
        chains = []
        for fact_id in fact_ids:
            known = self._model.facts.get(fact_id)
            chain = [] if known is None else self._model.chain(known)
            links = [Link(self._fact(link, head), self._belief(link, at, head)) for link in chain]
            chains.append(tuple(link for link in links if (link.fact.seq or 0) <= head))
        return chains

    def _fact(self, known: Fate, head: int) -> Fact:
        fact, gone = known.fact, known.forget < NEVER
        seen = None if gone or fact.evidence is None else fact.evidence
        return Fact(
            fact_id=fact.fact_id,
            space=known.name("space"),
            subject=known.name("subject"),
            predicate=known.name("predicate"),
            value=None if gone else fact.value,
            text=None if gone else fact.text,
            actor=fact.actor,
            provenance=fact.provenance,
            valid_from=fact.valid_from,
            valid_to=fact.valid_to,
            supersedes=fact.supersedes,
            receipt_id=fact.receipt_id,
            tx_time=known.tx,
            seq=known.seq,
            confirmed=fact.provenance is Provenance.CLAIMED and known.effect <= head,
            forgotten=gone,
            evidence=None
            if seen is None
            else Observation(source=seen.source, path=seen.path, value=fact.value),
        )

    def get(self, fact_id: str) -> Fact | None:
        """Return a fact whatever its state."""
        known = self._model.facts.get(fact_id)
        return None if known is None else self._fact(known, self._model.head)

    def history(self, fact_id: str) -> list[Event]:
        """Return a fact's events, but for their hashes."""
        return [told(record) for record in self._model.log if record.draft.fact_id == fact_id]

    def known(self, ids: Iterable[str]) -> dict[str, Standing]:
        """Return who claimed each id."""
        return {fact_id: self._standing(fact_id) for fact_id in ids}

    def _standing(self, fact_id: str) -> Standing:
        if fact_id in self._model.facts:
            return Standing.ASSERTED
        return Standing.REPAIRED if fact_id in self._model.repaired else Standing.UNKNOWN

    def spaces(self) -> list[str]:
        """Return the spaces that have facts."""
        return sorted({known.name("space") for known in self._model.facts.values()} - {""})

    def accounts(self, **only: str) -> list[Account]:
        """Return what there is on each fact."""
        return [
            self._account(known)
            for known in self._model.facts.values()
            if all(known.name(which) == wanted for which, wanted in only.items())
        ]

    def _account(self, known: Fate) -> Account:
        covering = self._model.covering(known)
        return Account(
            seq=known.seq,
            fact_id=known.fact.fact_id,
            space=known.name("space"),
            subject=known.name("subject"),
            predicate=known.name("predicate"),
            learned_at=known.tx,
            superseded_at=self._model.log[covering[0].effect - 1].tx if covering else None,
            retracted=known.retract < NEVER,
            forgotten=known.forget < NEVER,
            identity_gone=known.anonymous,
            holds=tuple(sorted(known.holds)),
        )

    def placements(self, fact_id: str) -> list[Placement]:
        """Return a fact's entries."""
        return [spot.read() for spot in self._model.of(fact_id)]

    def pending(self) -> list[Placement]:
        """Return the entries that have to go."""
        return self._spots(lambda spot: spot.state is DUE)

    def removed(self) -> list[Placement]:
        """Return the entries that had to go."""
        return self._spots(lambda spot: spot.state in (DUE, GONE))

    def ended(self, store: str) -> list[Placement]:
        """Return a store's entries of facts that are over."""
        return self._spots(
            lambda spot: spot.store == store and spot.state in (HELD, KEPT) and self._is_over(spot)
        )

    def _spots(self, wanted: Callable[[Spot], bool]) -> list[Placement]:
        return [s.read() for s in sorted(self._model.spots, key=lambda spot: spot.at) if wanted(s)]

    def _over(self, until: datetime | None) -> bool:
        return until is not None and until <= self._present

    def owed(self, fact_id: str | None = None) -> list[tuple[str, str]]:
        """Return which store lacks which fact."""
        return sorted(
            (known.fact.fact_id, store)
            for known in self._model.facts.values()
            if fact_id in (None, known.fact.fact_id) and not self._over(self._model.end(known))
            for store in known.owed
            if known.fact.valid_from <= self._present
        )

    def waiting(self) -> list[Waiting]:
        """Return which store lacks which fact once it begins."""
        found = []
        for known in self._model.facts.values():
            begins, end = known.fact.valid_from, self._model.end(known)
            if begins > self._present and (end is None or end > begins):
                found += [Waiting(known.fact.fact_id, store, begins) for store in sorted(known.owed)]
        return found

    def _is_over(self, spot: Spot) -> bool:
        return self._over(self._model.until(spot))

    def unaccounted(self, store: str, pairs: Mapping[str, str], keep: bool) -> list[Unaccounted]:
        """Return the listed entries that no believed fact stands behind."""
        return [
            Unaccounted(row.external_id, pairs[row.external_id], row.standing, row.state, row.owner)
            for row in self.compare(store, pairs, keep)
            if not row.current or row.owner != pairs[row.external_id]
        ]

    def compare(self, store: str, listed: Mapping[str, str], keep: bool) -> list[Compared]:
        """Return what there is on each listed entry."""
        return [self._compared(store, external_id, listed[external_id], keep) for external_id in listed]

    def _compared(self, store: str, external_id: str, fact_id: str, keep: bool) -> Compared:
        spots = self._model.found_at(store, external_id)
        standing = self._standing(fact_id)
        if not spots:
            return Compared(external_id, None, None, None, standing, False, None)
        # What is not gone counts before what is, then the fact's own, then the latest.
        spot = max(spots, key=lambda s: (s.state is not GONE, s.fact_id == fact_id, s.at))
        current = (
            fact_id in ("", spot.fact_id)
            and spot.state in ((HELD, KEPT) if keep else (HELD,))
            and not self._is_over(spot)
        )
        fact = self.get(spot.fact_id) if current else None
        return Compared(external_id, place(spot), spot.fact_id, spot.state, standing, current, fact)

    def held(self, store: str) -> list[Held]:
        """Return a store's current entries."""
        spots = sorted(self._model.spots, key=lambda spot: spot.at)
        current = [s for s in spots if s.state in (HELD, KEPT) and not self._is_over(s)]
        return [Held(place(spot), spot.read()) for spot in current if spot.store == store]

    def lacking(self, store: str) -> list[str]:
        """Return the facts believed now that a store has none of."""
        having = {s.fact_id for s in self._model.spots if s.store == store and s.state in (HELD, KEPT)}
        return [fact.fact_id for fact in self.as_of()[0] if fact.fact_id not in having]


def place(spot: Spot) -> int:
    """Return a placement's place in the log, as ledgers number them."""
    seq, nth = spot.at
    return seq * 2**16 + nth


def told(record: Record) -> Event:
    """Return an event as a ledger tells it, but for the hashes."""
    draft, kept = record.draft, lasting(record.draft)
    return Event(
        seq=record.seq,
        event_id=draft.event_id,
        kind=kept["kind"],
        tx_time=record.tx,
        actor=draft.actor,
        receipt_id=draft.receipt_id,
        fact_id=draft.fact_id,
        data=kept["data"],
        sealed=record.left(),
        prev="",
        hash="",
        erased=tuple(sorted(sections(draft).keys() & record.gone)),
    )


def exported(record: Record) -> dict[str, Any]:
    """Return a line of an export, but for hashes and salts."""
    body = {**lasting(record.draft), "seq": record.seq, "tx_time": told(record).tx_time, "v": 1}
    return {"event": body, "commits": set(sections(record.draft)), "sealed": record.left()}
