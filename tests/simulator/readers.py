"""The readers of a simulated world: streams and batch reads, whose rows are checked against the batches written."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict

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
from tests.simulator.invariants import require
from tests.simulator.world import TOPIC, Process, World

PATH = "/simulated"


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


def finish(process: Process, checkpoint: Checkpoint, name: str) -> None:
    """Let a stream reader read all that is left."""
    reader = _stream(process.world, name)
    while _micro_batch(process, reader, checkpoint, name):
        pass


def _stream(world: World, name: str) -> StreamReader:
    options = {"path": PATH, "subscribe": TOPIC, "startingOffsets": "earliest", "failOnDataLoss": "false"}
    if world.settings.grouped:
        options["group.id"] = name
        if starts_at_committed(name):
            options["startingOffsets"] = "group"
    return StreamReader(row_schema(include_headers=False), CaseInsensitiveDict(options))


def _micro_batch(process: Process, reader: StreamReader, checkpoint: Checkpoint, name: str) -> bool:
    """Read the next micro-batch; return whether there was one."""
    world = process.world
    process.place = "driver"
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
    found = _read(process, reader, reader.partitions(start, end))
    begun, ended = source_offset.parse(start), source_offset.parse(end)
    begins = {key: at.offset for key, at in ended.begins(begun).items()}
    for p, last in ended.topics[TOPIC].end.items():
        _complete(world, found, p, begins[TOPIC, p], last.offset)
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
        before = 0 if world.rows is None else world.rows.number
        version = chance.randint(max(1, before - 40), max(1, before)) if chance.random() < 0.4 else None
        time = process.environment.now_ms() - chance.randint(-20, 600) if chance.random() < 0.4 else None
        if version is not None:
            options["versionAsOf"] = str(version)
        if time is not None:
            options["startingTimestamp"] = str(time)
        try:
            reader = BatchReader(
                row_schema(include_headers=False), parse_source(CaseInsensitiveDict(options), streaming=False)
            )
            found = _read(process, reader, reader.partitions())
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
            assert world.rows is not None
            gone = world.rows.unclean or any(p.log_start for p in world.rows.states[-1].partitions)
            require(gone, "rows are said to be lost; none are")
        except LogError as error:
            world.excused(error)
        process.wait(0.03)


def read_all(process: Process) -> None:
    """Hold that a batch read now gives what the log holds."""
    world = process.world
    assert world.rows is not None
    options = parse_source(CaseInsensitiveDict({"path": PATH, "subscribe": TOPIC}), streaming=False)
    reader = BatchReader(row_schema(include_headers=False), options)
    _as_planned(world, _read(process, reader, reader.partitions()), world.rows.number, None, None)


Found = dict[int, dict[int, tuple[bytes, int]]]


def _read(process: Process, reader: Any, splits: Iterable[Any]) -> Found:
    """Return the rows by partition and offset; each is what was written there, and none comes twice."""
    world = process.world
    found: Found = {}
    for split in splits:
        process.place = process.chance.choice(["driver", "executor"])
        at = None
        for batch in reader.read(split):
            columns = [batch.column(name) for name in ("partition", "offset", "value", "timestamp")]
            columns[3] = columns[3].cast(pa.int64())
            for p, offset, value, time in zip(*(each.to_pylist() for each in columns), strict=True):
                require(at in {None, offset}, f"partition {p}: offset {offset} comes where {at} is due")
                at = offset + 1
                assert world.rows is not None
                rows, mark = world.rows.rows[p], world.rows.states[-1].partitions[p].high_watermark
                if not world.rows.unclean:
                    require(offset < mark, f"partition {p}: offset {offset} is read, and the HW is {mark}")
                right = rows[offset] if offset < len(rows) else None
                require(
                    right == (value, time) or (value, time) in world.rows.former.get((p, offset), ()),
                    f"partition {p}, offset {offset}: {value} is read, not {right}",
                )
                require(offset not in found.setdefault(p, {}), f"partition {p}: offset {offset} comes twice")
                found[p][offset] = value, time
    return found


def _complete(world: World, found: Found, p: int, begin: int, end: int) -> None:
    """Hold that all rows between two offsets came, but for those that have expired meanwhile."""
    assert world.rows is not None
    if world.rows.unclean:
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
                later = range(begin, partition.high_watermark)
                begin = next((i for i in later if rows.rows[p][i][1] >= time * 1000), partition.high_watermark)
            end = partition.high_watermark
            if version is not None:
                end = min(end, rows.states[version].partitions[p].high_watermark)
            wanted.append(list(range(begin, end)))
        require(got in wanted, f"partition {p}: {got} is read, none of {wanted[:3]} ... {wanted[-1:]}")
