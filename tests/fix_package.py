"""The package as it is built: a copy of the tree, and the wheel that comes of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ("custody_sync", "adapters", "repair")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.egg-info")


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command away from the checkout and return what it printed; a failure shows its stderr."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV"))}
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(source: Path, to: Path) -> Path:
    """Build a wheel from a copy of the tree, without the network."""
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index",
        "--disable-pip-version-check", "--wheel-dir", to, source, cwd=to)  # fmt: skip
    return next(to.glob("*.whl"))


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy what a build reads, so that building leaves nothing in the checkout."""
    copy = tmp_path_factory.mktemp("tree")
    for top in SOURCES:
        shutil.copytree(ROOT / top, copy / top, symlinks=True, ignore=LEFT_OUT)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="session")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel once."""
    return build(tree, tmp_path_factory.mktemp("wheel"))
