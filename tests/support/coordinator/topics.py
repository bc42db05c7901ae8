"""Topics, batches and their files, made by hand: what the topic machine needs, without a byte of data."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pyspark_log_coordinator.model.batch import Acks, SequencedFile
from pyspark_log_coordinator.model.partition import Holder, SegmentRef
from pyspark_log_coordinator.model.producers import ProducerClaim
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.segments.swap import MaintainSegments, SwapSegments
from pyspark_log_coordinator.topic import integrity
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_coordinator.topic.machine import StartTopic, TopicStarted
from pyspark_log_coordinator.topic.sequencing import CommitBatch
from pyspark_log_storage.columns import schema
from pyspark_log_storage.files.row_files import KeyedCounts, StagedChunk
from pyspark_log_storage.layout import born_name, segment_name

SCHEMAS = tuple(schema.encode(each) for each in schema.RECORD_SCHEMAS)
_names = itertools.count(1)


def started(partitions: int = 1, replicas: Sequence[str] = ("A",), min_insync: int = 1, **config: Any) -> Topic:
    """Return a topic without rows, every partition on the same nodes, of which the first leads."""
    began = TopicStarted(
        name="t",
        topic_id="1",
        config=TopicConfig(min_insync_replicas=min_insync, **config),
        schemas=SCHEMAS,
        incarnations={node: incarnation(node) for node in replicas},
        assignments=(tuple(replicas),) * partitions,
    )
    return after(Topic(), StartTopic(began))


def incarnation(node: str) -> str:
    """Return the incarnation that a node has in these tests."""
    return f"incarnation of {node}"


def file(
    rows: Mapping[int, int] | Sequence[tuple[int, int]], on: Sequence[str] = ("A",), name: str = ""
) -> SequencedFile:
    """Return a task's file: `rows` are the chunks, as partition and number of rows; `on` are its holders."""
    pairs = list(rows.items()) if isinstance(rows, Mapping) else list(rows)
    chunks = tuple(StagedChunk(partition, i * 64, 64, count, 0, 0, 0, 0) for i, (partition, count) in enumerate(pairs))
    name = name or born_name(0, f"{next(_names):032x}")
    return SequencedFile(name, tuple(Holder(node, incarnation(node)) for node in on), chunks)


def claim(
    batch: int,
    run: str = "run-1",
    query: str = "query-1",
    app: str = "",
    *,
    take_over: bool = False,
    follows: bool = False,
) -> ProducerClaim:
    """Return what a query says of itself: without an application id it is its own producer."""
    return ProducerClaim(app or query, query, run, batch, take_over, follows=follows)


def commit(claimed: ProducerClaim | None, *files: SequencedFile, acks: Acks = "all") -> CommitBatch:
    """Return the command that appends the files' rows."""
    return CommitBatch(claimed, files, acks)


def decide(state: Topic, command: topic.Command) -> list[Any]:
    """Return the machine's events at time 0."""
    return topic.decide(state, command, 0)


def after(state: Topic, command: topic.Command) -> Topic:
    """Return the state after a command, which passes the check of stored entries."""
    return at(state, command, 0)


def at(state: Topic, command: topic.Command, now: int) -> Topic:
    """Return the state after a command at a time (ms)."""
    before = state
    for event in topic.decide(state, command, now):
        state = topic.evolve(state, event)
    integrity.check(before, state)
    return state


def filled(chunks: int, rows: int = 10, partitions: int = 1, **config: Any) -> Topic:
    """Return a topic whose partitions have so many chunks of `rows` rows, each chunk in a batch of its own."""
    state = started(partitions)
    state = msgspec.structs.replace(state, config=TopicConfig(**config))
    for _ in range(chunks):
        state = after(state, commit(None, file([(partition, rows) for partition in range(partitions)])))
    return state


def swap(
    start: int,
    end: int,
    partition: int = 0,
    *,
    epoch: int = 0,
    born: int = 0,
    level: int = 1,
    log_bytes: int = 100,
    max_timestamp: int = 0,
    on: Sequence[str] = ("A",),
    parquet: bool = False,
    since_ms: int = 0,
) -> SwapSegments:
    """Return the swap that puts a segment in the place of rows `[start, end)`."""
    name = segment_name(start, born, f"{next(_names):032x}", parquet=parquet)
    holders = tuple(Holder(node, incarnation(node)) for node in on)
    file = name, start, end, 1, log_bytes, 0, max_timestamp, None
    made = SegmentRef(*file, holders, level, max_timestamp, since_ms)
    return SwapSegments(partition, epoch, (made,))


def compacted(
    state: Topic,
    start: int,
    end: int,
    rows: int = 1,
    *,
    tombstones: int = 0,
    cleaned_ms: int = 0,
    on: Sequence[str] = ("A",),
    log_bytes: int = 100,
    others: Sequence[SwapSegments] = (),
) -> SwapSegments:
    """Return the swap that puts a keyed segment in the place of what the only partition has of `[start, end)`.

    With `others`, which come after it, all are swapped in together.
    """
    made = swap(start, end, on=on, parquet=True, log_bytes=log_bytes)
    one, keyed = state.partitions[0], KeyedCounts(rows, tombstones)
    last = others[-1].segments[0].end_offset if others else end
    first = start if last <= one.compacted_end else 0
    replaces = tuple(each.name for each in one.segments_between(first, last))
    segments = (
        msgspec.structs.replace(made.segments[0], keyed=keyed, cleaned_ms=cleaned_ms),
        *(each.segments[0] for each in others),
    )
    return msgspec.structs.replace(made, segments=segments, replaces=replaces)


def rolled(state: Topic, *bounds: int, partition: int = 0, **facts: Any) -> Topic:
    """Return the topic with a segment between each two neighbours of `bounds`."""
    for start, end in itertools.pairwise(bounds):
        new = after(state, MaintainSegments((swap(start, end, partition, **facts),)))
        assert new != state, f"the swap of [{start}, {end}) was dropped"
        state = new
    return state


def pieces(state: Topic, partition: int = 0) -> list[tuple[str, int, int]]:
    """Return what the partition consists of: kind, first offset and end of each piece."""
    one = state.partitions[partition]
    return [("segment", each.base_offset, each.end_offset) for each in one.segments] + [
        ("chunk", each.base_offset, each.end_offset) for each in one.chunks
    ]
