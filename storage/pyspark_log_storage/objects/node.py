"""A node's marker: the cluster, the node and the incarnation of a store.

    node        envelope b"PLND", version 1, body: JSON {"cluster": ..., "node": ..., "incarnation": ..., "root": true}

`root` is present only if the store is a cluster root, which holds the journals alone.

If the marker is missing or different, the store is another, empty node (a disk that is not mounted, a wiped bucket). It
is created when the node joins, replaced only if a lost cluster is rebuilt, and read again after a writer's last flush.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_storage import decoding
from pyspark_log_storage.errors import CorruptObject, NodeAway, NodeMissing, ObjectMissing
from pyspark_log_storage.layout import MARKER
from pyspark_log_storage.objects.envelope import seal, unseal
from pyspark_log_storage.stored_fields import NodeName
from pyspark_log_storage.stores.failover import rereads
from pyspark_log_storage.stores.store import is_object_store

if TYPE_CHECKING:
    from pyspark_log_storage.stores.store import Store

_MAGIC = b"PLND"
_VERSION = 1
_BYTES_MAX = 64 * 1024
"""More than any marker has. Of a larger object no more is read, and it is damaged."""


class Marker(msgspec.Struct, frozen=True, omit_defaults=True):
    """The identity of a node's store."""

    cluster: str
    node: NodeName
    incarnation: str
    root: bool = False
    """Whether this store alone holds the journals of the cluster."""


_decoder = msgspec.json.Decoder(Marker)


def encode(marker: Marker) -> bytes:
    return seal(_MAGIC, _VERSION, msgspec.json.encode(marker))


def decode(data: bytes, name: str) -> Marker:
    """Return the marker in `data`. Raises `CorruptObject`, `NewerFormat`."""
    body = unseal(_MAGIC, _VERSION, data, name)
    return decoding.decode(_decoder.decode, body, name, CorruptObject)


@rereads
def read_marker(store: Store) -> Marker | None:
    try:
        return decode(store.read(MARKER, 0, _BYTES_MAX), f"{store.url}/{MARKER}")
    except ObjectMissing:
        return None


def require_marker(store: Store, node: str, incarnation: str) -> None:
    """Raise `NodeMissing` unless the store is this node in this incarnation, `NodeAway` if it has no marker."""
    found = read_marker(store)
    if found is None or (found.node, found.incarnation) != (node, incarnation):
        state = "has no marker" if found is None else "is another node, or of another incarnation"
        error = NodeAway if found is None else NodeMissing
        raise error(
            store.url,
            MARKER,
            f"node {node!r} at {store.url} {state}: is its disk mounted, or was it wiped? Mount the right one",
        )


def require_written(store: Store, node: str, incarnation: str, key: str) -> None:
    """Check the marker as `require_marker` does, and raise `NodeAway` unless the store has the object `key`.

    An object that was written while the disk was not mounted is hidden below the mount point once the marker is back.
    Nothing is checked on an object store: it is not mounted, and has answered that it keeps the object.
    """
    if is_object_store(store):
        return
    require_marker(store, node, incarnation)
    try:
        store.size(key)
    except ObjectMissing as error:
        message = f"node {node!r} at {store.url}: {key} was written and is missing: was its disk not mounted?"
        raise NodeAway(store.url, key, f"{message} Check its mount, and write it again") from error
