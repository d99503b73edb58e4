"""Turns random numbers into drafts that are mostly reasonable, often borderline, and at times absurd."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from fix_ledger import ACTOR, START, Drafts
from fix_model import AHEAD, NEVER, TICK, Fate, Model

from custody_sync.ledger import Assert, Confirm, Digest, Hold, Place, Release, Remove, Repair
from custody_sync.ledger.drafts import Draft
from custody_sync.model import Json, Observation, Outcome, Placement, Provenance

T = TypeVar("T")

STORES = ("memories", "agent")
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
FRESH = (timedelta(0),) * 9
AGES = (*FRESH, 5 * MINUTE, 5 * MINUTE + TICK, 9 * MINUTE, 10 * MINUTE - TICK, 10 * MINUTE, None)
VALUES: tuple[Json, ...] = (
    "pro",
    "",
    7,
    0.5,
    1e20,
    True,
    None,
    {"b": [1, {"a": "é😀"}], "a": None},
    '\x7f\n"\\',
)
USUAL = (None, (), False, ACTOR, "held", "attested")
KINDS = (
    *("state",) * 3,
    *("supersede",) * 5,
    *("retract",) * 3,
    *("confirm",) * 2,
    *("forget",) * 2,
    *("place",) * 2,
    *("repair",) * 2,
    *("remove",) * 4,
    "hold",
    "release",
)


@dataclass
class Dice:
    """A random number, taken apart into choices; 0 always takes the first."""

    number: int

    def of(self, options: Sequence[T]) -> T:
        """Choose one."""
        self.number, chosen = divmod(self.number, len(options))
        return options[chosen]

    def one_in(self, sides: int) -> bool:
        """Tell whether the rare case comes up."""
        return self.of(range(sides)) == sides - 1


@dataclass
class Drafter(Drafts):
    """Makes random drafts about what a model knows."""

    model: Model | None = None

    def random(self, kind: str, dice: Dice) -> Draft:
        """Return a new draft of a kind."""
        if not self._model.facts and not dice.one_in(4):
            kind = "state"
        draft: Draft = getattr(self, f"_{kind}")(dice)
        return draft

    def again(self, earlier: Draft, dice: Dice) -> Draft:
        """Return an earlier draft once more, or another one under its event id."""
        how = dice.of(("same", "same", "reason", "actor", "refs", "content", "any"))
        if how == "reason" and hasattr(earlier, "reason"):
            return replace(earlier, reason=dice.of((None, "why", "otherwise")))
        if how == "actor" and not isinstance(earlier, Assert):
            return replace(earlier, actor="agent:other", receipt_id=dice.of((None, "r1")))
        if how == "refs" and isinstance(earlier, Assert | Confirm | Place):
            if isinstance(earlier, Place) and earlier.replaces:
                return replace(earlier, replaces=earlier.replaces[dice.of((0, 1)) :])
            moved = tuple(replace(p, scope=dice.of((None, "elsewhere"))) for p in earlier.placements)
            return replace(earlier, placements=moved[dice.of((0, 1)) :])
        if how == "refs" and isinstance(earlier, Remove | Repair):
            return replace(earlier, scope="elsewhere")
        if how == "content" and isinstance(earlier, Assert):
            field, other = dice.of((("value", "other"), ("space", "elsewhere"), ("actor", "agent:other")))
            fact = replace(earlier.fact, **{field: other})
            if fact.evidence is not None:
                fact = replace(fact, evidence=replace(fact.evidence, value=fact.value))
            return replace(earlier, fact=fact)
        return (
            replace(self.random(dice.of(KINDS), dice), event_id=earlier.event_id) if how == "any" else earlier
        )

    # --- one method per kind of draft -------------------------------------------------------

    def _state(self, dice: Dice) -> Draft:
        names = self._names(dice)
        return self._asserting(dice, START + dice.of((0, 0, 1, 2, 3)) * HOUR, None, **names)

    def _supersede(self, dice: Dice) -> Draft:
        target = self._pick(dice, self._model.is_last)
        known = self._model.facts.get(target)
        if known is None:
            return self._asserting(dice, START, target, **self._names(dice))
        old = known.fact
        names = {name: getattr(old, name) for name in ("space", "subject", "predicate")}
        if dice.one_in(9):
            names |= {dice.of(tuple(names)): "another"}
        start = old.valid_from + dice.of((timedelta(0), HOUR, TICK, 2 * HOUR, -TICK, 3 * HOUR))
        if dice.one_in(4):
            start = max(old.valid_from, self.clock.now() + dice.of((TICK, AHEAD, AHEAD + TICK, 9 * MINUTE)))
        return self._asserting(dice, start, target, **names)

    def _asserting(self, dice: Dice, start: datetime, target: str | None, **names: Any) -> Draft:
        ids = [*self._model.facts, *self._model.repaired]
        more = {"fact_id": dice.of(ids)} if ids and dice.one_in(12) else {}
        value = dice.of(VALUES)
        length = dice.of((None, None, None, HOUR, 4 * HOUR, TICK))
        fact = self.fact(
            **names,
            **more,
            value=value,
            valid_from=start,
            valid_to=None if length is None else start + length,
            supersedes=target,
            receipt_id=dice.of((None, "r1")),
            provenance=dice.of((Provenance.ATTESTED, Provenance.CLAIMED)),
        )
        if fact.provenance is Provenance.ATTESTED and dice.one_in(4):
            seen = Observation(source="crm", path="/plan", value=value)
            fact = replace(fact, provenance=Provenance.VERIFIED, evidence=seen)
        placements, owes = self._put(fact.fact_id, dice), self._owes(dice)
        if owes and fact.provenance is not Provenance.CLAIMED:
            placements = tuple(p for p in placements if p.store not in owes)
        else:
            owes = ()
        return Assert(
            event_id=self.event_id(),
            fact=fact,
            placements=placements,
            owes=owes,
            kept=dice.of(((), ("memories",))),
            request=dice.of((None, "digest")),
            adopted=dice.one_in(4),
        )

    def _confirm(self, dice: Dice) -> Draft:
        target = self._pick(dice, lambda known: known.effect == known.retract == known.forget)
        kept, owes = dice.of(((), ("memories",))), self._owes(dice)
        placements = tuple(p for p in self._put(target, dice) if p.store not in owes)
        return Confirm(**self._act(target, dice), kept=kept, owes=owes, placements=placements)

    def _retract(self, dice: Dice) -> Draft:
        links = dice.of((True, False))

        def likely(known: Fate) -> bool:
            is_link = known.effect < NEVER and known.retract == NEVER
            return is_link and (not links or known.fact.supersedes is not None)

        return self.retract(self._pick(dice, likely), reason=self._reason(dice))

    def _forget(self, dice: Dice) -> Draft:
        target = self._pick(dice, lambda known: not known.anonymous)
        digest = dice.of((None, Digest("sha256", "ab" * 32)))
        return self.forget(target, digest, identity=dice.of((True, False)), reason=self._reason(dice))

    def _hold(self, dice: Dice) -> Draft:
        target = self._pick(dice, lambda known: known.forget == NEVER)
        return Hold(**self._act(target, dice), hold_id=dice.of(("h1", "h2")))

    def _release(self, dice: Dice) -> Draft:
        target = self._pick(dice, lambda known: bool(known.holds))
        return Release(**self._act(target, dice), hold_id=dice.of(("h1", "h2")))

    def _place(self, dice: Dice) -> Draft:
        if dice.one_in(3):
            return self._replace(dice)
        target = self._pick(dice, lambda known: bool(known.owed))
        known = self._model.facts.get(target)
        owing = sorted(known.owed) if known else []
        placements = self._put(target, dice)
        if owing and not dice.one_in(3):
            placements = self.held(target, [(dice.of(owing), self._new_id())])
        return Place(event_id=self.event_id(), fact_id=target, actor=ACTOR, placements=placements)

    def _replace(self, dice: Dice) -> Draft:
        spots = self._model.spots[::-1]
        current = [
            s for s in spots if s.state == "held" and self._model.is_last(self._model.facts[s.fact_id])
        ]
        if not current or dice.one_in(5):
            current = spots
        if not current:
            return self._place(dice)
        spot = dice.of(current[:4])
        more = [s for s in current if (s.fact_id, s.store) == (spot.fact_id, spot.store)]
        replaced = [(s.store, s.external_id) for s in dice.of(([spot], more, [spot, spots[-1]]))]
        draft = self._place(dice)
        assert isinstance(draft, Place)
        new = self.held(spot.fact_id, [(store, self._new_id()) for store in dict(replaced)])
        return replace(draft, fact_id=spot.fact_id, placements=new, replaces=tuple(dict.fromkeys(replaced)))

    def _repair(self, dice: Dice) -> Draft:
        orphans = [*sorted(self._model.repaired), *self._model.facts]
        orphan = dice.of(orphans) if orphans and dice.one_in(2) else f"orphan{next(self._ids)}"
        store, external_id = self._entry(dice)
        where: dict[str, Any] = {"store": store, "external_id": external_id}
        if dice.one_in(5):
            where = {}
        elif dice.one_in(2):
            where |= {"scope": "user", "stored_at": self.clock.now()}
        return self.repair(orphan, reason=self._reason(dice), **where)

    def _remove(self, dice: Dice) -> Draft:
        outcome = dice.of((Outcome.VERIFIED, Outcome.VERIFIED, *(o for o in Outcome if o != Outcome.PLANNED)))
        spots = sorted(self._model.spots, key=lambda spot: (spot.state != "due", spot.at))
        if spots and not dice.one_in(3):
            spot = dice.of(spots[:4])
            return self.remove(spot.fact_id, spot.store, spot.external_id, outcome, detail="asked")
        target = self._pick(dice, lambda known: known.retract < NEVER)
        store, external_id = self._entry(dice)
        return self.remove(
            target, store, external_id, outcome, stored_at=self._age(dice), scope=dice.of((None, "user"))
        )

    # --- what they are about ----------------------------------------------------------------

    @property
    def _model(self) -> Model:
        assert self.model is not None
        return self.model

    def _act(self, fact_id: str, dice: Dice) -> dict[str, Any]:
        return {
            "event_id": self.event_id(),
            "fact_id": fact_id,
            "actor": ACTOR,
            "receipt_id": dice.of((None, "r1")),
            "reason": self._reason(dice),
        }

    def _reason(self, dice: Dice) -> str | None:
        return dice.of((None, "why"))

    def _names(self, dice: Dice) -> dict[str, str]:
        return {
            "space": dice.of(("org", "team:a")),
            "subject": dice.of(("acct:42", "acct:7")),
            "predicate": dice.of(("plan", "owner")),
        }

    def _pick(self, dice: Dice, likely: Any) -> str:
        """Choose a fact id: mostly one that a draft makes sense for, and late rather than early."""
        known = [fact_id for fact_id, fate in reversed(self._model.facts.items()) if likely(fate)]
        if dice.one_in(5) or not known:
            known = [*reversed(self._model.facts), *sorted(self._model.repaired), "nobody"]
        return dice.of(known[:8])

    def _new_id(self) -> str:
        return f"{self.prefix}x{next(self._ids)}"

    def _entry(self, dice: Dice) -> tuple[str, str]:
        """Choose an entry: a new one, or one that is or was on record."""
        spots = self._model.spots
        if spots and dice.one_in(3):
            spot = dice.of(spots[-8:])
            return spot.store, spot.external_id
        return dice.of(STORES), self._new_id()

    def _age(self, dice: Dice) -> datetime | None:
        age = dice.of(AGES)
        return None if age is None else self.clock.now() - age

    def _owes(self, dice: Dice) -> tuple[str, ...]:
        return dice.of(((), (), ("memories",), STORES, ("agent",)))

    def _put(self, fact_id: str, dice: Dice) -> tuple[Placement, ...]:
        where = [self._entry(dice) for _ in range(dice.of((1, 0, 2)))]
        pairs = [(s, x) for s, x in dict.fromkeys(where) if not x.startswith("erased~")]
        return self.held(fact_id, pairs, stored_at=self._age(dice), scope=dice.of((None, "user")))


def brief(thing: Any) -> str:
    """Write a draft so that a story can be read: only what is not as usual."""
    if is_dataclass(thing):
        told = [(f.name, getattr(thing, f.name)) for f in fields(thing)]
        parts = [f"{name}={brief(value)}" for name, value in told if value not in USUAL]
        return f"{type(thing).__name__}({', '.join(parts)})"
    if isinstance(thing, tuple):
        return f"[{', '.join(map(brief, thing))}]"
    return f"{thing:%dT%H:%M:%S.%f}" if isinstance(thing, datetime) else str(thing)
