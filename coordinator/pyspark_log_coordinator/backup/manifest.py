"""A backup: the states of a log's journals at one entry each, and so the names of the files that it consists of.

    backups/<number, 20 digits>    envelope b"PLBK", version 4, body: msgpack map

The state of a topic is its description (`topic_description`), as on a node.
The files are beside it, with the keys that they have on the nodes of the log. They never change, so all backups in a
store share them, and a backup copies only what the ones before it have not copied. Its manifest is created last: as
long as there is none, there is no backup.

The states of the groups are older than those of the topics, so no committed offset is above the end of its partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.cluster.nodes import FormerNode
from pyspark_log_coordinator.log import topic_description
from pyspark_log_coordinator.log.topic_description import Description
from pyspark_log_coordinator.rebuild.begin_anew import KnownGroup
from pyspark_log_storage import decoding, layout
from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.objects.envelope import seal, unseal
from pyspark_log_storage.stored_fields import Count, Int64
from pyspark_log_storage.stores.failover import rereads

if TYPE_CHECKING:
    from pyspark_log_storage.stores.store import Readable, Store

_MAGIC = b"PLBK"
_VERSION = 4


class Backup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A log as of an entry of each of its journals."""

    number: Count
    at_ms: Int64
    """When it was begun, by the clock of the process that made it."""
    cluster: str
    entry: Count
    """The entry of the cluster's journal."""
    nodes: tuple[FormerNode, ...]
    """The nodes that the cluster has or had, with their incarnations."""
    topics: tuple[Description, ...]
    groups: tuple[KnownGroup, ...]


_decoder = msgspec.msgpack.Decoder(Backup)


def encode(backup: Backup) -> bytes:
    return seal(_MAGIC, _VERSION, msgspec.msgpack.encode(backup))


def decode(data: bytes, name: str) -> Backup:
    """Return the backup in `data`. Raises `CorruptObject`, `NewerFormat`."""

    def checked(body: bytes | msgspec.Raw) -> Backup:
        found = _decoder.decode(body)
        for each in found.topics:
            topic_description.check(each)
        return found

    return decoding.decode(checked, unseal(_MAGIC, _VERSION, data, name), name)


def numbers(store: Store) -> list[int]:
    """Return the numbers of the backups in a store, oldest first."""
    found = (layout.number_of_backup(key) for key in store.list(layout.BACKUPS))
    return [each for each in found if each is not None]


@rereads
def read(store: Readable, number: int) -> Backup:
    """Return a backup. Raises `ObjectMissing`, `CorruptObject`, `NewerFormat`, `StoreError`."""
    key = layout.backup(number)
    found = decode(store.read(key), f"{store.url}/{key}")
    if found.number != number:
        raise CorruptObject(f"{store.url}/{key}", f"it is backup {found.number}")
    return found
