"""The rows that a call in Python names, from a start to an end, as options of a batch read."""

from __future__ import annotations

import json
import operator
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta, timezone
from typing import Literal, SupportsIndex

from pyspark_log.options.given import as_texts
from pyspark_log_storage.errors import InvalidInput
from pyspark_log_storage.names import check_topic

Bound = Literal["earliest", "latest"] | datetime | Mapping[int, int]
"""A position: earliest, latest, a time, or an offset for each partition."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_CHOOSE = ("path", "subscribe", "assign", "starting", "ending", "versionasof")
"""How the options begin that say which rows are read."""
_HEADERS = "includeHeaders"


def options_between(
    topic: str,
    start: Bound,
    end: Bound,
    partitions: Collection[int] | None,
    version: int | None,
    options: Mapping[str, object] | None,
) -> dict[str, str]:
    """Return the options of a batch read of a topic from `start` up to but not including `end`, with headers.

    `partitions` are those to read (None: those with offsets, else all), `version` is a version of the topic, and
    `options` are others of a batch read. Raises `InvalidInput`, also for a name that no topic can have.
    """
    check_topic(topic)  # the option subscribe takes several, and blanks around each
    check_partitions(partitions)
    more = as_texts(options)
    if taken := [name for name in more if name.lower().startswith(_CHOOSE)]:
        raise InvalidInput(f"options has {taken[0]}; which rows are read is said by the arguments path to version")
    start, end = _with_ints("start", start), _with_ints("end", end)
    named = {number for bound in (start, end) if isinstance(bound, Mapping) for number in bound}
    chosen = named if partitions is None else {_int("partitions", each) for each in partitions}
    more = {_HEADERS if name.lower() == _HEADERS.lower() else name: value for name, value in more.items()}
    given = {_HEADERS: "true", "startingOffsetsByTimestampStrategy": "latest"} | more
    if named or partitions is not None:
        given["assign"] = json.dumps({topic: sorted(chosen)})
    else:
        given["subscribe"] = topic
    given |= _option("start", start, topic, chosen) | _option("end", end, topic, chosen)
    if version is not None:
        given["versionAsOf"] = str(version)
    return given


def check_partitions(partitions: Collection[int] | None) -> None:
    """Raise `InvalidInput` for an empty list."""
    if partitions is not None and len(partitions) == 0:
        raise InvalidInput("partitions is empty; name those to read, or omit it to read all")


def _with_ints(name: str, bound: Bound) -> Bound:
    """Return a bound whose offsets are ints of Python; those of NumPy and pandas are none. Raises `InvalidInput`."""
    if not isinstance(bound, Mapping):
        return bound
    return {_int(name, partition): _int(name, offset) for partition, offset in bound.items()}


def _int(name: str, value: SupportsIndex) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise InvalidInput(f"{name} has {value!r}; expected a whole number") from None


def _option(name: Literal["start", "end"], bound: Bound, topic: str, partitions: Collection[int]) -> dict[str, str]:
    """Return the option for a bound. Raises `InvalidInput`."""
    prefix = {"start": "starting", "end": "ending"}[name]
    natural = {"start": "earliest", "end": "latest"}[name]
    match bound:
        case str():
            if bound != natural:
                raise InvalidInput(f"{name} is {bound!r}; expected {natural!r}, a datetime, or a dict of offsets")
            return {f"{prefix}Offsets": bound}
        case datetime():
            if bound.tzinfo is None:
                raise InvalidInput(f"{name} is {bound}, which has no time zone; give it one, such as timezone.utc")
            if bound < _EPOCH:
                raise InvalidInput(f"{name} is {bound}; expected a time since 1970")
            return {f"{prefix}Timestamp": str((bound - _EPOCH) // timedelta(milliseconds=1))}
        case Mapping():
            if missing := sorted(set(partitions) ^ set(bound)):
                wrong = "has no offset for" if missing[0] in partitions else "has an offset for"
                raise InvalidInput(
                    f"{name} {wrong} partition {missing[0]}; give start and end offsets of the partitions to read"
                )
            return {f"{prefix}Offsets": json.dumps({topic: dict(sorted(bound.items()))})}
        case _:
            raise InvalidInput(f"{name} is {bound!r}; expected {natural!r}, a datetime, or a dict of offsets")
