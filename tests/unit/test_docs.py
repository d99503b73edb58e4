"""What the pages say is true: their Python runs, their commands parse, their links lead somewhere."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer

from custody_sync.cli.main import app
from custody_sync.settings import load_settings

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
RUNNABLE = ("README.md", "docs/guide.md")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]+))?\)")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: where it stands, its language, its text."""

    page: Path
    line: int
    language: str
    text: str


def blocks(language: str, *pages: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a language, in the order they stand."""
    for page in pages or PAGES:
        whole = page.read_text()
        for fence in _FENCE.finditer(whole):
            if fence[1] == language:
                yield Block(page, whole.count("\n", 0, fence.start()) + 1, language, fence[2])


def commands(*programs: str) -> list[str]:
    """Return every shell line of the pages that calls one of the programs, without its comment."""
    lines = (line for block in blocks("sh") for line in block.text.splitlines())
    return sorted({line for line in lines if line.split()[:1] and line.split()[0] in programs})


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as forges make them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", RUNNABLE)
def test_the_python_of_a_page_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python blocks of a page, run from top to bottom in an empty folder, do what the page says."""
    monkeypatch.chdir(tmp_path)
    page = ROOT / name
    found = list(blocks("python", page))
    assert found
    shared: dict[str, object] = {"__name__": "page"}
    for block in found:
        # Blank lines in front let a traceback name the line of the page.
        code = compile("\n" * block.line + block.text, str(page), "exec", dont_inherit=True)
        exec(code, shared)  # noqa: S102  # the pages are ours


@pytest.mark.parametrize("line", commands("custody-sync"))
def test_a_command_of_the_pages_parses(line: str) -> None:
    """Each `custody-sync` line is accepted by the real command line, options and all."""
    _, *words = shlex.split(line, comments=True)
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        name = words.pop(0) if words else ""
        assert name in command.commands, f"{line}: there is no command {name!r}"
        command = command.commands[name]
    command.make_context(command.name, words)


@pytest.mark.parametrize("line", commands("make"))
def test_a_make_target_of_the_pages_exists(line: str) -> None:
    """Each `make` line names targets that the Makefile has."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    words = shlex.split(line, comments=True)[1:]
    assert {word for word in words if "=" not in word} <= targets


def test_the_settings_of_the_pages_load(tmp_path: Path) -> None:
    """Each `custody.toml` shown is one that the program reads."""
    found = list(blocks("toml"))
    assert found
    for block in found:
        path = tmp_path / "custody.toml"
        path.write_text(block.text)
        settings = load_settings(path, environ={}, cwd=tmp_path)
        assert settings.ledger_url() == f"sqlite:///{tmp_path}/custody.db"
        assert settings.factory


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    """Every relative link names a file that is there, every anchor a heading."""
    for target, anchor in _LINK.findall(page.read_text()):
        there = (page.parent / target).resolve() if target else page
        assert there.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(there), f"{page.name} links to {target}#{anchor}"


def test_the_index_lists_every_page() -> None:
    """No page of docs/ is unreachable from its index, and decisions are numbered without a gap."""
    linked = {target for target, _ in _LINK.findall((ROOT / "docs/index.md").read_text())}
    found = {str(page.relative_to(ROOT / "docs")) for page in PAGES if page.is_relative_to(ROOT / "docs")}
    assert found - {"index.md"} == linked
    numbers = [int(page.name[:4]) for page in sorted((ROOT / "docs/adr").glob("*.md"))]
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_decision_has_its_four_parts() -> None:
    """Every decision says what was decided, why, at what cost, and what was rejected."""
    for page in (ROOT / "docs/adr").glob("*.md"):
        titles = re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE)
        assert titles == ["Decision", "Why", "Cost", "Rejected"], page.name
