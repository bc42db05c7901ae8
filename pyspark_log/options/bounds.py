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
_CHOOSE = ("subscribe", "assign", "starting", "ending", "versionasof")
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
    if partitions is not None and len(partitions) == 0:
        raise InvalidInput("partitions is empty; name those to read, or omit it to read all")
    more = as_texts(options)
    if taken := [name for name in more if name.lower().startswith(("path", *_CHOOSE))]:
        raise InvalidInput(f"options has {taken[0]}; which rows are read is said by the arguments path to version")
    more = {_HEADERS if name.lower() == _HEADERS.lower() else name: value for name, value in more.items()}
    given = {_HEADERS: "true", "startingOffsetsByTimestampStrategy": "latest"} | more
    starts, ends = _offsets("start", start), _offsets("end", end)
    chosen = starts.keys() | ends.keys() if partitions is None else {_int("partitions", each) for each in partitions}
    given |= {"assign": json.dumps({topic: sorted(chosen)})} if chosen else {"subscribe": topic}
    for name, bound, offsets in (("start", start, starts), ("end", end, ends)):
        prefix, natural = {"start": ("starting", "earliest"), "end": ("ending", "latest")}[name]
        if isinstance(bound, Mapping):
            if wrong := sorted(chosen ^ offsets.keys())[:1]:
                has = "has no offset for" if wrong[0] in chosen else "has an offset for"
                message = f"{name} {has} partition {wrong[0]}; give start and end offsets of the partitions to read"
                raise InvalidInput(message)
            given[f"{prefix}Offsets"] = json.dumps({topic: dict(sorted(offsets.items()))})
        elif isinstance(bound, datetime):
            given[f"{prefix}Timestamp"] = str(ms_of(bound, name))
        elif bound == natural:
            given[f"{prefix}Offsets"] = natural
        else:
            raise InvalidInput(f"{name} is {bound!r}; expected {natural!r}, a datetime, or a dict of offsets")
    return given | ({} if version is None else {"versionAsOf": str(version)})


def without_bounds(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a batch read without those that say which rows are read."""
    return {name: text for name, text in options.items() if not name.lower().startswith(_CHOOSE)}


def _offsets(name: str, bound: Bound) -> dict[int, int]:
    """Return offsets as ints of Python; those of NumPy and pandas are none."""
    return {_int(name, p): _int(name, o) for p, o in bound.items()} if isinstance(bound, Mapping) else {}


def _int(name: str, value: SupportsIndex) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise InvalidInput(f"{name} has {value!r}; expected a whole number") from None


def ms_of(time: datetime, name: str = "time") -> int:
    """Return a time in milliseconds since 1970, rounded down. Raises `InvalidInput`."""
    if time.tzinfo is None or time < _EPOCH:
        raise InvalidInput(f"{name} is {time}; expected a time since 1970 with a time zone, such as timezone.utc")
    return (time - _EPOCH) // timedelta(milliseconds=1)
