"""Tables for people: as wide as the terminal, with every id in one piece, and one line a row in a pipe.

An id that is broken over two lines cannot be copied. Where a table would have to break one,
each row is printed as a block of lines instead, which the terminal itself may wrap.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

GAP, BORDER = 2, 3
PROSE = 16
"""A column of prose may become as narrow as this before the rows become blocks."""
PADDED = 64
"""Wider cells do not push the other rows of a pipe's column to the right; every id is narrower."""


def print_table(
    console: Console, title: Text, columns: Sequence[str], rows: Sequence[Sequence[Text]]
) -> None:
    """Print rows in the form that suits where they go; a column that is empty throughout is left out."""
    if not rows:
        console.print(Text.assemble(title, ": none"), soft_wrap=True)
        return
    # Not the table's own title: that would be folded to the width of a narrow table.
    console.print(title, style="bold", soft_wrap=True)
    said = [place for place in range(len(columns)) if any(row[place].plain for row in rows)]
    columns = [columns[place] for place in said]
    rows = [[row[place] for place in said] for row in rows]
    if not console.file.isatty():
        _print_lines(console, columns, rows)
        return
    least, most = _widths(columns, rows)
    if sum(least) + BORDER * len(least) > console.width:
        print_blocks(console, [list(zip(columns, row, strict=True)) for row in rows])
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column, width in zip(columns, _shared_out(least, most, console.width), strict=True):
        table.add_column(Text(column), overflow="fold", width=width)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def print_blocks(console: Console, blocks: Sequence[Sequence[tuple[str, Text]]]) -> None:
    """Print names and values, one pair a line, leaving out what is empty; a blank line between blocks."""
    for number, block in enumerate(blocks):
        if number:
            console.print()
        shown = [(name, value) for name, value in block if value.plain]
        width = max((cell_len(name) for name, _ in shown), default=0)
        for name, value in shown:
            line = Text.assemble((_padded(name, width + GAP), "bold"), value)
            console.print(line, soft_wrap=True)


def _widths(columns: Sequence[str], rows: Sequence[Sequence[Text]]) -> tuple[list[int], list[int]]:
    """Return how wide each column must be for no word to be broken, and how wide it can be of use."""
    least, most = [], []
    for place, column in enumerate(columns):
        texts = [column, *(row[place].plain for row in rows)]
        word = max(cell_len(word) for text in texts for word in (text.split() or [""]))
        widest = max(map(cell_len, texts))
        # What is longer than any id is folded, as a text without spaces must be somewhere.
        least.append(min(widest, max(PROSE, word if word <= PADDED else 0)))
        most.append(widest)
    return least, most


def _shared_out(least: Sequence[int], most: Sequence[int], width: int) -> list[int]:
    """Give what is left of a terminal's width to the columns that still need it, the modest ones first."""
    widths = list(least)
    left = width - sum(least) - BORDER * len(least)
    for place in sorted(range(len(widths)), key=lambda place: most[place] - least[place]):
        more = min(left, most[place] - least[place])
        widths[place] += more
        left -= more
    return widths


def _print_lines(console: Console, columns: Sequence[str], rows: Sequence[Sequence[Text]]) -> None:
    lines = [[Text(column, style="bold") for column in columns], *rows]
    widths = [
        max((size for size in (cell_len(cell.plain) for cell in column) if size <= PADDED), default=0)
        for column in zip_longest(*lines, fillvalue=Text())
    ]
    for line in lines:
        shown = Text()
        for cell, width in zip(line, widths, strict=True):
            shown.append_text(cell).append(" " * (max(width - cell_len(cell.plain), 0) + GAP))
        shown.rstrip()
        console.print(shown, soft_wrap=True)


def _padded(name: str, width: int) -> str:
    return name + " " * (width - cell_len(name))
