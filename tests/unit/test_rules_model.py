"""The rules held against the model without any storage: random drafts, in groups of one to three."""

from __future__ import annotations

import os
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from fix_drafting import KINDS, MINUTE, Dice, Drafter, brief
from fix_ledger import START
from fix_model import HELD, KEPT, NEVER, TICK, Fate, Model
from fix_model_answers import told
from fix_model_events import Record, sections, written
from fix_rules import check_sentence
from fix_tables import Tables

from custody_sync.errors import Refused
from custody_sync.ledger.chain import GENESIS, Prepared, prepare
from custody_sync.ledger.drafts import Draft
from custody_sync.ledger.rows import place_of
from custody_sync.ledger.rules import Group, event_of
from custody_sync.model import Event, Standing
from custody_sync.testing import ManualClock, SteppingIds

STEPS = (TICK, MINUTE, 5 * MINUTE, 11 * MINUTE, 60 * MINUTE, -MINUTE, 0 * MINUTE, 0 * MINUTE)
STORIES = 2_000 if os.environ.get("CUSTODY_SYNC_FULL") else 120
GROUPS = 30
PARTS = 4


class Telling:
    """One story: the rules over tables on one side, the model on the other."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.clock = ManualClock(START)
        self.model, self.tables = Model(), Tables()
        self.drafter = Drafter(self.clock, model=self.model)
        self.salts = SteppingIds()
        self.drafts: list[Draft] = []

    def go_on(self) -> None:
        """Let time pass, append one group, and hold everything against the model."""
        self.clock.set(self.clock.now() + self.chance.choice(STEPS))
        drafts = [self._draft() for _ in range(self.chance.choice((1, 1, 2, 3)))]
        before = self._beliefs()
        prepared = [prepare(draft, self.salts) for draft in drafts]
        group = self.tables.begin(prepared, self.clock.now())
        found: list[Event | str] = []
        for one, draft in zip(prepared, drafts, strict=True):
            found.append(self._admit(group, one))
            self._judge(found[-1], draft)
        events = self.tables.finish(group)
        self._check_events(events)
        self.check()
        if len(drafts) == 1 and self._beliefs() != before:
            assert self.tables.blocks[0] == self.model.head, "what is believed changed, and no block says so"
        self.drafts += drafts

    def _draft(self) -> Draft:
        dice = Dice(self.chance.getrandbits(96))
        if self.drafts and dice.one_in(8):
            return self.drafter.again(dice.of(self.drafts[-10:]), dice)
        return self.drafter.random(self.chance.choice(KINDS), dice)

    def _admit(self, group: Group, one: Prepared) -> Event | str:
        seen = repr((group.state, group.position))
        try:
            return event_of(group.admit(one))
        except Refused as error:
            refusal = error
        assert repr((group.state, group.position)) == seen, f"{refusal.code} changed something"
        check_sentence(refusal)
        return refusal.code

    def _judge(self, found: Event | str, draft: Draft) -> None:
        expected = self.model.append(draft, self.clock.now())
        if isinstance(found, str):
            assert isinstance(expected, set), f"{brief(draft)}: refused as {found}, and must be taken"
            assert found in expected, f"{brief(draft)}: refused as {found}, and must be as {expected}"
        else:
            assert isinstance(expected, Record), f"{brief(draft)}: taken, and must be refused as {expected}"
            assert (found.seq, found.tx_time) == (expected.seq, expected.tx)

    def _check_events(self, events: list[Event]) -> None:
        """What was appended is what the model has of it, with the erasures of its own group."""
        for event in events:
            wanted = told(self.model.log[event.seq - 1])
            before = self.tables.events[event.seq - 2].hash if event.seq > 1 else GENESIS
            assert replace(event, prev="", hash="") == wanted
            assert event.prev == before

    def _beliefs(self) -> dict[str, tuple[Any, ...]]:
        known = self.model.facts
        return {
            fact_id: (fate.effect, fate.retract, fate.forget, self.model.successor_begins(fate))
            for fact_id, fate in known.items()
            if fate.effect < NEVER
        }

    # --- everything that is kept, against everything that the model has ---------------------

    def check(self) -> None:
        """Compare facts, claims, placements, holds, debts and erasures."""
        model, tables = self.model, self.tables
        claims = dict.fromkeys(model.facts, Standing.ASSERTED)
        assert tables.claims == claims | dict.fromkeys(model.repaired, Standing.REPAIRED)
        assert tables.facts.keys() == model.facts.keys()
        for fact_id, fate in model.facts.items():
            self._check_fact(fact_id, fate)
        self._check_placements()
        holds = {(fact_id, hold) for fact_id, fate in model.facts.items() for hold in fate.holds}
        assert tables.holds.keys() == holds
        owed = {
            (fact_id, store): written(fate.fact.valid_from)
            for fact_id, fate in model.facts.items()
            for store in fate.owed
        }
        assert tables.owed == owed
        for record in model.log:
            mine = tables.gone[record.seq] & sections(record.draft).keys()
            assert mine == record.gone & sections(record.draft).keys(), f"erased of event {record.seq}"

    def _check_fact(self, fact_id: str, fate: Fate) -> None:
        row, fact = self.tables.facts[fact_id], fate.fact
        seqs = [None if seq == NEVER else seq for seq in (fate.effect, fate.retract, fate.forget)]
        assert [row.effect_seq, row.retract_seq, row.forget_seq] == seqs, fact_id
        assert (row.seq, row.root, row.supersedes) == (fate.seq, fate.root, fact.supersedes)
        assert [row.space, row.subject, row.predicate] == [
            fate.name(n) for n in ("space", "subject", "predicate")
        ]
        assert (row.valid_from, row.valid_to) == (written(fact.valid_from), written(fact.valid_to))
        assert row.identity_gone is fate.anonymous
        assert row.live is self.model.is_last(fate), f"{fact_id} is live: {row.live}"
        over = None if fate.retract < NEVER else self.model.successor_begins(fate)
        assert row.covered_from == written(over), fact_id

    def _check_placements(self) -> None:
        rows = sorted(self.tables.placements.values(), key=lambda row: (row.id, row.fact_id))
        spots = sorted(self.model.spots, key=lambda spot: (spot.at, spot.fact_id))
        fields = ("store", "external_id", "fact_id", "scope", "state", "outcome")
        mine = [(r.id, r.stored_at, *(getattr(r, f) for f in fields)) for r in rows]
        theirs = [(place_of(*s.at), written(s.stored_at), *(getattr(s, f) for f in fields)) for s in spots]
        assert mine == theirs
        for row, spot in zip(rows, spots, strict=True):
            if spot.state in (HELD, KEPT):
                assert row.until == written(self.model.until(spot)), f"{spot} is current until {row.until}"
            fate = self.model.facts.get(spot.fact_id)
            if fate is not None and spot.external_id == f"erased~{fate.seq}":
                assert row.until == written(fate.fact.valid_to)


@pytest.mark.parametrize("part", range(PARTS))
def test_the_rules_do_what_the_model_does(part: int) -> None:
    """Every draft is taken or refused as the design says, and only what is marked as changed has changed."""
    for seed in range(part * STORIES // PARTS, (part + 1) * STORIES // PARTS):
        story = Telling(seed)
        for _ in range(GROUPS):
            story.go_on()
