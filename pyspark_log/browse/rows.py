"""The rows that a page shows: newest first, or from an offset or a time on, with filters.

A page has few rows, and a filter that matches few reads at most `SCANNED_MAX` rows for it, or for `SCAN_SECONDS`; the
cursor that continues is part of the page's address. Of several partitions the rows are merged by their timestamps, and
each partition's stay in the order of its offsets. What is masked is neither shown nor filtered by (`masks`).
"""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from pyspark_log.browse.filters import Filters, json_of, matching, shown
from pyspark_log.browse.masks import HEADERS, MASKED, RECORD_COLUMNS, Mask, nulled
from pyspark_log.documents.figures import size_of
from pyspark_log.documents.text import time_ms_of
from pyspark_log.reading.planning import Range, split_of
from pyspark_log.reading.positions import offset_for_time
from pyspark_log.reading.rows import of_handle, read_rows
from pyspark_log.writing import row_lines, typed_json
from pyspark_log_storage.columns import schema
from pyspark_log_storage.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_storage.columns.keys import Offsets

ROWS_SHOWN = 50
SCANNED_MAX = 50_000
"""Rows that one page reads at most while its filters match fewer than it shows."""
SCAN_SECONDS = 2.0
"""The time for which it reads them, but for the blocks that it has begun."""
BLOCK_ROWS = 2_000
"""Rows of a partition that are read at once while there are filters, or for a download."""
BLOCK_BYTES = 1024 * 1024
"""The same as stored bytes, on average. Of several partitions as many blocks are in memory."""
DOWNLOAD_ROWS = 10_000
"""Rows of a download at most."""
DOWNLOAD_BYTES_MAX = 64 * 1024 * 1024
"""A page or a download ends after the row that reaches this size."""
PARTITIONS_MERGED = 64
"""Unless one is chosen, rows of so many partitions are shown: those with the newest."""
SHORT = 200
"""How many characters of a value a list shows."""
NO_MASK = Mask()
_US_PER_MS = 1000
_KEY, _VALUE = RECORD_COLUMNS


class Wanted(msgspec.Struct, frozen=True):
    """Which rows to show."""

    partition: int | None = None
    backward: bool = True
    """Newest first, else from the start on."""
    offset: int | None = None
    """Where to start: the largest or smallest offset, of each partition."""
    time_ms: int | None = None
    """Where to start, as a time."""
    at: dict[int, int] | None = None
    """Where to continue: the next offset of each partition, or backward the end."""
    filters: Filters = Filters()
    limit: int = ROWS_SHOWN


class Row(msgspec.Struct, frozen=True):
    """A row as text. A value that is not UTF-8 is shown as base64. `columns` are those of a typed topic."""

    partition: int
    offset: int
    timestamp_ms: int
    columns: dict[str, str | None]
    bytes: int
    """What it takes in memory."""
    headers: tuple[tuple[str, str | None], ...] = ()


class Found(msgspec.Struct, frozen=True):
    """The rows of a page. `at` continues after them, None if there are no more."""

    columns: tuple[str, ...]
    rows: list[Row]
    at: dict[int, int] | None
    scanned: int
    partitions: int
    """The number of partitions that were merged; the topic may have more."""


def wanted_of(parameters: Mapping[str, str], mask: Mask) -> Wanted:
    """Return what an address asks for. Raises `InvalidInput` for a filter on what is masked, or a wrong number."""
    given = {name: value for name in Filters.__struct_fields__ if (value := parameters.get(name, ""))}
    field = given.get("field", "").partition("=")[0]
    refused = {
        "key": mask.reaches(_KEY),
        "key_has": mask.reaches(_KEY),
        "value_has": mask.reaches(_VALUE),
        "header": mask.reaches_headers,
        "field": mask.reaches(field) or mask.reaches(f"{_VALUE}.{field}"),
    }
    for name in given:
        if refused[name]:
            raise InvalidInput(f"rows cannot be filtered by {name}: this page masks {', '.join(sorted(mask.names))}")
    at = parameters.get("at", "")
    return Wanted(
        partition=_number("partition", parameters),
        backward=parameters.get("order", "newest") != "oldest",
        offset=_number("offset", parameters),
        time_ms=time_ms_of(parameters["time"]) if parameters.get("time") else None,
        at=cursor_of(at) if at else None,
        filters=Filters(**given),
    )


