"""`pyspark-log consume`: print the rows of a topic.

Each poll prints the new rows of a consistent cut of the topic, partition by partition. So rows of one partition are in
order, and across partitions only the polls are.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import pathlib
import select
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from pyspark_log.cli import arguments
from pyspark_log.cli.arguments import Format
from pyspark_log.cli.output import counted
from pyspark_log.cli.rows import row_positions
from pyspark_log.clients.reading import AssignedPartition
from pyspark_log.opening import open_log
from pyspark_log.options.clients import parse_consumer
from pyspark_log.reading.fetch import BATCH_BYTES_MAX, BATCH_ROWS, fetch, newest_rows
from pyspark_log.reading.newest_rows import check_compacted, keyed_partition, newest_rows_of
from pyspark_log.reading.planning import Range, find_again, split_of
from pyspark_log.writing import row_lines
from pyspark_log_storage.columns import schema
from pyspark_log_storage.columns.row_offsets import count_before, each_of, offsets_from
from pyspark_log_storage.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark_log.cli.rows.consume_group import Write
    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_storage.columns.row_offsets import Offsets

    _Poll = Callable[[Write, int | None], int]

POLL_SECONDS = 0.1


@arguments.examples(
    "pyspark-log consume flights --max-messages 10",
    "pyspark-log consume flights --follow --from latest --json",
    "pyspark-log consume flights --partition 0 --from 120",
    "pyspark-log consume flights --from @1700000000000 --to @2026-01-31T12:00:00Z",
    "pyspark-log consume flights --to latest --output flights.parquet",
    "pyspark-log consume flights --group audit --follow",
    "pyspark-log consume settings --latest --json",
)
def consume(  # noqa: PLR0913  # one for each option of the command
    *,
    topic: arguments.Topic,
    path: arguments.Path,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="Start: earliest, latest, an offset (with one --partition), or @TIME for the first row of each "
            "partition at or after a time: milliseconds since 1970, or a time such as 2026-01-31T12:00:00Z.",
        ),
    ] = "earliest",
    group: Annotated[
        str | None,
        typer.Option(
            metavar="GROUP",
            help="Read as a member of this group, from its committed offsets on, and commit what was printed. --from "
            "is earliest or latest, for partitions without a committed offset.",
            show_default=False,
        ),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="WHERE",
            help="End, exclusive: latest, an offset, or @TIME (default: the last row that exists at the start).",
            show_default=False,
        ),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option(min=0, metavar="N", help="Partition to read; can be repeated (default: all).", show_default=False),
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Exit after this number of rows.", show_default=False)
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for new rows until Ctrl-C.")] = False,
    latest: Annotated[
        bool,
        typer.Option(
            "--latest", help="Only the newest row of each key of a compacted topic, without keys that were deleted."
        ),
    ] = False,
    rack: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Rack of this machine, as Kafka's client.rack: prefer to read from a node in this rack.",
            show_default=False,
        ),
    ] = None,
    form: Annotated[
        Format,
        typer.Option("--format", help="Format of a line: text is the value, json is the row as produce reads it."),
    ] = Format.TEXT,
    key_separator: arguments.KeySeparator = None,
    output: Annotated[
        pathlib.Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the rows to this file instead: .parquet with the columns of a Spark read, or .jsonl.",
            show_default=False,
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Print the rows of a topic.

    Rows are printed partition by partition, so only the rows of one partition are in order.

    Text prints a null value as null. JSON prints binary data as {"base64": "/w=="}. A row of a typed topic is printed
    as a JSON object, in text with its columns alone.
    """
    form = Format.JSON if json else form
    arguments.check_key_separator(key_separator, form)
    row_positions.check(row_positions.FROM, start)
    if end is not None:
        row_positions.check(row_positions.TO, end)
        _refuse_with_follow(row_positions.TO, follow=follow)
    if output is not None:
        _check_output(output, follow=follow, is_formatted=form is Format.JSON or key_separator is not None)
    if group is not None:
        _check_group(start, end, output)
    if latest:
        _check_latest(start, end, group, follow=follow)
    try:
        log = open_log(path)
        handle = log.topic(topic)
        partitions = _chosen(handle, partition)
        if group is not None:
            from pyspark_log.cli.rows.consume_group import Wanted, consume_as_member

            found = {number: handle.partitions[number].high_watermark for number in partitions}
            wanted = Wanted(
                topic,
                group,
                tuple(partitions) if partition else None,
                "earliest" if start == "earliest" else "latest",
                rack or "",
                max_messages,
                None if follow else found,
            )
            consume_as_member(path, wanted, _printer(form, key_separator), functools.partial(_wait, 0))
            return
        begins = row_positions.offsets_at(row_positions.FROM, start, handle, partitions)
        ends = None
        if end is not None:
            ends = row_positions.offsets_at(row_positions.TO, end, handle, partitions)
            row_positions.check_order(handle, begins, ends)
        reading = _Reading(handle, begins, ends, rack or "")
        poll: _Poll = functools.partial(_newest_rows, handle, begins, rack or "") if latest else reading.poll
        if output is not None:
            _write_file(output, poll, max_messages)
            return
        write = _printer(form, key_separator)
        left = max_messages
        while True:
            printed = poll(write, left)
            left = None if left is None else left - printed
            if not follow or left == 0:
                return
            _wait(POLL_SECONDS)
            handle.refresh()
            if not partition:
                reading.add_new_partitions()
    except KeyboardInterrupt:
        if not follow:
            raise
        sys.stdout.flush()


