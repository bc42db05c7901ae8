"""Restoring a backup: a log on one new root, with the offsets, ids and committed offsets of the backup.

    1  test the store and give it a marker
    2  copy the files, and check each chunk
    3  begin the journals (`begin_anew`)

Until the last entry there is no log, and a restore that was interrupted is continued by the next one.

Each topic goes on at its log end in a new leader epoch, so a reader or writer that knows more rows than the backup
notices, unless it knows a log that was restored from a backup of the same original. The numbers of a group that only
grow are raised, too: a query may have followed rewinds since the backup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.backup.backup import Copied, no_bar
from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.cluster.cluster_state import Cluster
from pyspark_log_coordinator.cluster.nodes import AT_THE_ROOT, Node, free_id
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.journal.place import OneStore
from pyspark_log_coordinator.log.bootstrap import create_marker
from pyspark_log_coordinator.rebuild import begin_anew, known_files
from pyspark_log_coordinator.rebuild.begin_anew import KnownGroup, States
from pyspark_log_coordinator.rebuild.known_files import next_number
from pyspark_log_coordinator.sync import replica_file
from pyspark_log_storage import layout
from pyspark_log_storage.errors import InvalidOption, OutcomeUnknown
from pyspark_log_storage.objects import node
from pyspark_log_storage.objects.node import Marker
from pyspark_log_storage.stores.self_test import self_test

if TYPE_CHECKING:
    from pyspark_log_coordinator.backup.backup import Bar
    from pyspark_log_coordinator.backup.manifest import Backup
    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.log.topic_description import Description
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
    try:
        begin_anew.begin_anew(_states(backup, marker), OneStore(target, environment))
    except OutcomeUnknown as error:
        raise _refused(target, "it has a journal of another backup") from error
    return marker.cluster, copied


def _mark(backup: Backup, target: Store, environment: Environment, *, as_new: bool) -> Marker:
    """Return the target's marker; create it if there is none. Raises `InvalidOption` if the target is in use."""
    if Journal(OneStore(target, environment), layout.CLUSTER_JOURNAL, cluster.MACHINE).refresh().cluster_id:
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


def _copy_files(backup: Backup, source: Store, target: Store, bar: Bar) -> Copied:
    copied = Copied()
    for each in backup.topics:
        state = each.topic
        stored = set(target.list(layout.topic_folder(state.name, state.topic_id)))
        lacking = [file for file in replica_file.files_of(state) if file.stored_key not in stored]
        with bar(f"restore {state.name}", sum(file.bytes for file in lacking)) as moved:
            for file in lacking:
                replica_file.copy_from_first([source], target, file, moved)
                copied.files += 1
                copied.bytes += target.size(file.stored_key)
    return copied


def _states(backup: Backup, marker: Marker) -> States:
    """Return the states of a log whose only node, with this marker, has all files of the backup."""
    root = Node(marker.node, AT_THE_ROOT, "", marker.incarnation)
    former = () if marker.cluster != backup.cluster else backup.nodes
    return States(
        number=next_number(backup.entry),
        cluster=Cluster(cluster_id=marker.cluster, nodes={root.node_id: root}, former_nodes=former),
        topics=tuple(_topic(each, marker) for each in backup.topics),
        groups=tuple(
            KnownGroup(next_number(each.number), each.record, begin_anew.group_anew(each.state))
            for each in backup.groups
        ),
    )


def _topic(saved: Description, marker: Marker) -> Description:
    number = next_number(saved.number)
    copies = {file.key: (marker.node,) for file in replica_file.files_of(saved.topic)}
    state = known_files.anew(saved.topic, number, copies, {marker.node: marker.incarnation})
    return msgspec.structs.replace(saved, number=number, topic=state)


def _refused(target: Store, why: str) -> InvalidOption:
    return InvalidOption(OPTION, f"a backup cannot be restored to {target.url}: {why}; give an empty folder or prefix")
