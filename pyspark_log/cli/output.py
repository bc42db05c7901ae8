"""What commands print: sentences and tables for people, JSON for machines, errors and progress bars on stderr."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

Document = Mapping[str, Any]
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


class Column(NamedTuple):
    """A column of a table: a field of the documents that --json prints, and how people see it."""

    field: str
    title: str = ""
    """Default: the name of the field."""
    show: Callable[[Any], Any] = lambda value: value
    """Returns what to show for a value."""
    total: bool = False
    """Whether a table of several rows ends with the sum of the column."""


def show_table(columns: Iterable[Column | str], documents: Sequence[Document], empty: str = "", *, json: bool) -> None:
    """Print documents as JSON if `json` is set, otherwise as a table, or `empty` in place of one without rows."""
    if json:
        print_json(*documents)
    elif empty and not documents:
        typer.echo(empty)
    else:
        print_table(columns, documents)


def print_table(columns: Iterable[Column | str], documents: Iterable[Document]) -> None:
    """Print a table with a row for each document. A column that needs no more than its name may be a string.

    Numbers are grouped and right-aligned, totals set apart. None is shown as none, a list with commas.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    chosen = [Column(each) if isinstance(each, str) else each for each in columns]
    rows = [[column.show(document[column.field]) for column in chosen] for document in documents]
    totals = len(rows) > 1 and any(column.total for column in chosen)
    style = box.SIMPLE if totals else box.SIMPLE_HEAD
    table = Table(box=style, pad_edge=False, show_edge=False, collapse_padding=True, show_footer=totals)
    for index, column in enumerate(chosen):
        cells = [row[index] for row in rows]
        numeric = bool(cells) and all(isinstance(cell, int) for cell in cells)
        footer = _shown(sum(cells)) if column.total else "" if index else "total"
        justify: Literal["left", "right"] = "right" if numeric else "left"
        table.add_column(column.title or column.field, footer=footer, justify=justify, no_wrap=True)
    for row in rows:
        table.add_row(*map(_shown, row))
    console = Console(width=WIDTH_MAX, highlight=False, markup=False, emoji=False)  # names may look like either
    with console.capture() as printed:  # printing directly would end the program if stdout is closed
        console.print(table)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in printed.get().splitlines())


def _shown(cell: Any) -> str:
    match cell:
        case None:
            return "none"
        case int():
            return f"{cell:,}"
        case list() | tuple():
            return ", ".join(map(_shown, map(str, cell)))
    # What a client says of itself may hold a line break, or what moves a terminal's cursor.
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in str(cell))


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


@contextlib.contextmanager
def bar(
    what: str, total_bytes: int, wait: Callable[[int], object] = lambda _: None
) -> Iterator[Callable[[int], object]]:
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
