"""Holding what a store lists against the ledger: what is where it belongs, and says what it should.

The text that an entry is compared with is the ledger's own. No digest of it is kept for this: one would
outlive the erasure of the text.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import Any

from custody_sync.ledger import Ledger
from custody_sync.ledger.storage import Compared
from custody_sync.mended import Drift
from custody_sync.model import (
    MAX_SKEW,
    Capability,
    Entry,
    Fact,
    PlacementState,
    Provenance,
    Standing,
    format_instant,
    read_instant,
)
from custody_sync.repair.listing import Listing, refuse_mixed
from custody_sync.repair.marks import Marks
from custody_sync.repair.selection import Selection
from custody_sync.shown import Spoiled
from custody_sync.stores import Gate

ELSEWHERE = "its id stands for another fact"
UNLABELLED = "it has no label"
WAITS = "a claim, which no store is given: confirm or retract it"


@dataclass(frozen=True, slots=True)
class Drifted:
    """One difference, with what it takes to mend it."""

    kind: Drift
    entry: Entry
    """The entry as the store shows it, without its text; of a missing one as the ledger has it."""
    fact_id: str
    """The fact that it is about: the ledger's, where the label names another."""
    detail: str = ""
    recorded: bool = False
    """True when the ledger has its removal on record already."""


