"""The offset of a stream in Spark's checkpoint: where a micro-batch ends and, if Spark cannot know it, where it begins.

    {"version": 1,
     "topics": {"flights": {"id": "9f…", "end": {"0": [120, 0], "1": [98, 0]}, "begin": {"1": [0, 0]}}}}

Each partition has `[offset, leader epoch]`. A batch begins where its predecessor ended, except in the partitions in
`begin`: all of the first batch, and later new ones. So every batch can be reproduced from Spark's checkpoint. Spark
compares offsets as JSON text, so topics and partitions are sorted.

A query with a `group.id` also has `"group": [journal id, number]`: the id of the group's journal, and the number of its
newest rewind that the query has followed. The partitions that it moved are in the `begin` of the batch that follows it.

A compacted topic also has `"compacted": {"0": 7}`: how often each partition of which the batch has rows had been
compacted when it was planned, unless never. If that has changed when the batch is read again, its rows may have.

`"away": {"routes": {"id": "4c…", "end": {"0": [17, 0]}}}` are partitions that the query has read and is not subscribed
to now. If it is again, it continues there.

`"cluster": id` is the cluster that was read. If another is at the address, a disk is not mounted.

`initialOffset` is the sentinel {"version": 1, "initial": true}, which `latestOffset` resolves. After a crash Spark asks
for the initial offset again, when `latest` would be another offset.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from pyspark_log_storage.errors import CorruptObject, InvalidOption, NewerFormat, NoCluster
from pyspark_log_storage.names import is_topic
from pyspark_log_storage.stored_fields import Count

VERSION = 1
INITIAL: dict[str, Any] = {"version": VERSION, "initial": True}

NAME = "the offset in the checkpoint"

TopicPartition = tuple[str, int]


class Position(msgspec.Struct, frozen=True, array_like=True):
    """An offset, and the leader epoch at the time."""

    offset: Count
    epoch: Count


class TopicPositions(msgspec.Struct, frozen=True, omit_defaults=True, rename={"topic_id": "id"}):
    """One topic's part of an offset."""

    topic_id: str
    end: dict[Count, Position]
    begin: dict[Count, Position] = {}
    compacted: dict[Count, Count] = {}


class TakenRewinds(msgspec.Struct, frozen=True, array_like=True):
    """The query's group, and the number of its newest rewind that the query has followed."""

    journal_id: str
    number: Count


class SourceOffset(msgspec.Struct, frozen=True, omit_defaults=True):
    """An offset, parsed."""

    topics: dict[str, TopicPositions] = {}
    initial: bool = False
    group: TakenRewinds | None = None
    cluster: str | None = None
    away: dict[str, TopicPositions] = {}
    """Partitions that were read and are not subscribed to now."""

    def check_cluster(self, cluster_id: str, path: str) -> None:
        """Raise `NoCluster` if the log at `path` is another cluster than the one that was read."""
        if self.cluster not in {None, cluster_id}:
            raise NoCluster(
                f"the log at {path} is cluster {cluster_id}, and the checkpoint is of cluster {self.cluster}: is the "
                "right disk mounted? To read this one, start with a new checkpoint"
            )

    def ends(self) -> dict[TopicPartition, Position]:
        return {(name, p): at for name, topic in self.topics.items() for p, at in topic.end.items()}

    def read_to(self, key: TopicPartition) -> TopicPositions | None:
        """Return the part of the offset that says where a partition ends, also if it is away; None if none does."""
        name, number = key
        parts = (self.topics.get(name), self.away.get(name))
        return next((part for part in parts if part is not None and number in part.end), None)

    def begins(self, predecessor: SourceOffset) -> dict[TopicPartition, Position]:
        """Return where each partition of the batch between `predecessor` and this offset begins.

        Raises `CorruptObject` if neither offset contains it.
        """
        before = predecessor.ends()
        found: dict[TopicPartition, Position] = {}
        for name, topic in self.topics.items():
            for p in topic.end:
                begin = topic.begin.get(p) or before.get((name, p))
                if begin is None:
                    raise CorruptObject(NAME, f"it has no begin for partition {p} of topic {name!r}")
                found[name, p] = begin
        return found


def parse(value: object, *, is_done: bool = True) -> SourceOffset:
    """Parse an offset from Spark's checkpoint. `is_done` says whether it is the end of a batch that Spark committed.

    Raises `CorruptObject`, `NewerFormat`, and `InvalidOption` for an offset of another source.
    """
    version = value.get("version") if isinstance(value, dict) else None
    if version != VERSION:
        if isinstance(version, int):
            raise NewerFormat(NAME, f"offset version {version}")
        raise InvalidOption("checkpointLocation", _not_ours(value, is_done=is_done))
    try:
        found = msgspec.convert(value, SourceOffset, strict=False)
    except msgspec.ValidationError as error:
        raise CorruptObject(NAME, str(error)) from error
    for topic in (*found.topics, *found.away):
        if not is_topic(topic):
            raise CorruptObject(NAME, f"it names {topic[:300]!r}, which cannot be a topic")
    return found


def _not_ours(value: object, *, is_done: bool) -> str:
    """Return an error's message for the offset of another source."""
    topics = list(value.values()) if isinstance(value, dict) else []
    is_kafkas = all(isinstance(each, dict) and all(isinstance(at, int) for at in each.values()) for each in topics)
    if not topics or not is_kafkas:
        return (
            f"the checkpoint is that of a query with another source: its offset is {str(value)[:200]}; set a new "
            "checkpointLocation"
        )
    refused = "the checkpoint is that of a query that read Kafka, and cannot be used here; set a new checkpointLocation"
    if not is_done:
        return refused
    # Spark's Kafka source stores the next offsets to read, which is what startingOffsets takes.
    text = json.dumps(value, separators=(",", ":"))
    return (
        f"{refused}. To continue with the next row, if the rows have the same offsets here as in Kafka, also set "
        f"option('startingOffsets', '{text}')"
    )


def to_json(offset: SourceOffset) -> dict[str, Any]:
    """Return the offset as Spark stores it. Equal offsets give equal text."""
    return {"version": VERSION, **msgspec.to_builtins(offset, str_keys=True, order="deterministic")}
