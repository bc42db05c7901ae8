"""Makes the copy of a root a log of its own, in place: a restore of its own states, for which no file is copied.

    1  read the states of the copy's journals, and check that the root has every file that they name
    2  store them in the root, as a backup
    3  give the root a new marker: another cluster id, and another incarnation
    4  begin the journals anew, the cluster's last, as a restore does (`restore`)
    5  delete the backup

Until the last entry the log is still a copy, and nothing writes to it. A call that was interrupted after step 2 is
continued by the next one, from the backup. The new cluster has one node, so that nothing is done on the original's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_coordinator.backup import backup, manifest
from pyspark_log_coordinator.backup.backup import no_bar
from pyspark_log_coordinator.backup.manifest import Backup, SavedTopic
from pyspark_log_coordinator.backup.restore import begin_journals, first_entry
from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.journal import trimming
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.journal.place import OneStore
from pyspark_log_coordinator.sync import replica_file
from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject, InvalidOption, NoCluster, ObjectMissing
from pyspark_log_storage.objects import node
from pyspark_log_storage.objects.node import Marker

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark_log_coordinator.backup.backup import Bar
    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_storage.stores.store import Store

OPTION = "as-new"
_NUMBER = 0
"""The number of the backup. Those that `pyspark-log backup` makes begin with 1."""


def begun(root: Store) -> Backup | None:
    """Return the states from which an interrupted call is continued, or None if there was none."""
    return manifest.read(root, _NUMBER) if root.exists(layout.backup(_NUMBER)) else None


def states(stores: Sequence[Store], log: Log, bar: Bar = no_bar) -> Backup:
    """Return the states of a copy, all of whose rows are in its root. `log` is that of the stores, and not open yet.

    Writes nothing but damaged indexes of segments. Raises `InvalidOption` if this is no copy of a root, or if it lacks
    rows; `NoCluster`, `StoreError`.
    """
    if len(stores) > 1:
        raise _refused("--as-new works for the copy of one root alone, and several addresses were given")
    (root,) = stores
    log.open(create=False)
    if not log.journals.refusal:
        why = "the log has no node besides its root, or this is its address"
        raise _refused(f"{root.url} is not a copy according to its records: {why}")
    lacking: list[str] = []

    def save(handle: TopicHandle, created_ms: int) -> SavedTopic:
        state = handle.refresh()
        found = sorted(set(_lacking(root, state, bar)))
        lacking.extend(f"{handle.name}-{each}" for each in found)
        return SavedTopic(handle.journal.number, created_ms, state)

    read = backup.read(log, _NUMBER, save)
    if lacking:
        raise _refused(
            f"{root.url} does not have all rows of these partitions, undamaged: {', '.join(lacking)}", "the original"
        )
    return read


def make(root: Store, found: Backup, environment: Environment) -> str:
    """Make the copy in `root`, with these states, a cluster of its own. Return its id.

    Only one process may do it at a time. Raises `InvalidOption` if the copy was changed meanwhile; `StoreError`.
    """
    marker = node.read_marker(root)
    if marker is None:
        raise NoCluster(f"the marker of {root.url} vanished; is the disk mounted?")
    journal = Journal(OneStore(root), layout.CLUSTER_JOURNAL, cluster.MACHINE, environment)
    if begun(root) is None:
        journal.refresh()
        if journal.number != found.entry:
            raise InvalidOption(OPTION, f"the copy at {root.url} was changed meanwhile; nothing was done, try again")
        root.create(layout.backup(_NUMBER), manifest.encode(found))
    if journal.newest_snapshot() < first_entry(found):
        if marker.cluster == found.cluster:
            marker = Marker(environment.nonce(), marker.node, environment.nonce(), root=True)
            root.put(layout.MARKER, node.encode(marker))
        for each in found.topics:
            folder = layout.topic_journal(each.state.name, each.state.topic_id)
            for key in [*root.list(layout.inbox(folder)), *root.list(layout.answers(folder))]:
                root.delete(key)
        begin_journals(found, root, environment, marker)
    trimming.delete_before(journal, first_entry(found))  # an interrupted call may have left some
    root.delete(layout.backup(_NUMBER))
    return marker.cluster


def _lacking(root: Store, state: Topic, bar: Bar) -> Iterator[int]:
    """Yield the partitions of a topic of which the root lacks rows, or has damaged ones."""
    files = replica_file.files_of(state)
    with bar(f"check {state.name}", sum(each.bytes for each in files)) as moved:
        for file in files:
            try:
                replica_file.check(root, file, moved)
            except (CorruptObject, ObjectMissing):
                if file.segment is not None:
                    yield file.number
                else:
                    for number, one in enumerate(state.partitions):
                        if any(each.file == file.number for each in one.chunks):
                            yield number


def _refused(why: str, what: str = "this one") -> InvalidOption:
    return InvalidOption(
        OPTION,
        f"{why}. For a log of its own, back up {what} with `pyspark-log backup`, and restore that with `pyspark-log "
        "restore --as-new`; if the log was moved, use --moved",
    )
