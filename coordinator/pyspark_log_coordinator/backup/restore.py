"""Restoring a backup: a log on one new root, with the offsets, ids and committed offsets of the backup.

    1  test the store and give it a marker
    2  copy the files, and check each chunk
    3  begin the journals of the topics, then those of the groups
    4  begin the cluster's journal

Until the last step there is no log. A restore that was interrupted is continued by the next one, also after its last
entry, as long as nothing was written to the log.

The topics' journals begin as after a rebuild (`topic.restore`): with a new leader epoch at the log end, and a number,
both above any that the former journal can have reached. So a reader or writer that knows more rows than the backup
notices, unless it knows a log that was restored from a backup of the same original. The numbers of a group that only
grow are raised, too: a query may have followed rewinds since the backup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from pyspark_log_coordinator.backup.backup import Copied, no_bar
from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.cluster.machine import ClusterRestored, RestoreCluster, TopicRecord
from pyspark_log_coordinator.cluster.nodes import AT_THE_ROOT, Node, free_id
from pyspark_log_coordinator.group import machine as group
from pyspark_log_coordinator.group.lifecycle import GroupRestored, RestoreGroup
from pyspark_log_coordinator.journal import trimming
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.journal.place import OneStore
from pyspark_log_coordinator.log.bootstrap import create_marker
from pyspark_log_coordinator.model.partition import Holder
from pyspark_log_coordinator.rebuild.topic_plan import EPOCH_MARGIN, NUMBER_MARGIN, next_number
from pyspark_log_coordinator.sync import replica_file
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_coordinator.topic.restore import RestoredPartition, RestoreTopic, TopicRestored
from pyspark_log_storage import layout
from pyspark_log_storage.errors import InvalidOption, OutcomeUnknown
from pyspark_log_storage.objects import node
from pyspark_log_storage.objects.node import Marker
from pyspark_log_storage.stores.self_test import self_test

if TYPE_CHECKING:
    from pyspark_log_coordinator.backup.backup import Bar
    from pyspark_log_coordinator.backup.manifest import Backup, SavedGroup, SavedTopic
    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.journal.state_machine import Machine
    from pyspark_log_coordinator.model.partition import Partition
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_storage.stores.store import Store

OPTION = "path"


def restore(
    backup: Backup, source: Store, target: Store, environment: Environment, *, as_new: bool, bar: Bar = no_bar
) -> tuple[str, Copied]:
    """Restore a backup in `source` to the empty store `target`. Return the cluster's id, and what was copied.

    `as_new` makes a cluster of its own; otherwise the log takes the place of the lost one and keeps its id. Raises
    `InvalidOption` if the target has another log; `CorruptObject`, `StoreError`.
    """
    marker = _mark(backup, target, environment, as_new=as_new)
    copied = _copy_files(backup, source, target, bar)
    begun = _Journals(backup, target, environment, marker)
    for each in backup.topics:
        begun.begin_topic(each)
    for one in backup.groups:
        begun.begin_group(one)
    begun.begin_cluster()
    return marker.cluster, copied


def _first_entry(backup: Backup) -> int:
    """Return the number of the first entry of the restored cluster's journal."""
    return next_number(backup.entry)


def _mark(backup: Backup, target: Store, environment: Environment, *, as_new: bool) -> Marker:
    """Return the target's marker; create it if there is none. Raises `InvalidOption` if the target is in use."""
    journal = Journal(OneStore(target), layout.CLUSTER_JOURNAL, cluster.MACHINE, environment)
    if journal.refresh().cluster_id and not (
        journal.number == _first_entry(backup) and _is_as_restored(backup, target, environment)
    ):
        raise _refused(target, "there is a log already")
    marker = node.read_marker(target)
    if marker is None:
        if any(not key.startswith(layout.SELF_TEST) for key in target.list("")):
            raise _refused(target, "it is not empty")
        self_test(target, environment.nonce(), environment.store_threads)
        cluster_id = environment.nonce() if as_new else backup.cluster
        node_id = "0" if as_new else free_id({}, backup.nodes)
        marker = create_marker(target, Marker(cluster_id, node_id, environment.nonce(), root=True))
    if not marker.root or (marker.cluster == backup.cluster) == as_new:
        raise _refused(target, f"it is node {marker.node!r} of cluster {marker.cluster}")
    return marker


def _is_as_restored(backup: Backup, target: Store, environment: Environment) -> bool:
    """Return whether the journals of the topics and groups end where a restore of the backup begins them."""

    def ends_at(folder: str, machine: Machine[Any, Any], entry: int) -> bool:
        journal = Journal(OneStore(target), folder, machine, environment)
        journal.refresh()
        return journal.number == next_number(entry)

    return all(
        ends_at(layout.topic_journal(each.state.name, each.state.topic_id), topic.MACHINE, each.entry)
        for each in backup.topics
    ) and all(
        ends_at(layout.group_journal(each.record.journal_id), group.MACHINE, each.entry) for each in backup.groups
    )