def _number(name: str, parameters: Mapping[str, str]) -> int | None:
    text = parameters.get(name, "").replace(",", "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20):  # noqa: PLR2004 -- the digits of an int64
        raise InvalidInput(f"{name} {text[:40]!r} is not a whole number; choose one from 0 on")
    return int(text)


def cursor(at: Mapping[int, int]) -> str:
    """Return a cursor as text for an address.

    >>> cursor({0: 17, 2: 400})
    '0-17.2-400'
    """
    return ".".join(f"{number}-{offset}" for number, offset in sorted(at.items()))


def cursor_of(text: str) -> dict[int, int]:
    """Return the cursor in a text. Raises `InvalidInput`."""
    try:
        pairs = [each.split("-") for each in text.split(".")]
        return {int(number): int(offset) for number, offset in pairs}
    except ValueError:
        raise InvalidInput(f"the page's place {text[:40]!r} is none; begin at the topic's rows again") from None


def read(handle: TopicHandle, wanted: Wanted, mask: Mask = NO_MASK) -> Found:
    """Return the rows of a page. Reads at most some blocks of each partition.

    Raises `InvalidInput` for an unknown partition, `DataLoss` for rows that expired meanwhile, `StoreError`,
    `CorruptObject`.
    """
    rows, lanes = _found(handle, wanted, mask)
    newest = handle.schemas[-1]
    columns = tuple(newest.names[:-1]) if schema.is_typed(newest) else (_KEY, _VALUE)
    left = {each.number: each.place for each in lanes if not each.is_done or each.hits}
    return Found(
        columns=columns,
        rows=[_row(number, offset, batch, mask) for number, offset, batch in rows],
        at=left or None,
        scanned=sum(each.scanned for each in lanes),
        partitions=len(lanes),
    )


def download(handle: TopicHandle, wanted: Wanted, form: str, mask: Mask = NO_MASK) -> bytes:
    """Return the rows of a page as a file: `jsonl` or `parquet`. What is masked is null there.

    The file has at most `wanted.limit` rows, and ends after `DOWNLOAD_BYTES_MAX`. Raises what `read` raises.
    """
    rows, _ = _found(handle, wanted, mask)
    masked = [(number, offset, _without(batch, mask) if mask.names else batch) for number, offset, batch in rows]
    if form == "jsonl":
        found = ((number, np.array([offset]), batch) for number, offset, batch in masked)
        return b"".join(row_lines.encode_json(batch, handle.name, number, offsets) for number, offsets, batch in found)
    from pyarrow import parquet

    first = pa.schema([("partition", pa.int32()), ("offset", pa.int64()), *handle.schemas[-1]]).empty_table()
    tables = [
        pa.Table.from_batches([batch])
        .add_column(0, "offset", pa.array([offset], pa.int64()))
        .add_column(0, "partition", pa.array([number], pa.int32()))
        for number, offset, batch in masked
    ]
    file = io.BytesIO()
    parquet.write_table(pa.concat_tables([first, *tables], promote_options="permissive"), file)
    return file.getvalue()


def _found(
    handle: TopicHandle, wanted: Wanted, mask: Mask
) -> tuple[list[tuple[int, int, pa.RecordBatch]], list[_Lane]]:
    """Return the rows that are wanted, with partition and offset, and the partitions as far as they were read."""
    state = handle.state
    if wanted.partition is not None:
        numbers = [wanted.partition]
        state.partition(wanted.partition)
    elif wanted.at is not None:
        numbers = [number for number in wanted.at if 0 <= number < len(state.partitions)]
    else:
        full = [number for number, each in enumerate(state.partitions) if each.high_watermark > each.log_start]
        full.sort(key=lambda number: -state.partitions[number].timestamp_reached)
        numbers = full[:PARTITIONS_MERGED]
    lanes = [_Lane(handle, number, wanted, mask) for number in sorted(numbers)]
    monotonic = handle.log.environment.monotonic
    until = monotonic() + SCAN_SECONDS
    rows: list[tuple[int, int, pa.RecordBatch]] = []
    size = 0
    while len(rows) < wanted.limit and size < DOWNLOAD_BYTES_MAX:
        while waiting := [each for each in lanes if not each.hits and not each.is_done]:
            if (left := SCANNED_MAX - sum(each.scanned for each in lanes)) <= 0 or monotonic() >= until:
                break
            for place, each in enumerate(waiting):  # none takes what the others need, and what they leave is shared
                before = each.scanned
                each.fill(left // (len(waiting) - place), lambda: monotonic() >= until)
                left -= each.scanned - before
        heads = [each for each in lanes if each.hits]
        if not heads or waiting:
            break  # nothing is left, or the budget is spent before it is known which row is next
        sign = -1 if wanted.backward else 1
        rows.append(min(heads, key=lambda each: (sign * each.hits[0][1], sign * each.number)).take())
        size += rows[-1][2].nbytes
    return rows, lanes


def read_one(handle: TopicHandle, partition: int, offset: int, mask: Mask = NO_MASK) -> Row:
    """Return one row in full. Raises `InvalidInput` if it is not in the log, and what `read` raises."""
    found = handle.partition(partition)
    if not found.log_start <= offset < found.high_watermark:
        raise InvalidInput(
            f"topic {handle.name!r}, partition {partition} has no row {offset}: it has those from {found.log_start} "
            f"to {found.high_watermark - 1}"
        )
    batch = next((rows for _, rows in _fetched(handle, partition, offset, offset + 1)), None)
    if batch is None:
        raise InvalidInput(
            f"topic {handle.name!r}, partition {partition} has no row {offset} any more: a newer row of its key has "
            "taken its place when the topic was compacted"
        )
    return _row(partition, offset, batch, mask)


def _fetched(handle: TopicHandle, number: int, start: int, end: int) -> Iterator[tuple[Offsets, pa.RecordBatch]]:
    return read_rows(split_of(handle, Range(handle.name, number, start, end)), of_handle(handle))


class _Lane:
    """One partition of a page: the rows that match, in the order in which they are shown."""

    def __init__(self, handle: TopicHandle, number: int, wanted: Wanted, mask: Mask) -> None:
        self.number = number
        self.scanned = 0
        self.hits: list[tuple[int, int, pa.RecordBatch]] = []
        """Offset, timestamp (microseconds) and the row, the next one first."""
        self._handle = handle
        self._wanted = wanted
        self._mask = mask
        self._partition = partition = handle.partitions[number]
        low, high = partition.log_start, partition.high_watermark
        self._low, self._high = low, high
        size = max(1, size_of(partition))
        stored = partition.rows_between(low, partition.log_end)
        self._block = max(1, min(BLOCK_ROWS, BLOCK_BYTES * stored // size))
        """How many rows are read at once: few if they are large."""
        start = high if wanted.backward else low
        if wanted.at is not None:
            start = wanted.at.get(number, start)
        elif wanted.time_ms is not None:
            at = offset_for_time(handle, number, wanted.time_ms)
            start = high if at is None else at
        elif wanted.offset is not None:
            start = wanted.offset + 1 if wanted.backward else wanted.offset
        self._reached = min(max(start, low), high)

    @property
    def is_done(self) -> bool:
        """Whether all has been read."""
        return self._reached <= self._low if self._wanted.backward else self._reached >= self._high

    @property
    def place(self) -> int:
        """Where the next page continues."""
        if not self.hits:
            return self._reached
        return self.hits[0][0] + 1 if self._wanted.backward else self.hits[0][0]

    def fill(self, budget: int, is_late: Callable[[], bool]) -> None:
        """Read until there is a row, all is read, or `budget` rows were, or `is_late` after one block."""
        while not self.hits and not self.is_done and budget > 0:
            rows = self._block if self._wanted.filters.used else min(self._wanted.limit, self._block)
            rows = max(1, min(rows, budget))
            start, end = self._next(rows)
            self._reached = start if self._wanted.backward else end
            found = 0
            for offset, batch in _fetched(self._handle, self.number, start, end):
                found += batch.num_rows
                times = np.asarray(batch.column("timestamp").cast(pa.int64()))
                for index in np.flatnonzero(matching(batch, self._wanted.filters, self._mask)).tolist():
                    self.hits.append((int(offset[index]), int(times[index]), batch.slice(index, 1)))
                # The rows of a keyed segment may be close together: then these are more than a page needs.
                if not self._wanted.backward and len(self.hits) >= self._wanted.limit:
                    self._reached = int(offset[-1]) + 1
                    break
                if len(self.hits) > self._wanted.limit:
                    del self.hits[: -self._wanted.limit]
                    self._reached = self.hits[0][0]
            if self._wanted.backward:
                self.hits.reverse()
            found = max(found, min(rows, end - start))  # where rows are gone, a look costs as much
            self.scanned += found
            budget = 0 if is_late() else budget - found

    def _next(self, rows: int) -> tuple[int, int]:
        """Return the offsets to read next, which have about so many rows: a keyed segment lacks some of its range."""
        low, high, is_backward = self._low, self._high, self._wanted.backward
        first = self._reached - is_backward
        for segment in self._partition.segments_between(first, first + 1):
            if segment.keyed is not None:
                low, high = max(low, segment.base_offset), min(high, segment.end_offset)
                rows = max(1, rows * segment.span // segment.rows)
        if is_backward:
            return max(low, self._reached - rows), self._reached
        return self._reached, min(high, self._reached + rows)

    def take(self) -> tuple[int, int, pa.RecordBatch]:
        """Return partition, offset and row of the next hit."""
        offset, _, batch = self.hits.pop(0)
        return self.number, offset, batch


def _without(batch: pa.RecordBatch, mask: Mask) -> pa.RecordBatch:
    """Return a row in which what is masked is null, its time excepted; a key or value with a masked field is null."""
    columns = []
    typed = schema.is_typed(batch.schema)
    for field in batch.schema:
        column = batch.column(field.name)
        if field.name == HEADERS and not typed:  # a typed topic may have a column of this name
            found = column.to_pylist()
            hidden = [each["key"] for each in found[0] or () if mask.hides_header(each["key"])]
            if hidden:
                kept = [each | {"value": None} if each["key"] in hidden else each for each in found[0]]
                column = pa.array([kept], field.type)
        elif field.name != "timestamp":
            column = nulled(column, field.name, mask)
            if mask.reaches(field.name) and not typed:
                column = pa.nulls(1, field.type)
        columns.append(column)
    fields = [
        each.with_type(column.type).with_nullable(each.nullable or each.name != "timestamp")
        for each, column in zip(batch.schema, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _row(partition: int, offset: int, batch: pa.RecordBatch, mask: Mask) -> Row:
    columns: dict[str, str | None]
    typed = schema.is_typed(batch.schema)
    if typed:
        found = typed_json.objects(batch.select(batch.schema.names[:-1]))[0]
        columns = {name: shown(mask.applied(value, name)) for name, value in found.items()}
    else:
        columns = {name: _of_record(batch.column(name)[0].as_py(), name, mask) for name in RECORD_COLUMNS}
    headers: list[dict[str, Any]] = []
    if HEADERS in batch.schema.names and not typed:
        headers = batch.column(HEADERS)[0].as_py() or []
    return Row(
        partition,
        offset,
        int(batch.column("timestamp").cast(pa.int64())[0].as_py() or 0) // _US_PER_MS,
        columns,
        sum(batch.column(place).nbytes for place in range(batch.num_columns)),
        tuple(
            (each["key"] or "", MASKED if mask.hides_header(each["key"]) else _text(each["value"])) for each in headers
        ),
    )


def _of_record(value: bytes | None, name: str, mask: Mask) -> str | None:
    """Return the key or the value of a record as text. If a field of it is masked, it is JSON, or masked itself."""
    if value is None or not mask.reaches(name):
        return _text(value)
    return MASKED if mask.hides(name) or (found := json_of(value)) is None else shown(mask.applied(found, name))


def _text(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(value).decode()}"
