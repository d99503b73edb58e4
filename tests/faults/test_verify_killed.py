"""A verification that is killed again and again comes to its end, and repeats a page each time."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

from fix_ledger import ACTOR

from custody_sync import AsyncCoordinator
from custody_sync.ledger import Ledger
from custody_sync.testing import MemoryStore

CHILD = Path(__file__).with_name("verify_child.py")
FACTS, PAGE, NEVER = 100, 10, 10_000


def _run(url: str, log: Path, after: int) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, str(CHILD), url, str(log), str(after)],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode, done.stdout.split()


async def test_a_killed_verification_is_gone_on_with(tmp_path: Path) -> None:
    """Every fact is asked about, at most a page of them twice for each kill, and counted once."""
    url, log = f"sqlite:///{tmp_path}/custody.db", tmp_path / "asked"
    async with (
        await Ledger.open(url, create=True) as ledger,
        AsyncCoordinator(ledger, stores=[MemoryStore("file")]) as custody,
    ):
        ids = []
        for number in range(FACTS):
            ids.append((await custody.write(value=f"n{number}", space="org", actor=ACTOR)).fact.fact_id)
            await custody.retract(ids[-1], actor=ACTOR, reason="wrong")
    kills = (7, 33, 24, 41)
    for after in kills:
        code, _ = _run(url, log, after)
        assert code == -signal.SIGKILL
    code, said = _run(url, log, NEVER)
    assert (code, said[:2]) == (0, [str(FACTS), "True"])
    # Whoever was killed within the first page had nothing to keep, and is no part.
    assert said[2:] == [str(len(kills)), str(FACTS)]
    asked = Counter(log.read_text().split())
    assert set(asked) == set(ids)
    assert asked.total() <= FACTS + PAGE * len(kills)
    assert sum(count - 1 for count in asked.values()) > 0, "nothing was repeated, so nothing was killed"
