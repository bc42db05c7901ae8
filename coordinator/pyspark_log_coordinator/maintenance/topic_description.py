"""A topic's description: a copy of its state on every node that has replicas of it, for recovery without a journal.

    topics/<topic>/<topic id>/description    envelope b"PLTD", version 1, body: msgpack map

It has the topic's state as of a journal entry, and the nodes of the cluster. It is replaced together with the
checkpoints. No decision depends on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.cluster.nodes import Node
from pyspark_log_coordinator.model import topic_state
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.topic import integrity
from pyspark_log_storage import decoding
from pyspark_log_storage.objects.envelope import seal, unseal
from pyspark_log_storage.stored_fields import Count, Int64

if TYPE_CHECKING:
    from pyspark_log_coordinator.log.log import TopicHandle

NAME = "description"
_MAGIC = b"PLTD"
_VERSION = 1


class Description(msgspec.Struct, frozen=True):
    """A topic as of the entry `number` of its journal."""

    number: int
    created_ms: int
    nodes: tuple[Node, ...]
    """The nodes of the cluster."""
    topic: Topic


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    number: Count
    created_ms: Int64
    nodes: tuple[Node, ...]
    topic: bytes


_decoder = msgspec.msgpack.Decoder(_Stored)


def of(handle: TopicHandle) -> Description:
    """Return the description of a topic by the known states of its journal and the cluster's."""
    cluster = handle.log.cluster.state
    record = cluster.topics.get(handle.name)
    created_ms = record.created_ms if record is not None and record.topic_id == handle.topic_id else 0
    return describe(handle.journal.state, handle.journal.number, created_ms, tuple(cluster.nodes.values()))


def describe(state: Topic, number: int, created_ms: int, nodes: tuple[Node, ...]) -> Description:
    """Return the description of the state as of entry `number`."""
    return Description(number, created_ms, nodes, state)


def encode(description: Description) -> bytes:
    """Return the stored bytes."""
    topic = topic_state.encode(description.topic)
    stored = _Stored(description.number, description.created_ms, description.nodes, topic)
    return seal(_MAGIC, _VERSION, msgspec.msgpack.encode(stored))


def decode(data: bytes, name: str) -> Description:
    """Return the description in `data`. Raises `CorruptObject`, `NewerFormat`."""
    body = unseal(_MAGIC, _VERSION, data, name)
    stored = decoding.decode(_decoder.decode, body, name)

    def checked(encoded: bytes | msgspec.Raw) -> Topic:
        topic = topic_state.decode(encoded)
        integrity.check_snapshot(topic, stored.number)
        return topic

    topic = decoding.decode(checked, stored.topic, name)
    return Description(stored.number, stored.created_ms, stored.nodes, topic)
