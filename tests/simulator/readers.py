"""The readers of a simulated world: streams and batch reads, whose rows are checked against the batches written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper

from pyspark_log.options import parse_source
from pyspark_log.reading import source_offset
from pyspark_log.source.readers import BatchReader, StreamReader
from pyspark_log.source.row import row_schema
from pyspark_log_storage.errors import (
    DataLoss,
    LogError,
    NoCluster,
    UnknownTopic,
    UnknownVersion,
)
from tests.simulator.groups import Checkpoint, group_of, starts_at_committed
from tests.simulator.invariants import Row, require, rows_of
from tests.simulator.world import TOPIC, Process, World

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_log_coordinator.model.partition import Partition

PATH = "/simulated"
MOST_ON_DRIVER = ("0", "10", "10000")
"""Of how many rows a micro-batch may be that the driver reads."""


def stream_reader(process: Process, checkpoint: Checkpoint, name: str) -> None:
    """Read micro-batch after micro-batch; after a crash the batch that was planned is read again."""
    world = process.world
    reader = _stream(world, name)
    while world.busy:
        before = 0 if world.rows is None else world.rows.number
        try:
            if not _micro_batch(process, reader, checkpoint, name):
                process.wait(0.02)
            elif not world.settings.grouped and world.chance.random() < world.settings.rewinds:
                checkpoint["start"] = world.chance.choice(checkpoint["starts"])
                world.counts["rewinds"] += 1
        except (NoCluster, UnknownTopic):
            require(before == 0, "the topic is said not to be there")
            process.wait(0.01)
        except LogError as error:
            if not isinstance(error, DataLoss):
                world.excused(error)
            world.counts["rows lost under a reader"] += isinstance(error, DataLoss)


def finish(process: Process, checkpoint: Checkpoint, name: str) -> None:
    """Let a stream reader read all that is left."""
    reader = _stream(process.world, name)
    while _micro_batch(process, reader, checkpoint, name):
        pass


def _stream(world: World, name: str) -> StreamReader:
    options = {"path": PATH, "subscribe": TOPIC, "startingOffsets": "earliest", "failOnDataLoss": "false"}
    options |= compacted_options(world) | {"maxRecordsOnDriver": MOST_ON_DRIVER[world.counts["micro-batches read"] % 3]}
    if world.settings.grouped:
        options["group.id"] = name
        if starts_at_committed(name):
            options["startingOffsets"] = "group"
    return StreamReader(schema_of(world), CaseInsensitiveDict(options))


def schema_of(world: World) -> StructType:
    """Return the columns that are read: with headers in compacted topics, where these name rows without a value."""
    return row_schema(include_headers=world.settings.compaction is not None)


def compacted_options(world: World) -> dict[str, str]:
    """Return the options of a reader of these columns."""
    return {} if world.settings.compaction is None else {"includeHeaders": "true"}


def _micro_batch(process: Process, reader: StreamReader, checkpoint: Checkpoint, name: str) -> bool:
    """Read the next micro-batch; return whether there was one."""
    world = process.world
    process.place = "driver"
    before = 0 if world.rows is None else world.rows.number
    start = checkpoint.setdefault("start", reader.initialOffset())
    starts = checkpoint.setdefault("starts", [start])
    if "end" not in checkpoint:
        since = 0 if (history := group_of(world, name)) is None else history.number
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        if end == start:
            return False
        checkpoint["end"] = json.loads(json.dumps(end))
        is_bound = start != reader.initialOffset() or starts_at_committed(name)
        if is_bound and (history := group_of(world, name)) is not None:
            history.hold_taken_up(since, source_offset.parse(start), source_offset.parse(end))
    end = checkpoint["end"]
    found = read(process, reader, reader.partitions(start, end))
    for p, (begin, last) in bounds_of(start, end).items():
        _complete(world, found, p, begin, last)
    _hold_planned(world, found, before, bounds_of(start, end))
    checkpoint["start"] = checkpoint.pop("end")
    starts.append(checkpoint["start"])
    world.counts["micro-batches read"] += 1
    return True


def batch_reader(process: Process) -> None:
    """Read all that is there, from a time on, or a version."""
    world, chance = process.world, process.chance
    while world.busy:
        process.place = chance.choice(["driver", "another driver"])
        options: dict[str, str] = {"path": PATH, "subscribe": TOPIC, "startingOffsetsByTimestampStrategy": "latest"}
        options |= compacted_options(world)
        before = 0 if world.rows is None else world.rows.number
        version = chance.randint(max(1, before - 40), max(1, before)) if chance.random() < 0.4 else None
        time = process.environment.now_ms() - chance.randint(-20, 600) if chance.random() < 0.4 else None
        if version is not None:
            options["versionAsOf"] = str(version)
        if time is not None:
            options["startingTimestamp"] = str(time)
        try:
            reader = BatchReader(schema_of(world), parse_source(CaseInsensitiveDict(options), streaming=False))
            found = read(process, reader, reader.partitions())
            assert world.rows is not None
            _as_planned(world, found, before, version, time)
            world.counts["batch reads"] += 1
        except (NoCluster, UnknownTopic):
            require(before == 0, "the topic is said not to be there")
        except UnknownVersion:
            assert world.rows is not None
            assert version is not None
            oldest = world.oldest_version()
            require(
                version < oldest or version > before,
                f"version {version} is said not to be there, from {oldest} on they are",
            )
        except DataLoss:
            require(may_be_lost(world), "rows are said to be lost; none are")
            world.counts["rows lost under a reader"] += 1
        except LogError as error:
            world.excused(error)
        process.wait(0.03)


def read_all(process: Process) -> None:
    """Hold that a batch read now gives what the log holds."""
    world = process.world
    assert world.rows is not None
    given = {"path": PATH, "subscribe": TOPIC} | compacted_options(world)
    reader = BatchReader(schema_of(world), parse_source(CaseInsensitiveDict(given), streaming=False))
    _as_planned(world, read(process, reader, reader.partitions()), world.rows.number, None, None)


_HANDED_OVER = 0.7
Found = dict[int, dict[int, Row]]
"""Rows by partition and offset."""


def read(process: Process, reader: Any, splits: Iterable[Any]) -> Found:
    """Return the rows by partition and offset; each is what was written there, and none comes twice.

    Rows that the driver has read are handed over, or lost, so that a task reads them.
    """
    world = process.world
    assert world.rows is not None
    found: Found = {}
    for split in splits:
        process.place = process.chance.choice(["driver", "executor"])
        ends: dict[int, int] = {}
        handed = reader.getCache({}, {}) if isinstance(reader, _SimpleStreamReaderWrapper) else None
        is_handed = handed is not None and process.chance.random() < _HANDED_OVER
        world.counts["driver reads"] += is_handed
        for batch in handed if is_handed else reader.read(split):
            for p, offset, row in placed_rows(batch):
                at = ends.get(p)
                # Rows may lack that were compacted, or expired while the query that may lose them read.
                may_lack = world.compaction is not None or offset <= world.rows.states[-1].partitions[p].log_start
                is_next = at in {None, offset} or (may_lack and at is not None and at < offset)
                require(is_next, f"partition {p}: offset {offset} comes where {at} is due")
                ends[p] = offset + 1
                hold_read(world, p, offset, row)
                require(offset not in found.setdefault(p, {}), f"partition {p}: offset {offset} comes twice")
                found[p][offset] = row
    return found


def placed_rows(batch: pa.RecordBatch) -> Iterator[tuple[int, int, Row]]:
    """Yield the rows of a batch, with partition and offset."""
    places = (batch.column(name).to_pylist() for name in ("partition", "offset"))
    return zip(*places, rows_of(batch), strict=True)


def hold_read(world: World, p: int, offset: int, row: Row) -> None:
    """Hold that a row that was read is what was written at its offset, below the HW."""
    assert world.rows is not None
    rows, mark = world.rows.rows[p], world.rows.states[-1].partitions[p].high_watermark
    if not world.rows.unclean:
        require(offset < mark, f"partition {p}: offset {offset} is read, and the HW is {mark}")
    right = rows[offset] if offset < len(rows) else None
    is_right = row == right or row in world.rows.former.get((p, offset), ())
    require(is_right, f"partition {p}, offset {offset}: {row} is read, not {right}")


def may_be_lost(world: World) -> bool:
    """Return whether a batch may have lost rows that it was planned with: they expired, were cut, or compacted."""
    rows = world.rows
    assert rows is not None
    return rows.unclean or any(each.log_start or each.compactions for each in rows.states[-1].partitions)


def bounds_of(start: Any, end: Any) -> dict[int, tuple[int, int]]:
    """Return where the batch between two offsets of a stream begins and ends, by partition."""
    begun, ended = source_offset.parse(start), source_offset.parse(end)
    begins = {key: at.offset for key, at in ended.begins(begun).items()}
    return {p: (begins[TOPIC, p], last.offset) for p, last in ended.topics[TOPIC].end.items()}


def _hold_planned(world: World, found: Found, before: int, bounds: Mapping[int, tuple[int, int]]) -> None:
    """Hold that a batch of a compacted topic is what one of the states since entry `before` has between bounds.

    So from the compacted end on it has every row, and before that those that compaction has left. Rows that expired
    while it was read may lack.
    """
    rows, known = world.rows, world.compaction
    if known is None or rows is None or rows.unclean:
        return
    got = {p: sorted(found.get(p, {})) for p in bounds}
    starts = [each.log_start for each in rows.states[-1].partitions]

    def is_right(p: int, partition: Partition) -> bool:
        lacking = set(there := known.readable(p, partition, *bounds[p])).difference(got[p])
        return got[p] == [each for each in there if each not in lacking] and all(each < starts[p] for each in lacking)

    states = rows.states[max(before, 1) :]
    is_one = any(all(is_right(p, state.partitions[p]) for p in bounds) for state in states)
    last = {p: known.readable(p, states[-1].partitions[p], *some) for p, some in bounds.items()}
    require(is_one, f"{got} is read between {bounds}, which no state has had since entry {before}; now it is {last}")


def _complete(world: World, found: Found, p: int, begin: int, end: int) -> None:
    """Hold that all rows between two offsets came, but for those that have expired meanwhile."""
    assert world.rows is not None
    if world.rows.unclean or world.compaction is not None:
        return
    low = world.rows.states[-1].partitions[p].log_start
    missing = [offset for offset in range(max(begin, low), end) if offset not in found.get(p, {})]
    require(not missing, f"partition {p}: offsets {missing} were not read, of {begin} to {end}")


def _as_planned(world: World, found: Found, before: int, version: int | None, time: int | None) -> None:
    """Hold that a batch read is what one of the states that there were meanwhile holds."""
    rows = world.rows
    assert rows is not None
    if rows.unclean:
        return
    for p in range(world.settings.partitions):
        got = sorted(found.get(p, {}))
        wanted = []
        for state in rows.states[max(before, 1) :]:
            partition = state.partitions[p]
            begin = partition.log_start
            if time is not None:
                later = world.readable(p, partition, begin, partition.high_watermark)
                begin = next((i for i in later if rows.rows[p][i][1] >= time * 1000), partition.high_watermark)
            end = partition.high_watermark
            if version is not None:
                end = min(end, rows.states[version].partitions[p].high_watermark)
            wanted.append(world.readable(p, partition, begin, end))
        require(got in wanted, f"partition {p}: {got} is read, none of {wanted[:3]} ... {wanted[-1:]}")