def _copy_files(backup: Backup, source: Store, target: Store, bar: Bar) -> Copied:
    copied = Copied()
    for each in backup.topics:
        state = each.state
        stored = set(target.list(layout.topic_folder(state.name, state.topic_id)))
        lacking = [file for file in replica_file.files_of(state) if file.stored_key not in stored]
        with bar(f"restore {state.name}", sum(file.bytes for file in lacking)) as moved:
            for file in lacking:
                replica_file.copy(source, target, file, moved, replace=False)
                copied.files += 1
                copied.bytes += target.size(file.stored_key)
    return copied


class _Journals:
    """Begins the journals of a restored log."""

    def __init__(self, backup: Backup, target: Store, environment: Environment, marker: Marker) -> None:
        self._backup = backup
        self._target = target
        self._environment = environment
        self._marker = marker

    def begin_topic(self, saved: SavedTopic) -> None:
        state, entry = saved.state, next_number(saved.entry)
        restored = _restored(state, entry, Holder(self._marker.node, self._marker.incarnation))
        folder = layout.topic_journal(state.name, state.topic_id)
        self._begin(folder, topic.MACHINE, entry, RestoreTopic(restored), f"topic {state.name!r}")

    def begin_group(self, saved: SavedGroup) -> None:
        state, entry = saved.state, next_number(saved.entry)
        restored = GroupRestored(
            state.group_id,
            state.config,
            state.offsets,
            state.generation + NUMBER_MARGIN,
            state.barriers + NUMBER_MARGIN,
            state.actions + NUMBER_MARGIN,
            state.rewinds + NUMBER_MARGIN,
        )
        folder = layout.group_journal(saved.record.journal_id)
        self._begin(folder, group.MACHINE, entry, RestoreGroup(restored), f"group {state.group_id!r}")

    def begin_cluster(self) -> None:
        root = Node(self._marker.node, AT_THE_ROOT, "", self._marker.incarnation)
        restored = ClusterRestored(
            cluster_id=self._marker.cluster,
            nodes=(root,),
            former_nodes=() if self._marker.cluster != self._backup.cluster else self._backup.nodes,
            topics=tuple(_record(each, root.node_id) for each in self._backup.topics),
        )
        groups = tuple(each.record for each in self._backup.groups)
        entry, command = _first_entry(self._backup), RestoreCluster(restored, groups=groups)
        self._begin(layout.CLUSTER_JOURNAL, cluster.MACHINE, entry, command, "the journal")

    def _begin(self, folder: str, machine: Machine[Any, Any], entry: int, command: Any, what: str) -> None:
        """Begin a journal, unless an interrupted restore of the same backup has."""
        journal = Journal(OneStore(self._target), folder, machine, self._environment)
        try:
            # The restore of a newer backup may have been interrupted between an entry and its snapshot.
            if journal.newest_snapshot() <= entry and journal.entries.newest_after(entry) == 0:
                journal.begin_at(entry, command)
                trimming.delete_before(journal, entry)
                return
        except OutcomeUnknown:
            pass
        raise _refused(self._target, f"it has {what} of another backup")


def _restored(state: Topic, entry: int, holder: Holder) -> TopicRestored:
    """Return a topic with one replica of each partition, which holds all rows."""
    used = sorted({chunk.file for each in state.partitions for chunk in each.chunks})
    numbers = {file: number for number, file in enumerate(used)}
    return TopicRestored(
        entry=entry,
        name=state.name,
        topic_id=state.topic_id,
        config=state.config,
        schemas=state.schemas,
        incarnations={holder.node: holder.incarnation},
        partitions=tuple(_partition(each, numbers, holder) for each in state.partitions),
        files=tuple(msgspec.structs.replace(state.file(each), holders=(holder,)) for each in used),
        producers=state.producers,
    )


def _partition(partition: Partition, numbers: dict[int, int], holder: Holder) -> RestoredPartition:
    return RestoredPartition(
        replicas=(holder.node,),
        epoch_starts=(*partition.epoch_starts, (partition.leader_epoch + EPOCH_MARGIN, partition.log_end)),
        log_start=partition.log_start,
        log_end=partition.log_end,
        segments=tuple(msgspec.structs.replace(each, holders=(holder,)) for each in partition.segments),
        chunks=tuple(msgspec.structs.replace(each, file=numbers[each.file]) for each in partition.chunks),
    )


def _record(saved: SavedTopic, node_id: str) -> TopicRecord:
    state = saved.state
    assignments = ((node_id,),) * len(state.partitions)
    return TopicRecord(state.name, state.topic_id, saved.created_ms, state.config, assignments, state.schemas)


def _refused(target: Store, why: str) -> InvalidOption:
    return InvalidOption(OPTION, f"a backup cannot be restored to {target.url}: {why}; give an empty folder or prefix")