@dataclass(slots=True)
class Comparison:
    """What holding one store against the ledger came to so far."""

    gate: Gate
    head: int
    """The last event when the listing began: what was placed later may not be in it."""
    listing: Listing = field(default_factory=Listing)
    marks: Marks = field(default_factory=Marks)
    found: Counter[Drift] = field(default_factory=Counter)
    expected: int = 0
    """Current placements that it ought to hold."""
    uncompared: int = 0
    """Entries whose text it does not show."""
    unput: Counter[Drift] = field(default_factory=Counter)
    """Differences that are left as they are, so that nothing is put for them."""
    ordered: int = 0
    """Strays whose removal the ledger ordered already, which is nothing for a breaker to stop."""
    taken: set[str] = field(default_factory=set)
    """External ids of differences, since a listing may show an entry twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Tells of listed entries what differs.

    Args:
        ledger: what is right.
        selection: which spaces; what lies in no selected one is only counted.
        cutoff: an orphan or stray that is younger may be a write under way.
        now: the ledger's time when it began.
    """

    ledger: Ledger
    selection: Selection
    cutoff: datetime
    now: datetime

    async def judge(self, page: Sequence[Entry | Spoiled], comparison: Comparison) -> list[Drifted]:
        """Return the differences of a page; counts and marks go into the comparison."""
        gate, ours = comparison.gate, self.ledger.ledger_id
        entries = {row.external_id: row for row in page if isinstance(row, Entry)}
        listed = {
            external_id: entry.fact_id if entry.ledger_id == ours and entry.fact_id else ""
            for external_id, entry in entries.items()
        }
        answers = await self.ledger.compare(gate.name, listed, keep=gate.keeps)
        comparison.marks.add([a.place for a in answers if a.current and a.place is not None])
        drifted: list[Drifted] = []
        odd: list[tuple[Entry, Compared]] = []
        for entry, answer in zip(entries.values(), answers, strict=True):
            fact = answer.fact
            if fact is None or entry.ledger_id != ours:
                odd.append((entry, answer))
            elif _says_the_same(entry, fact, answer.stored_at):
                continue
            elif (found := self._altered(entry, fact, answer, comparison)) is not None:
                drifted.append(found)
        drifted += await self._odd(odd, comparison)
        unseen = [found for found in drifted if found.entry.external_id not in comparison.taken]
        comparison.taken.update(found.entry.external_id for found in unseen)
        comparison.found.update(found.kind for found in unseen)
        return unseen

    # --- what is where it belongs -------------------------------------------------------------

    def _altered(self, entry: Entry, fact: Fact, answer: Compared, comparison: Comparison) -> Drifted | None:
        if not self.selection.has_space(fact.space):
            return None
        if entry.text is None:
            comparison.uncompared += 1
        elif entry.text != fact.text:
            return _with_another_text(entry, fact)
        parts = differing_parts(entry, fact, answer.stored_at)
        if not parts:
            return None
        return Drifted(Drift.ALTERED_LABEL, _textless(entry), fact.fact_id, ", ".join(parts))

    # --- what is not, or has not our label ----------------------------------------------------

    async def _odd(self, odd: Sequence[tuple[Entry, Compared]], comparison: Comparison) -> list[Drifted]:
        """Sort out what has no label of ours, and what is no current placement of the fact it names."""
        found: list[Drifted] = []
        claimed: list[Entry] = []
        for entry, answer in odd:
            if entry.ledger_id == self.ledger.ledger_id:
                if _is_anothers(answer, entry):
                    claimed.append(entry)
                elif (one := self._loose(entry, answer, comparison)) is not None:
                    if one.kind is Drift.STRAY:
                        await refuse_mixed(self.ledger, comparison.gate, entry)
                    found.append(one)
            elif entry.ledger_id is not None:
                found += self._foreign(entry, answer, comparison)
            else:
                found += self._unlabelled(entry, answer, comparison)
        return found + await self._claimed(claimed, comparison)

    def _loose(self, entry: Entry, answer: Compared, comparison: Comparison) -> Drifted | None:
        """Return an orphan or a stray, or why nobody can say that it is one."""
        fact_id, shown = entry.fact_id or "", _textless(entry)
        if not self.selection.has_space(entry.space):
            return None
        if answer.state is PlacementState.DUE:
            comparison.ordered += entry.external_id not in comparison.taken
            return Drifted(Drift.STRAY, shown, fact_id, recorded=True)
        if (kind := self._undecided(entry)) is not None:
            return Drifted(kind, shown, fact_id)
        kind = Drift.STRAY if answer.standing is Standing.ASSERTED else Drift.ORPHAN
        recorded = answer.state is not None and answer.owner == fact_id
        return Drifted(kind, shown, fact_id, recorded=recorded)

    def _undecided(self, entry: Entry) -> Drift | None:
        since = entry.stored_at or read_instant(entry.created_at)
        if since is not None and since > self.now + MAX_SKEW:
            return Drift.UNDATED
        return Drift.YOUNG if since is None or since > self.cutoff else None

    def _foreign(self, entry: Entry, answer: Compared, comparison: Comparison) -> list[Drifted]:
        if answer.fact is None or not self.selection.has_space(answer.fact.space):
            comparison.found[Drift.FOREIGN] += 1
            return []
        # Another ledger stands behind it, perhaps a copy of this one: neither missing nor ours to change.
        detail = "our placement stands under another ledger's label"
        return [Drifted(Drift.FOREIGN, _textless(entry), answer.fact.fact_id, detail)]

    def _unlabelled(self, entry: Entry, answer: Compared, comparison: Comparison) -> list[Drifted]:
        """Leave alone what nobody labelled, unless it is on record: adopted, or stripped of its label."""
        fact = answer.fact
        if fact is None or not self.selection.has_space(fact.space):
            comparison.found[Drift.UNLABELLED] += 1
            return []
        if entry.text is not None and entry.text != fact.text:
            return [_with_another_text(entry, fact)]
        comparison.uncompared += entry.text is None
        if comparison.gate.can(Capability.RELABEL):
            return [Drifted(Drift.ALTERED_LABEL, _textless(entry), fact.fact_id, UNLABELLED)]
        comparison.found[Drift.UNLABELLED] += 1
        return []

    async def _claimed(self, entries: Sequence[Entry], comparison: Comparison) -> list[Drifted]:
        """Judge entries whose label names one fact while the ledger placed them for another."""
        if not entries:
            return []
        gate = comparison.gate
        answers = await self.ledger.compare(gate.name, {e.external_id: "" for e in entries}, keep=gate.keeps)
        found: list[Drifted] = []
        for entry, answer in zip(entries, answers, strict=True):
            shown = _textless(entry)
            if answer.fact is None or answer.place is None:
                found.append(Drifted(Drift.UNUSABLE, shown, entry.fact_id or "", ELSEWHERE))
                continue
            comparison.marks.add([answer.place])
            if not self.selection.has_space(answer.fact.space):
                continue
            if (kind := self._undecided(entry)) is not None:
                found.append(Drifted(kind, shown, entry.fact_id or ""))
            elif entry.text is not None and entry.text != answer.fact.text:
                found.append(_with_another_text(entry, answer.fact))
            else:
                comparison.uncompared += entry.text is None
                found.append(Drifted(Drift.ALTERED_LABEL, shown, answer.fact.fact_id, "fact_id"))
        return found


