"""Subscriptions: the topics and partitions that a source reads, as a list, a pattern, or named partitions."""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Callable, Iterable, Mapping

import msgspec

from pyspark_log.options.value import Value, check_partition, of_topics, read_topic


class Subscribe(msgspec.Struct, frozen=True, tag=True):
    """All partitions of these topics."""

    topics: tuple[str, ...]

    def names(self, existing: Callable[[], Iterable[str]]) -> list[str]:
        """Return the topics, which may not exist. A pattern is matched with the `existing` ones."""
        return list(self.topics)


class SubscribePattern(msgspec.Struct, frozen=True, tag=True):
    """All partitions of the topics whose whole name matches, including topics created later."""

    pattern: str

    def names(self, existing: Callable[[], Iterable[str]]) -> list[str]:
        """Return the topics whose whole name matches."""
        return [topic for topic in existing() if re.fullmatch(self.pattern, topic)]

    def near(self, topics: Iterable[str]) -> list[str]:
        """Return up to three topics that the user may have meant."""
        known = sorted(topics)
        partly = [each for each in known if re.search(self.pattern, each, re.IGNORECASE)]
        literal = re.sub(r"\\.|[^\w.-]", "", self.pattern).strip(".")
        return list(dict.fromkeys([*partly, *difflib.get_close_matches(literal, known)]))[:3]


class Assign(msgspec.Struct, frozen=True, tag=True):
    """Exactly these partitions of each topic, in ascending order."""

    partitions: dict[str, tuple[int, ...]]

    def names(self, existing: Callable[[], Iterable[str]]) -> list[str]:
        """Return the topics, which may not exist."""
        return list(self.partitions)


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
            # Java and Python read `[a-z&&[^b]]` differently; Python warns of it.
            warnings.simplefilter("error", FutureWarning)
            re.compile(text)
    except (re.error, OverflowError, RecursionError, FutureWarning) as error:
        raise ValueError(f"it is not a valid Python regular expression ({error})") from None
    return SubscribePattern(text)


def _read_assign(text: str) -> Subscription:
    assigned: dict[str, list[int]] = of_topics(text or "{}", dict[str, list[int]])
    for topic, partitions in assigned.items():
        read_topic(topic)
        for partition in partitions:
            check_partition(topic, partition)
    if not any(assigned.values()):
        raise ValueError("it assigns no partition")
    return Assign({topic: tuple(sorted(set(partitions))) for topic, partitions in assigned.items() if partitions})


SUBSCRIBE: Value[Subscription] = Value("topic names separated by commas", _read_subscribe)
SUBSCRIBE_PATTERN: Value[Subscription] = Value("a regular expression that matches whole topic names", _read_pattern)
ASSIGN: Value[Subscription] = Value('JSON with the partitions of each topic, such as {"t":[0,1]}', _read_assign)
TOPIC_IDS: Value[Mapping[str, str]] = Value(
    'JSON with the id of each topic, such as {"t":"5f0c..."}', lambda text: of_topics(text, dict[str, str])
)
COMPACTIONS: Value[Mapping[str, Mapping[int, int]]] = Value(
    'JSON with counts of the partitions of each topic, such as {"t":{"0":3}}',
    lambda text: of_topics(text, dict[str, dict[int, int]]),
)
