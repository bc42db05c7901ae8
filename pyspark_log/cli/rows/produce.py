"""`pyspark-log produce`: write the lines of a file, a pipe or a terminal to a topic.

Each batch is one journal entry, so readers see all of it or nothing. A batch ends when it is full, when the input ends,
or when its first row has waited for --linger-ms.
"""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import select
import stat
import sys
import time
from collections.abc import Callable, Iterator
from typing import Annotated, BinaryIO, Literal

import pyarrow as pa
import typer

from pyspark_log.cli import arguments, output, signals
from pyspark_log.cli.arguments import Format
from pyspark_log.cli.output import bar
from pyspark_log.clients.producer import Producer
from pyspark_log.documents.text import counted
from pyspark_log.opening import open_log
from pyspark_log.writing import row_lines
from pyspark_log.writing.destination import is_typed
from pyspark_log_coordinator.model import settings
from pyspark_log_storage.errors import InvalidRecord, LogError, OutcomeUnknown
from pyspark_log_storage.files.row_files import Compression
from pyspark_log_storage.names import check_topic

LINE_BYTES_PER_ROW_BYTE = 8
"""JSON may encode a byte as six (`\\u0000`); the rest is for field names and blanks."""
LINE_BYTES_BESIDE_ROW = 1024 * 1024
BATCH_BYTES = 64 * 1024 * 1024
"""Maximum size of a batch, whose rows stay in memory until they are written."""
READ_BYTES = 1024 * 1024


@arguments.examples(
    "pyspark-log produce flights events.txt",
    "pyspark-log produce flights --key-separator : < events.txt",
    "pyspark-log produce flights --format json < events.jsonl",
    "tail -F app.log | pyspark-log produce logs --create",
    more="""\
A JSON line is an object; only "value" is required:
  {"value": "v", "key": "k", "headers": [{"key": "h", "value": "w"}],
   "partition": 0, "timestamp": 1700000000000}
Values and keys are strings, null (a null value is a tombstone), binary data
such as {"base64": "/w=="}, or any other JSON, which is stored as its text.
The fields "topic" and "offset", which consume prints, are ignored.
""",
)
def produce(  # noqa: PLR0913  # one for each option of the command
    *,
    topic: arguments.Topic,
    path: arguments.Path,
    file: Annotated[
        pathlib.Path | None, typer.Argument(metavar="FILE", help="File to read; - is stdin (default: stdin).")
    ] = None,
    form: Annotated[
        Format, typer.Option("--format", help="Format of a line: text is a value, json is an object (see below).")
    ] = "text",
    key_separator: arguments.KeySeparator = None,
    acks: Annotated[
        Literal["all", "-1", "1", "0"],
        typer.Option(metavar="all|1|0", case_sensitive=False, help="Replicas that must have a batch, as in Kafka."),
    ] = "all",
    compression: Annotated[
        Compression | None,
        typer.Option(
            metavar="none|lz4|zstd",
            case_sensitive=False,
            help="Compression of the rows (default: as set for the topic).",
        ),
    ] = None,
    batch_rows: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number of rows in a batch.")] = 100_000,
    linger_ms: Annotated[
        int,
        typer.Option(min=0, metavar="MS", help="How long rows of a pipe or terminal wait for more, in milliseconds."),
    ] = 1000,
    config: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Option of the Python Producer, such as delivery.timeout.ms (default: "
            f"{settings.DELIVERY_TIMEOUT_MS.default}); can be repeated.",
        ),
    ] = None,
    create: Annotated[
        bool,
        typer.Option("--create", help="Create the topic, with one partition, if it does not exist; no cluster."),
    ] = False,
    json: arguments.Json = False,
) -> None:
    """Write lines to a topic.

    Lines are written in batches. Readers see all rows of a batch or none.
    """
    arguments.check_key_separator(key_separator, form)

    options: dict[str, object] = {
        "acks": acks,
        "compression.type": compression,
        "auto.create.topics.enable": create,
        "max.request.size": settings.INT_MAX,  # the topic has a limit of its own
    }

    def decode(lines: list[bytes], first_line: int) -> pa.RecordBatch:
        if form == "json":
            return row_lines.decode_json(lines, first_line)
        return row_lines.decode_text(lines, first_line, None if key_separator is None else os.fsencode(key_separator))

    check_topic(topic)
    producer = Producer(path, options | arguments.settings(config, "delivery.timeout.ms=60000"))
    with contextlib.closing(producer), _opened(file) as stream:
        producer.partitions_for(topic)  # creates it
        handle = open_log(path).topic(topic)
        if is_typed(handle):
            raise InvalidRecord(
                f"topic {topic!r} is typed: it has columns of its own, and takes no records of key and value"
            )
        batches = Batches(producer, topic, decode)
        lines = _Lines(stream, handle.config.max_message_bytes * LINE_BYTES_PER_ROW_BYTE + LINE_BYTES_BESIDE_ROW)
        try:
            with (
                bar(f"produce {topic}", lines.size or 0) as advance,
                signals.interrupts(allowed=False),
            ):  # what was taken from a pipe is written
                interrupted = _write(lines, batches, batch_rows, linger_ms / 1000, advance)
        except LogError as error:
            raise LogError(_with_lines_written(error, batches.lines_written)) from error
        except KeyboardInterrupt:
            producer.close(0)  # does not wait for a store that may be away
            interrupted = True
            output.print_error(
                f"interrupted during a write: {_lines_written(batches.lines_written)}, except that the last batch may "
                "have been written"
            )
    _print_written(topic, batches, json=json)
    if interrupted:
        raise typer.Exit(signals.INTERRUPTED)


