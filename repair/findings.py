"""What a sweep collects on its way, and the result that becomes of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

from custody_sync.model import Erasure, Leftover, Outcome
from custody_sync.repair.listing import Candidate, Listing
from custody_sync.results import LastSweep, Repaired, RepairResult, Restored, Salvaged, Seen, Skipped


@dataclass(slots=True)
class Findings:
    """What a sweep collects on its way."""

    repaired: list[Repaired] = field(default_factory=list)
    restored: list[Restored] = field(default_factory=list)
    listings: dict[str, Listing] = field(default_factory=dict)
    unlisted: list[str] = field(default_factory=list)
    still_held: list[str] = field(default_factory=list)
    unrecorded: list[str] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    salvaged: list[Salvaged] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    resumed: datetime | None = None
    left_over: int = 0
    erasure: Erasure = Erasure.DONE

    def seen(self, name: str) -> tuple[Seen, ...]:
        """Gather one kind of left-alone entries over all stores."""
        return tuple(seen for listing in self.listings.values() for seen in getattr(listing, name))

    def name_odd(self) -> None:
        """Name what cannot be removed: what stands for another fact, and what cannot be used."""
        for name, listing in self.listings.items():
            if listing.failed is not None:
                self.still_held.append(listing.failed)
            self.unrecorded += [
                f"{seen.store}/{seen.external_id}: placed for another fact" for seen in listing.contested
            ]
            self.unrecorded += [
                f"{name}/{row.external_id}: cannot be used: {row.problem}" for row in listing.spoiled
            ]
            if listing.spoiled_more:
                self.unrecorded.append(f"{name}: {listing.spoiled_more} more entries cannot be used")

    def last(self, now: datetime) -> LastSweep:
        """Return what to keep of a finished sweep."""
        swept = [item for item in self.repaired if item.kind is not Leftover.PENDING]
        removed = Counter(item.store for item in swept if item.outcome is Outcome.VERIFIED)
        return LastSweep(
            finished_at=now,
            complete=self.result(now, dry_run=False).complete,
            scanned={name: listing.scanned for name, listing in self.listings.items()},
            orphans={name: listing.orphans for name, listing in self.listings.items()},
            strays={name: listing.strays for name, listing in self.listings.items()},
            still_held=tuple(self.still_held),
            removed={name: removed[name] for name in self.listings},
        )

    def result(self, cutoff: datetime, *, dry_run: bool) -> RepairResult:
        """Return what became of it all; complete only if nothing is left to do or to say."""
        done = all(item.outcome is Outcome.VERIFIED for item in self.repaired)
        placed = all(item.placed for item in self.restored)
        clean = not (self.still_held or self.unrecorded or self.seen("undated") or self.left_over)
        settled = all(item.settled for item in self.skipped)
        return RepairResult(
            before=cutoff,
            scanned={name: listing.scanned for name, listing in self.listings.items()},
            repaired=tuple(self.repaired),
            restored=tuple(self.restored),
            young=self.seen("young"),
            undated=self.seen("undated"),
            unlisted=tuple(self.unlisted),
            still_held=tuple(self.still_held),
            unrecorded=tuple(self.unrecorded),
            skipped=tuple(self.skipped),
            salvaged=tuple(self.salvaged),
            erasure=self.erasure,
            dry_run=dry_run,
            resumed=self.resumed,
            left_over=self.left_over,
            notices=tuple(self.notices),
            complete=done and placed and clean and settled and self.erasure is Erasure.DONE,
        )


def repaired_of(candidate: Candidate, outcome: Outcome, event_id: str | None, detail: str) -> Repaired:
    """Return what became of a candidate."""
    entry = candidate.entry
    return Repaired(
        store=entry.store,
        external_id=entry.external_id,
        fact_id=entry.fact_id or "",
        kind=candidate.kind,
        outcome=outcome,
        event_id=event_id,
        detail=detail,
    )


__all__ = ["Findings", "repaired_of"]
