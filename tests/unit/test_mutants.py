"""What is mutated and what has to be covered is there, and whoever survives is explained by what is there."""

from __future__ import annotations

import ast
import json
import tomllib
from pathlib import Path

import pytest
from mutants import __main__ as command
from mutants.making import ROOT, Change, Target, changes_of, files_below, functions_of, plain, read_targets

COVERED = tomllib.loads((ROOT / "tests/covered.toml").read_text())["tool"]["coverage"]
COVERING = (ROOT / "tests/covering.txt").read_text().split()
TARGET = Target(modules=[], tests=[])
SURVIVOR = Change("custody_sync.x.f", "return 1", "return 2")


def is_there(test: str) -> bool:
    """Tell whether a file, or a test in it, exists."""
    path, _, name = test.partition("::")
    return (ROOT / path).is_file() and f"def {name.partition('[')[0]}" in (ROOT / path).read_text()


def test_what_is_mutated_is_there_and_covered() -> None:
    """Each target names modules and tests of this tree; what is mutated is covered to the last branch."""
    assert not read_targets()["rules"].get("is_open")
    for target in read_targets().values():
        assert all(is_there(test) for test in target["tests"])
        named = {module.replace("custody_sync/repair/", "repair/") for module in target["modules"]}
        assert named <= set(COVERED["run"]["include"])


def test_what_has_to_be_covered_is_there() -> None:
    """A file that was renamed is not left out in silence, and nothing less than all of it will do."""
    assert all((ROOT / path).is_file() for path in COVERED["run"]["include"])
    assert all(is_there(test) for test in COVERING)
    assert (COVERED["run"]["branch"], COVERED["report"]["fail_under"]) == (True, 100)


def written_anew(function: str) -> str:
    """Return the source of a function in the form in which survivors are told."""
    parts = function.split(".")
    cut = next(n for n in range(len(parts), 0, -1) if (ROOT / f"{'/'.join(parts[:n])}.py").is_file())
    module = ast.parse((ROOT / f"{'/'.join(parts[:cut])}.py").read_text())
    body: list[ast.stmt] = module.body
    for name in parts[cut:-1]:
        body = next(node.body for node in body if isinstance(node, ast.ClassDef) and node.name == name)
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return ast.unparse(next(node for node in body if isinstance(node, kinds) and node.name == parts[-1]))


@pytest.mark.parametrize("change", command.read_explained(), ids=str)
def test_an_explained_survivor_is_of_the_code_as_it_is(change: Change) -> None:
    """Its line is still there, it changes something, and somebody says why no test can tell."""
    lines = [line.strip() for line in written_anew(change.function).splitlines()]
    assert set(change.before.splitlines()) <= set(lines)
    assert change.before != change.after
    assert len(command.read_explained()[change]) > 20


# --- the command -----------------------------------------------------------------------------


def counts(*unexplained: Change) -> command.Counts:
    """Return counts of ten mutants."""
    return command.Counts(mutants=10, killed=8, explained=2 - len(unexplained), unexplained=[*unexplained])


@pytest.mark.parametrize(("survivors", "code"), [((), 0), ((SURVIVOR,), 1)])
def test_a_survivor_that_is_not_explained_fails_the_command(
    survivors: tuple[Change, ...],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is shown with its lines, and the counts are in the file that the environment names."""
    monkeypatch.setattr(command, "try_target", lambda *_, **__: counts(*survivors))
    monkeypatch.setattr(command, "read_targets", lambda: {"rules": TARGET, "sweep": TARGET})
    monkeypatch.setattr(command.os, "nice", lambda _: 0)
    monkeypatch.setenv("CUSTODY_SYNC_MUTANTS_REPORT", str(tmp_path / "report.json"))
    monkeypatch.chdir(ROOT)
    assert command.main(["rules"]) == code
    said = capsys.readouterr().out
    assert "rules: 10 mutants, 8 killed (80.0 %)" in said
    assert ("+ return 2" in said) is bool(survivors)
    told = json.loads((tmp_path / "report.json").read_text())
    assert told.keys() == {"rules"}
    assert (told["rules"]["mutants"], told["rules"]["killed"], told["rules"]["share"]) == (10, 8, 80.0)
    assert [one["after"] for one in told["rules"]["unexplained"]] == [one.after for one in survivors]
    monkeypatch.setattr(command, "read_targets", lambda: {"rules": {**TARGET, "is_open": True}})
    assert command.main(["rules"]) == 0, "nobody has gone through its survivors yet"
    with pytest.raises(SystemExit):
        command.main(["none"])


def test_a_killed_mutant_is_not_tried_again_and_a_survivor_is_when_anything_changed(tmp_path: Path) -> None:
    """The end of a mutant is of its function; what lives may fall to a test that came since."""
    path = tmp_path / "ends.jsonl"
    lines = [
        {"key": "a", "function": "1", "tree": "old", "end": "killed"},
        {"key": "b", "function": "0", "tree": "old", "end": "killed"},
        {"key": "c", "function": "1", "tree": "old", "end": "alive"},
        {"key": "d", "function": "1", "tree": "new", "end": "untested"},
        {"key": "c", "function": "1", "tree": "new", "end": "endless"},
    ]
    mutants = dict.fromkeys("abcd", "1")
    assert command.read_ends(path, mutants, "new") == {}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert command.read_ends(path, mutants, "new") == {"a": "killed", "c": "endless", "d": "untested"}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines[:-1]))
    assert command.read_ends(path, mutants, "new") == {"a": "killed", "d": "untested"}


def test_what_a_mutant_changed_is_told_by_its_lines(tmp_path: Path) -> None:
    """Of a method by its class, and without whatever stayed the same."""
    (tmp_path / "one.py").write_text(
        "class A:\n"
        "    def xǁAǁf__mutmut_orig(self):\n        a = 1\n        return a + 1\n"
        "    def xǁAǁf__mutmut_1(self):\n        a = 1\n        return a - 1\n"
        "def x_g__mutmut_orig():\n    return (\n        0\n    )\n"
        "def x_g__mutmut_1():\n    return 1\n"
    )
    keys = ["one.xǁAǁf__mutmut_1", "one.x_g__mutmut_1"]
    assert list(changes_of(tmp_path, keys).values()) == [
        Change("one.A.f", "return a + 1", "return a - 1"),
        Change("one.g", "return 0", "return 1"),
    ]
    assert plain("x_g__mutmut_12") == "g"
    assert set(functions_of("def f(): ...\nclass A:\n    async def g(self): ...")) == {"f", "g"}


def test_a_copy_has_folders_where_the_tree_has_links() -> None:
    """A module is known by its path, and nothing compiled is copied."""
    names = {path.relative_to(ROOT).as_posix() for path in files_below(ROOT / "custody_sync")}
    assert {"custody_sync/repair/sweep.py", "custody_sync/adapters/mem0.py"} <= names
    assert not any("__pycache__" in name for name in names)