@contextlib.contextmanager
def _opened(file: pathlib.Path | None) -> Iterator[BinaryIO]:
    if file is not None and str(file) != "-":
        with file.open("rb") as stream:
            yield stream
        return
    if sys.stdin.isatty() and sys.stderr.isatty():
        typer.echo("type one row per line; end with Ctrl-D", err=True)
    yield sys.stdin.buffer


class Batches:
    """Decodes lines and writes the rows in batches."""

    def __init__(self, producer: Producer, topic: str, decode: Callable[[list[bytes], int], pa.RecordBatch]) -> None:
        """`decode` returns the rows of lines, given the number of the first line."""
        self._producer = producer
        self._topic = topic
        self._decode = decode
        self._rows: list[pa.RecordBatch] = []
        """Of the current batch."""
        self._lines_decoded = 0
        self.bytes_pending = 0
        """The number of bytes of the current batch in memory."""
        self.lines_written = 0
        self.written: dict[int, dict[str, int]] = {}
        """What was added to each partition. Rows of other writers may be between the first offset and the last."""

    @property
    def lines_pending(self) -> int:
        """The number of lines in the current batch."""
        return self._lines_decoded - self.lines_written

    def add(self, lines: list[bytes]) -> None:
        """Add lines to the current batch. Raises `InvalidRecord`."""
        rows = self._decode(lines, self._lines_decoded + 1)
        self._rows.append(rows)
        self.bytes_pending += rows.nbytes
        self._lines_decoded += len(lines)

    def end(self) -> None:
        """Write the current batch. Raises what `Producer.send_batch` and its future raise."""
        if not self._rows:
            return
        rows, self._rows, self.bytes_pending = pa.Table.from_batches(self._rows), [], 0
        done = self._producer.send_batch(self._topic, rows).result()
        self.lines_written = self._lines_decoded
        for partition, (start, end) in done.offsets.items():
            new = {"partition": partition, "rows": 0, "first_offset": start}
            found = self.written.setdefault(partition, new)
            found |= {"rows": found["rows"] + end - start, "last_offset": end - 1}


