"""What the pages say is true: their Python runs, their commands parse, their links lead somewhere."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer

from custody_sync import errors
from custody_sync.cli.main import application
from custody_sync.errors import InvalidInput
from custody_sync.settings import load_settings
from custody_sync.testing import RULES, MemoryStore, check_store

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")])
RUNNABLE = (
    "README.md",
    "docs/adapters/write-your-own.md",
    "docs/adopt.md",
    "docs/backup-and-restore.md",
    "docs/faces/mem0.md",
    "docs/faces/wrap.md",
    "docs/faces/langchain.md",
    "docs/faces/langgraph.md",
    "docs/guide.md",
    "docs/operating-signals.md",
    "docs/proof-of-deletion.md",
    "docs/recall.md",
    "docs/reconcile.md",
    "docs/reliability.md",
)
OUTLINED = (
    "docs/stores/cognee.md",
    "docs/stores/langchain.md",
    "docs/stores/langgraph.md",
    "docs/stores/letta.md",
    "docs/stores/mem0.md",
    "docs/stores/pgvector.md",
    "docs/stores/zep.md",
)
"""Pages that show the lines to add beside a client that only the reader has."""
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"# ([\w/]+\.py)\n")
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


def paste(folder: Path, page: Path) -> list[Block]:
    """Write the blocks that begin with a file's name into a folder, and return the other Python blocks."""
    rest: list[Block] = []
    for block in blocks("python", page):
        named = _NAMED.match(block.text)
        if named is None:
            rest.append(block)
            continue
        path = folder / named[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text)
    return rest


def resolved(block: Block) -> dict[str, Any]:
    """Import what a block imports, and return its names."""
    names: dict[str, Any] = {}
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            exec(ast.unparse(node), names)  # noqa: S102  # the pages are ours
    return names


def run_page(page: Path, folder: Path) -> None:
    """Paste a page's files into a folder, and run its other Python blocks from top to bottom."""
    found = paste(folder, page)
    assert found
    shared: dict[str, object] = {"__name__": "page"}
    for block in found:
        # Blank lines in front let a traceback name the line of the page.
        code = compile("\n" * block.line + block.text, str(page), "exec", dont_inherit=True)
        exec(code, shared)  # noqa: S102  # the pages are ours


