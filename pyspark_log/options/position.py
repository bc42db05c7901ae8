"""Positions where a read starts or ends, before they are resolved against the log.

In JSON, offset -1 means latest and -2 means earliest; "latest" or "earliest" instead of a topic's offsets applies to
all partitions that it has when the read is planned. A batch read cannot start at the latest offset or end at the
earliest. Source: Spark's `KafkaOffsetRangeLimit` and `KafkaSourceProvider`; the words for whole topics are SPARK-58774.

Each names exactly the partitions that are read, and no partition ends before it starts: this is checked when the read
is planned, which turns times into offsets (`reading/batch_read_plan.py`).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

from pyspark_log.options.value import Value, check_partition, integer, of_topics, read_topic
from pyspark_log_coordinator.model.settings import LONG_MAX

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


_NUMBERS = {"earliest": EARLIEST_OFFSET, "latest": LATEST_OFFSET}


def _offsets(words: Mapping[str, Position]) -> Value[Position]:
    """Return positions that are one of `words`, or offsets, also those that stand for one of these words."""
    numbers = {word: number for word, number in _NUMBERS.items() if word in words}
    word, number = next(iter(numbers.items()))
    example = f'such as {{"t":{{"0":23,"1":{number}}},"u":"{word}"}}, where {number} is {word}'

    def read(text: str) -> Position:
        return words.get(text.lower()) or SpecificOffsets(*_read(text, "offset", numbers))

    return Value(f"{', '.join(words)}, or JSON with an offset for each partition, {example}", read)


def _read(text: str, what: str, words: Mapping[str, int]) -> tuple[PartitionNumbers, dict[str, int]]:
    """Return the numbers of partitions, and those of whole topics, which are `words`."""
    if not text.startswith("{"):
        raise ValueError("it is not a known value")
    given: dict[str, dict[int, int] | str] = of_topics(text, dict[str, dict[int, int] | str])
    whole = {read_topic(topic): each.lower() for topic, each in given.items() if isinstance(each, str)}
    if wrong := next((topic for topic, word in whole.items() if word not in words), None):
        raise ValueError(f"{given[wrong]!r} of topic {wrong} is no {what}")
    numbers = {read_topic(topic): each for topic, each in given.items() if not isinstance(each, str)}
    if not whole and not any(numbers.values()):
        raise ValueError("it names no partition")
    for topic, partitions in numbers.items():
        for partition, number in partitions.items():
            check_partition(topic, partition)
            if not 0 <= number <= LONG_MAX and number not in words.values():
                raise ValueError(f"the {what} {number} of {topic}-{partition} is out of range")
    return numbers, {topic: words[word] for topic, word in whole.items()}


STREAM_START = _offsets({"earliest": Earliest(), "latest": Latest(), "group": CommittedOffsets()})
BATCH_START = _offsets({"earliest": Earliest()})
BATCH_END = _offsets({"latest": Latest()})
GLOBAL_TIMESTAMP: Value[Position] = Value(
    "milliseconds since 1970-01-01 UTC", lambda text: GlobalTimestamp(integer(0).read(text))
)
TIMESTAMPS: Value[Position] = Value(
    'JSON with milliseconds since 1970-01-01 UTC for each partition, such as {"t":{"0":1700000000000}}',
    lambda text: Timestamps(_read(text, "timestamp", {})[0]),
)


def is_named(position: Position, topic: str, partition: int) -> bool:
    """Return whether a position has an offset or a time for this partition, and not the same for all."""
    match position:
        case SpecificOffsets(offsets, whole_topics):
            return topic in whole_topics or partition in offsets.get(topic, {})
        case Timestamps(times):
            return partition in times.get(topic, {})
        case _:
            return False


def option_name(prefix: str, position: Position) -> str:
    """Return the name of the option for such a start or end; `prefix` is starting or ending."""
    suffixes: dict[type, str] = {GlobalTimestamp: "Timestamp", Timestamps: "OffsetsByTimestamp"}
    return prefix + suffixes.get(type(position), "Offsets")
