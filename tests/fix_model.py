"""The ledger's rules once more, from the design and not from the code: plain, slow, without an index.

`Model.append` says what a ledger has to do with a draft: take it, answer with the event that it
became before, or refuse it with one of the codes of the rules that it breaks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from fix_model_events import Record, stores_of

from custody_sync.ledger import Assert, Confirm, Forget, Hold, Place, Release, Remove, Repair, Retract
from custody_sync.ledger.drafts import Draft
from custody_sync.model import Fact, Outcome, Placement, PlacementState, Provenance

HELD, KEPT, DUE, GONE = PlacementState.HELD, PlacementState.KEPT, PlacementState.DUE, PlacementState.GONE
NEVER = 10**9
TICK = timedelta(microseconds=1)
AHEAD = timedelta(minutes=4)
"""What begins so soon counts as begun where nobody says that it is to be placed only then."""
TOO_OLD = timedelta(minutes=5)
SETTLED = timedelta(minutes=10)


@dataclass
class Fate:
    """What became of one fact; events are named by their seq."""

    fact: Fact
    root: str
    """The first link of its chain: all that descend from one are one chain, in order of effect."""
    seq: int
    tx: datetime
    effect: int = NEVER
    retract: int = NEVER
    forget: int = NEVER
    anonymous: bool = False
    holds: set[str] = field(default_factory=set)
    owed: set[str] = field(default_factory=set)

    def name(self, which: str) -> str:
        """Return its space, subject or predicate as it reads now."""
        return "" if self.anonymous else str(getattr(self.fact, which))


@dataclass
class Spot:
    """One entry that a store holds, or held, of a fact, as the ledger has it on record."""

    store: str
    external_id: str
    fact_id: str
    scope: str | None
    stored_at: datetime | None
    at: tuple[int, int]
    """Its place in the log: the event that put it on record, and which of that event's entries it is."""
    stays: bool = False
    """Whether its store keeps it when what supersedes its fact begins."""
    state: PlacementState = HELD
    outcome: Outcome | None = None

    def read(self) -> Placement:
        """Return it as a ledger tells it."""
        return Placement(
            store=self.store,
            external_id=self.external_id,
            fact_id=self.fact_id,
            scope=self.scope,
            stored_at=self.stored_at,
            state=self.state,
            outcome=self.outcome,
        )


