"""`custody-sync contract` tries an adapter from a shell: a verdict and a reason a rule, and a status."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from custody_sync.cli.main import run_command
from custody_sync.cli.output import Output
from custody_sync.testing import RULES

ADAPTERS = '''
from contextlib import asynccontextmanager, contextmanager

from custody_sync.testing import MemoryHooks, MemoryStore, StoreContract, StoreHooks


class Small(MemoryHooks):
    """Less of everything."""

    many, crowd, bulk = 40, 5, 20
    versions = {"client": "1.2.3"}


class TestMine(Small, StoreContract):
    """What pytest runs."""


class Forgetful(MemoryStore):
    """Holds nothing."""

    async def put(self, fact, label):
        return [label.key]


class Modest(MemoryStore):
    """Cannot list."""

    def __init__(self):
        super().__init__("modest", without=["list_entries"])


@asynccontextmanager
async def opened():
    yield MemoryStore("opened")


@contextmanager
def entered():
    yield MemoryStore("entered")


def yielded():
    yield MemoryStore("yielded")


def several():
    return [MemoryStore("a"), MemoryStore("b")]


finished = MemoryStore("finished")
small = Small()
'''


class Shell:
    """A folder with a module of adapters, and the command in it."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys
        self.err = ""

    def __call__(self, *words: str, status: int = 0) -> str:
        """Run the command, hold it to its exit status and return what it printed."""
        found = run_command(["contract", *words])
        shown = self.capsys.readouterr()
        self.err = shown.err
        assert found == status, f"{words} ended with {found}: {shown.err}{shown.out}"
        return shown.out

    def json(self, *words: str, status: int = 0) -> Any:
        """Run it with --json and return the document."""
        return json.loads(self(*words, "--json", status=status))


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A folder without custody.toml and without a ledger: the contract needs neither."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "adapters_of_this_test.py").write_text(ADAPTERS)
    monkeypatch.delitem(sys.modules, "adapters_of_this_test", raising=False)
    return Shell(capsys)


MINE = "adapters_of_this_test"


def test_a_store_that_keeps_every_rule_exits_with_0(shell: Shell) -> None:
    """The document has every rule in order, the levels, the limits and the versions that the hooks name."""
    document = shell.json("custody_sync.testing:MemoryStore", "--hooks", f"{MINE}:Small")
    assert list(document) == ["store", "passed", "counts", "rules", "capabilities", "limits", "versions"]
    assert document["store"] == "memory"
    assert document["passed"] is True
    assert document["counts"] == {"passed": len(RULES), "failed": 0, "not_applicable": 0}
    assert [rule["rule_id"] for rule in document["rules"]] == [rule.rule_id for rule in RULES]
    assert {tuple(rule) for rule in document["rules"]} == {("rule_id", "title", "verdict", "reason", "note")}
    assert document["capabilities"]["search"] == {"level": "full", "reason": ""}
    assert document["limits"] == {"text_chars": None, "text_bytes": None}
    assert document["versions"] == {"client": "1.2.3"}


def test_a_broken_rule_exits_with_1_and_says_what_was_expected(shell: Shell) -> None:
    """The table has the rule, its verdict and the violation."""
    out = shell(f"{MINE}:Forgetful", "--rules", "C-01,C-05", status=1)
    assert "C-05  failed" in out
    assert "expected" in out
    assert "memory: 1 passed, 1 failed, 0 not applicable." in out


def test_what_does_not_apply_has_its_reason(shell: Shell) -> None:
    """A level below full is told with the store's own words, and is no failure."""
    out = shell(f"{MINE}:Modest", "--rules", "c-01, C-15")
    assert "C-15  not_applicable" in out
    assert "no list_entries: this memory store was built without it" in out
    assert "limits\n" in out
    assert shell.json(f"{MINE}:Modest", "--rules", "C-01,C-15")["capabilities"]["list_entries"] == {
        "level": "none",
        "reason": "this memory store was built without it",
    }


def test_no_rule_kept_is_no_pass(shell: Shell) -> None:
    """If nothing could be tried the status is 1, and a sentence says that it proves nothing."""
    shell("custody_sync.testing:MemoryStore", "--rules", "C-42", status=1)
    assert "proves nothing" in shell.err


@pytest.mark.parametrize("factory", ["opened", "entered", "yielded", "Modest"])
def test_a_factory_may_be_a_class_or_a_context(shell: Shell, factory: str) -> None:
    """It is called for each rule, in a module that lies in the current folder."""
    assert shell.json(f"{MINE}:{factory}", "--rules", "C-01,C-02")["counts"]["passed"] == 2


@pytest.mark.parametrize("hooks", ["Small", "TestMine", "small"])
def test_hooks_may_be_a_class_tests_or_an_instance(shell: Shell, hooks: str) -> None:
    """What pytest uses serves the command as well."""
    words = ("custody_sync.testing:MemoryStore", "--hooks", f"{MINE}:{hooks}", "--rules", "C-74")
    assert shell.json(*words)["rules"][0]["note"] == "40 entries, 4 of them orphans"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((f"{MINE}:several",), "it made a list; the contract tries one fresh store at a time"),
        ((f"{MINE}:finished",), "MemoryStore makes no stores; pass the class"),
        ((f"{MINE}:nothing",), f"module {MINE} has no nothing"),
        (("no_such_module:store",), "there is no module no_such_module"),
        (("custody_sync.testing",), "is not of the form 'module:name'"),
        (("custody_sync.testing:MemoryStore", "--rules", "C-99"), "'C-99' is no rule of the contract"),
        (("custody_sync.testing:MemoryStore", "--rules", " , "), "names no rule"),
        (("custody_sync.testing:MemoryStore", "--hooks", f"{MINE}:Modest"), "is no StoreHooks"),
        ((), "Missing argument"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_call_exits_with_2_in_one_sentence(shell: Shell, words: tuple[str, ...], said: str) -> None:
    """What is wrong is named, on stderr and in the document."""
    document = shell.json(*words, status=2)
    assert said in document["error"]["message"]
    assert said in shell.err
    assert document["error"]["exit_code"] == 2


def test_progress_goes_by_rules(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal one sees how many rules are done; each of them counts once."""
    ticks: list[int] = []

    @contextmanager
    def counted(self: Output, what: str, total: int | None = None) -> Iterator[Callable[[], None]]:
        assert (what, total) == ("trying the rules", 3)
        yield lambda: ticks.append(1)

    monkeypatch.setattr(Output, "working", counted)
    shell("custody_sync.testing:MemoryStore", "--rules", "C-01,C-02,C-03")
    assert len(ticks) == 3


def test_it_leaves_nothing_behind(shell: Shell, tmp_path: Path) -> None:
    """No ledger, no witness and no settings: the stories play in a folder that goes."""
    before = sorted(path.name for path in tmp_path.iterdir())
    shell("custody_sync.testing:MemoryStore", "--rules", "C-70")
    after = sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__")
    assert after == before
