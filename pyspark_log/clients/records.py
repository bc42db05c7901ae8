"""The values that users of the Python clients pass and get. Offsets count the rows of a partition; times are in ms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import msgspec
import pyarrow as pa

OFFSET_UNKNOWN = -1
"""The offset of a row that is in the log, of which only its partition is known; see `RecordMetadata`."""

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class RecordMetadata(NamedTuple):
    """Where a row is in the log.

    `offset` is -1 if the answer to the commit was lost, the batch has rows of more than 32 partitions, and the row was
    rolled into a segment before the repetition. `timestamp` is in milliseconds since 1970.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int


class BatchMetadata(NamedTuple):
    """Where the rows of an Arrow batch are in the log: the first offset and the end, by partition.

    A partition is missing if its offsets are unknown; see `RecordMetadata`.
    """

    topic: str
    offsets: Mapping[int, tuple[int, int]]


class OffsetAndTimestamp(NamedTuple):
    """A row that was found by its time, in milliseconds since 1970."""

    offset: int
    timestamp: int


class OffsetAndMetadata(NamedTuple):
    """An offset to commit, or that was committed: the next row to read, and a text that is kept with it."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
    """The leader epoch of the row before, -1 if unknown: it shows a row that was replaced by an unclean election."""


class ConsumerGroupMetadata(NamedTuple):
    """Who a consumer is in its group. The generation is -1 before it has an assignment."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None


class ConsumerRecord(msgspec.Struct, frozen=True, gc=False):
    """A row. A null value is a tombstone, `timestamp` is in milliseconds since 1970."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class ConsumerBatch(NamedTuple):
    """Consecutive rows of a partition. Row i of `rows` has the offset `offset + i`.

    `rows` has the columns key, value (binary) and timestamp (microseconds, UTC), and headers if a row may have some.
    """

    topic: str
    partition: int
    offset: int
    rows: pa.RecordBatch
