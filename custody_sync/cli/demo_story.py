"""The demo's seven steps. Each claim is checked where it is made; one that fails fails the demo."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from importlib import resources
from pathlib import Path
from typing import Any

from custody_sync.cli.demo_world import World, open_world
from custody_sync.cli.history import COLUMNS, rows_of
from custody_sync.cli.importing import Imported, write_lines
from custody_sync.cli.lines import Line, read_lines
from custody_sync.cli.output import Output
from custody_sync.coordinator import AsyncCoordinator
from custody_sync.errors import InvalidInput
from custody_sync.ledger import Ledger
from custody_sync.model import (
    Erasure,
    Outcome,
    Provenance,
    Standing,
)
from custody_sync.rawfiles import holds_any
from custody_sync.results import (
    RepairResult,
)
from custody_sync.runtime import Runtime
from custody_sync.testing.postgres import EmbeddedPostgres

OPERATOR = "operator:demo"
LOST = (
    "Ticket 30117: customer 3020 asks for a copy of every invoice of last year",
    "Ticket 30118: customer 7733 reports that the weekly parquet export stopped",
    "Ticket 30119: customer 5108 wants the bird maps moved to another project",
)
"""What the killed processes were writing."""
MOVED = timedelta(minutes=11)
CHILD_SECONDS = 30.0


class MovedClock:
    """The machine's clock, set forward by as much as the story says."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def now(self) -> datetime:
        """Return the machine's instant, moved."""
        return datetime.now(UTC) + self.ahead


class Story:
    """What is told and which claims failed. With `--json` the story goes to stderr."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self.failed: list[str] = []

    def tell(self, text: str) -> None:
        """Tell one line."""
        (self._output.note if self._output.json else self._output.line)(text)

    def step(self, number: int, title: str) -> None:
        """Begin a step."""
        self.tell("")
        self.tell(f"{number}. {title}")

    def claim(self, text: str, holds: bool) -> bool:
        """State a claim and whether it holds."""
        self.tell(f"   {'[ok]' if holds else '[FAILED]'} {text}")
        if not holds:
            self.failed.append(text)
        return holds

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Show a table beside the story."""
        (self._output.preview if self._output.json else self._output.table)(title, columns, rows)


