"""A follower keeps one node up to date with the topics of which it has replicas, as `pyspark-log node run` does.

A round refreshes every topic's journal, copies what the node lacks, submits that, and describes the topic on the node.
Now and then it cleans up the node: it deletes what no entry names, that is files that were scheduled for deletion after
the node had copied them, and temporary files of killed processes; and it publishes the node's Delta tables.
"""

from __future__ import annotations

import contextlib
import weakref
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.log import topic_description
from pyspark_log_coordinator.log.reachable_stores import ReachableStores
from pyspark_log_coordinator.maintenance import delta_table, descriptions, topic_cleanup
from pyspark_log_coordinator.sync import catch_up, faults, replica_file
from pyspark_log_storage.errors import (
    CorruptObject,
    NewerFormat,
    ObjectMissing,
    OutcomeUnknown,
    StoreUnavailable,
    UnknownTopic,
)
from pyspark_log_storage.objects.node import require_marker
from pyspark_log_storage.stores import reserve
from pyspark_log_storage.stores.store import is_object_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_storage.errors import LogError


class FollowerRound(msgspec.Struct, frozen=True):
    """The outcome of one round: what was copied, and why files could not be."""

    objects: int
    bytes: int
    failures: tuple[str, ...]


class Follower:
    """Catches up one node, in rounds."""

    def __init__(self, log: Log, node_id: NodeId) -> None:
        """Take an opened log. Raises what `Log.node` raises."""
        log.node(node_id)
        self._log = log
        self._node_id = node_id
        self._written: weakref.WeakKeyDictionary[TopicHandle, bytes] = weakref.WeakKeyDictionary()
        """The description of each topic written last."""
        self._settled: weakref.WeakKeyDictionary[TopicHandle, int] = weakref.WeakKeyDictionary()
        """The newest entry of each topic after which the node lacked nothing."""

    def behind(self) -> int:
        """Return about how many bytes the node has to copy now."""
        handles = self._log.topics_on(self._node_id, failed=lambda *_: None)
        return sum(
            file.bytes for handle in handles for file in replica_file.missing(handle.journal.state, self._node_id)
        )

    def round(self, moved: Callable[[int], object] = lambda _: None) -> FollowerRound:
        """Catch up the node in each topic. One whose journal is damaged or does not answer is a failure.

        The others continue. `moved` gets the number of bytes copied since its last call, and may wait. Raises
        `NodeMissing` if the node's store is not the one that the cluster knows, `StoreError` if it cannot be written.
        """
        objects = size = 0
        failures: list[str] = []
        # A disk is asked again although nothing has changed: it may have been unmounted.
        is_remote = is_object_store(self._log.node_store(self._node_id))

        def failed(topic: str, error: LogError) -> None:
            failures.append(f"topic {topic!r}: {error.message}")

        for handle in self._log.topics_on(self._node_id, polls=True, failed=failed):
            number = handle.journal.number
            if is_remote and self._settled.get(handle) == number:
                continue
            try:
                copied = catch_up.catch_up(handle, self._node_id, moved=moved)
                self._describe(handle)
            except UnknownTopic:
                continue  # deleted meanwhile
            except (CorruptObject, NewerFormat, OutcomeUnknown) as error:
                failed(handle.name, error)
                continue
            objects += copied.objects
            size += copied.bytes
            failures += [f"topic {handle.name!r}: {each.message}" for each in copied.failures]
            if not copied.failures and handle.journal.number == number:
                self._settled[handle] = number
        return FollowerRound(objects, size, tuple(failures))

    def _describe(self, handle: TopicHandle) -> None:
        description = topic_description.encode(handle.description())
        if self._written.get(handle) != description:
            descriptions.write(self._log.node_store(self._node_id), handle, description)
            self._written[handle] = description


def clean_up_node(log: Log, node_id: NodeId) -> int:
    """Delete the files on a node that no entry names, nor ever will, and publish its Delta tables.

    Copy again what the node has lost: its disk may have been set back, and the scrubber takes long to come to it.
    Returns the number of deleted files. Raises `NodeMissing`, `StoreError`.
    """
    store, member = log.node_store(node_id), log.node(node_id)
    require_marker(store, node_id, member.incarnation)
    count = 0
    for handle in log.topics_on(node_id, failed=lambda *_: None):  # a follower reports these
        node = ReachableStores({node_id: store}, is_single=True)
        with contextlib.suppress(UnknownTopic):  # deleted meanwhile
            for file in replica_file.absent(handle, node_id):
                with contextlib.suppress(CorruptObject, NewerFormat, ObjectMissing, StoreUnavailable):
                    faults.cure(handle, node_id, file)  # what cannot be cured, the scrubber reports
            count += topic_cleanup.delete_orphans(handle, node)
            delta_table.publish_on_nodes(handle, node)
    count += len(store.delete_unfinished())
    reserve.fill(store)
    return count
