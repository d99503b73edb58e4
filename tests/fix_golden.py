"""The golden ledgers: made once by the code of their time, and opened as copies ever after."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from custody_sync.ledger import Ledger
from custody_sync.testing import ManualClock, testing_runtime

GOLDEN = Path(__file__).parent / "golden"
MADE = datetime(2026, 9, 1, 0, 33, tzinfo=UTC)
"""Where the clock stood when the golden ledger was closed."""


async def open_golden(path: Path, **options: Any) -> Ledger:
    """Open a copy of a golden ledger at the moment it was made."""
    return await Ledger.open(
        f"sqlite:///{path}", runtime=testing_runtime(clock=ManualClock(MADE), seed=9), **options
    )
