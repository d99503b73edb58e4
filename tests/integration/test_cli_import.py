"""`import`: a file of facts becomes facts once, however often it is read."""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from custody_sync.cli.main import run_command
from custody_sync.testing import MemoryStore

PRICE = {"space": "org", "subject": "plan:x", "predicate": "price"}


class Importer:
    """A folder with a ledger and one memory store, and a way to import lines."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], store: MemoryStore) -> None:
        self.folder, self.store = folder, store
        self._capsys = capsys

    def run(self, *args: str, status: int = 0) -> dict[str, Any]:
        """Run a command with --json, hold it to its status, return its document."""
        self._capsys.readouterr()
        found = run_command([*args, "--json"])
        shown = self._capsys.readouterr()
        assert found == status, shown.err + shown.out
        document: dict[str, Any] = json.loads(shown.out)
        return document

    def lines(self, *lines: dict[str, Any], status: int = 0, level: str = "attested") -> dict[str, Any]:
        """Import lines from a file."""
        path = self.folder / "facts.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        return self.run("import", str(path), "--provenance", level, status=status)

    def values(self, *more: str) -> list[Any]:
        """Return what is believed."""
        return sorted(fact["value"] for fact in self.run("read", "--limit", "1000", *more)["facts"])


@pytest.fixture
def importer(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Importer:
    """A ledger, one store, an actor."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CUSTODY_SYNC_CONFIG", raising=False)
    monkeypatch.delenv("CUSTODY_SYNC_LEDGER", raising=False)
    store = MemoryStore("alpha")
    module = ModuleType("stores_of_import_test")
    module.__dict__["stores"] = lambda: [store]
    monkeypatch.setitem(sys.modules, "stores_of_import_test", module)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "custody.toml").write_text(
        'ledger = "sqlite:///custody.db"\nfactory = "stores_of_import_test:stores"\nactor = "importer"\n'
    )
    importer = Importer(tmp_path, capsys, store)
    importer.run("init")
    return importer


def test_importing_twice_writes_once(importer: Importer) -> None:
    """Lines with and without ref, equal lines and corrections are all there once after two runs."""
    lines: list[dict[str, Any]] = [
        {"space": "user:1", "value": "likes tea"},
        {"space": "user:1", "value": "likes tea"},
        {**PRICE, "ref": "a", "value": "1 EUR"},
        {**PRICE, "ref": "b", "supersedes_ref": "a", "value": "2 EUR"},
        {**PRICE, "supersedes_ref": "b", "value": "3 EUR"},
    ]
    first = importer.lines(*lines)
    assert (first["written"], first["duplicates"], first["failed"], first["complete"]) == (5, 0, 0, True)
    second = importer.lines(*lines)
    assert (second["written"], second["duplicates"], second["failed"]) == (0, 5, 0)
    assert [f["fact_id"] for f in second["facts"]] == [f["fact_id"] for f in first["facts"]]
    assert importer.values() == ["3 EUR", "likes tea", "likes tea"]
    assert importer.run("repair", "--dry-run")["scanned"] == {"alpha": 3}


def test_lines_added_later_are_the_only_ones_written(importer: Importer) -> None:
    """A file that grew, also in front, adds its new lines and nothing else."""
    old = {"space": "user:1", "value": "old"}
    importer.lines(old)
    again = importer.lines({"space": "user:1", "value": "new"}, old)
    assert (again["written"], again["duplicates"]) == (1, 1)


def test_an_import_is_claimed_unless_told_otherwise(importer: Importer) -> None:
    """What a file says is quarantined by default: not read, in no store."""
    path = importer.folder / "facts.jsonl"
    path.write_text('{"space": "user:1", "value": "hearsay"}\n')
    assert importer.run("import", str(path))["written"] == 1
    assert importer.values() == []
    assert importer.values("--include-claimed") == ["hearsay"]
    assert importer.run("repair", "--dry-run")["scanned"] == {"alpha": 0}


def test_a_wrong_line_writes_nothing_at_all(importer: Importer) -> None:
    """All lines are checked before the first is written."""
    error = importer.lines({"space": "s", "value": "good"}, {"space": "s", "value": 7}, status=2)["error"]
    assert [problem["line"] for problem in error["lines"]] == [2]
    assert importer.values("--include-claimed") == []
    assert importer.store.calls["put"] == 0


