"""A source offset: where a micro-batch ends, and, where Spark cannot know it, where it begins.

    {"version": 1,
     "topics": {"flights": {"id": "9f…", "end": {"0": [120, 0], "1": [98, 0]}, "begin": {"1": [0, 0]}}}}

Per partition `[offset, leader epoch]`. A batch begins where its predecessor ended; `begin` names the partitions for
which that is not so: all of the first batch's, and those found later. So every batch is reproducible from
Spark's own offset log. Spark compares offsets as JSON text, so topics and partitions are always in order.

`initialOffset` is the sentinel {"version": 1, "initial": true}, which `latestOffset` resolves: after a crash Spark asks
for the initial offset again, and by then `latest` would mean another place.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pyspark_log_storage.errors import CorruptObject, NewerFormat
from pyspark_log_storage.ranges import Count

VERSION = 1
INITIAL: dict[str, Any] = {"version": VERSION, "initial": True}

NAME = "the offset in the checkpoint"

TopicPartition = tuple[str, int]


class Position(msgspec.Struct, frozen=True, array_like=True):
    """An offset, and the leader epoch that it was seen in."""

    offset: Count
    epoch: Count


class TopicPositions(msgspec.Struct, frozen=True, rename={"topic_id": "id"}):
    """One topic's part of an offset."""

    topic_id: str
    end: dict[Count, Position]
    begin: dict[Count, Position] = {}


class SourceOffset(msgspec.Struct, frozen=True):
    """An offset, parsed."""

    topics: dict[str, TopicPositions] = {}
    initial: bool = False

    def ends(self) -> dict[TopicPartition, Position]:
        """Return where each partition ends."""
        return {(name, p): at for name, topic in self.topics.items() for p, at in topic.end.items()}

    def begins(self, predecessor: SourceOffset) -> dict[TopicPartition, Position]:
        """Return where each partition of the batch begins that ends here, after its predecessor.

        Raises `CorruptObject` if neither offset says so.
        """
        before = predecessor.ends()
        found: dict[TopicPartition, Position] = {}
        for name, topic in self.topics.items():
            for p in topic.end:
                begin = topic.begin.get(p) or before.get((name, p))
                if begin is None:
                    raise CorruptObject(NAME, f"it does not say where partition {p} of topic {name!r} begins")
                found[name, p] = begin
        return found


def parse(value: dict[str, Any]) -> SourceOffset:
    """Return the offset that Spark hands back from its offset log. Raises `CorruptObject`, `NewerFormat`."""
    if value.get("version") != VERSION:
        if isinstance(value.get("version"), int):
            raise NewerFormat(NAME, f"offset version {value['version']}")
        raise CorruptObject(NAME, f"it is not an offset of this source: {str(value)[:200]}")
    try:
        return msgspec.convert(value, SourceOffset, strict=False)
    except msgspec.ValidationError as error:
        raise CorruptObject(NAME, str(error)) from error


def to_json(offset: SourceOffset) -> dict[str, Any]:
    """Return the offset as Spark stores it: the same offset gives the same text."""
    topics: dict[str, Any] = {}
    for name in sorted(offset.topics):
        topic = offset.topics[name]
        topics[name] = {"id": topic.topic_id, "end": _positions(topic.end)}
        if topic.begin:
            topics[name]["begin"] = _positions(topic.begin)
    return {"version": VERSION, "topics": topics}


def _positions(positions: dict[int, Position]) -> dict[str, list[int]]:
    return {str(p): [positions[p].offset, positions[p].epoch] for p in sorted(positions)}
