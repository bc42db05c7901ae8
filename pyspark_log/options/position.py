"""Positions where a read starts or ends, before they are resolved against the log.

In JSON, offset -1 means latest and -2 means earliest; "latest" or "earliest" instead of a topic's offsets applies to
all partitions that it has when the read is planned. A batch read cannot start at the latest offset or end at the
earliest. Source: Spark's `KafkaOffsetRangeLimit` and `KafkaSourceProvider`; the words for whole topics are SPARK-58774.
"""

from __future__ import annotations

import enum
import json
from collections import Counter
from typing import TypeVar

import msgspec

from pyspark_log.options.value import LONG_MAX, Value, read_topic
from pyspark_log_coordinator.model.settings import INT_MAX

T = TypeVar("T")

LATEST_OFFSET = -1
EARLIEST_OFFSET = -2

PartitionNumbers = dict[str, dict[int, int]]
"""Topic to partition to an offset, or to milliseconds."""


class Earliest(msgspec.Struct, frozen=True, tag=True):
    """The log start of every partition."""


class Latest(msgspec.Struct, frozen=True, tag=True):
    """The high watermark of every partition."""


class SpecificOffsets(msgspec.Struct, frozen=True, tag=True):
    """An offset for each partition, which may be `LATEST_OFFSET` or `EARLIEST_OFFSET`."""

    offsets: PartitionNumbers
    whole_topics: dict[str, int] = {}
    """Topic to `LATEST_OFFSET` or `EARLIEST_OFFSET`, for all of its partitions; these topics are not in `offsets`."""


class GlobalTimestamp(msgspec.Struct, frozen=True, tag=True):
    """The first row of every partition whose timestamp is `ms` or later."""

    ms: int


class Timestamps(msgspec.Struct, frozen=True, tag=True):
    """The first row of each partition whose timestamp is the given one or later."""

    ms: PartitionNumbers


class CommittedOffsets(msgspec.Struct, frozen=True, tag=True):
    """The committed offsets of the query's group; the high watermark of a partition without one."""


Position = Earliest | Latest | SpecificOffsets | GlobalTimestamp | Timestamps | CommittedOffsets


class NoMatch(enum.Enum):
    """What to do when a partition has no row as new as the timestamp to start from."""

    ERROR = "error"
    LATEST = "latest"


_WORDS = {"earliest": EARLIEST_OFFSET, "latest": LATEST_OFFSET}


def _decoded(text: str, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=kind, strict=False)
    except msgspec.MsgspecError as error:
        raise ValueError(f"it cannot be parsed ({error})") from None


def _check_numbers(numbers: PartitionNumbers, low: int, what: str) -> None:
    for topic, partitions in numbers.items():
        read_topic(topic)
        for partition, number in partitions.items():
            if not 0 <= partition <= INT_MAX:
                raise ValueError(f"partition {partition} of topic {topic} is out of range")
            if not low <= number <= LONG_MAX:
                raise ValueError(f"the {what} {number} of {topic}-{partition} is out of range")


def _read_offsets(text: str, refused: int | None = None, why: str = "") -> SpecificOffsets:
    given = _decoded(text, dict[str, dict[int, int] | str])
    named = Counter(topic for topic, _ in json.loads(text, object_pairs_hook=list))
    if twice := next((topic for topic, count in named.items() if count > 1), None):
        raise ValueError(f"it names topic {twice} twice")
    offsets = {topic: each for topic, each in given.items() if not isinstance(each, str)}
    whole_topics = {}
    for topic, each in given.items():
        if isinstance(each, str):
            read_topic(topic)
            if each.lower() not in _WORDS:
                raise ValueError(f"{each!r} of topic {topic} is neither earliest nor latest")
            whole_topics[topic] = _WORDS[each.lower()]
            if whole_topics[topic] == refused:
                raise ValueError(f"topic {topic} has {each}, and {why}")
    if not whole_topics and not any(offsets.values()):
        raise ValueError("it names no partition")
    _check_numbers(offsets, EARLIEST_OFFSET, "offset")
    for topic, partitions in offsets.items():
        for partition, offset in partitions.items():
            if offset == refused:
                raise ValueError(f"{topic}-{partition} has {offset}, and {why}")
    return SpecificOffsets(offsets, whole_topics)


def _read_stream_start(text: str) -> Position:
    match text.lower():
        case "earliest":
            return Earliest()
        case "latest":
            return Latest()
        case "group":
            return CommittedOffsets()
        case _:
            return _read_offsets(text)


def _read_batch_start(text: str) -> Position:
    why = "a batch read cannot start at the latest offset (-1)"
    match text.lower():
        case "earliest":
            return Earliest()
        case "latest":
            raise ValueError(why)
        case _:
            return _read_offsets(text, LATEST_OFFSET, why)


def _read_batch_end(text: str) -> Position:
    why = "a batch read cannot end at the earliest offset (-2)"
    match text.lower():
        case "latest":
            return Latest()
        case "earliest":
            raise ValueError(why)
        case _:
            return _read_offsets(text, EARLIEST_OFFSET, why)


def _read_global_timestamp(text: str) -> Position:
    if not (text.isascii() and text.isdigit() and int(text) <= LONG_MAX):
        raise ValueError("it is not a number of milliseconds")
    return GlobalTimestamp(int(text))


def _read_timestamps(text: str) -> Position:
    times = _decoded(text, PartitionNumbers)
    if not any(times.values()):
        raise ValueError("it names no partition")
    _check_numbers(times, 0, "timestamp")
    return Timestamps(times)


STREAM_START: Value[Position] = Value(
    'earliest, latest, group, or JSON with an offset for each partition, such as {"t":{"0":23,"1":-2},"u":"latest"},'
    " where -2 is earliest and -1 is latest",
    _read_stream_start,
)
BATCH_START: Value[Position] = Value(
    'earliest, or JSON with an offset for each partition, such as {"t":{"0":23,"1":-2},"u":"earliest"}, where -2 is'
    " earliest",
    _read_batch_start,
)
BATCH_END: Value[Position] = Value(
    'latest, or JSON with an offset for each partition, such as {"t":{"0":50,"1":-1},"u":"latest"}, where -1 is latest',
    _read_batch_end,
)
GLOBAL_TIMESTAMP: Value[Position] = Value("milliseconds since 1970-01-01 UTC", _read_global_timestamp)
TIMESTAMPS: Value[Position] = Value(
    'JSON with milliseconds since 1970-01-01 UTC for each partition, such as {"t":{"0":1700000000000}}',
    _read_timestamps,
)
