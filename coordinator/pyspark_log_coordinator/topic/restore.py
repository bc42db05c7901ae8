"""Restoring: the first entry of a journal that replaces a lost one, made from the folders of the topic's nodes.

The log continues at the end of the rows that were found: HW and log end are there, and a new leader epoch begins. Nodes
that hold all rows are in the ISR; the others catch up. The entry's number is far above any number that the lost journal
can have had. So files of old writers are below the orphan floor and are not sequenced, and old readers see a newer
snapshot and load it.
"""

from __future__ import annotations

import msgspec

from pyspark_log_coordinator.model.partition import ChunkRef, NodeId, Partition, SegmentRef, empty
from pyspark_log_coordinator.model.producers import Producer
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.model.topic_state import FileRef, Topic
from pyspark_log_coordinator.replication import replicas
from pyspark_log_storage.stored_fields import Count


class RestoredPartition(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A partition as it was found: segments, then chunks, without a gap."""

    replicas: tuple[NodeId, ...]
    epoch_starts: tuple[tuple[Count, Count], ...]
    """The last one is the new leader epoch, which begins at the log end."""
    log_start: Count
    log_end: Count
    segments: tuple[SegmentRef, ...]
    chunks: tuple[ChunkRef, ...]


class TopicRestored(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The topic exists again, as it was found."""

    entry: Count
    """The number of this entry."""
    name: str
    topic_id: str
    config: TopicConfig
    schemas: tuple[bytes, ...]
    incarnations: dict[NodeId, str]
    partitions: tuple[RestoredPartition, ...]
    files: tuple[FileRef, ...]
    """The append files of the chunks, numbered from 0."""
    producers: dict[str, Producer]


class RestoreTopic(msgspec.Struct, frozen=True):
    """Begin the journal of a topic that was found in the folders of its nodes."""

    found: TopicRestored
    generation: int = 1
    """The journal generation in which the journal begins."""


def decide(topic: Topic, command: RestoreTopic) -> list[TopicRestored]:
    """Return the journal's first event, none if the journal has begun."""
    return [] if topic.started else [command.found]


def evolve(event: TopicRestored) -> Topic:
    """Return the topic as it was found."""
    topic = Topic(
        name=event.name,
        topic_id=event.topic_id,
        config=event.config,
        schemas=event.schemas,
        incarnations=event.incarnations,
        files=tuple(event.files),
        orphan_floor=event.entry,
        producers=event.producers,
        restored=event.entry,
        started=True,
    )
    return msgspec.structs.replace(topic, partitions=tuple(_partition(topic, each) for each in event.partitions))


def _partition(topic: Topic, found: RestoredPartition) -> Partition:
    may_be_compacted = topic.config.is_compacted or any(each.keyed is not None for each in found.segments)
    partition = msgspec.structs.replace(
        empty(found.replicas, ()),
        leader_epoch=found.epoch_starts[-1][0],
        epoch_starts=found.epoch_starts,
        log_start=found.log_start,
        log_end=found.log_end,
        high_watermark=found.log_end,
        segments=found.segments,
        chunks=tuple(found.chunks),
        # Which rows had been compacted when a batch was planned is not known: no batch has seen this count.
        compactions=topic.restored if may_be_compacted else 0,
    )
    ends = {node: replicas.log_end_offset(topic, partition, node, found.log_start) for node in found.replicas}
    isr = tuple(node for node in found.replicas if ends[node] == found.log_end)
    return msgspec.structs.replace(partition, log_end_offsets=ends, isr=isr, leader=isr[0] if isr else None)
