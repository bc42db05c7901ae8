"""What commands print: sentences and tables for people, JSON for machines, errors and progress bars on stderr."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WIDTH_MAX = 10_000
"""Tables are as wide as they need to be: a number folded in a narrow terminal could be misread."""


def show(document: Any, *lines: str, json: bool) -> None:
    """Print `document` as JSON if `json` is set, otherwise the lines."""
    if json:
        print_json(document)
    else:
        for line in lines:
            typer.echo(line)


def print_json(*documents: Any) -> None:
    """Print each document on a line of its own."""
    sys.stdout.buffer.write(msgspec.json.Encoder().encode_lines(documents))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], totals: Sequence[Any] | None = None) -> None:
    """Print a table. Numbers are grouped and right-aligned; `totals` is a last row, set apart."""
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
    with console.capture() as printed:  # printing directly would end the program if stdout is closed
        console.print(table)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in printed.get().splitlines())


def print_error(message: str) -> None:
    """Print an error on stderr."""
    typer.echo(f"pyspark-log: {message}", err=True)


class RepeatedErrors:
    """Prints the errors of a loop; one that was printed in the round before is not printed again."""

    def __init__(self) -> None:
        self._printed: set[str] = set()

    def print(self, errors: Iterable[str]) -> None:
        """Print the errors of a round."""
        found = dict.fromkeys(errors)
        for error in found:
            if error not in self._printed:
                print_error(error)
        self._printed = set(found)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 row`, `2,000 rows` and `3 entries`."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun[:-1]}ies" if noun.endswith("y") else f"{number:,} {noun}s"


def _shown(cell: Any) -> str:
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


@contextlib.contextmanager
def bar(what: str, total_bytes: int, wait: Callable[[int], object] = bool) -> Iterator[Callable[[int], object]]:
    """Yield a function to be called with the number of bytes done since the last call; it calls `wait` with it too.

    The bar is on stderr, and only if that is a terminal.
    """
    if not sys.stderr.isatty():
        yield wait
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total_bytes)

        def advance(done: int) -> None:
            progress.advance(task, done)
            wait(done)

        yield advance


@contextlib.contextmanager
def row_bar(what: str, total_rows: int) -> Iterator[Callable[[int], object]]:
    """Yield a function to be called with the number of rows done since the last call."""
    if not sys.stderr.isatty():
        yield bool
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total_rows)
        yield lambda done: progress.advance(task, done)
