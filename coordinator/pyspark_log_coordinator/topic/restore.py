"""Restoring: a topic's journal begins again with what was found in the folders of its nodes.

    RestoreTopic  -> TopicRestored      the first entry of a journal in the place of one that was lost

The log goes on where what was found ends: HW and LEO are there, and a new leader epoch begins. Who holds all of it is
in the ISR; the others copy the rest. The entry's number is far above all that the lost journal can have had: so nothing
that a process of before still has in hand is sequenced (the orphan floor), and a reader of before sees a newer
snapshot, and starts from that.
"""

from __future__ import annotations

import msgspec

from pyspark_log_coordinator.model.append_list import AppendList
from pyspark_log_coordinator.model.partition import ChunkRef, NodeId, Partition, SegmentRef, empty
from pyspark_log_coordinator.model.producers import Producer
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.model.topic_state import FileRef, Topic
from pyspark_log_coordinator.replication import replicas
from pyspark_log_storage.ranges import Count


class RestoredPartition(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A partition as it was found: segments, then chunks, without a gap. The leader epoch is a new one."""

    replicas: tuple[NodeId, ...]
    epoch_starts: tuple[tuple[Count, Count], ...]
    """The last is the new leader epoch, which begins at the log end."""
    log_start: Count
    log_end: Count
    segments: tuple[SegmentRef, ...]
    chunks: tuple[ChunkRef, ...]


class TopicRestored(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The topic exists again, as it was found."""

    entry: Count
    """The number of this very entry."""
    name: str
    topic_id: str
    config: TopicConfig
    schemas: tuple[bytes, ...]
    incarnations: dict[NodeId, str]
    partitions: tuple[RestoredPartition, ...]
    files: tuple[FileRef, ...]
    """The append files that chunks name, numbered from 0."""
    producers: dict[str, Producer]


class RestoreTopic(msgspec.Struct, frozen=True):
    """Begin the journal of a topic that was found."""

    found: TopicRestored
    generation: int = 1
    """Of the stores on which the journal begins."""


def decide(topic: Topic, command: RestoreTopic) -> list[TopicRestored]:
    """Return the journal's first event; none where the journal has begun."""
    return [] if topic.started else [command.found]


def evolve(event: TopicRestored) -> Topic:
    """Return the topic as it was found."""
    topic = Topic(
        name=event.name,
        topic_id=event.topic_id,
        config=event.config,
        schemas=event.schemas,
        incarnations=event.incarnations,
        files=AppendList(list(event.files)),
        orphan_floor=event.entry,
        producers=event.producers,
        restored=event.entry,
        started=True,
    )
    return msgspec.structs.replace(topic, partitions=tuple(_partition(topic, each) for each in event.partitions))


def _partition(topic: Topic, found: RestoredPartition) -> Partition:
    partition = msgspec.structs.replace(
        empty(found.replicas, ()),
        leader_epoch=found.epoch_starts[-1][0],
        epoch_starts=found.epoch_starts,
        log_start=found.log_start,
        log_end=found.log_end,
        high_watermark=found.log_end,
        segments=found.segments,
        chunks=AppendList(list(found.chunks)),
    )
    ends = {node: replicas.log_end_offset(topic, partition, node, found.log_start) for node in found.replicas}
    isr = tuple(node for node in found.replicas if ends[node] == found.log_end)
    return msgspec.structs.replace(partition, log_end_offsets=ends, isr=isr, leader=isr[0] if isr else None)
