"""Every file of examples/ runs as its reader would run it, and its page says what it is."""

from __future__ import annotations

import ast
import re
import runpy
import warnings
from pathlib import Path

import pytest

from custody_sync.errors import MissingExtra

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(EXAMPLES.glob("*.py"))


def needs_postgres(example: Path) -> bool:
    """Tell whether an example starts a Postgres unless it is given one."""
    return "EmbeddedPostgres" in example.read_text()


@pytest.mark.parametrize("example", FILES, ids=lambda path: path.stem)
def test_an_example_runs(
    example: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    """It needs no argument and no network, prints what it did, and leaves no file where it was run."""
    monkeypatch.chdir(tmp_path)
    if needs_postgres(example):
        monkeypatch.setenv("CUSTODY_SYNC_EXAMPLE_POSTGRES", request.getfixturevalue("database_uri"))
    try:
        with warnings.catch_warnings():
            # A vendor may deprecate its own ways; to a reader that is no error.
            warnings.simplefilter("ignore")
            runpy.run_path(str(example), run_name="__main__")
    except MissingExtra as missing:
        pytest.skip(f"{example.name}: {missing}")
    except ModuleNotFoundError as missing:
        if (missing.name or "custody_sync").partition(".")[0] == "custody_sync":
            raise
        pytest.skip(f"{example.name} needs {missing.name}, which is not installed")
    assert len(capsys.readouterr().out.splitlines()) >= 3
    assert list(tmp_path.iterdir()) == []


def test_an_example_stops_before_a_table_that_it_did_not_make(database_uri: str) -> None:
    """A table that has the example's name already is left as it is, and the reader is told what to do."""
    psycopg = pytest.importorskip("psycopg", reason="the example needs custody-sync[pgvector]")
    names = runpy.run_path(str(EXAMPLES / "pgvector_rag.py"))
    with psycopg.connect(database_uri, autocommit=True) as database:
        database.execute(f"create table {names['TABLE']} (precious text)")
        database.execute(f"insert into {names['TABLE']} values ('mine')")
        with pytest.raises(SystemExit, match="is there already and was not touched: drop it if"):
            names["make_table"](database)
        assert database.execute(f"select precious from {names['TABLE']}").fetchall() == [("mine",)]


@pytest.mark.parametrize("example", FILES, ids=lambda path: path.stem)
def test_an_example_keeps_to_what_is_its_own(example: Path) -> None:
    """No example reads a setting that programs share, and none drops, empties or overwrites anything."""
    text = example.read_text()
    assert "DATABASE_URL" not in text
    assert not re.search(r"drop table|drop schema|truncate|rmtree|write_text|unlink", text, re.IGNORECASE)
    for read in re.findall(r"environ(?:\.get\(|\[)\"(\w+)\"", text):
        assert read.startswith(("CUSTODY_SYNC_EXAMPLE_", "MEM0_")), read


@pytest.mark.parametrize("example", FILES, ids=lambda path: path.stem)
def test_an_example_says_what_it_shows(example: Path) -> None:
    """It begins with what it shows and how it runs, and checks what it claims."""
    tree = ast.parse(example.read_text())
    assert "Runs offline" in (ast.get_docstring(tree) or "")
    assert any(isinstance(node, ast.Assert) for node in ast.walk(tree))


def test_the_page_lists_every_example() -> None:
    """examples/README.md links each file, and no other."""
    linked = re.findall(r"\]\(([\w]+\.py)\)", (EXAMPLES / "README.md").read_text())
    assert sorted(linked) == [path.name for path in FILES]