def test_a_line_that_fails_is_named_and_does_not_stop_the_others(importer: Importer) -> None:
    """A refused line and the correction that hangs on it are told by number; the rest is written."""
    importer.lines({**PRICE, "ref": "a", "value": "1 EUR"})
    result = importer.lines(
        {**PRICE, "ref": "a", "value": "1.50 EUR"},
        {**PRICE, "ref": "b", "supersedes_ref": "a", "value": "2 EUR"},
        {"space": "s", "value": "fine"},
        status=3,
    )
    assert (result["written"], result["failed"], result["complete"]) == (1, 2, False)
    assert [(f["line"], f["ref"], f["code"]) for f in result["failures"]] == [
        (1, "a", "idempotency_conflict"),
        (2, "b", "target_failed"),
    ]
    assert "ref 'a' was used before in space 'org'" in result["failures"][0]["message"]
    assert "key" not in result["failures"][0]["message"]


def test_a_broken_store_fails_lines_that_a_second_run_writes(importer: Importer) -> None:
    """After an outage the same file is simply imported again."""
    lines = [{"space": "s", "value": f"note {number}"} for number in range(12)]
    importer.store.faults.refuse("put", times=5)
    first = importer.lines(*lines, status=3)
    assert first["failed"] > 0
    second = importer.lines(*lines)
    assert (second["written"], second["duplicates"]) == (first["failed"], first["written"])
    assert len(importer.values()) == 12


def test_a_long_chain_of_corrections_ends_at_its_last_link(importer: Importer) -> None:
    """Corrections wait for what they correct, however many are written at once."""
    chain: list[dict[str, Any]] = [{**PRICE, "ref": "0", "value": 0}]
    chain += [{**PRICE, "ref": str(n), "supersedes_ref": str(n - 1), "value": n} for n in range(1, 30)]
    assert importer.lines(*chain)["complete"]
    assert importer.values() == [29]


def test_a_separator_inside_a_text_is_text(importer: Importer) -> None:
    """One physical line is one fact, and its text comes back byte for byte."""
    text = "one\u2028two\u0085three\u2029four"
    path = importer.folder / "raw.jsonl"
    line = json.dumps({"space": "s", "value": text}, ensure_ascii=False)
    path.write_bytes(b"\xef\xbb\xbf" + line.encode() + b"\r\n")
    assert importer.run("import", str(path), "--provenance", "attested")["written"] == 1
    assert importer.values() == [text]


def test_a_file_can_come_from_stdin(importer: Importer, monkeypatch: pytest.MonkeyPatch) -> None:
    """`-` reads stdin."""
    raw = io.BytesIO(b'{"space": "s", "value": "piped"}\n')
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=raw, isatty=lambda: False))
    assert importer.run("import", "-", "--provenance", "attested")["written"] == 1


def test_verified_cannot_be_had_from_a_file(importer: Importer) -> None:
    """Evidence that was compared cannot come with the claim."""
    refused = importer.lines({"space": "s", "value": "sworn"}, level="verified", status=2)
    assert "verified" in refused["error"]["message"]


def test_what_was_forgotten_stays_forgotten(importer: Importer) -> None:
    """Importing its line again writes nothing and says what to do; other lines are not held up."""
    gone = {**PRICE, "ref": "a", "value": "1 EUR"}
    fact_id = importer.lines(gone)["facts"][0]["fact_id"]
    importer.run("forget", fact_id, "--reason", "asked", "--yes")
    again = importer.lines(gone, {"space": "s", "value": "new"}, status=3)
    assert (again["written"], [f["code"] for f in again["failures"]]) == (1, ["forgotten"])
    assert "take it out of the file" in again["failures"][0]["message"]
    assert importer.values() == ["new"]


def test_a_file_with_corrections_is_told_how_to_be_believed(importer: Importer) -> None:
    """The default of import is claimed, and the error names the option that is missing."""
    lines = ({**PRICE, "ref": "a", "value": 1}, {**PRICE, "supersedes_ref": "a", "value": 2})
    error = importer.lines(*lines, level="claimed", status=2)["error"]
    assert "--provenance attested" in error["message"]
    assert importer.lines(*lines)["complete"]


def test_the_example_of_the_page_imports_as_the_page_says(importer: Importer) -> None:
    """docs/cli.md shows a file and the command for it; both work as they stand there, twice."""
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    example = re.search(r"^```json\n(.*?)^```\n\n```sh\n(.*?)\n```$", page, re.MULTILINE | re.DOTALL)
    assert example is not None
    (importer.folder / "facts.jsonl").write_text(example[1])
    words = shlex.split(example[2])[1:]
    assert importer.run(*words)["written"] == 3
    assert importer.run(*words)["duplicates"] == 3


def test_only_a_regular_file_or_stdin_is_imported(importer: Importer) -> None:
    """A device may never end; it and a folder are refused in one sentence."""
    for odd in ("/dev/zero", str(importer.folder)):
        error = importer.run("import", odd, status=2)["error"]
        assert error["message"] == f"file: {odd} is not a regular file; - reads standard input."