def _is_anothers(answer: Compared, entry: Entry) -> bool:
    return answer.owner not in (None, entry.fact_id) and answer.state is not PlacementState.GONE


def _textless(entry: Entry) -> Entry:
    """Return an entry as it may be kept until it is mended: beside the log no text has a place."""
    return replace(entry, text=None, custody=None)


def waits(fact: Fact) -> bool:
    """Tell whether a fact is a claim that nobody confirmed: stores hold it only where it was adopted."""
    return fact.provenance is Provenance.CLAIMED and not fact.confirmed


def _with_another_text(entry: Entry, fact: Fact) -> Drifted:
    detail = WAITS if waits(fact) else ""
    return Drifted(Drift.ALTERED_TEXT, _textless(entry), fact.fact_id, detail)


# --- what a label says --------------------------------------------------------------------------


def _says_the_same(entry: Entry, fact: Fact, stored_at: datetime | None) -> bool:
    """Tell at a look that an entry says what nearly all say; what this misses may be right all the same."""
    text, generation, custody = entry.text, entry.generation, entry.custody
    if (
        text is None
        or text != fact.text
        or entry.space != fact.space
        or entry.stored_at != stored_at
        or generation is None
        or custody is None
        or not generation.isalnum()
        or (generation not in entry.external_id and entry.external_id.startswith(fact.fact_id))
    ):
        return False
    provenance = _provenance(fact) if fact.confirmed else fact.provenance
    said = (
        f'{{"actor":{_quoted(fact.actor)},"generation":"{generation}","provenance":"{provenance}",'
        f'"receipt_id":{_quoted(fact.receipt_id)},"valid_from":"'
    )
    if not (custody.startswith(said) and custody.endswith('"}')):
        return False
    # Reading an instant takes a quarter of what writing one takes.
    return read_instant(custody[len(said) : -2]) == fact.valid_from


@lru_cache(maxsize=1024)
def _quoted(text: str | None) -> str:
    return json.dumps(text)


def _provenance(fact: Fact) -> Provenance:
    """Return what a label says of it: a claim that was confirmed is attested there."""
    confirmed = fact.confirmed and fact.provenance is Provenance.CLAIMED
    return Provenance.ATTESTED if confirmed else fact.provenance


def differing_parts(entry: Entry, fact: Fact, stored_at: datetime | None) -> list[str]:
    """Name the parts of an entry's label that say something else than the ledger; no value is given away."""
    parts = []
    if entry.space != fact.space:
        parts.append("space")
    if stored_at is not None and entry.stored_at != stored_at:
        parts.append("stored_at")
    if entry.custody is None:
        # Whoever read the label did not tell it.
        return parts
    said = _read(entry.custody)
    wanted = {
        "actor": fact.actor,
        "provenance": _provenance(fact).value,
        "receipt_id": fact.receipt_id,
        "valid_from": format_instant(fact.valid_from),
    }
    parts += [name for name, value in wanted.items() if said.get(name) != value]
    known, dot, embedded = entry.external_id.partition(".")
    generation = said.get("generation")
    if dot and known == fact.fact_id and not (generation and embedded.startswith(str(generation))):
        parts.append("generation")
    return parts


def _read(custody: str) -> dict[str, Any]:
    try:
        said = json.loads(custody)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


__all__ = ["WAITS", "Comparison", "Drifted", "Judge", "differing_parts", "waits"]
