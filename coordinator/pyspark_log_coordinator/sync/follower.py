"""Following: one node keeps up with the topics of which it has replicas. What `pyspark-log node run` does all the time.

A round looks at every topic's journal, copies what the node lacks, tells the journal, and writes the node's
checkpoints. Now and then it removes from the node what no entry names any more: files that were released after the node
had copied them, and what a copier that was killed left half-written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.cluster.nodes import node_of
from pyspark_log_coordinator.log.topics import topics_on
from pyspark_log_coordinator.maintenance import checkpoint_files, housekeeping, topic_description
from pyspark_log_coordinator.sync import catch_up, replica_file
from pyspark_log_storage import layout
from pyspark_log_storage.node import require_marker

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.partition import NodeId


class FollowerRound(msgspec.Struct, frozen=True):
    """What one round did: how many objects were copied, of how many bytes, and what could not be."""

    objects: int
    bytes: int
    failures: tuple[str, ...]


class Follower:
    """Brings one node up to date, again and again."""

    def __init__(self, log: Log, node_id: NodeId) -> None:
        """Take an opened log. Raises `InvalidInput` where there is no such node."""
        node_of(log.cluster.state.nodes, node_id)
        self._log = log
        self._node_id = node_id
        self._written: dict[str, dict[str, bytes]] = {}
        """The checkpoints that were written last, by the topic's id."""

    def behind(self) -> int:
        """Return about how many bytes the node has to copy now."""
        handles = topics_on(self._log, self._node_id)
        return sum(piece.bytes for handle in handles for piece in replica_file.missing(handle, self._node_id))

    def round(self, moved: Callable[[int], object] = bool) -> FollowerRound:
        """Copy what the node lacks of each topic, until it lacks nothing of that.

        `moved` is told how many bytes have passed since it was told last, and may wait. Raises `NodeMissing` where the
        node's store is not the one that the cluster knows, `StoreError` where it cannot be written.
        """
        objects = size = 0
        failures: list[str] = []
        for handle in topics_on(self._log, self._node_id):
            copied = catch_up.catch_up(handle, self._node_id, moved=moved)
            self._write_checkpoints(handle)
            objects += copied.objects
            size += copied.bytes
            failures += [f"topic {handle.name!r}: {each.message}" for each in copied.failures]
        return FollowerRound(objects, size, tuple(failures))

    def _write_checkpoints(self, handle: TopicHandle) -> None:
        wanted = checkpoint_files.contents(handle.journal.state, self._node_id)
        if wanted:
            wanted[topic_description.NAME] = topic_description.encode(topic_description.of(handle))
        if self._written.get(handle.topic_id) != wanted:
            folder = layout.topic_folder(handle.name, handle.topic_id)
            checkpoint_files.write(self._log.node_store(self._node_id), folder, wanted)
            self._written[handle.topic_id] = wanted


def delete_unnamed_files(log: Log, node_id: NodeId) -> int:
    """Remove from a node what nothing names and nothing ever will; return how many files went."""
    store, member = log.node_store(node_id), node_of(log.cluster.state.nodes, node_id)
    require_marker(store, node_id, member.incarnation)
    doomed = [key for handle in topics_on(log, node_id) for key in housekeeping.orphans(store, handle)]
    for key in doomed:
        store.delete(key)
    return len(doomed) + len(store.sweep())
