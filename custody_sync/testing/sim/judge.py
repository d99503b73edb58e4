"""What has to hold at every moment of a run, checked when something happens and not afterwards.

The judge sees every commit at the instant it is made, and what really happens at every store,
which no process of the run ever does. It knows the ledger only by the bytes of its log.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from custody_sync.errors import CustodyError
from custody_sync.mended import AdoptResult
from custody_sync.model import REPAIR_MIN_AGE, Entry, Hit, Provenance, format_instant
from custody_sync.results import Fate, ForgetResult, ForgetWhereResult, WriteResult
from custody_sync.testing.sim.disk import LEDGER_ID, Disk
from custody_sync.testing.sim.log import Key, Log, LogBroken
from custody_sync.testing.sim.network import SimStore

OWN = "own-"
"""What every space and subject has in it that only the facts of one chain have."""
MADE: Mapping[str, frozenset[str]] = {
    name: frozenset(kinds.split())
    for name, kinds in {
        "write": "assert remove repair place",
        "supersede": "assert remove repair place",
        "confirm": "confirm remove repair place",
        "retract": "retract remove place",
        "forget": "forget remove place",
        "expire": "forget remove place",
        "hold": "hold",
        "release": "release",
        "repair": "remove repair place",
        "verify": "remove",
        "reconcile": "remove repair place",
        "adopt": "assert repair",
        "backfill": "place",
    }.items()
}
"""Which kinds of events each operation makes."""
SKEW = timedelta(seconds=60)
"""More than any two clocks of a run are apart."""
NEW = (
    "SELECT e.seq, e.body, e.hash, s.refs, s.content, s.content_salt, s.identity, s.identity_salt "
    "FROM events e LEFT JOIN sealed s ON s.seq = e.seq WHERE e.seq > ? ORDER BY e.seq"
)


@dataclass(frozen=True, slots=True)
class Violation:
    """What does not hold: an invariant of the design by its name, and what was seen."""

    invariant: str
    seen: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.seen}"


@dataclass(slots=True)
class Call:
    """One operation that was begun, and what became of it."""

    number: int
    operation: str
    process: Any
    before: datetime | None = None
    """Before when an entry has to be stored for this sweep to take it, where it was told."""
    state: str = "running"
    named: frozenset[str] = frozenset()
    """Once it has failed: the stores in which it says that something may be left."""
    began: int = 0
    """How many puts had landed before it."""
    seen: int = 0
    """How many events there were before it."""
    due: frozenset[Key] = frozenset()
    """Of a verification: what it has to ask about."""
    edited: frozenset[Key] = frozenset()
    """Of a reconciliation: the entries whose texts were not the ledger's when it began."""
    lost: frozenset[Key] = frozenset()
    """Of a reconciliation: the entries that stores had lost when it began."""
    identity: bool = False
    """Whether it was told to erase whom and what a fact is about as well."""
    space: str | None = None
    """Of an erasure of all of a space: which."""
    known: frozenset[str] = frozenset()
    """Of what is about whole spaces or stores: the facts that there were when it began."""