def _refuse_with_follow(name: str, *, follow: bool) -> None:
    if follow:
        arguments.refuse(name, "--follow waits for rows without end; omit one of the two")


def _check_group(start: str, end: str | None, output: pathlib.Path | None) -> None:
    """End the program if an option cannot be used with --group."""
    if start not in {"earliest", "latest"}:
        arguments.refuse(
            row_positions.FROM,
            f"with --group it is earliest or latest, not {start!r}; to go elsewhere, use: pyspark-log groups "
            "reset-offsets",
        )
    for name, is_given in ((row_positions.TO, end is not None), ("--output", output is not None)):
        if is_given:
            arguments.refuse(name, "cannot be combined with --group, which commits what it prints")


def _check_latest(start: str, end: str | None, group: str | None, *, follow: bool) -> None:
    """End the program if an option cannot be used with --latest."""
    given = {row_positions.FROM: start != "earliest", row_positions.TO: end is not None}
    for name, is_given in {**given, "--group": group is not None, "--follow": follow}.items():
        if is_given:
            arguments.refuse(name, "cannot be combined with --latest, which is the newest row of each key as of now")


def _check_output(output: pathlib.Path, *, follow: bool, is_formatted: bool) -> None:
    """End the program if the file cannot be written."""
    _refuse_with_follow("--output", follow=follow)
    if output.suffix not in {".jsonl", ".parquet"}:
        arguments.refuse("--output", f"{str(output)!r} does not end in .jsonl or .parquet, which say the format")
    if is_formatted:
        arguments.refuse(
            "--output", "the ending of the file says the format; omit --json, --format and --key-separator"
        )
    if output.exists():
        arguments.refuse("--output", f"{str(output)!r} exists; choose another name, or delete it")


def _printer(form: Format, key_separator: str | None) -> Write:
    """Return a function that prints rows."""
    separator = None if key_separator is None else os.fsencode(key_separator)

    def write(record: pa.RecordBatch, topic: str, partition: int, offset: Offsets) -> None:
        if form is Format.JSON:
            lines = row_lines.encode_json(record, topic, partition, offset)
        else:
            lines = row_lines.encode_text(record, separator)
        sys.stdout.buffer.write(lines)
        sys.stdout.buffer.flush()

    return write


def _write_file(output: pathlib.Path, poll: _Poll, rows_max: int | None) -> None:
    with open_rows(output) as write:
        rows = poll(write, rows_max)
    typer.echo(f"wrote {counted(rows, 'row')} to {output}")


class _Reading:
    """The partitions, read as a Consumer reads them: it goes on if rows expire or are compacted meanwhile."""

    def __init__(self, handle: TopicHandle, begins: dict[int, int], ends: dict[int, int] | None, rack: str) -> None:
        """`ends` None: at the end of the log."""
        self._handle = handle
        self._ends = ends
        given = {"auto.offset.reset": "earliest", "max.partition.fetch.bytes": BATCH_BYTES_MAX}
        self._options = parse_consumer({**given, "client.rack": rack} if rack else given, {})
        self._partitions: dict[int, AssignedPartition] = {}
        for number, begin in begins.items():
            self._add(number, begin)

    def _add(self, number: int, begin: int) -> None:
        self._partitions[number] = added = AssignedPartition(self._handle, number, self._options)
        added.seek(begin)
        added.position()  # rows before it must not be cut from now on

    def add_new_partitions(self) -> None:
        """Also read the partitions that the topic has got since the start, from their first rows on."""
        for number, each in enumerate(self._handle.partitions):
            if number not in self._partitions:
                self._add(number, each.log_start)

    def poll(self, write: Write, rows_max: int | None) -> int:
        """Write new rows, at most `rows_max`, and return their number."""
        rows = 0
        ends = self._ends or {number: each.state.high_watermark for number, each in self._partitions.items()}
        for number, each in self._partitions.items():
            while rows != rows_max and each.position() < ends[number]:
                found = each.take(BATCH_ROWS if rows_max is None else min(BATCH_ROWS, rows_max - rows))
                if found is None:
                    break
                offsets: Offsets = found.offset if found.offsets is None else found.offsets.to_numpy()
                record = found.rows.slice(0, count_before(offsets, found.rows.num_rows, ends[number]))
                if record.num_rows:
                    write(record, self._handle.name, number, offsets)
                    rows += record.num_rows
        return rows