async def tell_story(output: Output, raw: bytes | None, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Run the seven steps in a folder; return the document of `--json` and the claims that failed."""
    story, clock = Story(output), MovedClock()
    batches = _batches(raw)
    story.tell("Starting a Postgres with pgvector in a temporary folder; nothing of yours is touched.")
    postgres = EmbeddedPostgres()
    uri = await asyncio.to_thread(postgres.start)
    try:
        url = f"sqlite:///{folder / 'ledger.db'}"
        async with open_world(uri) as world:
            await world.set_up()
            ledger = await Ledger.open(url, create=True, runtime=Runtime(clock=clock), witness=False)
            async with (
                ledger,
                AsyncCoordinator(ledger, stores=world.stores, runtime=Runtime(clock=clock)) as custody,
            ):
                play = _Play(story, clock, world, ledger, custody, folder, url, uri)
                document = await play.until_erasure(batches)
            document["history_kinds"] = await _history(story, url, clock, play.repaired_id)
    finally:
        await asyncio.to_thread(postgres.stop)
    story.tell("")
    count = len(story.failed)
    story.tell(f"{count} claim{'s' if count > 1 else ''} failed." if count else "Every claim held.")
    return document, story.failed


def _batches(raw: bytes | None) -> list[list[Line]]:
    """Return the lines to import: the bundled file, or the user's own and the ones that the story needs."""
    bundled = resources.files("custody_sync.cli").joinpath("demo_facts.jsonl").read_bytes()
    lines = read_lines(bundled, actor=OPERATOR, provenance=Provenance.ATTESTED)
    if raw is None:
        return [lines]
    own = read_lines(raw, actor=OPERATOR, provenance=Provenance.ATTESTED)
    return [own, [line for line in lines if line.ref is not None and line.ref.startswith("story-")]]


class _Play:
    """One run of the story, and what later steps need to know of earlier ones."""

    def __init__(
        self,
        story: Story,
        clock: MovedClock,
        world: World,
        ledger: Ledger,
        custody: AsyncCoordinator,
        folder: Path,
        url: str,
        uri: str,
    ) -> None:
        self.story, self.clock, self.world = story, clock, world
        self.ledger, self.custody, self.folder = ledger, custody, folder
        self.url, self.uri = url, uri
        self.repaired_id = ""
        self._ids: dict[str, str] = {}
        self._told: set[str] = set()

    async def until_erasure(self, batches: Sequence[Sequence[Line]]) -> dict[str, Any]:
        """Play steps 1 to 6 and return what the document says of them."""
        document: dict[str, Any] = {"facts_written": await self._import(batches)}
        document["kills"] = await self._kill()
        document.update(await self._serve_orphans())
        document.update(await self._repair(document["orphans_before"]))
        document["superseded_served"] = await self._supersede()
        document.update(await self._erase())
        return document

    async def _import(self, batches: Sequence[Sequence[Line]]) -> int:
        self.story.step(1, "A support desk's facts are written to two stores and to the ledger.")
        written = 0
        for lines in batches:
            imported = await write_lines(self.custody, lines)
            _refuse_failures(imported)
            written += imported.written
            refs = {line.number: line.ref for line in lines}
            for number, result in imported.results.items():
                ref = refs[number]
                if ref is not None and ref.startswith("story-"):
                    self._ids[ref] = result.fact_id
            corrected = sum(line.corrects is not None for line in lines)
            self.story.tell(
                f"   {imported.written} facts imported, {corrected} of them correct an earlier one."
            )
            self.story.claim("every line is a fact and every store has caught up", imported.complete)
        for name, held in (await self.world.held()).items():
            self.story.tell(f"   store {name!r} now holds {len(held)} entries")
        return written

    async def _kill(self) -> int:
        self.story.step(
            2, "Three processes are killed after the stores took a write and before the ledger did."
        )
        kills = 0
        for number, text in enumerate(LOST, start=1):
            status = await self._child(text)
            killed = status == -signal.SIGKILL
            kills += killed
            self.story.tell(
                f"   process {number}: {'killed by SIGKILL' if killed else f'ended with {status}'}"
            )
        self.story.claim("all three died between stores and ledger", kills == len(LOST))
        return kills

    async def _child(self, text: str) -> int:
        with (self.folder / "killed.log").open("ab") as log:
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "custody_sync.cli.demo_child",
                self.url,
                self.uri,
                text,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            try:
                return await asyncio.wait_for(child.wait(), CHILD_SECONDS)
            except TimeoutError:
                child.kill()
                await child.wait()
                return 0

    async def _serve_orphans(self) -> dict[str, Any]:
        self.story.step(3, "The stores now serve memories that nobody stands behind.")
        orphans = await self._orphans()
        rows, served = [], True
        for text in LOST:
            for name, hits in (await self.world.search(text)).items():
                first = hits[0] if hits else None
                mine = first is not None and first.fact_id in orphans
                served = served and mine
                rows.append((name, first.text if first else "", "no" if mine else "yes"))
        self.story.table("best hit of each store's own search", ("store", "text", "in the ledger"), rows)
        count = sum(len(found) for found in orphans.values())
        self.story.claim(f"{count} entries are orphans: the ledger never heard of them", count > 0)
        self.story.claim("plain search of each store serves every one of them first", served)
        return {"orphans_before": count, "served_by_plain_search": served}

    async def _repair(self, before: int) -> dict[str, Any]:
        self.story.step(4, "A sweep leaves the young orphans alone, and eleven minutes later removes them.")
        early = await self._sweep()
        alone = not early.repaired and len(early.young) == before
        alone = alone and sum(map(len, (await self._orphans()).values())) == before
        self.story.tell(
            "   A write may take minutes, so an unrecorded entry is safe until it is ten minutes old."
        )
        self.story.claim(f"the sweep now saw {len(early.young)} young orphans and touched none", alone)
        doomed = await self._orphans()
        self.clock.ahead = MOVED
        self.story.tell("   The clock of ledger and coordinator moves eleven minutes ahead and stays there.")
        late = await self._sweep()
        self.repaired_id = next((r.fact_id for r in late.repaired if r.fact_id in doomed), "")
        after = sum(map(len, (await self._orphans()).values()))
        rows = [(r.store, r.external_id, r.kind.value, r.outcome.value) for r in late.repaired]
        self.story.table("repaired", ("store", "external id", "kind", "outcome"), rows)
        verified = [r for r in late.repaired if r.outcome is Outcome.VERIFIED]
        proven = len(verified) == before and late.complete
        self.story.claim("every orphan was removed, and its store asked whether it is gone", proven)
        served = [hit for text in LOST for hit in await self._hits(text) if hit in doomed]
        self.story.claim("no store holds or serves one any more", after == 0 and not served)
        repaired = [{"store": r.store, "outcome": r.outcome.value} for r in late.repaired]
        return {"young_left_alone": alone, "repaired": repaired, "orphans_after": after}

    async def _supersede(self) -> bool:
        self.story.step(5, "A price changes, and no store goes on quoting the old one.")
        old = self._ids["story-price"]
        result = await self.custody.write(
            subject="plan:studio",
            predicate="monthly price",
            value="59 EUR",
            text="The Studio plan costs 59 EUR a month",
            space="org",
            actor="agent:billing",
            supersedes=old,
        )
        hits = await self._hits("The Studio plan costs 49 EUR a month")
        served = old in hits
        self.story.claim("the correction is in both stores, the old price verified gone", result.complete)
        self.story.claim("searching for the old price finds the new one only", not served)
        self.story.claim("the new price is found", result.fact.fact_id in hits)
        return served

    async def _erase(self) -> dict[str, Any]:
        self.story.step(6, "A customer asks to be forgotten.")
        ids = [fact_id for ref, fact_id in self._ids.items() if ref.startswith("story-customer-")]
        values = await self._values(ids)
        self.story.claim("before: the customer's words are in the ledger's files", all(self._grep(values)))
        done: list[bool] = []
        for fact_id in ids:
            result = await self.custody.forget(fact_id, actor=OPERATOR, reason="request of the customer")
            done.append(result.complete and result.erasure is Erasure.DONE)
            self._notes(result.notes)
        asked = await self.custody.verify(actor=OPERATOR, fact_ids=ids)
        forgotten = [
            {
                "fact_id": fact_id,
                "stores": {r.store: r.outcome.value for r in asked.removals if r.fact_id == fact_id},
            }
            for fact_id in ids
        ]
        names = [store.name for store in self.world.stores]
        rows = [(f["fact_id"], *(_outcome(f["stores"], name) for name in names)) for f in forgotten]
        self.story.table("is it gone?", ("fact", *names), rows)
        self.story.claim("every store was asked and has none of it", asked.complete and all(done))
        served = [fact_id for value in values for fact_id in await self._hits(value) if fact_id in ids]
        self.story.claim("no store's own search serves any of it", not served)
        found = any(self._grep(values))
        self.story.claim("after: not one byte of it is in the ledger's files", not found)
        return {"forgotten": forgotten, "value_found_in_files": found}

    def _notes(self, notes: Sequence[str]) -> None:
        for note in notes:
            if note not in self._told:
                self._told.add(note)
                self.story.tell(f"   note: {note}")

    async def _sweep(self) -> RepairResult:
        return await self.custody.repair(actor=OPERATOR, reason="after the crashes")

    async def _orphans(self) -> dict[str, list[str]]:
        """Return what the stores hold that the ledger never heard of: fact id to external ids."""
        held = [entry for entries in (await self.world.held()).values() for entry in entries]
        known = await self.ledger.known(sorted({entry.fact_id for entry in held}))
        orphans: dict[str, list[str]] = {}
        for entry in held:
            if known.get(entry.fact_id, Standing.UNKNOWN) is not Standing.ASSERTED:
                orphans.setdefault(entry.fact_id, []).append(entry.external_id)
        return orphans

    async def _hits(self, text: str) -> list[str]:
        return [hit.fact_id for hits in (await self.world.search(text)).values() for hit in hits]

    async def _values(self, ids: Sequence[str]) -> list[str]:
        facts = [await self.ledger.get(fact_id) for fact_id in ids]
        return [str(fact.value) for fact in facts if fact is not None]

    def _grep(self, values: Sequence[str]) -> list[bool]:
        """Say for each value whether its bytes are in any file of the ledger's folder."""
        files = [path for path in sorted(self.folder.iterdir()) if path.is_file()]
        return [any(holds_any(file, [value.encode()]) for file in files) for value in values]


def _outcome(stores: Any, name: str) -> str:
    return str(stores.get(name, "-"))


def _refuse_failures(imported: Imported) -> None:
    for number, problem in sorted(imported.failures.items()):
        raise InvalidInput(field=f"line {number}", problem=str(problem["message"]).rstrip("."))


async def _history(story: Story, url: str, clock: MovedClock, fact_id: str) -> list[str]:
    story.step(7, "The ledger is opened again and tells what became of one of the orphans.")
    ledger = await Ledger.open(url, runtime=Runtime(clock=clock), witness=False)
    async with ledger:
        events = await ledger.history(fact_id) if fact_id else []
    story.table(f"history of {fact_id}", COLUMNS, rows_of(events))
    kinds = [event.kind.value for event in events]
    story.claim("its history begins with the repair, and it was never a fact", kinds[:1] == ["repair"])
    return kinds
