"""The range of a batch read: its start and end must name the same partitions, and the end must not precede the start.

Two offsets or two timestamps are compared when the options are parsed; an offset and a timestamp when the read is
planned, which turns timestamps into offsets. Source: Spark's `KafkaSourceProvider.checkOffsetLimitValidity`.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark_log.options.position import GlobalTimestamp, PartitionNumbers, Position, SpecificOffsets, Timestamps
from pyspark_log_storage.errors import InvalidOption


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