def _newest_rows(handle: TopicHandle, begins: dict[int, int], rack: str, write: Write, rows_max: int | None) -> int:
    """Write the newest row of each key as of now, at most `rows_max` rows, and return their number.

    Raises `DataLoss` if rows expire or are compacted meanwhile: they would be of another moment. Raises `InvalidInput`
    if the topic is not compacted.
    """
    check_compacted(handle, ())
    rows = 0
    log, state = handle.log, handle.state
    for number, begin in begins.items():
        end = state.partitions[number].high_watermark
        if end <= begin or rows == rows_max:
            continue
        split = split_of(handle, Range(handle.name, number, begin, end), rack)
        again = functools.partial(find_again, log, split)
        chosen = newest_rows_of(log.store_at, split, keyed_partition(handle, number), again)
        for found in fetch(log.store_at, split, again):
            offsets, batch = chosen.only(*found)
            newest = newest_rows(split, batch)
            for first in range(0, batch.num_rows, BATCH_ROWS):
                record = newest.slice(first, BATCH_ROWS if rows_max is None else min(BATCH_ROWS, rows_max - rows))
                if not record.num_rows:
                    return rows
                write(record, handle.name, number, offsets_from(offsets, first))
                rows += record.num_rows
    return rows


def _chosen(handle: TopicHandle, wanted: Sequence[int] | None) -> list[int]:
    state = handle.state
    for number in wanted or ():
        state.partition(number)  # raises if there is none
    return sorted(set(wanted)) if wanted else list(range(len(state.partitions)))


def _wait(seconds: float) -> None:
    """Wait. Raise `BrokenPipeError` if the reader of stdout closes the pipe."""
    try:
        descriptor = sys.stdout.fileno()
    except io.UnsupportedOperation:
        time.sleep(seconds)
        return
    watch = select.poll()
    watch.register(descriptor, 0)  # errors are always reported
    if watch.poll(seconds * 1000):
        raise BrokenPipeError


PARQUET = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", schema.TIMESTAMP),
        ("headers", schema.HEADERS),
    ]
)


@contextlib.contextmanager
def open_rows(path: Path) -> Iterator[Write]:
    """Open a file of rows for writing, in the format that its ending says: .jsonl or .parquet.

    It gets its name at the end. After an error, nothing is left of it. Raises `OSError`.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with _parquet(part) if path.suffix == ".parquet" else _json_lines(part) as write:
            yield write
        part.rename(path)
    finally:
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def _json_lines(path: Path) -> Iterator[Write]:
    with path.open("wb") as file:

        def write(record: pa.RecordBatch, topic: str, partition: int, offset: Offsets) -> None:
            file.write(row_lines.encode_json(record, topic, partition, offset))

        yield write


@contextlib.contextmanager
def _parquet(path: Path) -> Iterator[Write]:
    with path.open("wb") as file, pq.ParquetWriter(file, PARQUET, compression="zstd") as writer:

        def write(record: pa.RecordBatch, topic: str, partition: int, offset: Offsets) -> None:
            if schema.is_typed(record.schema):
                raise InvalidInput(f"topic {topic!r} is typed; write its rows to a .jsonl file, or read it with Spark")
            rows = record.num_rows
            has_headers = "headers" in record.schema.names
            columns = [
                record.column("key"),
                record.column("value"),
                pa.repeat(topic, rows),
                pa.array(np.full(rows, partition, np.int32)),
                pa.array(each_of(offset, rows)),
                record.column("timestamp"),
                record.column("headers") if has_headers else pa.nulls(rows, schema.HEADERS),
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=PARQUET))

        yield write
