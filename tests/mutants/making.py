"""Make mutants: a copy of the tree in which every function of a target is there in all its changed forms.

mutmut writes them; which form is called is decided at run time. In the copy the linked folders are folders,
for a module is known by its path. What a mutant changed is told in words that stay true when lines move.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import json
import os
import shutil
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NotRequired, TypedDict

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WORK = ROOT / "build/mutants"
COPIED = ("custody_sync", "docs", "tests", "pyproject.toml")
LEFT_OUT = ("__pycache__", ".pytest_cache", ".hypothesis")


class Target(TypedDict):
    """What is mutated, and the tests that have to notice it."""

    modules: list[str]
    tests: list[str]
    is_open: NotRequired[bool]
    """Nobody has gone through its survivors yet: they are shown and counted, and fail nothing."""


@dataclass(frozen=True, slots=True, order=True)
class Change:
    """What a mutant changed: of which function, and its lines before and after."""

    function: str
    before: str
    after: str


def read_targets() -> dict[str, Target]:
    """Return the targets by name."""
    targets: dict[str, Target] = {}
    targets.update(tomllib.loads((HERE / "targets.toml").read_text()))  # type: ignore[arg-type]
    return targets


def make(folder: Path, target: Target) -> dict[str, str]:
    """Bring a copy up to date and return its mutants, each with a digest of the function that it is of."""
    copy_tree(folder, target)
    mutants: dict[str, str] = {}
    for module in target["modules"]:
        mutants |= mutate(folder, module)
    return mutants


def digest_of(folder: Path) -> str:
    """Return one digest of all that a copy consists of: what was not killed is tried again in another one."""
    whole = hashlib.sha256()
    for path in sorted(path for name in COPIED for path in files_below(folder / name)):
        whole.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()[:16]


def digest_of_test(folder: Path, test: str) -> str:
    """Return a digest of the file that a test is in, nothing if there is none; a kill is as good as it."""
    path = folder / test.partition("::")[0]
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.is_file() else ""


def copy_tree(folder: Path, target: Target) -> None:
    """Make a copy the same as the tree, but for the modules that are mutated."""
    wanted = {path.relative_to(ROOT): path for name in COPIED for path in files_below(ROOT / name)}
    for path in [path for name in COPIED for path in files_below(folder / name)]:
        if path.relative_to(folder) not in wanted:
            path.unlink()
    for name, source in wanted.items():
        if str(name) not in target["modules"]:
            bring(source.read_bytes(), folder / name)


def files_below(top: Path) -> Iterator[Path]:
    """Yield every file, through links as well."""
    if top.is_file():
        yield top
    for folder, names, files in os.walk(top, followlinks=True):
        names[:] = [name for name in names if name not in LEFT_OUT]
        yield from (Path(folder) / name for name in files if not name.endswith(".pyc"))


def bring(content: bytes, to: Path) -> None:
    """Write a file unless it is the same."""
    if not to.exists() or to.read_bytes() != content:
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(content)


def mutate(folder: Path, module: str) -> dict[str, str]:
    """Write a module with its mutants, unless it is there; return them with their functions' digests."""
    from mutmut.mutation.file_mutation import mutate_file_contents

    source = (ROOT / module).read_text()
    digest = hashlib.sha256(source.encode()).hexdigest()
    known = folder / "made" / f"{module}.json"
    if known.exists() and (folder / module).exists():
        made = json.loads(known.read_text())
        if made["digest"] == digest:
            return dict(made["mutants"])
    mutated = mutate_file_contents(module, source)
    dotted = module.removesuffix(".py").replace("/", ".")
    mutants = {
        f"{dotted}.{name}": mutated.hash_by_function_name[name.rpartition("__mutmut_")[0]]
        for name in mutated.mutant_names
    }
    bring(mutated.code.encode(), folder / module)
    bring(json.dumps({"digest": digest, "mutants": mutants}).encode(), known)
    return mutants


def changes_of(folder: Path, keys: list[str]) -> dict[str, Change]:
    """Return what each of some mutants changed."""
    read: dict[str, dict[str, str]] = {}
    found: dict[str, Change] = {}
    for key in keys:
        module, _, name = key.rpartition(".")
        if module not in read:
            read[module] = functions_of((folder / f"{module.replace('.', '/')}.py").read_text())
        original = f"{name.rpartition('__mutmut_')[0]}__mutmut_orig"
        before, after = (read[module][which].splitlines()[1:] for which in (original, name))
        lines = list(difflib.ndiff(before, after))
        gone, come = ("\n".join(s[2:].strip() for s in lines if s.startswith(sign)) for sign in "-+")
        found[key] = Change(f"{module}.{plain(original)}", gone, come)
    return found


def functions_of(source: str) -> dict[str, str]:
    """Return every function of a module by its name, in one normal form."""
    return {
        node.name: ast.unparse(node)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def plain(mangled: str) -> str:
    """Return a function's name, with its class, as it was before mutmut took it."""
    name = mangled.rpartition("__mutmut_")[0]
    return name.removeprefix("x_") if name.startswith("x_") else name.removeprefix("xǁ").replace("ǁ", ".")


def forget(folder: Path) -> None:
    """Remove a copy with all that is known of its mutants."""
    shutil.rmtree(folder, ignore_errors=True)
