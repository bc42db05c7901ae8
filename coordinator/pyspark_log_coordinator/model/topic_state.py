"""The state of a topic, after the entries of its journal."""

from __future__ import annotations

import itertools
import operator
from typing import TYPE_CHECKING, Any

import msgspec

from pyspark_log_coordinator.model.partition import Holder, NodeId, Partition
from pyspark_log_coordinator.model.producers import Producer
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_storage.errors import InvalidInput
from pyspark_log_storage.stored_fields import BornName, Count, FileKey, Int64

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class FileRef(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A sequenced append file, the nodes on which it is durable, and when it was sequenced (ms, the log's clock)."""

    name: BornName
    holders: tuple[Holder, ...]
    sequenced_ms: Int64
    producer: str = ""
    """The producer of its batch, empty for a write without a name."""
    batch_id: Int64 = 0


class PendingDeletion(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A file that the log no longer needs: its key below the topic's folder, for a segment without the ending."""

    key: FileKey
    at_ms: Int64
    """When the deletion was scheduled, by the clock of the process that scheduled it."""


class FloorMark(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A journal entry that becomes the orphan floor when the mark is old enough."""

    number: Count
    at_ms: Int64


class Topic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str = ""
    topic_id: str = ""
    config: TopicConfig = TopicConfig()
    schemas: tuple[bytes, ...] = ()
    incarnations: dict[NodeId, str] = {}
    """The current incarnations of the nodes with replicas. A holder in another incarnation holds nothing."""
    fenced: tuple[NodeId, ...] = ()
    """Nodes that an operator took out of service: they lead no partition and join no ISR."""
    suspects: dict[NodeId, Count] = {}
    """Nodes that some process failed to reach, with the number of the suspicion."""
    suspicions: Count = 0
    """Number of suspicions so far."""
    partitions: tuple[Partition, ...] = ()
    first_file: Count = 0
    """The number of the first of `files`: all partitions have rolled those before."""
    files: tuple[FileRef, ...] = ()
    pending_deletions: tuple[PendingDeletion, ...] = ()
    """Files scheduled for deletion after `file.delete.delay.ms`, oldest first."""
    orphan_floor: Count = 0
    """Files born below this journal entry are no longer sequenced."""
    floor_mark: FloorMark | None = None
    producers: dict[str, Producer] = {}
    generation: Count = 1
    """The generation of the journals' stores in which the topic's journal goes on after it has ended in another."""
    started: bool = False
    restored: Count = 0
    """The entry with which the topic's journal began anew; 0 if it was never lost."""
    deleted_ms: Int64 | None = None
    """When the topic was deleted, by the clock of the process that deleted it."""

    @property
    def is_replicated(self) -> bool:
        """Whether there are replicas on more than one node."""
        return len(self.incarnations) > 1

    @property
    def deleted(self) -> bool:
        """Whether the topic was deleted."""
        return self.deleted_ms is not None

    def partition(self, number: int) -> Partition:
        """Return a partition. Raise `InvalidInput` for an unknown number."""
        if not 0 <= number < len(self.partitions):
            count = len(self.partitions)
            raise InvalidInput(
                f"topic {self.name!r} has no partition {number}: it has {count}, numbered from 0; choose one of these"
            )
        return self.partitions[number]

    def file(self, number: int) -> FileRef:
        """Return the append file that unrolled chunks name by this number."""
        assert number >= self.first_file, "the chunk is from an older state: it was rolled"
        return self.files[number - self.first_file]

    @property
    def next_file(self) -> int:
        """The number of the next append file."""
        return self.first_file + len(self.files)


class TopicCommand(msgspec.Struct, frozen=True):
    """A command to a topic. What it leads to is in `topic.machine`."""


def with_partition(topic: Topic, number: int, partition: Partition) -> Topic:
    return with_partitions(topic, {number: partition})


def with_partitions(topic: Topic, changed: Mapping[int, Partition], **fields: Any) -> Topic:
    """Return the topic with some partitions and other `fields` replaced. Raise `IndexError` for an unknown number."""
    partitions = list(topic.partitions)
    for number, partition in changed.items():
        if number < 0:
            raise IndexError(number)
        partitions[number] = partition
    return msgspec.structs.replace(topic, partitions=tuple(partitions), **fields)


def changed_partitions(before: Sequence[Partition], after: Sequence[Partition]) -> list[int]:
    """Return the numbers of the partitions that are other objects in `after`, which may have more of them."""
    changed = itertools.compress(itertools.count(), map(operator.is_not, before, after))
    return [*changed, *range(len(before), len(after))]


decode = msgspec.msgpack.Decoder(Topic).decode
"""Return the state from its stored bytes. Raises `msgspec.DecodeError`."""
