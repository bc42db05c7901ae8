"""Positions where a read starts or ends, before they are resolved against the log, and the ranges that they make.

In JSON, offset -1 means latest and -2 means earliest; "latest" or "earliest" instead of a topic's offsets applies to
all partitions that it has when the read is planned. A batch read cannot start at the latest offset or end at the
earliest. Source: Spark's `KafkaOffsetRangeLimit` and `KafkaSourceProvider`; the words for whole topics are SPARK-58774.

The start and the end of a batch read must name the same partitions, and the end must not precede the start. Two offsets
or two timestamps are compared when the options are parsed; an offset and a timestamp when the read is planned, which
turns timestamps into offsets. Source: Spark's `KafkaSourceProvider.checkOffsetLimitValidity`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from pyspark_log.options.value import LONG_MAX, Value, decoded, read_topic
from pyspark_log_coordinator.model.settings import INT_MAX
from pyspark_log_storage.errors import InvalidOption

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


def _check_numbers(numbers: PartitionNumbers, low: int, what: str) -> None:
    for topic, partitions in numbers.items():
        read_topic(topic)
        for partition, number in partitions.items():
            if not 0 <= partition <= INT_MAX:
                raise ValueError(f"partition {partition} of topic {topic} is out of range")
            if not low <= number <= LONG_MAX:
                raise ValueError(f"the {what} {number} of {topic}-{partition} is out of range")


def _read_offsets(text: str, refused: int | None = None, why: str = "") -> SpecificOffsets:
    given: dict[str, dict[int, int] | str] = decoded(text, dict[str, dict[int, int] | str])
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
    if text.startswith("-") and text[1:].isdigit():
        raise ValueError("it is negative")
    if not (text.isascii() and text.isdigit() and int(text) <= LONG_MAX):
        raise ValueError("it is not a number of milliseconds")
    return GlobalTimestamp(int(text))


def _read_timestamps(text: str) -> Position:
    times: PartitionNumbers = decoded(text, PartitionNumbers)
    if not any(times.values()):
        raise ValueError("it names no partition")
    _check_numbers(times, 0, "timestamp")
    return Timestamps(times)


STREAM_START: Value[Position] = Value(
    "earliest, latest, group, or JSON with an offset for each partition, such as"
    ' {"t":{"0":23,"1":-2},"u":"latest"}, where -2 is earliest and -1 is latest',
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


def is_named(position: Position, topic: str, partition: int) -> bool:
    """Return whether a position has an offset or a time for this partition, and not the same for all."""
    match position:
        case SpecificOffsets(offsets, whole_topics):
            return topic in whole_topics or partition in offsets.get(topic, {})
        case Timestamps(times):
            return partition in times.get(topic, {})
        case _:
            return False


def starting_option(position: Position) -> str:
    """Return the name of the option for such a start."""
    return _option("starting", position)


def ending_option(position: Position) -> str:
    """Return the name of the option for such an end."""
    return _option("ending", position)


def _option(prefix: str, position: Position) -> str:
    match position:
        case GlobalTimestamp():
            return f"{prefix}Timestamp"
        case Timestamps():
            return f"{prefix}OffsetsByTimestamp"
        case _:
            return f"{prefix}Offsets"


def check_range(start: Position, end: Position) -> None:
    """Raise `InvalidOption` if both positions are of one form and do not make a range."""
    names = starting_option(start), ending_option(end)
    match start, end:
        case SpecificOffsets(), SpecificOffsets():
            whole = start.whole_topics.keys() | end.whole_topics.keys()
            _check_same(
                _topics(start.offsets) | start.whole_topics.keys(),
                _topics(end.offsets) | end.whole_topics.keys(),
                names,
                "topics",
            )
            begins, ends = ({each: of[each] for each in of.keys() - whole} for of in (start.offsets, end.offsets))
            _check_partitions(begins, ends, names)
        case Timestamps(begins), Timestamps(ends):
            _check_partitions(begins, ends, names)
        case GlobalTimestamp(first), GlobalTimestamp(last):
            if first > last:
                raise _backwards(names, "", first, last)
        case GlobalTimestamp(first), Timestamps(ends):
            for topic, partition in sorted(_partitions(ends)):
                _check_order(names, topic, partition, first, ends[topic][partition])
        case Timestamps(begins), GlobalTimestamp(last):
            for topic, partition in sorted(_partitions(begins)):
                _check_order(names, topic, partition, begins[topic][partition], last)
        case _:
            pass


def _check_partitions(begins: PartitionNumbers, ends: PartitionNumbers, names: tuple[str, str]) -> None:
    starts, stops = _partitions(begins), _partitions(ends)
    _check_same({f"{t}-{p}" for t, p in starts}, {f"{t}-{p}" for t, p in stops}, names, "partitions")
    for topic, partition in sorted(starts):
        _check_order(names, topic, partition, begins[topic][partition], ends[topic][partition])


def _check_same(of_start: Iterable[str], of_end: Iterable[str], names: tuple[str, str], what: str) -> None:
    if apart := set(of_start) ^ set(of_end):
        raise InvalidOption(
            names[1],
            f"options {names[0]} and {names[1]} must name the same {what}, but only one names"
            f" {', '.join(sorted(apart)[:5])}",
        )


def _check_order(names: tuple[str, str], topic: str, partition: int, begin: int, end: int) -> None:
    if begin > end >= 0:  # -1 and -2 stand for latest and earliest
        raise _backwards(names, f" for {topic}-{partition}", begin, end)


def _backwards(names: tuple[str, str], where: str, begin: int, end: int) -> InvalidOption:
    return InvalidOption(
        names[1],
        f"option {names[1]} is {end}{where}, which is before {names[0]} ({begin}); set a later end",
    )


def _partitions(numbers: PartitionNumbers) -> set[tuple[str, int]]:
    return {(topic, partition) for topic, partitions in numbers.items() for partition in partitions}


def _topics(numbers: PartitionNumbers) -> set[str]:
    return {topic for topic, partitions in numbers.items() if partitions}
