"""Forget and supersede racing sixteen readers: no answer that began after the call returned shows the text.

Readers are threads with ledger handles of their own, as other processes are. By default it takes
moments, on SQLite; CUSTODY_SYNC_FULL=1 races for a minute on each storage.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fix_ledger import STORAGES

from custody_sync import Coordinator, Entry, Fact, Hit, Label
from custody_sync.removal import Patience
from custody_sync.testing.embedding import WordEmbedder

FULL = bool(os.environ.get("CUSTODY_SYNC_FULL"))
SECONDS = 60.0 if FULL else 0.5
READERS, HANDLES, SLOTS, LINKS = 16, 4, 8, 4
NEVER = math.inf
PAUSES = (0.0, 0.01, 0.05, 0.3)
"""Seconds between two corrections, by slot: some are always under way, some last for many answers."""
BREATH = 0.005
"""Seconds between two answers; without it readers leave no time to write."""
PATIENCE = Patience(questions=2, first_wait=0.001, total=0.01, deletes=1)


class Hoard:
    """Serves every entry it was ever given of the subject that is asked for, the oldest first."""

    name = "memories"

    def __init__(self, entries: dict[str, list[Hit]]) -> None:
        self._entries = entries

    async def put(self, fact: Fact, label: Label) -> Sequence[str]:
        """Take an entry for good."""
        entry = Entry.from_metadata(
            label.to_metadata(), store=self.name, external_id=label.key, text=fact.text
        )
        self._entries.setdefault(fact.subject, []).append(Hit(entry=entry))
        return [label.key]

    async def delete(self, entry: Entry) -> None:
        """Say yes, and go on serving it."""

    async def search(self, query: str, k: int, spaces: Sequence[str] | None) -> list[Hit]:
        """Serve all there is of a subject."""
        return self._entries.get(query, [])[:k]


@dataclass
class Race:
    """What the writers did and when, for readers to hold their answers against."""

    subjects: list[str] = field(default_factory=lambda: [""] * SLOTS)
    written: dict[str, float] = field(default_factory=dict)
    """When the call that stated a text had returned."""
    ending: dict[str, float] = field(default_factory=dict)
    """When the call that ended it began."""
    ended: dict[str, float] = field(default_factory=dict)
    """When that had returned."""
    stop: threading.Event = field(default_factory=threading.Event)
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, custody: Coordinator, slot: int) -> None:
        """State a fact, correct it several times, forget it, begin anew."""
        for life in itertools.count():
            subject = f"subject{slot}x{life}"
            live, fact_id = "", None
            for link in range(LINKS):
                if self.stop.is_set():
                    return
                text = f"{subject} has plan {link}"
                self.subjects[slot] = subject
                self.ending[live] = time.monotonic()
                written = custody.write(
                    subject=subject, predicate="plan", value=text, text=text, space="org", actor="racer",
                    supersedes=fact_id,
                )  # fmt: skip
                self.written[text] = self.ended[live] = time.monotonic()
                live, fact_id = text, written.fact.fact_id
                self.stop.wait(PAUSES[slot % len(PAUSES)])
            self.ending[live] = time.monotonic()
            assert fact_id is not None
            custody.forget(fact_id, actor="racer", reason="asked to")
            self.ended[live] = time.monotonic()
            self.count(supersedes=LINKS - 1, forgets=1)

    def read(self, custody: Coordinator, seed: int) -> None:
        """Recall, and compare with what had happened before and by the end of it."""
        chance = random.Random(seed)
        while not self.stop.is_set():
            subject = chance.choice(self.subjects)
            if not subject:
                continue
            known = [text for text in list(self.written) if text.startswith(f"{subject} ")]
            began = time.monotonic()
            found = custody.recall(subject, k=50)
            over = time.monotonic()
            shown = [hit.text for hit in found.hits if hit.fact.subject == subject]
            stale = [text for text in shown if self.ended.get(text, NEVER) < began]
            due = [text for text in known if self.written[text] < began and self._lasts(text, over)]
            if stale or len(shown) > 1 or not set(due) <= set(shown):
                self.wrong.append(f"{subject}: {shown} though {stale} was over and {due} live")
            self.count(answers=1, due=len(due), dropped=sum(found.dropped.values()))
            self.stop.wait(BREATH)

    def _lasts(self, text: str, over: float) -> bool:
        return self.ending.get(text, NEVER) > over

    @property
    def was_one(self) -> bool:
        """Tell whether something was ended, something lasted, and readers saw both."""
        return min(self.counts[what] for what in ("forgets", "supersedes", "due", "dropped")) >= SLOTS

    def count(self, **more: int) -> None:
        """Add to what is counted."""
        with self._lock:
            self.counts.update(more)


def race(new_custody: Callable[[], Coordinator]) -> Race:
    """Let writers and readers race, and return what came of it."""
    racing = Race()
    with ExitStack() as opened:
        writers = opened.enter_context(new_custody())
        handles = [opened.enter_context(new_custody()) for _ in range(HANDLES)]
        with ThreadPoolExecutor(READERS + SLOTS) as threads:
            work = [threads.submit(racing.write, writers, slot) for slot in range(SLOTS)]
            work += [threads.submit(racing.read, handles[n % HANDLES], n) for n in range(READERS)]
            until = time.monotonic() + SECONDS
            # On a busy machine it goes on until there was a race at all.
            while (time.monotonic() < until or not racing.was_one) and not any(one.done() for one in work):
                racing.stop.wait(0.05)
            racing.stop.set()
        for one in work:
            one.result()
    return racing


def judge(racing: Race) -> None:
    """Hold both directions; with -s the figures are shown."""
    print(dict(racing.counts), racing.wrong[:5])
    assert racing.wrong == []
    assert racing.was_one


def _hoarding(folder: Path, scheme: str) -> Callable[[], Coordinator]:
    entries: dict[str, list[Hit]] = {}
    url = f"{scheme}:///{folder}/custody.{scheme}"
    return lambda: Coordinator(url, create=True, stores=[Hoard(entries)], patience=PATIENCE)


def _on_pgvector(uri: str) -> Callable[[], Coordinator]:
    """Return a maker over one Postgres, in which entries are really deleted."""
    from psycopg_pool import AsyncConnectionPool

    from custody_sync.adapters.pgvector import PgVectorStore

    def make() -> Coordinator:
        pool: AsyncConnectionPool[Any] = AsyncConnectionPool(uri, open=False, min_size=1, max_size=4)
        store = PgVectorStore(pool, table="facts", dimensions=64, embed=WordEmbedder(64))
        return Coordinator(uri, create=True, stores=[store], patience=PATIENCE)

    return make


@pytest.mark.timeout(SECONDS + 240)
@pytest.mark.storages(*STORAGES if FULL else ["sqlite"])
def test_no_reader_sees_what_was_over_before_it_began(
    tmp_path: Path, storage: str, request: pytest.FixtureRequest
) -> None:
    """Over a store that lets go of nothing, and over pgvector; and what is live is in every answer."""
    if storage == "postgres":
        judge(race(_on_pgvector(request.getfixturevalue("database_uri"))))
    else:
        judge(race(_hoarding(tmp_path, storage)))
