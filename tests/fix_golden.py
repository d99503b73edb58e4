"""The golden ledgers: made once by the code of their time, and opened as copies ever after."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from custody_sync.ledger import Ledger
from custody_sync.testing import ManualClock, testing_runtime

GOLDEN = Path(__file__).parent / "golden"
MADE = datetime(2026, 9, 1, 0, 33, tzinfo=UTC)
"""Where the clock stood when the golden ledger of schema version 1 was closed."""


@dataclass(frozen=True)
class Golden:
    """One golden ledger, and what the code of its time said of it."""

    version: int
    made: datetime
    """Where the clock stood when it was closed."""
    erased: tuple[bytes, ...]
    """What no file may hold any more."""
    tells_time: bool = True
    """Whether it was asked at several moments, for which its script moves the clock."""

    def __str__(self) -> str:
        return f"v{self.version}"

    @property
    def path(self) -> Path:
        """The ledger."""
        return GOLDEN / f"ledger-{self.version}.db"

    @property
    def export(self) -> bytes:
        """Its export."""
        return (GOLDEN / f"ledger-{self.version}.jsonl").read_bytes()

    @property
    def expected(self) -> dict[str, Any]:
        """What it answered."""
        answers: dict[str, Any] = json.loads((GOLDEN / f"ledger-{self.version}.json").read_text())
        return answers

    def asked(self, ledger: Ledger, clock: ManualClock) -> Awaitable[dict[str, Any]]:
        """Ask a ledger what the code of that time asked."""
        script = GOLDEN / f"make_{self.version}.py"
        spec = importlib.util.spec_from_file_location(f"golden_maker_{self.version}", script)
        assert spec is not None
        assert spec.loader is not None
        module: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found: Awaitable[dict[str, Any]] = (
            module.answers(ledger, clock) if self.tells_time else module.answers(ledger)
        )
        return found


GOLDENS = (
    Golden(1, MADE, (b"secret-1", b"secret-2", b"secret-3", b"user:ada", b"user/ada"), tells_time=False),
    Golden(
        4,
        datetime(2026, 12, 3, 1, 2, tzinfo=UTC),
        (
            b"secret-ada",
            b"secret-bob",
            b"secret-joe",
            b"user:ada",
            b"user/ada",
            b"ada@x",
            b"user:bob",
            b"user:joe",
        ),
    ),
)


async def open_golden(path: Path, *, clock: ManualClock | None = None, **options: Any) -> Ledger:
    """Open a copy of a golden ledger at the moment it was made."""
    runtime = testing_runtime(clock=clock or ManualClock(MADE), seed=9)
    return await Ledger.open(f"sqlite:///{path}", runtime=runtime, **options)
