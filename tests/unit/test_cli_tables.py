"""Tables in a pipe, on a wide terminal and on a narrow one: no id is ever broken."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.text import Text

from custody_sync.cli.tables import print_table

FACT = "01a22930-26e6-715a-9401-a8d1e5c513e9"
ENTRY = f"{FACT}.6eadaa920618"
PROSE = "a sentence that goes on for longer than most terminals are wide, and then for some words more"
COLUMNS = ("fact", "external id", "empty", "said")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


def _shown(stream: io.StringIO, width: int, *rows: tuple[str, ...]) -> list[str]:
    console = Console(file=stream, width=width, color_system=None, legacy_windows=False)
    print_table(console, Text("title"), COLUMNS, [[Text(cell) for cell in row] for row in rows])
    return stream.getvalue().splitlines()


ROWS = [(FACT, ENTRY, "", PROSE), (FACT, ENTRY, "", "short")]


@pytest.mark.parametrize("width", [40, 80, 110, 120, 200])
def test_ids_stay_in_one_piece_on_every_terminal(width: int) -> None:
    """Each id of each row is somewhere on one line, and every word of the prose too."""
    lines = _shown(Terminal(), width, *ROWS)
    assert sum(ENTRY in line for line in lines) == 2
    assert sum(FACT in line.replace(ENTRY, "") for line in lines) == 2
    assert {word for line in lines for word in line.split()} >= {*PROSE.split()}


@pytest.mark.parametrize(("width", "table"), [(80, False), (115, True)])
def test_a_narrow_terminal_gets_a_block_a_row(width: int, table: bool) -> None:
    """Where a table would break an id, names and values stand line by line; else lines fit the terminal."""
    lines = _shown(Terminal(), width, *ROWS)
    assert (lines[1] == f"fact         {FACT}") is not table
    if table:
        assert max(map(len, lines)) <= width


def test_a_pipe_gets_a_line_a_row() -> None:
    """One record is one line, without a frame, padding at its end, or width for one long text."""
    lines = _shown(io.StringIO(), 20_000, *ROWS)
    assert [line.split()[0] for line in lines] == ["title", "fact", FACT, FACT]
    assert lines[2].endswith(PROSE)
    assert lines[3].endswith("  short")
    assert lines[1].index("said") == lines[2].index(PROSE) == lines[3].index("short")


def test_a_column_without_content_is_left_out() -> None:
    """An empty column only takes room."""
    assert "empty" not in " ".join(_shown(io.StringIO(), 20_000, *ROWS))


def test_nothing_to_show_is_said() -> None:
    """No rows are told, not shown as an empty frame."""
    assert _shown(Terminal(), 80) == ["title: none"]
