"""What commands print: documents as text for people or as JSON, errors and progress bars on stderr."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from pyspark_log.documents.text import duration, time_of

if TYPE_CHECKING:
    from collections.abc import Iterator

Document = Mapping[str, Any]
Documents = Sequence[Document]
_TIMES = {"created_ms": "created at", "committed_ms": "committed at", "at_ms": "begun at"}
"""Fields that are times, and their titles; others in ms are durations."""
_ALWAYS = {"leader", "isr", "offset"}
"""A table leaves out a column that is empty in all rows, but for these: that nobody leads is news."""
_UNLESS_ZERO = {"beyond", "table_end"}
"""A table also leaves out these columns if they are 0 in all rows: few groups and topics ever have another number."""


def show(found: Document | Documents, *, json: bool, empty: str = "none", records: bool = False) -> None:
    """Print documents as JSON if `json` is set, otherwise as text.

    One is a record: a line for each field, and tables below for its lists of documents. Several are a table, with
    tables below for their lists of documents, or `records` if that is set; `empty` stands for none.
    """
    several = [found] if isinstance(found, Mapping) else found
    if json:
        print_json(*several)
    else:
        shown = _records(several) if records or isinstance(found, Mapping) else _tables(several)
        sys.stdout.writelines(f"{line}\n" for line in (shown if several else [empty]))
    sys.stdout.flush()  # whoever follows it reads it now


def print_json(*documents: Any) -> None:
    """Print each document on a line of its own."""
    sys.stdout.buffer.write(msgspec.json.Encoder(decimal_format="number").encode_lines(documents))


def _records(documents: Iterable[Document]) -> Iterator[str]:
    for number, document in enumerate(documents):
        yield from [""] * bool(number)
        tables = {name: each for name, each in document.items() if _is_table(each)}
        width = max(map(len, map(_title, document))) + 2
        for name, value in document.items():
            several = _pairs(value) if isinstance(value, Mapping) else []
            for index, cell in enumerate([] if name in tables else several or [_cell(name, value)]):
                yield f"{'' if index else _title(name):{width}}{cell}"
        for name, rows in tables.items():
            yield from ("", _title(name)) if len(tables) > 1 else ("",)
            yield from _table(rows)


def _tables(documents: Documents) -> Iterator[str]:
    """Yield a table of documents, and one for each of their fields that is a list of documents."""
    nested = dict.fromkeys(name for each in documents for name, value in each.items() if _is_table(value))
    yield from _table([{name: value for name, value in each.items() if name not in nested} for each in documents])
    for name in nested:
        key = next(iter(documents[0]))
        yield from ("", _title(name))
        yield from _table([{key: each[key]} | one for each in documents for one in each.get(name) or ()])


def _table(rows: Sequence[Document]) -> Iterator[str]:
    """Yield a table as wide as it needs to be: a number folded in a narrow terminal could be misread."""
    every = dict.fromkeys(name for row in rows for name in row)
    fields = [name for name in every if name in _ALWAYS or any(_says_something(name, row.get(name)) for row in rows)]
    cells = [list(map(_title, fields)), *([_cell(name, row.get(name)) for name in fields] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    right = [bool(rows) and all(type(row.get(name)) is int for row in rows) for name in fields]
    for number, line in enumerate(cells):
        aligned = (f"{cell:{'>' if r else '<'}{w}}" for cell, w, r in zip(line, widths, right, strict=True))
        yield "  ".join(aligned).rstrip()
        if number == 0:
            rule = "─" if (sys.stdout.encoding or "").lower().startswith("utf") else "-"
            yield rule * (sum(widths) + 2 * (len(widths) - 1))


def _title(name: str) -> str:
    return _TIMES.get(name) or name.removesuffix("_ms").replace("_", " ")


def _is_table(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and isinstance(value[0], Mapping)


def _says_something(name: str, value: Any) -> bool:
    return not _is_empty(value) and not (name in _UNLESS_ZERO and value == 0)


def _is_empty(value: Any) -> bool:
    return value is None or value in ("", [], (), {})


def _pairs(value: Document) -> list[str]:
    return [f"{key}={each if type(each) is int else _cell(key, each)}" for key, each in value.items()]


def _cell(name: str, value: Any) -> str:
    if _is_empty(value):
        return "none"
    match value:
        case bool():
            return "yes" if value else "no"
        case int() if name in _TIMES:
            return time_of(value)
        case int() | float() if name.endswith("_ms"):
            return duration(value)
        case int():
            return f"{value:,}"
        case list() | tuple():
            return ", ".join(_cell(name, each) for each in value)
        case Mapping():
            return ", ".join(_pairs(value))
    # What a client says of itself may hold a line break, or what moves a terminal's cursor.
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in str(value))


def print_error(message: str) -> None:
    """Print an error on stderr."""
    typer.echo(f"pyspark-log: {message}", err=True)


@contextlib.contextmanager
def bar(
    what: str, total_bytes: int, wait: Callable[[int], object] = lambda _: None
) -> Iterator[Callable[[int], object]]:
    """Yield a function to be called with the number of bytes done since the last call; it calls `wait` with it too.

    The bar is on stderr, and only if that is a terminal and there is something to do.
    """
    if total_bytes == 0 or not sys.stderr.isatty():
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
