"""Descriptions of a topic on its nodes: what is left of it if all journals are lost (`topic_description`).

Each node gets a newer one before a file that its description names is deleted there, and also if nothing is deleted: at
every 64th entry and after a minute of writing. No decision depends on them: of two processes the one with the older
state may write last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_coordinator.log import topic_description
from pyspark_log_coordinator.log.reachable_stores import ReachableStores, reachable_nodes
from pyspark_log_storage.errors import ObjectMissing, StoreUnavailable, StoreUnwritable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_storage.stores.store import Store

DESCRIBE_SECONDS = 60.0
"""A writer describes its topic so often."""


def write(store: Store, handle: TopicHandle, description: bytes) -> None:
    """Write the description of a topic, if it has changed. Raises `StoreError`."""
    key = topic_description.key(handle.name, handle.topic_id)
    try:
        is_same = store.read(key) == description
    except (ObjectMissing, StoreUnavailable):  # it may be on a bad sector
        is_same = False
    if not is_same:
        store.put(key, description)


def write_on_nodes(handle: TopicHandle, nodes: ReachableStores | None = None) -> None:
    """Describe a topic on the nodes of its replicas, by the known state. `nodes` are those found earlier, if any."""
    described = {node for partition in handle.journal.state.partitions for node in partition.replicas}
    description = topic_description.encode(handle.description())
    nodes = nodes or reachable_nodes(handle.log)
    nodes.each(lambda name, store: write(store, handle, description) if name in described else None)
    handle.described_at = handle.log.environment.monotonic()


def write_before_deletion(handle: TopicHandle, nodes: ReachableStores, keys: Mapping[NodeId, Collection[str]]) -> bool:
    """Describe the topic on the nodes from which these files will be deleted. One that fails is left out.

    Return whether some disk is full.
    """
    description = topic_description.encode(handle.description())

    def is_full(name: str, store: Store) -> bool:
        if keys[name]:
            try:
                write(store, handle, description)
            except StoreUnwritable:
                return True
        return False

    return any(nodes.each(is_full).values())
