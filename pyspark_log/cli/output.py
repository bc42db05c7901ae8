"""What commands print: tables for people, JSON for machines."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

WIDTH_MAX = 10_000
"""Tables are as wide as they need to be: a number that is folded in a narrow terminal could be misread."""


def print_json(*documents: Any) -> None:
    """Print each document on a line of its own."""
    sys.stdout.buffer.write(msgspec.json.Encoder().encode_lines(documents))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], totals: Sequence[Any] | None = None) -> None:
    """Print a table. Numbers are grouped and stand on the right; `totals` are a last row apart from the others."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    cells = [*rows]
    style = box.SIMPLE_HEAD if totals is None else box.SIMPLE
    table = Table(box=style, pad_edge=False, show_edge=False, collapse_padding=True, show_footer=totals is not None)
    for index, name in enumerate(columns):
        numeric = bool(cells) and all(isinstance(row[index], int) for row in cells)
        footer = "" if totals is None else _shown(totals[index])
        table.add_column(name, footer=footer, justify="right" if numeric else "left", no_wrap=True)
    for row in cells:
        table.add_row(*[_shown(cell) for cell in row])
    console = Console(width=WIDTH_MAX, highlight=False)
    with console.capture() as printed:  # by itself it would end the program where stdout is closed
        console.print(table)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in printed.get().splitlines())


def _shown(cell: Any) -> str:
    return f"{cell:,}" if isinstance(cell, int) else str(cell)
