"""A bench for the ledger's rules: no storage, drafts are admitted one by one."""

from __future__ import annotations

import re
from typing import Any

import pytest
from fix_ledger import START, Drafts

from custody_sync.errors import Refused
from custody_sync.ledger.chain import GENESIS, prepare
from custody_sync.ledger.drafts import Draft
from custody_sync.ledger.rules import Group, event_of
from custody_sync.ledger.state import Position, State
from custody_sync.model import Event, PlacementState
from custody_sync.testing import ManualClock, SteppingIds


class Bench(Drafts):
    """An empty log held in memory: drafts are admitted one by one, each seeing those before it."""

    def __init__(self) -> None:
        super().__init__(ManualClock(START))
        self.state_of = State()
        self.group = Group(self.state_of, Position(0, None, GENESIS), START)
        self._salts = SteppingIds()

    def do(self, draft: Draft) -> Event:
        """Admit a draft at the clock's time."""
        self.group.now = self.clock.now()
        return event_of(self.group.admit(prepare(draft, self._salts)))

    def add(self, *what: Any, **more: Any) -> str:
        """Assert a fact and return its id."""
        return self.do(self.state(*what, **more)).fact_id

    def refused(self, draft: Draft) -> str:
        """Return the code of a refusal, having made sure that it changed nothing."""
        before, seq = repr(self.state_of), self.group.position
        with pytest.raises(Refused) as caught:
            self.do(draft)
        assert (repr(self.state_of), self.group.position) == (before, seq)
        check_sentence(caught.value)
        return caught.value.code

    def live(self) -> set[str]:
        """Return the facts that belong in the stores."""
        return {fact_id for fact_id, row in self.state_of.facts.items() if row.live}

    def placed(self, fact_id: str) -> dict[tuple[str, str], PlacementState]:
        """Return a fact's placements with their states."""
        return {row.key: row.state for row in self.state_of.placements_of(fact_id)}


def check_sentence(refusal: Refused) -> None:
    """Hold a refusal to naming all that it is about: its sentence has no blank, and no None."""
    assert not {"?", "None"} & set(re.findall(r"\w+|\?", str(refusal))), str(refusal)


@pytest.fixture
def bench() -> Bench:
    """An empty log."""
    return Bench()
