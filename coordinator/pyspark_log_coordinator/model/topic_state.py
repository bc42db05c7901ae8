"""The state of a topic: what its journal folds into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from pyspark_log_coordinator.model.append_list import AppendList, to_builtin
from pyspark_log_coordinator.model.partition import ChunkRef, Holder, NodeId, Partition
from pyspark_log_coordinator.model.producers import Producer
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_storage.ranges import Count, Int64
from pyspark_log_storage.stored_names import BornName, ReleasedKey

if TYPE_CHECKING:
    from collections.abc import Iterable


class FileRef(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A sequenced append file, the nodes on which it is durable, and when it was sequenced (ms, the writer's clock)."""

    name: BornName
    holders: tuple[Holder, ...]
    sequenced_ms: Int64
    producer: str = ""
    """Whose batch it is a part of, empty for a write without a name."""
    batch_id: Int64 = 0


class PendingDeletion(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A file that the log no longer needs: its key below the topic's folder, without ending for a segment."""

    key: ReleasedKey
    at_ms: Int64
    """When it was released, by the clock of who did it."""


class FloorMark(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A journal entry that becomes the orphan floor once the mark is old."""

    number: Count
    at_ms: Int64


class Topic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of a topic."""

    name: str = ""
    topic_id: str = ""
    config: TopicConfig = TopicConfig()
    schemas: tuple[bytes, ...] = ()
    incarnations: dict[NodeId, str] = {}
    """Of the nodes that have replicas. A holder of another incarnation holds nothing."""
    fenced: tuple[NodeId, ...] = ()
    """Nodes that an operator took out of service: they lead nothing, and join no ISR."""
    suspects: dict[NodeId, Count] = {}
    """Nodes that somebody failed to reach, with the suspicion's number."""
    suspicions: Count = 0
    """How many suspicions there have been."""
    partitions: tuple[Partition, ...] = ()
    first_file: Count = 0
    """The number of the first of `files`: those before it have been rolled in all partitions."""
    files: AppendList[FileRef] = msgspec.field(default_factory=AppendList)
    released: AppendList[PendingDeletion] = msgspec.field(default_factory=AppendList)
    """Files whose bytes may go after `file.delete.delay.ms`, oldest first."""
    orphan_floor: Count = 0
    """Files born below this journal entry are never sequenced any more."""
    floor_mark: FloorMark | None = None
    producers: dict[str, Producer] = {}
    generation: Count = 1
    """On which generation of stores the topic's journal goes on (`generations`)."""
    started: bool = False
    restored: Count = 0
    """The entry that made the topic from what was found in its nodes' folders; 0 where its journal was never lost."""
    deleted_ms: Int64 | None = None
    """When it was deleted, by the clock of who did it; None of a topic that is there."""

    @property
    def deleted(self) -> bool:
        """Whether the topic has ended."""
        return self.deleted_ms is not None

    def file(self, number: int) -> FileRef:
        """Return the append file that unrolled chunks name by this number."""
        assert number >= self.first_file, "the chunk was rolled: it is of an older state"
        return self.files[number - self.first_file]

    @property
    def next_file(self) -> int:
        """The number that the next append file gets."""
        return self.first_file + len(self.files)


def with_partition(topic: Topic, number: int, partition: Partition) -> Topic:
    """Return the topic with another state of one partition."""
    return with_partitions(topic, {number: partition}.items())


def with_partitions(topic: Topic, changed: Iterable[tuple[int, Partition]], **fields: Any) -> Topic:
    """Return the topic with other states of some partitions, and of `fields`."""
    partitions = list(topic.partitions)
    for number, partition in changed:
        partitions[number] = partition
    return msgspec.structs.replace(topic, partitions=tuple(partitions), **fields)


def encode(state: Topic) -> bytes:
    """Return the state's stored bytes."""
    return msgspec.msgpack.encode(state, enc_hook=to_builtin)


def _from_builtin(kind: Any, value: Any) -> Any:
    return AppendList(msgspec.convert(value, _STORED_TAILS[kind]))


_STORED_TAILS: dict[Any, Any] = {
    AppendList[ChunkRef]: list[ChunkRef],
    AppendList[FileRef]: list[FileRef],
    AppendList[PendingDeletion]: list[PendingDeletion],
}
decode = msgspec.msgpack.Decoder(Topic, dec_hook=_from_builtin).decode
for _stored_tail in _STORED_TAILS.values():
    msgspec.msgpack.Decoder(_stored_tail)  # `convert` must not be the first to meet these types: see `decoding`

__all__ = [
    "FileRef",
    "FloorMark",
    "Holder",
    "PendingDeletion",
    "Topic",
    "decode",
    "encode",
    "with_partition",
    "with_partitions",
]