@dataclass(slots=True)
class Judge:
    """Watches one run."""

    stores: Mapping[str, SimStore] = field(default_factory=dict)
    log: Log = field(default_factory=Log)
    calls: list[Call] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    by_key: dict[str, set[str]] = field(default_factory=dict)
    """Which facts each idempotency key was answered with."""
    words: dict[str, str] = field(default_factory=dict)
    """By fact: the words that it alone has."""
    spaces: dict[str, str] = field(default_factory=dict)
    named: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By fact: the space and the subject that only its chain has."""
    salts: dict[str, list[bytes]] = field(default_factory=dict)
    """Of each fact's content."""
    identity_salts: dict[str, list[bytes]] = field(default_factory=dict)
    """Of each fact's identity, and of the reasons that were given."""
    erasing: dict[str, list[bytes]] = field(default_factory=dict)
    """Those that an erasure of the identity has to take: as they were when each fact was forgotten last."""
    erased: set[str] = field(default_factory=set)
    """The facts of which somebody was told that nothing is left in the ledger."""
    nameless: set[str] = field(default_factory=set)
    """The facts of which somebody was told that the ledger does not say any more whom they are about."""
    makers: dict[str, str] = field(default_factory=dict)
    """By actor: the operation that it was given to."""
    landed: dict[Key, int] = field(default_factory=dict)
    """Which put of the run each entry is of that landed last."""
    puts: int = 0
    served: dict[int, list[Sequence[Hit]]] = field(default_factory=dict)
    """What stores found for each operation, answer by answer."""
    put_by: dict[Key, int] = field(default_factory=dict)
    """Which operation's put each entry is of."""
    doubled: set[Key] = field(default_factory=set)
    """Entries of puts that the network delivered a second time."""
    gone: set[Key] = field(default_factory=set)
    """Entries that their store has called gone since they were put."""
    strangers: list[Key] = field(default_factory=list)
    """Entries that were there before, and are nobody's of this ledger."""
    adopted: dict[Key, str] = field(default_factory=dict)
    """Those of them that became facts."""
    lost: set[Key] = field(default_factory=set)
    """Entries that their store lost by itself."""
    edited: set[Key] = field(default_factory=set)
    """Entries whose text somebody has changed in their store."""
    checks: int = 0

    def fail(self, invariant: str, seen: str) -> None:
        """Note that something does not hold."""
        self.violations.append(Violation(invariant, seen))

    def expect(self, holds: object, invariant: str, seen: str) -> None:
        """Count a check, and note it if it fails."""
        self.checks += 1
        if not holds:
            self.fail(invariant, seen)

    # --- commits ----------------------------------------------------------------------------

    def committed(self, disk: Disk, now: datetime) -> None:
        """Take in what was just committed, and check what each event may not do."""
        for seq, body, digest, refs, *parts in disk.conn.execute(NEW, (len(self.log.events),)).fetchall():
            try:
                event = self.log.take(body, digest, refs)
            except LogBroken as broken:
                self.fail("I7", str(broken))
                return
            if event["kind"] == "assert" and parts[0] is not None:
                self._take_words(event["fact_id"], json.loads(parts[0]), json.loads(parts[2]))
            for name, text, salt in (("content", *parts[:2]), ("identity", *parts[2:])):
                if salt is not None:
                    commitment = hashlib.sha256(salt + text.encode()).hexdigest()
                    self.expect(
                        commitment == event["sealed"].get(name),
                        "I7",
                        f"event {seq}: {name} was not committed to",
                    )
                    salts = self.salts if name == "content" else self.identity_salts
                    salts.setdefault(event["fact_id"], []).append(salt)
            if event["data"].get("adopted"):
                self.adopted.update((key, event["fact_id"]) for key in self.log.fresh)
            self._check_event(event)

    def _take_words(self, fact_id: str, content: Mapping[str, Any], identity: Mapping[str, Any]) -> None:
        self.words[fact_id] = str(content["value"])
        self.spaces[fact_id] = identity["space"]
        self.named[fact_id] = tuple(
            name for name in (identity["space"], identity["subject"]) if name is not None and OWN in name
        )

    def _check_event(self, event: Mapping[str, Any]) -> None:
        kind, fact_id, log = event["kind"], event["fact_id"], self.log
        self._check_actor(event)
        if kind in ("assert", "repair"):
            both = fact_id in log.repaired and fact_id in log.asserted
            self.expect(not both, "I4", f"{fact_id} is asserted and repaired")
        if kind == "forget":
            salts = self.identity_salts.get(fact_id, [])
            # The erasure's own reason stays.
            self.erasing[fact_id] = salts[: len(salts) - ("identity" in event["sealed"])]
            holds = log.holds.get(fact_id)
            self.expect(not holds, "I4", f"{fact_id} was forgotten while {holds} stand")
        if kind == "hold":
            self.expect(fact_id not in log.forgotten, "I4", f"{fact_id} is held after it was forgotten")
        if kind in ("assert", "confirm", "place"):
            self._check_placed(event)
        if kind in ("assert", "confirm") and log.asserted[fact_id]["supersedes"] is not None:
            for at in (event["tx_time"], log.asserted[fact_id]["valid_from"]):
                two = log.split(at)
                self.expect(two is None, "I4", f"{two} are links of one chain, and both believed")
        if kind == "remove" and event["data"]["outcome"] == "verified":
            self._check_verified(event)

    def _check_actor(self, event: Mapping[str, Any]) -> None:
        """I7: whoever an event names was given to an operation that makes such events."""
        maker = self.makers.get(event["actor"], "nobody")
        made = MADE.get(maker.partition("_")[0], frozenset())
        self.expect(
            event["kind"] in made, "I7", f"event {event['seq']}, {event['kind']}, names the actor of {maker}"
        )

    def _check_placed(self, event: Mapping[str, Any]) -> None:
        for key in self.log.fresh:
            held = self.stores[key[0]].holds(key[1]) or key in self.lost
            self.expect(held, "I1", f"event {event['seq']} records {key}, and the store does not hold it")

    def _check_verified(self, event: Mapping[str, Any]) -> None:
        key = self.log.last
        asked = key in self.gone or key not in self.put_by
        self.expect(asked, "I5", f"event {event['seq']} calls {key} gone, and the store never said so")

    def changed(self, current: Set[Key]) -> set[Key]:
        """Return the entries that have to be there, and whose texts are somebody else's."""
        return {key for key in self.edited & current if self.stores[key[0]].holds(key[1])}

    def took_over(self, topic: str, until: str | None, now: datetime) -> None:
        """Check that a lease that was given to somebody else had lapsed."""
        lapsed = until is not None and until <= format_instant(now)
        self.expect(lapsed, "I3", f"at {now} the {topic} was given away that somebody else had until {until}")

    # --- stores -----------------------------------------------------------------------------

    def put_landed(self, store: str, ids: Sequence[str], call: int, *, again: bool) -> None:
        """Note entries that are there now; what comes after its call has failed has to have been named.

        What the network delivers a second time nobody can know of: it is the sweep's.
        """
        for external_id in ids:
            key = store, external_id
            self.puts += 1
            self.landed[key] = self.puts
            self.put_by[key] = call
            if again:
                self.doubled.add(key)
            self.gone.discard(key)
            self.lost.discard(key)
            self.edited.discard(key)
            # What has been called gone may come back by itself; it is another sweep's work then.
            self.log.verified.discard(key)
        if 0 <= call < len(self.calls) and not again:
            self._check_named(self.calls[call], [(store, external_id) for external_id in ids])

    def will_delete(self, store: SimStore, entry: Entry, call: int) -> None:
        """Check that an entry may go: recorded before, of no believed fact, and old enough for a sweep."""
        key = store.name, entry.external_id
        held = store.entry(entry.external_id)
        if held is None:
            return
        ours = held.ledger_id == LEDGER_ID or (held.ledger_id is None and key in self.adopted)
        self.expect(ours, "I3", f"{key} is not ours")
        if not ours:
            return
        now = store.time()
        believed = key not in self.log.doubtful and all(
            key in self.log.current(format_instant(at)) for at in (now - SKEW, now, now + SKEW)
        )
        self.expect(not believed, "I3", f"{key} is a placement of a believed fact, and was deleted")
        recorded, taken_back = key in self.log.placed or key in self.log.ended, self.put_by.get(key) == call
        self.expect(recorded or taken_back, "I3", f"{key} was deleted before its removal was recorded")
        if 0 <= call < len(self.calls) and key not in self.log.placed and not taken_back:
            self._check_age(self.calls[call], key, held.stored_at)

    def _check_age(self, call: Call, key: Key, stored_at: datetime | None) -> None:
        was_ordered = self.log.ordered.get(key, call.seen + 1) <= call.seen
        if not call.operation.startswith(("repair", "reconcile")) or stored_at is None or was_ordered:
            return
        cutoff = min(
            call.process.clock.now() - REPAIR_MIN_AGE,
            call.before or datetime.max.replace(tzinfo=stored_at.tzinfo),
        )
        self.expect(stored_at <= cutoff, "I3", f"{key} is of {stored_at}, and the sweep's cutoff is {cutoff}")

    def answered(self, store: str, entry: Entry, gone: bool) -> None:
        """Note what a store said of an entry."""
        if gone:
            self.gone.add((store, entry.external_id))
        else:
            self.gone.discard((store, entry.external_id))

    def searched(self, call: int, hits: Sequence[Hit]) -> None:
        """Note what a store has found."""
        self.served.setdefault(call, []).append(hits)

    # --- operations -------------------------------------------------------------------------

    def begin(self, operation: str, process: Any, actor: str) -> Call:
        """Note that an operation begins, and on whose behalf."""
        call = Call(len(self.calls), operation, process, began=self.puts, seen=len(self.log.events))
        self.calls.append(call)
        self.makers[actor] = operation
        return call

    def succeeded(self, call: Call, result: object, disk: Disk) -> None:
        """Check what an operation says it has done."""
        call.state = "done"
        if isinstance(result, WriteResult):
            self._check_write(call, result)
        if isinstance(result, AdoptResult):
            self.acknowledged += [one.fact_id for one in result.samples if one.fact_id in self.log.effective]
        if isinstance(result, ForgetResult | ForgetWhereResult) and result.complete:
            gone = {result.fact_id} if isinstance(result, ForgetResult) else _forgotten(result)
            self.erased |= gone
            if call.identity:
                self.nameless |= gone
            self.check_erased(disk)

    def _check_write(self, call: Call, result: WriteResult) -> None:
        fact, log = result.fact, self.log
        fact_id = fact.fact_id
        self.expect(fact_id in log.asserted, "I1", f"{fact_id} was acknowledged and is not recorded")
        # Another process's clock may be ahead, and what superseded this one has begun by the ledger's time.
        at = max(format_instant(call.process.clock.now()), log.events[-1]["tx_time"] if log.events else "")
        # A claim promises nothing of stores, also where somebody has confirmed it by now.
        is_claim = fact.provenance is Provenance.CLAIMED and not fact.confirmed
        if is_claim or fact_id not in log.asserted or fact_id not in log.effective:
            return
        self.acknowledged.append(fact_id)
        explained = log.explained(fact_id, at)
        for store in self.stores if not result.duplicate and not result.waiting else ():
            named = [(store, external_id) for external_id in result.placements.get(store, ())]
            # What was put somebody may have put anew since, as a reconciliation does with an edited entry.
            placed = [key for key, its in log.placed.items() if key[0] == store and its == fact_id]
            held = all(key in placed or key in log.ended for key in named) and any(
                self.stores[store].holds(key[1]) or key in self.lost for key in placed
            )
            self.expect(held or explained, "I1", f"{fact_id} was acknowledged and {store} does not hold it")

    def failed(self, call: Call, error: CustodyError) -> None:
        """Check that an error names what it left, and quotes nothing."""
        call.state = "failed"
        named = set(error.fields.get("left", ()))
        named |= {entry["store"] for entry in error.fields.get("entries", ())}
        call.named = frozenset(named)
        ours = [key for key, by in self.put_by.items() if by == call.number and key not in self.doubled]
        self._check_named(call, ours)
        self.check_quotes(f"{error!s} {error!r} {error.fields}", "an error")

    def cut(self, call: Call) -> None:
        """Note that nobody heard how an operation ended."""
        call.state = "cut"

    def _check_named(self, call: Call, keys: Sequence[Key]) -> None:
        """I5: what a failed operation may have left is named, also what lands afterwards."""
        if call.state != "failed":
            return
        for key in keys:
            left = (
                self.stores[key[0]].holds(key[1]) and key not in self.log.placed and key not in self.log.ended
            )
            self.expect(
                not left or key[0] in call.named,
                "I5",
                f"{call.operation} failed, left {key}, and named only {sorted(call.named)}",
            )

    def check_quotes(self, said: str, what: str) -> None:
        """I6: nothing that is said quotes a value."""
        for words in self.words.values():
            self.expect(not words or words not in said, "I6", f"{what} quotes a value")

    def check_erased(self, disk: Disk) -> None:
        """I6: of what was called erased neither the value nor its salt is in any byte of the ledger."""
        image = disk.image()
        for fact_id in self.erased:
            words = self.words.get(fact_id)
            self.expect(
                not words or words.encode() not in image, "I6", f"the value of {fact_id} is still there"
            )
            left = any(salt in image for salt in self.salts.get(fact_id, ()))
            self.expect(not left, "I6", f"the salt of {fact_id} is still there")
        others = {name for fact_id in self.named.keys() - self.nameless for name in self.named[fact_id]}
        for fact_id in self.nameless:
            names = [name for name in self.named.get(fact_id, ()) if name not in others]
            left = any(name.encode() in image for name in names)
            self.expect(not left, "I6", f"the space or the subject of {fact_id} is still there")
            left = any(salt in image for salt in self.erasing.get(fact_id, ()))
            self.expect(not left, "I6", f"a salt of the identity of {fact_id} is still there")


def _forgotten(result: ForgetWhereResult) -> set[str]:
    return {one.fact_id for one in result.with_fate(Fate.FORGOTTEN)}


__all__ = ["Call", "Judge", "Violation"]
