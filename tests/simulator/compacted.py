"""The actors of a compacted world: what is written there, who compacts, who changes the policy, and who reads.

A reader of the newest rows compares them with the model at the version that it read.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_log.clients.scan import scan
from pyspark_log.reading import groups as operations
from pyspark_log_coordinator.maintenance import isr_copies, roll_task
from pyspark_log_coordinator.segments import roll_plan
from pyspark_log_coordinator.segments.swap import MaintainSegments, SegmentsSwapped
from pyspark_log_coordinator.topic.machine import AlterConfig
from pyspark_log_storage.columns import schema
from pyspark_log_storage.errors import (
    DataLoss,
    InvalidInput,
    LogError,
    NoCluster,
    UnknownGroup,
    UnknownTopic,
    UnknownVersion,
)
from tests.simulator import actors, readers
from tests.simulator.invariants import require
from tests.simulator.world import TOPIC, Process, World

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_log_coordinator.model.topic_config import TopicConfig
    from pyspark_log_coordinator.model.topic_state import Topic

_SLEEPS_OVER_SWAP, _SLEEP_SECONDS = 0.2, 1.0
"""How often a compactor is suspended between its segment and the swap, and for how long."""
_KEYLESS = 0.2
_OLD_VERSION = 0.4


def record_of(world: World, config: TopicConfig, names: Sequence[bytes], times: Sequence[int]) -> pa.RecordBatch:
    """Return the rows with these names: values, or in a compacted world also rows that delete their key.

    `config` is the topic's as the writer knows it: only under cleanup.policy=delete a row may have no key. Times are in
    microseconds.
    """
    stamps = pa.array(times, schema.TIMESTAMP)
    settings = world.settings.compaction
    if settings is None:
        return pa.record_batch([pa.nulls(len(names), pa.binary()), pa.array(names, pa.binary()), stamps], schema.RECORD)
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    headers: list[list[tuple[str, bytes]] | None] = []
    for name in names:
        chance = random.Random(f"{world.seed}/{name!r}")
        number = chance.randrange(settings.keys)
        is_keyless = chance.random() < _KEYLESS and not config.is_compacted
        keys.append(None if is_keyless else b"" if number == 0 else b"key %d" % number)
        values.append(None if chance.random() < settings.tombstones else name)
        batch = random.Random(f"{world.seed}/{name.rsplit(b'/', 2)[0]!r}")
        has_headers = values[-1] is None or batch.random() < settings.headers
        headers.append([("name", name)] if has_headers else None)
    columns: list[pa.Array] = [pa.array(keys, pa.binary()), pa.array(values, pa.binary()), stamps]
    if not any(headers):
        return pa.record_batch(columns, schema.RECORD)
    return pa.record_batch([*columns, headers_of(headers)], schema.RECORD_WITH_HEADERS)


def headers_of(rows: Sequence[Sequence[tuple[str, bytes]] | None]) -> pa.Array:
    of_rows = [None if row is None else [{"key": key, "value": value} for key, value in row] for row in rows]
    return pa.array(of_rows, schema.HEADERS)


def start(world: World) -> None:
    """Begin the actors that only a compacted world has."""
    settings = world.settings.compaction
    if settings is None:
        return
    for number in range(settings.compactors):
        actors.supervised(world, f"compactor {number}", compactor)
    if settings.policy_changes:
        actors.supervised(world, "policy changer", policy_changer)
    actors.supervised(world, "newest reader", newest_reader)


def compactor(process: Process) -> None:
    """Compact what is due, and sleep now and then before the swap, while others clean, merge and roll the same rows."""
    world, chance = process.world, process.chance
    while world.busy:
        try:
            handle = actors.open_topic(process)
            budget = chance.choice([2_000, handle.config.segment_bytes])
            jobs = [each for each in roll_plan.plan(handle.state, handle.now_ms(), budget) if each.compaction]
            for task in [roll_task.roll_task_of(handle, job) for job in jobs]:
                made = roll_task.run_roll(process.log.store_at, task, process.environment)
                if chance.random() < _SLEEPS_OVER_SWAP:
                    process.wait(_SLEEP_SECONDS)
                handle.refresh()
                events = handle.submit(MaintainSegments(isr_copies.with_copies(handle, [made]))).events
                taken = {each.segment.name for each in events if isinstance(each, SegmentsSwapped)}
                world.counts["keyed swaps refused"] += made.segments[0].name not in taken
        except LogError as error:
            world.excused(error)
        process.wait(0.02)


def policy_changer(process: Process) -> None:
    """Set cleanup.policy=delete, and after a while what it was."""
    world = process.world
    while world.busy:
        process.wait(1)
        for policy in ("delete", world.settings.config.cleanup_policy):
            try:
                actors.open_topic(process).submit(AlterConfig({"cleanup.policy": policy}))
                world.counts["policy changes"] += 1
            except LogError as error:
                world.excused(error)
            process.wait(0.2)


def newest_reader(process: Process) -> None:
    """Read the newest row of each key, twice, and how many rows groups have not read."""
    world, chance = process.world, process.chance
    while world.busy:
        process.place = chance.choice(["driver", "another driver"])
        before = 0 if world.rows is None else world.rows.number
        version = chance.randint(max(1, before - 20), max(1, before)) if chance.random() < _OLD_VERSION else None
        try:
            _read_newest(process, before, version)
            _look_at_lag(process)
        except (NoCluster, UnknownTopic, UnknownGroup):
            pass
        except InvalidInput:
            assert world.rows is not None
            states: list[Topic] = world.rows.states[max(before, 1) :]
            require(any(not each.config.is_compacted for each in states), "a compacted topic is said not to be one")
        except UnknownVersion:
            require(version is not None and version < world.oldest_version(), f"version {version} is not there")
        except DataLoss as error:
            assert world.rows is not None
            require(_is_clear(error), f"what is lost is not said: {error}")
            require(readers.may_be_lost(world), "rows are said to be lost; none are")
            world.counts["newest rows refused"] += 1
        except LogError as error:
            world.excused(error)
        process.wait(0.05)


def _read_newest(process: Process, before: int, version: int | None) -> None:
    world = process.world
    found = scan(readers.PATH, TOPIC, latest=True, version=version, options={"includeHeaders": True})
    rows, known = world.rows, world.compaction
    assert rows is not None
    assert known is not None
    planned = rows.states[max(before, 1) :]
    reads = []
    for _ in range(2):
        got: readers.Found = {}
        for batch in found:
            for p, offset, row in readers.placed_rows(batch):
                readers.hold_read(world, p, offset, row)
                require(offset not in got.setdefault(p, {}), f"partition {p}: offset {offset} comes twice")
                got[p][offset] = row
        reads.append(got)
        process.wait(0.05)
    if rows.unclean:
        return
    require(reads[0] == reads[1], f"the newest rows were {reads[0]}, and the second time {reads[1]}")
    ends = [each.high_watermark for each in rows.states[found.version].partitions]
    wanted = [
        {
            p: newest
            for p, one in enumerate(state.partitions)
            if (newest := known.newest(p, min(ends[p], one.high_watermark), one.log_start))
        }
        for state in planned
    ]
    what = f"{reads[0]} are the newest rows at version {found.version}"
    require(reads[0] in wanted, f"{what}, and the model has {wanted[-1]}")
    world.counts["newest rows read"] += 1
    world.counts["newest rows read at a version"] += version is not None
    below = any(one.keyed_segments for one in planned[-1].partitions)
    world.counts["newest rows read of keyed segments"] += below


def _look_at_lag(process: Process) -> None:
    """Hold that the lag of a group is the number of rows that it has not read, and that are there.

    If the group is in the middle of a keyed segment, that is known only up to the rows of this segment.
    """
    world = process.world
    known = world.compaction
    if not world.settings.grouped or known is None:
        return
    process.open(create=False)
    group = process.log.group(process.chance.choice(sorted(world.checkpoints)))
    before = world.rows.number if world.rows is not None else 0
    lags = operations.lags(process.log, group.state)
    assert world.rows is not None
    if world.rows.unclean:
        return
    for each in lags:
        states = [state.partitions[each.partition] for state in world.rows.states[before:]]
        expected = []
        for one in states:
            if (one.log_start, one.high_watermark) != (each.log_start, each.latest):
                continue
            begin = max(each.committed, one.log_start)
            count = len(known.readable(each.partition, one, begin, one.high_watermark))
            cut = [s for s in one.keyed_segments if s.base_offset < begin < s.end_offset]
            before_it = sum(at < begin for s in cut for at in known.content(each.partition, s))
            expected.append((count, min(one.high_watermark - begin, count + before_it)))
            world.counts["lags below the compacted end"] += begin < one.compacted_end
        is_right = any(low <= each.lag <= high for low, high in expected)
        require(is_right, f"{each}: the lag is none of {expected}")


def _is_clear(error: DataLoss) -> bool:
    """Return whether an error names the topic, and the offsets or the rows."""
    return TOPIC in error.message and ("offset" in error.message or "rows" in error.message)
