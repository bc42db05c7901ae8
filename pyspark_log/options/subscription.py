"""Which topics and partitions a source reads: a list, a pattern, or named partitions."""

from __future__ import annotations

import re
import warnings

import msgspec

from pyspark_log.options.value import INT_MAX, Value, read_topic


class Subscribe(msgspec.Struct, frozen=True, tag=True):
    """All partitions of these topics."""

    topics: tuple[str, ...]


class SubscribePattern(msgspec.Struct, frozen=True, tag=True):
    """All partitions of the topics whose whole name matches, also of topics made later."""

    pattern: str

    def matches(self, topic: str) -> bool:
        """Return whether the pattern matches the whole name."""
        return re.fullmatch(self.pattern, topic) is not None


class Assign(msgspec.Struct, frozen=True, tag=True):
    """Exactly these partitions of each topic, in ascending order."""

    partitions: dict[str, tuple[int, ...]]


_NOTHING_ASSIGNED = "it assigns no partition, so there is nothing to read"

Subscription = Subscribe | SubscribePattern | Assign


def _read_subscribe(text: str) -> Subscription:
    topics = dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip())
    if not topics:
        raise ValueError("it names no topic")
    return Subscribe(tuple(read_topic(topic) for topic in topics))


def _read_pattern(text: str) -> Subscription:
    if not text:
        raise ValueError("it is empty")
    try:
        with warnings.catch_warnings():
            # `[a-z&&[^b]]` means something else in Java; Python warns of it, and reads it differently.
            warnings.simplefilter("error", FutureWarning)
            re.compile(text)
    except (re.error, OverflowError, RecursionError, FutureWarning) as error:
        raise ValueError(f"it is not a regular expression of Python's syntax ({error})") from None
    return SubscribePattern(text)


def _read_assign(text: str) -> Subscription:
    if not text:
        raise ValueError(_NOTHING_ASSIGNED)
    try:
        assigned = msgspec.json.decode(text, type=dict[str, list[int]], strict=False)
    except msgspec.MsgspecError as error:
        raise ValueError(f"it cannot be read as that ({error})") from None
    for topic, partitions in assigned.items():
        read_topic(topic)
        for partition in partitions:
            if not 0 <= partition <= INT_MAX:
                raise ValueError(f"topic {topic} cannot have a partition {partition}")
    if not any(assigned.values()):
        raise ValueError(_NOTHING_ASSIGNED)
    return Assign({topic: tuple(sorted(set(partitions))) for topic, partitions in assigned.items() if partitions})


SUBSCRIBE: Value[Subscription] = Value("names of topics with commas between them", _read_subscribe)
SUBSCRIBE_PATTERN: Value[Subscription] = Value("a regular expression that matches whole names of topics", _read_pattern)
ASSIGN: Value[Subscription] = Value('partitions of each topic as JSON, such as {"t":[0,1]}', _read_assign)