@dataclass
class Model:
    """The log and everything that follows from it, in lists."""

    log: list[Record] = field(default_factory=list)
    facts: dict[str, Fate] = field(default_factory=dict)
    repaired: set[str] = field(default_factory=set)
    spots: list[Spot] = field(default_factory=list)
    unscrubbed: dict[str, bool] = field(default_factory=dict)
    """Facts whose erasure has not been driven out of the files: whether their identity went."""

    @property
    def head(self) -> int:
        """The last event's seq."""
        return len(self.log)

    def copy(self) -> Model:
        """Return a model that goes its own way from here."""
        return Model(
            [replace(record, gone=set(record.gone)) for record in self.log],
            {f: replace(k, holds=set(k.holds), owed=set(k.owed)) for f, k in self.facts.items()},
            set(self.repaired),
            [replace(spot) for spot in self.spots],
            dict(self.unscrubbed),
        )

    def append(self, draft: Draft, now: datetime) -> Record | set[str]:
        """Return the event that a draft becomes or was, or the codes of which one must refuse it."""
        for record in self.log:
            if record.draft.event_id == draft.event_id:
                return record if record.is_same(draft) else {"duplicate_event"}
        tx = max(now, self.log[-1].tx + TICK) if self.log else now
        broken = self.broken(draft, now, tx)
        if broken:
            return broken
        record = Record(self.head + 1, tx, draft)
        self.log.append(record)
        self._take(draft, record)
        return record

    # --- which rules a draft breaks ---------------------------------------------------------

    def broken(self, draft: Draft, now: datetime, tx: datetime) -> set[str]:
        """Return the code of every rule that a draft breaks."""
        if isinstance(draft, Assert):
            taken = {"repaired_id"} if draft.fact_id in self.repaired else set()
            taken |= {"duplicate_fact"} if draft.fact_id in self.facts else set()
            return taken | self._replacing(draft.fact) | self._placing(draft.placements, now, draft.adopted)
        if isinstance(draft, Repair):
            return self._repairing(draft)
        if isinstance(draft, Remove):
            return self._removing(draft, now, tx)
        known = self.facts.get(draft.fact_id)
        if known is None:
            return {"repaired_id" if draft.fact_id in self.repaired else "unknown_fact"}
        if isinstance(draft, Hold):
            codes = {"forgotten"} if known.forget < NEVER else set()
            return codes | ({"duplicate_hold"} if draft.hold_id in known.holds else set())
        if isinstance(draft, Release):
            return set() if draft.hold_id in known.holds else {"no_such_hold"}
        if isinstance(draft, Forget):
            again = known.forget < NEVER and not (draft.identity and not known.anonymous)
            return ({"forgotten"} if again else set()) | ({"on_hold"} if known.holds else set())
        codes = self._ended(known)
        if isinstance(draft, Confirm):
            codes |= {"already_confirmed"} if known.effect < NEVER else set()
            return codes | self._replacing(known.fact) | self._placing(draft.placements, now)
        if isinstance(draft, Place):
            codes |= set() if self._is_believed(known, tx) else {"not_believed"}
            going = [self.spot(store, external_id, draft.fact_id) for store, external_id in draft.replaces]
            codes |= {"not_placed"} if any(s is None or s.state not in (HELD, KEPT) for s in going) else set()
            holding = {s.store for s in self.of(draft.fact_id) if s.state is HELD and s not in going}
            codes |= {"already_placed"} if holding & {p.store for p in draft.placements} else set()
            return codes | self._placing(draft.placements, now)
        assert isinstance(draft, Retract)
        return codes

    def _ended(self, known: Fate) -> set[str]:
        gone = {"forgotten": known.forget, "already_retracted": known.retract}
        return {code for code, seq in gone.items() if seq < NEVER}

    def _replacing(self, fact: Fact) -> set[str]:
        if fact.supersedes is None:
            return set()
        target = self.facts.get(fact.supersedes)
        if target is None:
            return {"repaired_id" if fact.supersedes in self.repaired else "unknown_fact"}
        same = all(getattr(fact, f) == getattr(target.fact, f) for f in ("space", "subject", "predicate"))
        return self._ended(target) | {
            code
            for code, broken in {
                "not_confirmed": target.effect == NEVER,
                "already_covered": bool(self.covering(target)),
                "other_statement": not same,
                "starts_too_early": fact.valid_from < target.fact.valid_from,
            }.items()
            if broken
        }

    def _placing(self, placements: Iterable[Placement], now: datetime, may_be_old: bool = False) -> set[str]:
        codes = set()
        for p in placements:
            for spot in self.found_at(p.store, p.external_id):
                mine, gone = spot.fact_id == p.fact_id, spot.state is GONE
                codes |= {"stale_placement"} if mine or gone else set()
                codes |= set() if mine else {"shared_entry"}
            if not may_be_old and (p.stored_at is None or now - p.stored_at > TOO_OLD):
                codes.add("stale_placement")
        return codes

    def _repairing(self, draft: Repair) -> set[str]:
        codes = {"asserted_id"} if draft.fact_id in self.facts else set()
        if draft.store is None or draft.external_id is None:
            return codes | ({"already_recorded"} if draft.fact_id in self.repaired else set())
        if self.spot(draft.store, draft.external_id, draft.fact_id) is not None:
            codes.add("already_recorded")
        return codes | self._anothers(draft.store, draft.external_id, draft.fact_id)

    def _removing(self, draft: Remove, now: datetime, tx: datetime) -> set[str]:
        if draft.fact_id not in self.facts and draft.fact_id not in self.repaired:
            return {"unknown_fact"}
        anothers = self._anothers(draft.store, draft.external_id, draft.fact_id)
        spot = self.spot(draft.store, draft.external_id, draft.fact_id)
        if spot is not None:
            until = self.until(spot)
            current = spot.state is HELD and (until is None or until > tx)
            return {"still_believed"} if current else anothers
        known = self.facts.get(draft.fact_id)
        may_be_under_way = draft.stored_at is None or now - draft.stored_at < SETTLED
        if known is not None and may_be_under_way and not self._ended(known):
            begins = self.successor_begins(known)
            if begins is None or begins > tx + AHEAD:
                return {"still_believed"}
        return anothers

    def _anothers(self, store: str, external_id: str, fact_id: str) -> set[str]:
        """An entry on record for another fact is nobody else's to remove until it was seen gone."""
        spots = self.found_at(store, external_id)
        return (
            {"still_believed"} if any(s.fact_id != fact_id and s.state is not GONE for s in spots) else set()
        )

    # --- what follows from an event ---------------------------------------------------------

    def _take(self, draft: Draft, record: Record) -> None:
        known = self.facts.get(draft.fact_id)
        if isinstance(draft, Assert):
            fact = draft.fact
            root = draft.fact_id if fact.supersedes is None else self.facts[fact.supersedes].root
            known = self.facts[draft.fact_id] = Fate(fact, root, record.seq, record.tx)
            if fact.provenance is not Provenance.CLAIMED:
                self._take_effect(known, draft, record)
        elif isinstance(draft, Repair):
            self.repaired.add(draft.fact_id)
            if draft.store is not None and draft.external_id is not None:
                self._record(draft, record, Outcome.STARTED)
        elif isinstance(draft, Remove):
            self._record(draft, record, draft.outcome)
        elif known is None:
            raise AssertionError("nothing else works on an id that was never asserted")
        elif isinstance(draft, Confirm):
            self._take_effect(known, draft, record)
        elif isinstance(draft, Retract):
            self._retract(known, record)
        elif isinstance(draft, Hold):
            known.holds.add(draft.hold_id)
        elif isinstance(draft, Release):
            known.holds.remove(draft.hold_id)
        elif isinstance(draft, Forget):
            self._forget(known, draft, record)
        elif isinstance(draft, Place):
            for spot in self.of(draft.fact_id):
                spot.state = DUE if (spot.store, spot.external_id) in draft.replaces else spot.state
        if isinstance(draft, Assert | Confirm | Place) and known is not None:
            known.owed -= {p.store for p in draft.placements}
            for n, p in enumerate(draft.placements):
                at = record.seq, n
                self.spots.append(Spot(p.store, p.external_id, p.fact_id, p.scope, p.stored_at, at))
        if known is not None:
            self._drop_addresses(known)

    def _take_effect(self, known: Fate, draft: Assert | Confirm, record: Record) -> None:
        known.effect, known.owed = record.seq, set(draft.owes)
        if known.fact.supersedes is None:
            return
        target = self.facts[known.fact.supersedes]
        spots = self.of(target.fact.fact_id)
        if known.fact.valid_from > record.tx + (timedelta(0) if draft.owes else AHEAD):
            # Until this one begins that one is believed; then it is over, but for what a store keeps.
            for spot in spots:
                spot.stays = spot.store in draft.kept
            return
        self._end(target, draft.kept)
        target.owed -= {spot.store for spot in spots}

    def _retract(self, known: Fate, record: Record) -> None:
        after = self.covering(known)
        known.retract, known.owed = record.seq, set()
        self._end(known, ())
        before = [link for link in self.chain(known) if link.effect < known.effect and link.retract == NEVER]
        if known.effect < NEVER and before and (not after or after[0].fact.valid_from > record.tx):
            self._restore(max(before, key=lambda link: link.effect), record)

    def _restore(self, known: Fate, record: Record) -> None:
        """What a retracted link covered is believed again, and owed to the stores that let it go."""
        if known.forget < NEVER:
            return
        for spot in self.of(known.fact.fact_id):
            if spot.state is KEPT:
                spot.state, spot.stays = HELD, True
        spots = self.of(known.fact.fact_id)
        if known.fact.valid_to is None or known.fact.valid_to > record.tx:
            known.owed |= {s.store for s in spots} - {s.store for s in spots if s.state is HELD}

    def _end(self, known: Fate, kept: tuple[str, ...]) -> None:
        """What stops being believed is due for removal, but for what a store keeps when it is superseded."""
        for spot in self.of(known.fact.fact_id):
            if spot.state is HELD and spot.store in kept:
                spot.state = KEPT
            elif spot.state in (HELD, KEPT):
                spot.state = DUE

    def _forget(self, known: Fate, draft: Forget, record: Record) -> None:
        known.forget = min(known.forget, record.seq)
        known.anonymous, known.owed = known.anonymous or draft.identity, set()
        self.unscrubbed[draft.fact_id] = known.anonymous
        self._end(known, ())
        for event in self.log:
            if event.draft.fact_id == draft.fact_id:
                event.gone.add("content")
                if draft.identity and event.seq < record.seq:
                    event.gone.add("identity")

    def _record(self, draft: Repair | Remove, record: Record, outcome: Outcome) -> None:
        assert draft.store is not None
        assert draft.external_id is not None
        spot = self.spot(draft.store, draft.external_id, draft.fact_id)
        if spot is None:
            where = draft.store, draft.external_id, draft.fact_id, draft.scope, draft.stored_at
            spot = Spot(*where, (record.seq, 0))
            self.spots.append(spot)
        spot.outcome = outcome
        spot.state = GONE if outcome is Outcome.VERIFIED else DUE

    def _drop_addresses(self, known: Fate) -> None:
        """Of an erased identity, scopes and external ids go once every entry was seen gone."""
        fact_id = known.fact.fact_id
        if not known.anonymous or any(s.state is not GONE for s in self.of(fact_id)):
            return
        self.unscrubbed[fact_id] = True
        self.spots = [s for s in self.spots if s.fact_id != fact_id]
        first: dict[str, tuple[int, int]] = {}
        for event in self.log:
            if event.draft.fact_id == fact_id:
                event.gone.add("refs")
                for n, store in enumerate(stores_of(event.draft)):
                    first.setdefault(store, (event.seq, n))
        for store, at in first.items():
            left = Spot(store, f"erased~{known.seq}", fact_id, None, None, at)
            left.state, left.outcome = GONE, Outcome.VERIFIED
            self.spots.append(left)

    # --- what everything above asks ---------------------------------------------------------

    def chain(self, known: Fate) -> list[Fate]:
        """Return every link of a fact's chain."""
        return [link for link in self.facts.values() if link.root == known.root]

    def covering(self, known: Fate) -> list[Fate]:
        """Return the later links that are in effect and not retracted, the first of them first."""
        links = self.chain(known)
        later = [link for link in links if known.effect < link.effect < NEVER and link.retract == NEVER]
        return sorted(later, key=lambda link: link.effect)

    def is_last(self, known: Fate) -> bool:
        """Tell whether a fact is in effect and the last link of its chain."""
        return known.effect < NEVER and not self._ended(known) and not self.covering(known)

    def _is_believed(self, known: Fate, now: datetime) -> bool:
        """Tell whether a fact belongs in the stores now."""
        if known.effect == NEVER or self._ended(known) or known.fact.valid_from > now:
            return False
        end = self.end(known)
        return end is None or end > now

    def successor_begins(self, known: Fate) -> datetime | None:
        """Return when what takes a fact's place begins, whether that is yet to come or not."""
        covering = self.covering(known)
        return covering[0].fact.valid_from if covering else None

    def end(self, known: Fate) -> datetime | None:
        """Return when a fact is believed no more."""
        ends = [end for end in (known.fact.valid_to, self.successor_begins(known)) if end is not None]
        return min(ends, default=None)

    def until(self, spot: Spot) -> datetime | None:
        """Return until when an entry is current that nothing else has ended."""
        known = self.facts.get(spot.fact_id)
        if known is None:
            return None
        return known.fact.valid_to if spot.stays or spot.state is KEPT else self.end(known)

    def found_at(self, store: str, external_id: str) -> list[Spot]:
        """Return what is on record for an entry, of whatever facts."""
        return [s for s in self.spots if (s.store, s.external_id) == (store, external_id)]

    def spot(self, store: str, external_id: str, fact_id: str) -> Spot | None:
        """Return what is on record for an entry of a fact."""
        return next((s for s in self.found_at(store, external_id) if s.fact_id == fact_id), None)

    def of(self, fact_id: str) -> list[Spot]:
        """Return a fact's entries in the order they were put on record."""
        return sorted((s for s in self.spots if s.fact_id == fact_id), key=lambda spot: spot.at)
