"""What a run of adopting counts on its way; nothing in it grows with the store."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from custody_sync.mended import AdoptResult, Sample
from custody_sync.model import Entry, Fact
from custody_sync.repair.tally import Tally

SAMPLES = 20
SPACES = 1000


@dataclass(slots=True)
class AdoptCount:
    """What a run collects on its way."""

    scanned: int = 0
    adopted: int = 0
    adopted_before: int = 0
    labelled: int = 0
    ours: int = 0
    foreign: int = 0
    skipped: int = 0
    elsewhere: int = 0
    unseen: int = 0
    more: bool = False
    refused: Tally = field(default_factory=Tally)
    unlabelled: Tally = field(default_factory=Tally)
    spaces: Counter[str] = field(default_factory=Counter)
    samples: list[Sample] = field(default_factory=list)
    stopped: str | None = None

    def take(self, entry: Entry, fact: Fact) -> None:
        """Count an entry that became a fact, or would."""
        self.adopted += 1
        known = fact.space in self.spaces or len(self.spaces) < SPACES
        self.spaces[fact.space if known else ""] += 1
        if len(self.samples) < SAMPLES:
            found = Sample(
                external_id=entry.external_id, scope=entry.scope, space=fact.space, fact_id=fact.fact_id
            )
            self.samples.append(found)

    def result(self, store: str, *, no_labels: str, dry_run: bool) -> AdoptResult:
        """Say what the run came to."""
        return AdoptResult(
            store=store,
            scanned=self.scanned,
            adopted=self.adopted,
            adopted_before=self.adopted_before,
            labelled=self.labelled,
            ours=self.ours,
            foreign=self.foreign,
            skipped=self.skipped,
            refused=dict(self.refused.reasons),
            refusals=tuple(self.refused.named),
            unlabelled=dict(self.unlabelled.reasons),
            without_label=tuple(self.unlabelled.named),
            no_labels=no_labels,
            elsewhere=self.elsewhere,
            unseen=self.unseen,
            spaces=dict(self.spaces),
            samples=tuple(self.samples),
            more=self.more,
            stopped=self.stopped,
            dry_run=dry_run,
            complete=not (
                self.stopped or self.more or self.refused.count or self.unlabelled.count or self.unseen
            ),
        )


__all__ = ["AdoptCount"]