class _Lines:
    """Complete lines of a file, a pipe or a terminal, as they arrive, without their ends (LF or CR LF).

    The last line may have no end.
    """

    def __init__(self, stream: BinaryIO, line_bytes_max: int) -> None:
        """`line_bytes_max` limits the memory of one line."""
        self._stream = stream
        self._line_bytes_max = line_bytes_max
        self._begun: list[bytes] = []
        self._ended = False
        self.lines_read = 0
        self.size: int | None = None
        """In bytes, if the stream is a file."""
        self._waits_on: int | None = None
        try:
            descriptor = stream.fileno()
        except (io.UnsupportedOperation, AttributeError):
            return
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode):
            self.size = status.st_size
        else:
            self._waits_on = descriptor

    def read(self, timeout: float | None) -> list[bytes] | None:
        """Return the lines that have arrived, or None at the end of the stream.

        The list is empty if no line arrives within `timeout` seconds (None: wait forever). Raise `InvalidRecord` if a
        line is too long, and `KeyboardInterrupt` at a signal, before anything is taken from the stream.
        """
        if self._ended:
            return None
        with signals.interrupts(allowed=True):
            if not self._has_more(timeout):
                return []
        return self._taken()

    def read_rest(self) -> list[bytes]:
        """Return the lines that a pipe still has after a signal: nobody else will read them."""
        return [] if self._ended or self._waits_on is None or not self._has_more(0) else self._taken() or []

    def _has_more(self, timeout: float | None) -> bool:
        return self._waits_on is None or bool(select.select([self._waits_on], [], [], timeout)[0])

    def _taken(self) -> list[bytes] | None:
        data = self._stream.read1(READ_BYTES)  # type: ignore[attr-defined]  # of every buffered stream
        if not data:
            self._ended = True
            if not self._begun:
                return None
            lines = [b"".join(self._begun)]
        else:
            lines = self._whole(data)
        self.lines_read += len(lines)
        return [line.removesuffix(b"\r") for line in lines]

    def _whole(self, data: bytes) -> list[bytes]:
        head, end, tail = data.rpartition(b"\n")
        lines = []
        if end:
            lines = b"".join([*self._begun, head]).split(b"\n")
            self._begun = []
        if tail:
            self._begun.append(tail)
            if sum(map(len, self._begun)) > self._line_bytes_max:
                raise InvalidRecord(
                    f"line {self.lines_read + len(lines) + 1} has more than {self._line_bytes_max:,} bytes, which is "
                    "too long for this topic; check the input, or increase the topic's max.message.bytes"
                )
        return lines


def _write(lines: _Lines, batches: Batches, rows_max: int, linger: float, advance: Callable[[int], object]) -> bool:
    """Write all lines. Return whether an interrupt ended the input; what the pipe had until then is written."""
    deadline = None

    def add(arrived: list[bytes]) -> None:
        while arrived:
            room = rows_max - batches.lines_pending
            batches.add(arrived[:room])
            arrived = arrived[room:]
            if batches.lines_pending == rows_max or batches.bytes_pending >= BATCH_BYTES:
                batches.end()

    while True:
        try:
            arrived = lines.read(None if deadline is None else max(0.0, deadline - time.monotonic()))
        except KeyboardInterrupt:
            add(lines.read_rest())
            batches.end()
            return True
        if arrived is None:
            batches.end()
            return False
        add(arrived)
        advance(sum(map(len, arrived)) + len(arrived))
        if batches.lines_pending == 0:
            deadline = None
        elif deadline is None:
            deadline = time.monotonic() + linger
        if deadline is not None and lines.size is None and time.monotonic() >= deadline:
            batches.end()
            deadline = None


def _with_lines_written(error: LogError, lines_written: int) -> str:
    if isinstance(error, OutcomeUnknown):
        return error.message if lines_written == 0 else f"{error.message}; {_lines(lines_written)} written"
    return f"{error.message}; {_lines_written(lines_written)}"


def _lines_written(count: int) -> str:
    return f"{_lines(count)} written, later lines were not" if count > 0 else "nothing was written"


def _lines(count: int) -> str:
    return "line 1 was" if count == 1 else f"lines 1 to {count} were"


def _print_written(topic: str, batches: Batches, *, json: bool) -> None:
    partitions = [each for _, each in sorted(batches.written.items())]
    rows = sum(each["rows"] for each in partitions)
    if json:
        output.show({"topic": topic, "rows": rows, "partitions": partitions}, json=True)
        return
    typer.echo(f"wrote {counted(rows, 'row')} to topic {topic}")
    if partitions:
        output.show(partitions, json=False)
