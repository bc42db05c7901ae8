"""The values that users of the Python clients pass and get, and the forms in which they may pass them.

Offsets count the rows of a partition; times are in ms.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import msgspec
import pyarrow as pa

from pyspark_log_coordinator.group.state import NO_EPOCH
from pyspark_log_storage.errors import InvalidInput

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
    """Consecutive rows of a partition. Row i of `rows` has the offset `offset + i`, or the one in `offsets`.

    `rows` has the columns key, value (binary) and timestamp (microseconds, UTC), and headers if a row may have some.
    """

    topic: str
    partition: int
    offset: int
    rows: pa.RecordBatch
    offsets: pa.Int64Array | None = None
    """The offset of each row, if rows between these are missing: the topic is compacted."""


def address_of(path: object, config: object, topics: str) -> str:
    """Return the address of a log that a client was given, in front of its configuration.

    `topics` says what names the topics. Raises `InvalidInput` for the arguments of a Kafka client.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidInput(
            f"the first argument is {type(path).__name__} instead of the address of a log; a client takes the address "
            'and then its configuration: ("/data/log", {"linger.ms": 20})'
        )
    if not (config is None or isinstance(config, Mapping)):
        raise InvalidInput(f"the second argument is {config!r} instead of a dict of options; {topics}")
    return os.fspath(path)


def partition_of(given: Iterable[object]) -> TopicPartition:
    """Return a partition that was given as a `TopicPartition` or a tuple. Raises `InvalidInput` for anything else."""
    try:
        topic, number = given
        if isinstance(topic, str):
            return TopicPartition(topic, operator.index(number))  # type: ignore[arg-type]  # TypeError if it is none
    except (TypeError, ValueError):
        pass
    raise InvalidInput(f"{given!r} is not a partition; give the topic's name and the partition's number")


def partitions_of(given: object) -> TopicPartition | list[TopicPartition]:
    """Return a partition, or several that were given as a list or the like. Raises `InvalidInput`."""
    if isinstance(given, tuple) and given and isinstance(given[0], str):
        return partition_of(given)
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidInput(f"{given!r} is not a partition; give the topic's name and its number, or a list of these")
    return [partition_of(each) for each in given]


def offset_of(given: int) -> int:
    """Return an offset that was given as any whole number. Raises `InvalidInput` for anything else."""
    return _whole(given, "offset", 0, "give the number of a row, or use seek_to_beginning or seek_to_end")


def _whole(given: int, what: str, least: int, advice: str) -> int:
    try:
        number = operator.index(given)
    except TypeError:
        raise InvalidInput(f"{what} {given!r} is not a whole number; {advice}") from None
    if number < least:
        raise InvalidInput(f"{what} {number} is negative; {advice}")
    return number


def seconds_of(timeout_ms: float) -> float:
    """Return a time to wait, which may be infinite, in seconds. Raises `InvalidInput` for NaN and below 0."""
    if not timeout_ms >= 0:
        raise InvalidInput(f"timeout_ms is {timeout_ms}; give 0 or more, or float('inf') to wait without end")
    return timeout_ms / 1000


def timeout_of(seconds: float | None) -> float | None:
    """Return how long to wait; None, also for infinity: without end. Raises `InvalidInput` for NaN and below 0."""
    if seconds is None or seconds == float("inf"):
        return None
    if not seconds >= 0:
        raise InvalidInput(f"timeout is {seconds} s; give 0 or more, or None to wait without end")
    return seconds


def committed_of(
    given: Mapping[TopicPartition, OffsetAndMetadata | int] | Mapping[tuple[str, int], OffsetAndMetadata | int],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return offsets to commit, which were given as numbers or as `OffsetAndMetadata`. Raises `InvalidInput`."""
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{given!r} are no offsets to commit; give a dict with an offset for each partition")
    found = {}
    for key, each in given.items():
        offset, metadata, epoch = each if isinstance(each, tuple) and len(each) == 3 else (each, "", -1)  # noqa: PLR2004
        try:
            str.encode(metadata)  # a half of a surrogate pair cannot be stored
        except (TypeError, UnicodeEncodeError):
            raise InvalidInput(f"the metadata of a commit is {metadata!r}; give text") from None
        epoch = _whole(epoch, "leader epoch", NO_EPOCH, "give -1 if it is unknown")
        found[partition_of(key)] = OffsetAndMetadata(offset_of(offset), metadata, epoch)
    return found
