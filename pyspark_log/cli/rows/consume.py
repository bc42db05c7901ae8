"""`pyspark-log consume`: print the rows of a topic, partition by partition.

With `--follow` and with `--group` a `Consumer` reads the rows (`follow`).
"""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from pyspark_log.cli import arguments
from pyspark_log.cli.arguments import Format
from pyspark_log.documents.text import counted, time_ms_of
from pyspark_log.opening import open_log
from pyspark_log.options.position import Earliest, GlobalTimestamp, Latest, NoMatch, Position
from pyspark_log.reading.arrow_rows import record_schema, shaped
from pyspark_log.reading.fetch import BATCH_ROWS
from pyspark_log.reading.newest_rows import check_compacted, keyed_partition
from pyspark_log.reading.planning import Range, split_of
from pyspark_log.reading.positions import Subscribed, resolve
from pyspark_log.reading.rows import Lost, of_handle, read_rows
from pyspark_log.writing import row_lines
from pyspark_log_storage.columns import schema
from pyspark_log_storage.errors import DataLoss, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark_log.cli.rows.follow import Reset, Write
    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_storage.columns.keys import Offsets

FROM, TO = "--from", "--to"
WORDS: dict[str, dict[str, Position]] = {
    FROM: {"earliest": Earliest(), "latest": Latest()},
    TO: {"latest": Latest()},
}
_OFFSET = re.compile(r"[0-9]{1,18}")


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
        ),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="WHERE",
            help="End, exclusive: latest, an offset, or @TIME (default: the last row that exists at the start).",
        ),
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option(min=0, metavar="N", help="Partition to read; can be repeated (default: all).")
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Exit after this number of rows.")
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
        ),
    ] = None,
    form: Annotated[
        Format,
        typer.Option("--format", help="Format of a line: text is the value, json is the row as produce reads it."),
    ] = "text",
    key_separator: arguments.KeySeparator = None,
    output: Annotated[
        pathlib.Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the rows to this file instead: .parquet with the columns of a Spark read, or .jsonl.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Print the rows of a topic.

    Rows are printed partition by partition, so only the rows of one partition are in order.

    Text prints a null value as null. JSON prints binary data as {"base64": "/w=="}. A row of a typed topic is printed
    as a JSON object, in text with its columns alone.
    """
    form = "json" if json else form
    arguments.check_key_separator(key_separator, form)
    begin, until = _position(FROM, start), _position(TO, "latest" if end is None else end)
    if follow:
        arguments.refuse_given(
            {TO: end, "--output": output}, "--follow waits for rows without end; omit one of the two"
        )
    if output is not None:
        _check_output(output, is_formatted=form == "json" or key_separator is not None)
    if group is not None:
        if start not in WORDS[FROM]:
            why = f"with --group it is earliest or latest, not {start!r}; to go elsewhere, use: pyspark-log groups "
            arguments.refuse(FROM, f"{why}reset-offsets")
        why = "cannot be combined with --group, which commits what it prints"
        arguments.refuse_given({TO: end, "--output": output}, why)
    if latest:
        why = "cannot be combined with --latest, which is the newest row of each key as of now"
        arguments.refuse_given({FROM: start != "earliest", TO: end, "--group": group, "--follow": follow}, why)
    handle = open_log(path).topic(topic)
    partitions = _chosen(handle, partition)
    try:
        if group is not None or follow:
            from pyspark_log.cli.rows.follow import Wanted, follow_topic

            chosen = tuple(partitions) if partition else None
            begins = None if group else _offsets_at(FROM, begin, handle, partitions)
            ends = None if follow else {number: handle.partitions[number].high_watermark for number in partitions}
            reset: Reset = "latest" if start == "latest" and group else "earliest"
            wanted = Wanted(topic, group, chosen, begins, ends, reset, rack or "", max_messages)
            follow_topic(path, wanted, _printer(form, key_separator))
            return
        begins = _offsets_at(FROM, begin, handle, partitions)
        ends = _offsets_at(TO, until, handle, partitions)
        _check_order(handle, begins, ends)
        if latest:
            check_compacted(handle, ())
        bounds = {number: (begins[number], ends[number]) for number in partitions}
        read = functools.partial(_read, handle, bounds, max_messages, rack or "", latest=latest)
        if output is not None:
            with open_rows(output) as write:
                rows = read(write)
            typer.echo(f"wrote {counted(rows, 'row')} to {output}")
            return
        read(_printer(form, key_separator))
    except KeyboardInterrupt:
        if not follow:
            raise
        sys.stdout.flush()


def _position(option: str, text: str) -> Position | int:
    """Return a position, or the offset that is one. End the program if the text is none."""
    found: Position | int | None = WORDS[option].get(text)
    if _OFFSET.fullmatch(text):
        found = int(text)
    elif text.startswith("@"):
        with contextlib.suppress(InvalidInput):
            ms = time_ms_of(text[1:])
            found = GlobalTimestamp(ms) if ms >= 0 else None
    if found is None:
        arguments.refuse(
            option,
            f"{text!r} is not {', '.join(WORDS[option])}, an offset, or a time: @MS (milliseconds since 1970) or"
            " @2026-01-31T12:00:00Z",
        )
    return found


def _offsets_at(
    option: str, position: Position | int, handle: TopicHandle, partitions: Sequence[int]
) -> dict[int, int]:
    """Return the offset of a position in each partition. A time that no row has reached is the end.

    Raises `InvalidInput` for an offset of several partitions, `DataLoss` for one that the partition does not have.
    """
    if isinstance(position, int):
        return _at_offset(option, handle, partitions, position)
    now = Subscribed({handle.name: handle}, {handle.name: tuple(partitions)})
    found = resolve(now, position, NoMatch.LATEST, ending=option == TO)
    return {number: found[handle.name, number] for number in partitions}


def _at_offset(option: str, handle: TopicHandle, partitions: Sequence[int], offset: int) -> dict[int, int]:
    if len(partitions) > 1:
        raise InvalidInput(
            f"{option} {offset} needs one partition, but {len(partitions)} of topic {handle.name!r} are selected; "
            "select one with --partition"
        )
    (number,) = partitions
    state = handle.partitions[number]
    if not state.log_start <= offset <= state.high_watermark:
        raise DataLoss(
            f"topic {handle.name!r}, partition {number} has no offset {offset}; expected an offset from "
            f"{state.log_start} to {state.high_watermark}, the offset of the next row"
        )
    return {number: offset}


def _check_order(handle: TopicHandle, begins: dict[int, int], ends: dict[int, int]) -> None:
    """Raise `InvalidInput` if a partition ends before it begins."""
    for number, begin in begins.items():
        if ends[number] < begin:
            raise InvalidInput(
                f"topic {handle.name!r}, partition {number}: {TO} is at offset {ends[number]}, which is before {FROM}, "
                f"at offset {begin}; choose a later end"
            )


def _check_output(output: pathlib.Path, *, is_formatted: bool) -> None:
    """End the program if the file cannot be written."""
    if output.suffix not in {".jsonl", ".parquet"}:
        arguments.refuse("--output", f"{str(output)!r} does not end in .jsonl or .parquet, which say the format")
    if is_formatted:
        arguments.refuse(
            "--output", "the ending of the file says the format; omit --json, --format and --key-separator"
        )
    if output.exists():
        arguments.refuse("--output", f"{str(output)!r} exists; choose another name, or delete it")
    if not output.parent.is_dir():
        arguments.refuse("--output", f"the folder {str(output.parent)!r} does not exist; make it, or choose another")


def _printer(form: Format, key_separator: str | None) -> Write:
    """Return a function that prints rows."""
    separator = None if key_separator is None else os.fsencode(key_separator)

    def write(record: pa.RecordBatch, topic: str, partition: int, offset: Offsets) -> None:
        if form == "json":
            lines = row_lines.encode_json(record, topic, partition, offset)
        else:
            lines = row_lines.encode_text(record, separator)
        sys.stdout.buffer.write(lines)
        sys.stdout.buffer.flush()

    return write


def _read(
    handle: TopicHandle,
    bounds: Mapping[int, tuple[int, int]],
    rows_max: int | None,
    rack: str,
    write: Write,
    *,
    latest: bool,
) -> int:
    """Write the rows between two offsets of each partition, at most `rows_max`, and return their number.

    It continues if rows expire meanwhile. With `latest` it writes the newest row of each key, and raises `DataLoss`
    instead: the rows would be of another moment.
    """
    rows = 0
    lost = Lost.ERROR if latest else Lost.LEFT_OUT
    for number, (begin, end) in bounds.items():
        first = max(begin, handle.partitions[number].log_start)
        if first >= end or rows == rows_max:
            continue
        split = split_of(handle, Range(handle.name, number, first, end), rack)
        newest = keyed_partition(handle, number) if latest else None
        for offsets, batch in read_rows(split, of_handle(handle), newest=newest, lost=lost):
            for place in range(0, batch.num_rows, BATCH_ROWS):
                left = BATCH_ROWS if rows_max is None else min(BATCH_ROWS, rows_max - rows)
                record = batch.slice(place, left)
                if not record.num_rows:
                    return rows
                write(record, handle.name, number, offsets[place : place + record.num_rows])
                rows += record.num_rows
    return rows


def _chosen(handle: TopicHandle, wanted: Sequence[int] | None) -> list[int]:
    state = handle.state
    for number in wanted or ():
        state.partition(number)  # raises if there is none
    return sorted(set(wanted)) if wanted else list(range(len(state.partitions)))


PARQUET = record_schema(("key", "value", "topic", "partition", "offset", "timestamp", "headers"))


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
            writer.write_batch(shaped(record, PARQUET, topic, partition, offset))

        yield write
