"""What the log says, worked out event by event from its bytes and from none of the ledger's own code.

The rules are those of the design, written plainly: who is believed at an instant, which entries
stores have to hold, and what an event may not do. Everything the ledger answers is held against this.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Key = tuple[str, str]
"""A store's name and an external id."""
FOREVER = "9"
"""Later than every instant as text."""


class LogBroken(Exception):
    """An event is not what its hash, its place or its form says."""


@dataclass(slots=True)
class Log:
    """The events so far and what follows from them."""

    events: list[Mapping[str, Any]] = field(default_factory=list)
    asserted: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """The lasting data of each fact's assert."""
    effective: dict[str, int] = field(default_factory=dict)
    """Since which event a fact counts: its assert, or the confirm of a claim."""
    retracted: set[str] = field(default_factory=set)
    forgotten: set[str] = field(default_factory=set)
    repaired: set[str] = field(default_factory=set)
    holds: dict[str, set[str]] = field(default_factory=dict)
    placed: dict[Key, str] = field(default_factory=dict)
    ended: set[Key] = field(default_factory=set)
    ordered: dict[Key, int] = field(default_factory=dict)
    """How many events there were when the first removal of each entry came."""
    """Entries whose removal is on record, whatever came of it, and those that a `place` replaces."""
    verified: set[Key] = field(default_factory=set)
    adopted: set[str] = field(default_factory=set)
    """The facts that were somebody's entry before, and are in its store alone."""
    kept: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By superseded fact: the stores whose policy keeps its entries."""
    doubtful: set[Key] = field(default_factory=set)
    """Entries of facts that something superseded: they may be due for good, though their fact comes back."""
    fresh: tuple[Key, ...] = ()
    """The entries that the last event placed."""
    last: Key | None = None
    """The entry that the last event is about, if it is about one."""
    prev: str = "0" * 64

    # --- taking in --------------------------------------------------------------------------

    def take(self, body: str, digest: str, refs: str | None) -> Mapping[str, Any]:
        """Check one stored event against its hash and its place, go one event further, and return it."""
        event: dict[str, Any] = json.loads(body)
        seq = len(self.events) + 1
        try:
            # All keys are plain words and all numbers whole, so this is what RFC 8785 writes.
            form = json.dumps(event, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            if hashlib.sha256(form.encode()).hexdigest() != digest:
                raise LogBroken(f"event {seq} is not what its hash says")
            if (event["seq"], event["prev"]) != (seq, self.prev):
                raise LogBroken(f"event {seq} does not follow the one before")
            if not event["actor"] or not event["tx_time"].endswith("Z"):
                raise LogBroken(f"event {seq} lacks its actor or its time")
            if self.events and event["tx_time"] <= self.events[-1]["tx_time"]:
                raise LogBroken(f"event {seq} is no later than the one before")
        except KeyError as missing:
            raise LogBroken(f"event {seq} lacks {missing.args[0]}") from None
        self.prev = digest
        self.events.append(event)
        self.follow(event, {} if refs is None else json.loads(refs))
        return event

    def follow(self, event: Mapping[str, Any], refs: Mapping[str, Any]) -> None:
        """Work out what follows from one more event, whose form was checked before."""
        kind, fact_id, data = event["kind"], event["fact_id"], event["data"]
        if kind == "assert":
            self.asserted[fact_id] = data
            if data.get("adopted"):
                self.adopted.add(fact_id)
        if kind == "confirm" or (kind == "assert" and data["provenance"] != "claimed"):
            self.effective[fact_id] = event["seq"]
            self.kept[self.asserted[fact_id]["supersedes"]] = tuple(data["kept"])
            self._doubt(self.asserted[fact_id]["supersedes"])
        elif kind == "retract":
            self.retracted.add(fact_id)
        elif kind == "forget":
            self.forgotten.add(fact_id)
        elif kind == "repair":
            self.repaired.add(fact_id)
        elif kind == "hold":
            self.holds.setdefault(fact_id, set()).add(data["hold_id"])
        elif kind == "release":
            self.holds.get(fact_id, set()).discard(data["hold_id"])
        self._follow_entries(kind, fact_id, data, refs)

    def _doubt(self, below: str | None) -> None:
        """Note that what a fact covers may be due: a removal that began goes on when the fact comes back."""
        covered: set[str] = set()
        while below is not None:
            covered.add(below)
            below = self.asserted[below]["supersedes"]
        if covered:
            self.doubtful |= {key for key, fact_id in self.placed.items() if fact_id in covered}

    def _follow_entries(
        self, kind: str, fact_id: str, data: Mapping[str, Any], refs: Mapping[str, Any]
    ) -> None:
        self.fresh = tuple((one["store"], one["external_id"]) for one in refs.get("placements", ()))
        for key in self.fresh:
            self.placed[key] = fact_id
            self.ended.discard(key)
            self.doubtful.discard(key)
            self.verified.discard(key)
        self.last = None
        self.ended.update((one["store"], one["external_id"]) for one in refs.get("replaces", ()))
        if kind in ("remove", "repair") and refs.get("external_id") is not None:
            key = data["store"], refs["external_id"]
            self.last = key
            self.ended.add(key)
            self.ordered.setdefault(key, len(self.events))
            self.verified.discard(key)
            if data.get("outcome") == "verified":
                self.verified.add(key)

    # --- what is believed -------------------------------------------------------------------

    def covered(self, at: str) -> set[str]:
        """Return every link below one that is in effect, not retracted and begun (L4)."""
        found: set[str] = set()
        for fact_id in self.effective:
            if fact_id in self.retracted or self.asserted[fact_id]["valid_from"] > at:
                continue
            below = self.asserted[fact_id]["supersedes"]
            while below is not None and below not in found:
                found.add(below)
                below = self.asserted[below]["supersedes"]
        return found

    def believed(self, at: str) -> set[str]:
        """Return the facts believed at an instant, as far as the log goes now."""
        live = self.effective.keys() - self.retracted - self.forgotten - self.covered(at)
        return {
            fact_id
            for fact_id in live
            if self.asserted[fact_id]["valid_from"] <= at < (self.asserted[fact_id]["valid_to"] or FOREVER)
        }

    def current(self, at: str) -> dict[Key, str]:
        """Return the entries that stores have to hold at an instant."""
        believed = self.believed(at)
        kept = self.covered(at) - self.retracted - self.forgotten if any(self.kept.values()) else set()
        return {
            key: fact_id
            for key, fact_id in self.placed.items()
            if key not in self.ended and (fact_id in believed or self._is_kept(key, fact_id, kept, at))
        }

    def quarantined(self) -> set[Key]:
        """Return the entries of adopted claims that wait: they stay where they were."""
        over = self.retracted | self.forgotten
        waiting = {one for one in self.adopted if one not in self.effective and one not in over}
        return {key for key, fact_id in self.placed.items() if fact_id in waiting and key not in self.ended}

    def _is_kept(self, key: Key, fact_id: str, kept: set[str], at: str) -> bool:
        if fact_id not in kept or key[0] not in self.kept.get(fact_id, ()):
            return False
        return at < (self.asserted[fact_id]["valid_to"] or FOREVER)

    def explained(self, fact_id: str, at: str) -> bool:
        """Tell whether the log says why a fact that was acknowledged is not believed at an instant."""
        data = self.asserted[fact_id]
        is_over = data["valid_from"] > at or (data["valid_to"] or FOREVER) <= at
        return is_over or fact_id in self.retracted | self.forgotten or fact_id in self.covered(at)

    def root(self, fact_id: str) -> str:
        """Return the first link of a fact's chain."""
        while (below := self.asserted[fact_id]["supersedes"]) is not None:
            fact_id = below
        return fact_id

    def split(self, at: str) -> tuple[str, str] | None:
        """Return two links of one chain that are both believed at an instant, if there are any (I4)."""
        roots: dict[str, str] = {}
        for fact_id in sorted(self.believed(at)):
            root = self.root(fact_id)
            if root in roots:
                return roots[root], fact_id
            roots[root] = fact_id
        return None


__all__ = ["Key", "Log", "LogBroken"]
