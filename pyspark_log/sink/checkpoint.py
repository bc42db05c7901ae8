"""What the checkpoint of a query says about its sink: the ids of the cluster and of the topic to which it writes.

    <checkpoint>/sinks/pyspark_log/<hash>    envelope b"PLSK", version 1, body: JSON

Spark stores nothing about a sink. So the driver does, before the first rows are committed, and compares the ids
whenever it plans: if another cluster is at the address, the disk is not mounted, and somebody else began a log in the
empty folder. The hash is that of the query, the address and the topic, so a query may be pointed to another topic or
another log, as with Kafka.

This needs the option checkpointLocation, and a folder or the kind of object store that the log is in: Spark opens
others with settings that are not known here.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import msgspec

from pyspark_log.opening import canonical, checkpoint_store
from pyspark_log_storage import decoding, logs
from pyspark_log_storage.errors import InvalidOption, NoCluster, ObjectMissing, StoreError, UnknownTopic
from pyspark_log_storage.objects.envelope import seal, unseal
from pyspark_log_storage.stores.addresses import absolute_url
from pyspark_log_storage.stores.failover import rereads
from pyspark_log_storage.stores.store import is_object_store

if TYPE_CHECKING:
    from pyspark_log.options import SinkOptions
    from pyspark_log_storage.stores.store import Store

FOLDER = "sinks/pyspark_log"
_MAGIC = b"PLSK"
_VERSION = 1


class SinkRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """To what a query writes."""

    path: str
    cluster_id: str
    topic: str
    """Empty if each row names its topic; then `topic_id` is empty, too."""
    topic_id: str


_decoder = msgspec.json.Decoder(SinkRecord)
_compared: dict[str, SinkRecord] = {}
"""What this process has found equal in object stores, where each look is a request, by the record's address."""


def encode(record: SinkRecord) -> bytes:
    """Return the stored bytes."""
    return seal(_MAGIC, _VERSION, msgspec.json.encode(record))


def decode(data: bytes, name: str) -> SinkRecord:
    """Return the record in `data`. Raises `CorruptObject`, `NewerFormat`."""
    return decoding.decode(_decoder.decode, unseal(_MAGIC, _VERSION, data, name), name)


def query_of(metadata: bytes) -> str:
    """Return the query id in Spark's own file `metadata` of a checkpoint, or "" if it has none."""
    try:
        found = json.loads(metadata)
    except (ValueError, RecursionError):
        return ""
    return str(found.get("id", "")) if isinstance(found, dict) else ""


def check(options: SinkOptions, found: SinkRecord | NoCluster | UnknownTopic) -> None:
    """Compare what was found with what the query's checkpoint knows, or store it there if it knows nothing yet.

    Raises `NoCluster` and `UnknownTopic` if the log or the topic is another one, or is absent and the query has written
    there; `CorruptObject`, `NewerFormat`. Spark may have other rights: a checkpoint that cannot be read or written here
    is a warning.
    """
    address = address_of(options)
    if address is None or _compared.get(name := f"{address}/{canonical(options.path)}/{options.topic or ''}") == found:
        return
    try:
        if _is_compared(options, address, found) and isinstance(found, SinkRecord):
            _compared[name] = found
    except StoreError as error:
        logs.warning(
            "the log is not compared with the one to which the query wrote before: the checkpoint %(checkpoint)s "
            "cannot be used here: %(error)s",
            checkpoint=address,
            error=error,
        )


def _is_compared(options: SinkOptions, address: str, found: SinkRecord | NoCluster | UnknownTopic) -> bool:
    """Return whether the record in the checkpoint, which is in an object store, is equal to what was found."""
    place = _find(options, address)
    if place is None:
        return False
    store, key, known = place
    query = f"the query with the checkpoint {address} has written"
    if isinstance(found, UnknownTopic) and known is not None:
        raise UnknownTopic(
            found.topic,
            f"topic {found.topic!r} does not exist, and {query} to it: it was deleted. {_advice(store, key)}",
        )
    if isinstance(found, NoCluster) and known is not None:
        raise NoCluster(
            f"there is no log at {known.path}, and {query} there, to cluster {known.cluster_id}: is the disk mounted? "
            f"{_advice(store, key)}"
        )
    if not isinstance(found, SinkRecord):
        return False
    if known is None and not store.create(key, encode(found)):
        known = _read(store, key)  # another process has stored it meanwhile
    known = known or found
    if known.cluster_id != found.cluster_id:
        raise NoCluster(
            f"the log at {found.path} is cluster {found.cluster_id}, and {query} to cluster {known.cluster_id}: is the "
            f"right disk mounted? {_advice(store, key)}"
        )
    if known.topic_id != found.topic_id:
        raise UnknownTopic(
            found.topic,
            f"topic {found.topic!r} at {found.path} has the id {found.topic_id}, and {query} to {known.topic_id}, "
            f"which was deleted. {_advice(store, key)}",
        )
    return is_object_store(store)


def _advice(store: Store, key: str) -> str:
    return (
        f"If the old one is gone for good, start with a new checkpoint; or delete {store.url}/{key} to go on with the "
        "next rows"
    )


def address_of(options: SinkOptions) -> str | None:
    """Return the canonical address of the checkpoint if it can be read here, else None."""
    if options.checkpoint is None:
        return None
    try:
        address = absolute_url(options.checkpoint)
    except InvalidOption:
        return None
    scheme, separator, _ = address.partition("://")
    is_known = not separator or canonical(options.path).startswith(f"{scheme}://")
    return address if is_known else None


def _find(options: SinkOptions, address: str) -> tuple[Store, str, SinkRecord | None] | None:
    """Return where the record is, and the record if it exists; None if the address is not a checkpoint of Spark's.

    It is none if Spark's default file system is HDFS, and the address is a folder there.
    """
    try:
        query_id = query_of(checkpoint_store(address, options.storage_options).read("metadata"))
    except ObjectMissing:
        return None
    if not query_id:
        return None
    text = "\n".join((query_id, canonical(options.path), options.topic or ""))
    key = hashlib.sha256(text.encode()).hexdigest()[:32]
    store = checkpoint_store(f"{address}/{FOLDER}", options.storage_options)
    return store, key, _read(store, key)


@rereads
def _read(store: Store, key: str) -> SinkRecord | None:
    try:
        return decode(store.read(key), f"{store.url}/{key}")
    except ObjectMissing:
        return None
