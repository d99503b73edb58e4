"""How far a sweep has come, kept beside the log, so that the next one goes on where it was killed."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from custody_sync.canonical import canonical
from custody_sync.ledger import Ledger
from custody_sync.ledger.storage import Note
from custody_sync.model import format_instant, read_instant
from custody_sync.repair.listing import Batch, Listing
from custody_sync.repair.selection import Selection
from custody_sync.repair.spool import Spool
from custody_sync.shown import Spoiled

TOPIC = "sweep-run"
KEY = "run"
OUTDATED = timedelta(days=1)
"""A sweep that has been lying for longer is begun anew: what it found may be long gone."""
FORM = 2


class Phase(StrEnum):
    """What a sweep does; it never goes back."""

    LISTING = "listing"
    WORKING = "working"


@dataclass(slots=True, kw_only=True)
class Place:
    """Where in a store's listing a sweep is."""

    cursor: str | None = None
    done: bool = False


@dataclass(slots=True, kw_only=True)
class Progress:
    """One sweep: since when it runs, what it is about, and how far it has come."""

    run: str
    """Names it through all who go on with it; one whose lease lapsed must not meddle with the next."""
    about: str
    """Stands for its selection, whose space may name a person."""
    begun: datetime
    cutoff: datetime
    phase: Phase = Phase.LISTING
    listings: dict[str, Listing] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    spooled: int = 0
    worked: int = 0

    @classmethod
    def begin(
        cls, run: str, about: str, stores: Collection[str], now: datetime, cutoff: datetime
    ) -> Progress:
        """Begin a sweep of some stores."""
        return cls(
            run=run,
            about=about,
            begun=now,
            cutoff=cutoff,
            listings={name: Listing() for name in stores},
            places={name: Place() for name in stores},
        )

    def take(self, store: str, batch: Batch) -> None:
        """Count what a batch of a store's listing came to."""
        listing, place = self.listings[store], self.places[store]
        for candidate in batch.candidates:
            if candidate.is_orphan:
                listing.orphans += 1
            else:
                listing.strays += 1
        listing.young += batch.young
        listing.undated += batch.undated
        listing.contested += batch.contested
        place.cursor = batch.cursor
        self.spooled += len(batch.candidates)

    def note(self, now: datetime, of: tuple[str, Batch] | None = None) -> Note:
        """Return the note that keeps it; of a listing that runs ahead only what came of its last batch.

        It says whether it, or a row beside it, names entries: cursors and ids are a store's, and may say
        whose they are, so an erasure of an identity takes such a run as a whole.
        """
        stores = {}
        for name, listing in self.listings.items():
            at = of[1] if of is not None and of[0] == name else None
            spoiled = listing.spoiled if at is None else at.spoiled
            stores[name] = {
                "cursor": None if self.places[name].done else self.places[name].cursor,
                "done": self.places[name].done,
                "failed": listing.failed,
                "scanned": listing.scanned if at is None else at.scanned,
                "labelled": listing.labelled if at is None else at.labelled,
                "orphans": listing.orphans,
                "strays": listing.strays,
                "spoiled": [[row.external_id, row.ledger_id, row.problem] for row in spoiled],
                "spoiled_more": listing.spoiled_more if at is None else at.spoiled_more,
            }
        said = {
            "form": FORM,
            "begun": format_instant(self.begun),
            "cutoff": format_instant(self.cutoff),
            "about": self.about,
            "names": self.worked < self.spooled or any(map(_names, stores.values())),
            "phase": self.phase.value,
            "spooled": self.spooled,
            "worked": self.worked,
            "stores": stores,
        }
        return Note(topic=TOPIC, key=KEY, value=json.dumps(said), holder=self.run, since=now)

    async def restart(self, store: str, spool: Spool) -> None:
        """Begin a store's listing anew, and drop what it had spooled; why it broke off stays."""
        await spool.drop_store(store)
        listing = self.listings[store]
        self.spooled -= listing.planned
        self.listings[store], self.places[store] = Listing(failed=listing.failed), Place()


def _names(state: Mapping[str, Any]) -> bool:
    return state["cursor"] is not None or bool(state["spoiled"])


def about_of(ledger: Ledger, selection: Selection) -> str:
    """Return what stands for a selection in rows that must not say it."""
    return ledger.keyed_id("sweep", canonical(selection.to_json()).decode())


async def find_run(
    ledger: Ledger, spool: Spool, stores: Collection[str], about: str, latest: datetime
) -> Progress | None:
    """Return the sweep that was interrupted, if it is the one that is wanted now; else None.

    It has to be about the same stores and spaces, younger than a day, and not to reach beyond `latest`.
    """
    notes = await ledger.notes(TOPIC, limit=1)
    said: Mapping[str, Any] = json.loads(notes[0].value) if notes else {}
    if said.get("form") != FORM:
        return None
    begun, cutoff = read_instant(said["begun"]), read_instant(said["cutoff"])
    if begun is None or cutoff is None or cutoff > latest:
        return None
    if said["about"] != about or set(said["stores"]) != set(stores):
        return None
    if ledger.now() - begun > OUTDATED:
        return None
    run = Progress(
        run=notes[0].holder or "",
        about=about,
        begun=begun,
        cutoff=cutoff,
        phase=Phase(said["phase"]),
        spooled=said["spooled"],
        worked=said["worked"],
    )
    for name, state in said["stores"].items():
        run.places[name] = Place(cursor=state["cursor"], done=state["done"])
        run.listings[name] = Listing(
            scanned=state["scanned"],
            labelled=state["labelled"],
            orphans=state["orphans"],
            strays=state["strays"],
            spoiled=[Spoiled(*row) for row in state["spoiled"]],
            spoiled_more=state["spoiled_more"],
            failed=state["failed"],
        )
    spool.run = run.run
    async for kind, seen in spool.seen():
        getattr(run.listings[seen.store], kind).append(seen)
    return run


__all__ = ["Phase", "Progress", "about_of", "find_run"]