@pytest.fixture(scope="module")
def left_by_the_readme(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which the README was tried, which is where readers go on."""
    folder = tmp_path_factory.mktemp("readme")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        run_page(ROOT / "README.md", folder)
    return folder


@pytest.mark.parametrize("name", RUNNABLE)
def test_the_python_of_a_page_runs_again(
    name: str, left_by_the_readme: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page runs twice in a folder where the README ran, and writes no file but its own ledger."""
    shutil.copytree(left_by_the_readme, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for _ in range(2):
        run_page(ROOT / name, tmp_path)
    named = {block.text.split("\n")[0].removeprefix("# ") for block in blocks("python", ROOT / name)}
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    # Anything else could be a file of the reader's, which would be overwritten.
    assert {file for file in files if "__pycache__" not in file} - named <= {"custody.db", "tool.db"}


@pytest.mark.parametrize("name", OUTLINED)
def test_the_python_of_a_stores_page_fits(name: str) -> None:
    """Blocks about a client of the reader's import names that exist, and call ours by their parameters."""
    found = list(blocks("python", ROOT / name))
    assert found
    for block in found:
        names = resolved(block)
        calls = [node for node in ast.walk(ast.parse(block.text)) if isinstance(node, ast.Call)]
        ours = [node for node in calls if isinstance(node.func, ast.Name) and node.func.id in names]
        assert ours, f"{name}:{block.line} calls nothing that it imports"
        for call in ours:
            assert isinstance(call.func, ast.Name)
            words = {word.arg: None for word in call.keywords if word.arg is not None}
            inspect.signature(names[call.func.id]).bind(*call.args, **words)


def test_every_page_with_python_is_run_or_checked() -> None:
    """No page shows Python that no test looks at."""
    shown = {str(block.page.relative_to(ROOT)) for block in blocks("python")}
    assert shown == {*RUNNABLE, *OUTLINED}


OWN = ROOT / "docs/adapters/write-your-own.md"


def test_an_adapter_of_ones_own_takes_40_lines(tmp_path: Path) -> None:
    """The page says how long its adapter is, blank lines aside."""
    paste(tmp_path, OWN)
    lines = [line for line in (tmp_path / "mypkg.py").read_text().splitlines() if line.strip()]
    assert "in 40 lines" in OWN.read_text()
    assert len(lines) <= 40


@pytest.mark.parametrize("line", [line for line in commands("custody-sync") if "mypkg:Memories" in line])
def test_an_adapter_of_ones_own_keeps_the_contract(line: str, tmp_path: Path) -> None:
    """Each `contract` line of the pages, run in a folder with the page's files, passes."""
    paste(tmp_path, OWN)
    done = subprocess.run(
        [sys.executable, "-m", "custody_sync.cli.main", *shlex.split(line, comments=True)[1:], "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["store"] == "memories"
    assert document["counts"]["passed"] >= len(document["rules"]) // 2
    assert document["counts"]["failed"] == 0


def test_the_adapters_tests_work_as_pasted(tmp_path: Path) -> None:
    """The files of the adapter's page pass under pytest, in both modes of pytest-asyncio."""
    paste(tmp_path, OWN)
    # The command tries all of them; where the mark and the fixture work for some they work for all.
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    for mode, rules in (("strict", RULES[:16]), ("auto", RULES[:8])):
        plugins = ["-p", "no:cacheprovider", "-p", "pytest_asyncio.plugin"]
        options = ["-q", "-rs", *plugins, "-o", "asyncio_default_fixture_loop_scope=function"]
        names = [rule.rule_id.lower().replace("-", "") for rule in rules]
        chosen = ["test_mypkg.py", "-k", " or ".join(f"test_{name}_" for name in names)]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, f"--asyncio-mode={mode}", *chosen],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        counts = {how: int(count) for count, how in re.findall(r"(\d+) (passed|skipped)", done.stdout)}
        assert sum(counts.values()) == len(rules)
        assert counts["passed"] > len(rules) // 2


async def test_a_finished_store_is_no_factory() -> None:
    """An instance instead of a factory is refused in one sentence that names the way out."""
    finished: Any = MemoryStore("memories")
    with pytest.raises(InvalidInput, match=r"MemoryStore makes no stores; pass the class") as refused:
        await check_store(finished)
    assert "\n" not in str(refused.value)


def test_the_factory_of_the_guide_serves_the_command_line(database_uri: str, tmp_path: Path) -> None:
    """The guide's `myapp/memory.py` and `custody.toml` repair two real stores, as they are shown."""
    paste(tmp_path, ROOT / "docs/guide.md")
    (settings,) = blocks("toml", ROOT / "docs/guide.md")
    (tmp_path / "custody.toml").write_text(settings.text)
    environment = {**os.environ, "MEMORY_URI": database_uri}

    def command(*words: str) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-m", "custody_sync.cli.main", *words, "--json"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    command("init")
    command("write", "--space", "user:42", "--value", "I drink my coffee black")
    assert command("repair")["scanned"] == {"agent": 1, "notes": 1}


def test_the_errors_of_the_guide_exist() -> None:
    """Every error that the guide's table names is one that can be caught."""
    rows = re.findall(r"^\| (`[A-Z]\w+`.*?) \|", (ROOT / "docs/guide.md").read_text(), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([A-Z]\w+)`", row)}
    assert len(named) > 20
    assert not {name for name in named if not issubclass(getattr(errors, name), errors.CustodyError)}


@pytest.mark.parametrize("line", commands("custody-sync"))
def test_a_command_of_the_pages_parses(line: str) -> None:
    """Each `custody-sync` line is accepted by the real command line, options and all."""
    words = shlex.split(line.partition(" > ")[0], comments=True)[1:]
    command: Any = typer.main.get_command(application())
    while hasattr(command, "commands"):
        name = words.pop(0) if words else ""
        assert name in command.commands, f"{line}: there is no command {name!r}"
        command = command.commands[name]
    context = command.make_context(command.name, words)
    for argument in command.params:
        # A file's name would parse as the URL of a ledger.
        if argument.param_type_name == "argument" and "URL" in (argument.metavar or ""):
            assert "://" in (context.params[argument.name] or "://"), f"{line}: {argument.metavar} is no URL"


@pytest.mark.parametrize("line", commands("make"))
def test_a_make_target_of_the_pages_exists(line: str) -> None:
    """Each `make` line names targets that the Makefile has."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    words = shlex.split(line, comments=True)[1:]
    assert {word for word in words if "=" not in word} <= targets


@pytest.mark.parametrize("line", commands("pip"))
def test_an_install_line_of_the_pages_names_extras_that_exist(line: str) -> None:
    """Each `pip` line installs this checkout with extras that it has, or packages that its tests need too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    words = shlex.split(line, comments=True)
    assert words[:2] == ["pip", "install"]
    for word in words[2:]:
        checkout = re.fullmatch(r"\.\[([\w,-]+)\]", word)
        assert checkout is not None, f"{line}: {word} is no install of this checkout"
        assert set(checkout[1].split(",")) <= set(project["optional-dependencies"])


def test_every_shell_line_is_looked_at() -> None:
    """No page shows a command that no test knows."""
    lines = [line for block in blocks("sh") for line in block.text.splitlines() if line.strip()]
    assert {line.split()[0] for line in lines} == {"custody-sync", "make", "pip"}


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
    # Each soak adds a report, and their own list names them.
    reports = {page for page in found if page.startswith("soak/2")}
    assert found - reports - {"index.md"} == linked
    listed = {target for target, _ in _LINK.findall((ROOT / "docs/soak/README.md").read_text())}
    assert {page.removeprefix("soak/") for page in reports} <= listed
    numbers = [int(page.name[:4]) for page in sorted((ROOT / "docs/adr").glob("*.md"))]
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_decision_has_its_four_parts() -> None:
    """Every decision says what was decided, why, at what cost, and what was rejected."""
    for page in (ROOT / "docs/adr").glob("*.md"):
        titles = re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE)
        assert titles == ["Decision", "Why", "Cost", "Rejected"], page.name
