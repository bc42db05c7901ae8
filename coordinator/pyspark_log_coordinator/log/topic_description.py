"""A topic's description: its whole state as of an entry, for a log that begins anew.

    topics/<topic>/<topic id>/description    envelope b"PLTD", version 3, body: msgpack map

Each node that has replicas of the topic has one, and a backup has it in its manifest. It also has the nodes
of the cluster. A newer one is written before a file that it names is deleted on its node, at every 64th entry of the
topic's journal, and a minute after the last one (`descriptions`). No decision depends on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.cluster.nodes import Node
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.topic import integrity
from pyspark_log_storage import decoding, layout
from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.names import check_topic
from pyspark_log_storage.objects.envelope import seal, unseal
from pyspark_log_storage.stored_fields import Count, Int64
from pyspark_log_storage.stores.failover import rereads

if TYPE_CHECKING:
    from pyspark_log_storage.stores.store import Store

NAME = "description"
_MAGIC = b"PLTD"
_VERSION = 3


class Description(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A topic as of the entry `number` of its journal."""

    number: Count
    created_ms: Int64
    nodes: tuple[Node, ...]
    """The nodes of the cluster."""
    topic: Topic


_decoder = msgspec.msgpack.Decoder(Description)


def key(topic: str, topic_id: str) -> str:
    """Return the key of a topic's description on a node."""
    return f"{layout.topic_folder(topic, topic_id)}{NAME}"


@rereads
def read(store: Store, topic: str, topic_id: str) -> Description:
    """Return the description of a topic in a store.

    Raises `ObjectMissing`, `CorruptObject`, also if it is another topic's, `NewerFormat`, `StoreError`.
    """
    place = key(topic, topic_id)
    found = decode(store.read(place), f"{store.url}/{place}")
    if (found.topic.name, found.topic.topic_id) != (topic, topic_id):
        detail = f"it describes topic {found.topic.name!r} with the id {found.topic.topic_id}"
        raise CorruptObject(f"{store.url}/{place}", detail)
    return found


def encode(description: Description) -> bytes:
    return seal(_MAGIC, _VERSION, msgspec.msgpack.encode(description))


def decode(data: bytes, name: str) -> Description:
    """Return the description in `data`. Raises `CorruptObject`, `NewerFormat`."""

    def checked(body: bytes | msgspec.Raw) -> Description:
        found = _decoder.decode(body)
        check(found)
        return found

    return decoding.decode(checked, unseal(_MAGIC, _VERSION, data, name), name)


def check(description: Description) -> None:
    """Raise `InvalidName` or `ValueError` if no topic can be so."""
    topic = description.topic
    check_topic(topic.name)
    if not layout.is_id(topic.topic_id):
        raise ValueError(f"topic {topic.name!r} has the id {topic.topic_id[:300]!r}")
    integrity.check(Topic(), topic)
