"""`pyspark-log produce`: lines of a file, a pipe or a terminal become rows of a topic.

Rows go in batches, each one journal entry: it is in the log whole or not at all. A batch ends when it is full, when
the input ends, or when its first row has waited long enough for more.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from pyspark_log.cli import arguments
from pyspark_log.cli.arguments import Format
from pyspark_log_storage.errors import LogError, OutcomeUnknown

if TYPE_CHECKING:
    from pyspark_log.cli.batches import Batches
    from pyspark_log.cli.lines import Lines
    from pyspark_log_coordinator.log.log import Log, TopicHandle

EXAMPLES = """\b
Examples:
  pyspark-log produce flights events.txt
  pyspark-log produce flights --key-separator : < events.txt
  pyspark-log produce flights --format json < events.jsonl
  tail -F app.log | pyspark-log produce logs --create

\b
A JSON line is an object, of which only value must be there:
  {"value": "v", "key": "k", "headers": [{"key": "h", "value": "w"}],
   "partition": 0, "timestamp": 1700000000000}
A value, and a key, is a string, null (such a value is a tombstone), bytes as
{"base64": "/w=="}, or any other JSON, which is stored as its text.
topic and offset, which consume prints, are ignored.
"""
LINE_BYTES_PER_ROW_BYTE = 8
"""JSON may write a byte as six (`\\u0000`); the rest is for names and blanks."""
LINE_BYTES_BESIDE_ROW = 1024 * 1024
BATCH_BYTES = 64 * 1024 * 1024
"""A batch ends with so many bytes too, for its rows stay in memory until they are written."""
INTERRUPTED = 130


def produce(  # noqa: PLR0913  # one for each option of the command
    *,
    topic: arguments.Topic,
    path: arguments.Path,
    file: Annotated[
        pathlib.Path | None,
        typer.Argument(metavar="FILE", help="What to read; stdin without it, or where it is -.", show_default=False),
    ] = None,
    form: Annotated[
        Format, typer.Option("--format", help="What a line is: a value, or an object (see below).")
    ] = Format.TEXT,
    key_separator: arguments.KeySeparator = None,
    acks: Annotated[
        str, typer.Option(metavar="all|1|0", help="Who must have the rows before they count, as in Kafka.")
    ] = "all",
    compression: Annotated[
        str | None,
        typer.Option(
            metavar="none|lz4|zstd", help="How the rows are compressed; else as the topic says.", show_default=False
        ),
    ] = None,
    batch_rows: Annotated[int, typer.Option(min=1, metavar="N", help="The most rows of a batch.")] = 100_000,
    linger_ms: Annotated[
        int, typer.Option(min=0, metavar="MS", help="How long rows of a pipe or terminal wait for more.")
    ] = 1000,
    config: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="How long a write is retried: retries, retry.backoff.ms, delivery.timeout.ms (default: 120000).",
        ),
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", help="Create the topic, with one partition, if it is not there.")
    ] = False,
    json: arguments.Json = False,
) -> None:
    """Write lines into a topic.

    Rows go in batches, each of which is in the log whole or not at all.
    """
    arguments.check_key_separator(key_separator, form)

    from pyspark_log.cli import json_rows, text_rows
    from pyspark_log.cli.batches import Batches
    from pyspark_log.cli.lines import Lines
    from pyspark_log.client.opening import open_log
    from pyspark_log.options import table
    from pyspark_log.options.produce import parse_produce
    from pyspark_log_coordinator.environment import real_environment
    from pyspark_log_coordinator.retry import RetryPolicy, retry
    from pyspark_log_storage.names import check_topic

    durability = arguments.read_as(table.ACKS, acks, "--acks")
    codec = None if compression is None else arguments.read_as(table.COMPRESSION_TYPE, compression, "--compression")

    options = parse_produce(arguments.settings(config or [], "delivery.timeout.ms=60000"))
    policy = RetryPolicy(options.retries, options.retry_backoff_ms, options.delivery_timeout_ms)

    def open_topic() -> tuple[Log, TopicHandle]:
        log = open_log(path, create=create)
        return log, log.ensure_topic(topic, 1) if create else log.topic(topic)

    def decode(lines: list[bytes], first_line: int) -> Any:
        if form is Format.JSON:
            return json_rows.decode(lines, first_line)
        return text_rows.decode(lines, first_line, None if key_separator is None else os.fsencode(key_separator))

    check_topic(topic)
    with _opened(file) as stream:
        log, handle = retry(real_environment(), policy, open_topic)
        batches = Batches(log, handle, decode, acks=durability, compression=codec, policy=policy)
        row_bytes_max = handle.journal.state.config.max_message_bytes
        lines = Lines(stream, row_bytes_max * LINE_BYTES_PER_ROW_BYTE + LINE_BYTES_BESIDE_ROW)
        try:
            with _progress(lines) as show:
                interrupted = _write(lines, batches, batch_rows, linger_ms / 1000, show)
        except LogError as error:
            raise LogError(_told(error, batches.lines_written)) from error
        except KeyboardInterrupt:
            interrupted = True
            typer.echo(f"pyspark-log: interrupted while rows were written; {_before_last(batches)}", err=True)
        finally:
            batches.discard()  # what an error left
    _print_written(topic, batches, json=json)
    if interrupted:
        raise typer.Exit(INTERRUPTED)


@contextlib.contextmanager
def _opened(file: pathlib.Path | None) -> Iterator[BinaryIO]:
    if file is not None and str(file) != "-":
        with file.open("rb") as stream:
            yield stream
        return
    if sys.stdin.isatty() and sys.stderr.isatty():
        typer.echo("type rows, one a line; Ctrl-D ends", err=True)
    yield sys.stdin.buffer


@contextlib.contextmanager
def _progress(lines: Lines) -> Iterator[Callable[[], None]]:
    """Show a bar on stderr while a file is read and somebody looks."""
    if lines.size is None or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=lines.size)
        yield lambda: bar.update(task, completed=lines.bytes_read)


def _write(lines: Lines, batches: Batches, rows_max: int, linger: float, show: Callable[[], None]) -> bool:
    """Write all lines. Returns whether an interrupt ended the input: what had been read by then is written."""
    due = None
    while True:
        try:
            came = lines.read(None if due is None else max(0.0, due - time.monotonic()))
        except KeyboardInterrupt:
            batches.end()
            return True
        if came is None:
            batches.end()
            return False
        while came:
            room = rows_max - batches.lines_pending
            batches.add(came[:room])
            came = came[room:]
            if batches.lines_pending == rows_max or batches.bytes_pending >= BATCH_BYTES:
                batches.end()
        show()
        if batches.lines_pending == 0:
            due = None
        elif due is None:
            due = time.monotonic() + linger
        if due is not None and lines.size is None and time.monotonic() >= due:
            batches.end()
            due = None


def _told(error: LogError, lines_written: int) -> str:
    if isinstance(error, OutcomeUnknown):
        return error.message if lines_written == 0 else f"{error.message}; lines 1 to {lines_written} were written"
    return f"{error.message}; {_lines_written(lines_written)}"


def _before_last(batches: Batches) -> str:
    before = f"lines 1 to {batches.lines_written} are in the log" if batches.lines_written > 0 else "the log has none"
    return f"{before}, and those of the batch that was under way may be"


def _lines_written(count: int) -> str:
    return f"lines 1 to {count} were written, and none after them" if count > 0 else "nothing was written"


def _print_written(topic: str, batches: Batches, *, json: bool) -> None:
    import msgspec

    from pyspark_log.cli import output

    written = sorted(batches.written.items())
    rows = sum(each.rows for _, each in written)
    if json:
        partitions = [{"partition": partition, **msgspec.structs.asdict(each)} for partition, each in written]
        output.print_json({"topic": topic, "rows": rows, "partitions": partitions})
        return
    typer.echo(f"wrote {rows:,} row{'' if rows == 1 else 's'} to topic {topic}")
    if written:
        output.print_table(
            ("partition", "rows", "first offset", "last offset"),
            [(partition, each.rows, each.first_offset, each.last_offset) for partition, each in written],
        )
