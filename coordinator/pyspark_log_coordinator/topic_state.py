"""The state of a topic: what its journal folds into."""

from __future__ import annotations

from typing import Any

import msgspec

from pyspark_log_coordinator.partition import ChunkRef, NodeId, Partition
from pyspark_log_coordinator.producers import Producer
from pyspark_log_coordinator.tail import Tail, to_builtin
from pyspark_log_coordinator.topic_config import TopicConfig


class Holder(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A node, in one incarnation, on which a file is known to be durable."""

    node: NodeId
    incarnation: str


class FileRef(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A sequenced append file, the nodes on which it is durable, and when it was sequenced (ms, the writer's clock)."""

    name: str
    holders: tuple[Holder, ...]
    sequenced_ms: int


class Released(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A file that the log no longer needs: its key below the topic's folder, without ending for a segment."""

    key: str
    at_ms: int
    """When it was released, by the clock of who did it."""


class FloorMark(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A journal entry that becomes the orphan floor once the mark is old."""

    number: int
    at_ms: int


class Topic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of a topic."""

    name: str = ""
    topic_id: str = ""
    config: TopicConfig = TopicConfig()
    schemas: tuple[bytes, ...] = ()
    incarnations: dict[NodeId, str] = {}
    partitions: tuple[Partition, ...] = ()
    first_file: int = 0
    """The number of the first of `files`: those before it have been rolled in all partitions."""
    files: Tail[FileRef] = msgspec.field(default_factory=Tail)
    released: Tail[Released] = msgspec.field(default_factory=Tail)
    """Files whose bytes may go after `file.delete.delay.ms`, oldest first."""
    orphan_floor: int = 0
    """Files born below this journal entry are never sequenced any more."""
    floor_mark: FloorMark | None = None
    producers: dict[str, Producer] = {}
    started: bool = False
    deleted_ms: int | None = None
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


def encode(state: Topic) -> bytes:
    """Return the state's stored bytes."""
    return msgspec.msgpack.encode(state, enc_hook=to_builtin)


def _from_builtin(kind: Any, value: Any) -> Any:
    return Tail(msgspec.convert(value, _STORED_TAILS[kind]))


_STORED_TAILS: dict[Any, Any] = {
    Tail[ChunkRef]: list[ChunkRef],
    Tail[FileRef]: list[FileRef],
    Tail[Released]: list[Released],
}
decode = msgspec.msgpack.Decoder(Topic, dec_hook=_from_builtin).decode
