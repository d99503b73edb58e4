"""Bugs planted in a process that is to be killed; the judge has to find each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fix_planted
import pytest

from custody_sync.ledger import Assert
from custody_sync.recording import Recorder

Tell = Callable[[dict[str, Any]], None]


def acknowledged_before_the_commit(tell: Tell) -> None:
    """A write that nothing stands in the way of is acknowledged when its append begins."""
    append = Recorder.append

    async def hasty(self: Recorder, draft: Any, placements: Any = ()) -> Any:
        if isinstance(draft, Assert) and draft.fact.supersedes is None:
            tell({"kept": draft.fact_id})
        return await append(self, draft, placements)

    pytest.MonkeyPatch().setattr(Recorder, "append", hasty)


def sweep_judges_nothing(tell: Tell) -> None:
    """A sweep finds nothing that has to go."""
    fix_planted.sweep_judges_nothing(pytest.MonkeyPatch())


def drain_does_nothing(tell: Tell) -> None:
    """A repair leaves what is pending."""
    fix_planted.drain_does_nothing(pytest.MonkeyPatch())


PLANTS: dict[str, Callable[[Tell], None]] = {
    "acknowledged_before_the_commit": acknowledged_before_the_commit,
    "sweep_judges_nothing": sweep_judges_nothing,
    "drain_does_nothing": drain_does_nothing,
}
