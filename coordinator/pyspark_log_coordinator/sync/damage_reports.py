"""Reports lost and damaged copies of files to the topic's journal.

    lost       the store has the right marker, but not the file: the disk was restored from an old backup
    damaged    the file's bytes are not those that the journal names

Unlike a suspicion, a report is made at once, because the store itself shows the fault. Each copy is read twice, because
a disk may return wrong bytes once. A process reports a damaged copy only after it has read a whole one: if it finds no
whole copy, its own memory may be bad. `damage` decides what a report changes: from its entry on the copy does not
count, and the next catch-up of the node copies the file again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_coordinator.replication.damage import ReportDamage
from pyspark_log_coordinator.replication.damaged_copies import CopiesDamaged, SetBack
from pyspark_log_coordinator.sync import replica_file
from pyspark_log_coordinator.sync.replica_file import check_segment
from pyspark_log_storage import logs
from pyspark_log_storage.errors import CorruptObject, LogError, ObjectMissing
from pyspark_log_storage.files import append_file
from pyspark_log_storage.objects.node import require_marker
from pyspark_log_storage.segments import recovery

if TYPE_CHECKING:
    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_coordinator.sync.replica_file import ReplicaFile
    from pyspark_log_storage.stores.store import Store


def report_lost(handle: TopicHandle, node: NodeId) -> None:
    """Report the files that a node has lost, by the known state. Do nothing if the store does not answer as that node.

    Raises what `Journal.submit` raises.
    """
    lost = _lost(handle, node)
    if lost is not None:
        starts = _first_chunks(handle.journal.state)
        files = tuple((number, starts[number]) for number in lost.files)
        segments = tuple((number, name, 0) for number, name in lost.segments)
        _submit(handle, ReportDamage(node, lost.incarnation, files, segments, are_lost=True))


def set_back(handle: TopicHandle) -> tuple[SetBack, ...]:
    """Return the reachable nodes of a topic that have lost files, by the last probe and the known state."""
    log = handle.log
    members = [node for node in handle.journal.state.incarnations if node in log.cluster.state.nodes]
    found = (_lost(handle, node) for node in members if node not in log.missing_nodes)
    return tuple(each for each in found if each is not None)


def _lost(handle: TopicHandle, node: NodeId) -> SetBack | None:
    """Return what a node has lost, by the known state; None if nothing, or if its store cannot be read."""
    incarnation = handle.journal.state.incarnations[node]
    try:
        store = handle.log.node_store(node)
        require_marker(store, node, incarnation)
        lost = replica_file.absent(handle, node)
        require_marker(store, node, incarnation)  # the disk may have been unmounted meanwhile
    except LogError:
        return None
    return SetBack(node, incarnation, *replica_file.ids(lost)) if lost else None


def report(handle: TopicHandle, node: NodeId, file: ReplicaFile) -> bool:
    """Read a node's copy of a file once more and report it if it is damaged; return whether it stopped counting.

    The caller has read a whole copy, or the file is a staged segment, which can be made again. Raises what
    `Journal.submit` raises.
    """
    incarnation = handle.journal.state.incarnations.get(node, "")
    try:
        store = handle.log.node_store(node)
        position = first_bad_byte(store, file)
        require_marker(store, node, incarnation)  # the disk may have been unmounted meanwhile
    except LogError:
        return False
    if position is None:
        return False
    if file.segment is None:
        return _submit(handle, ReportDamage(node, incarnation, ((file.number, position),)))
    return _submit(handle, ReportDamage(node, incarnation, (), ((file.number, file.segment.name, position),)))


def first_bad_byte(store: Store, file: ReplicaFile) -> int | None:
    """Return where in a store's copy of a file the first damaged or missing chunk begins, or None if it is whole.

    Raises `StoreError`, `NewerFormat`.
    """
    if file.segment is None:
        for place in sorted(file.places, key=lambda each: each.position):
            try:
                append_file.read_bytes(store, file.key, place, file.key)
            except (CorruptObject, ObjectMissing):
                return place.position
        return None
    try:
        entries, why = recovery.good_chunks(store, file.key)
    except ObjectMissing:
        return 0
    if why is None:
        try:
            check_segment(file.segment, entries, store.size(file.stored_key))
        except CorruptObject:
            pass
        else:
            return None
    end = entries[-1].position + entries[-1].length if entries else 0
    return min(end, file.segment.log_bytes - 1)


def _submit(handle: TopicHandle, command: ReportDamage) -> bool:
    """Submit and log a report; return whether any copy stopped counting."""
    damaged = [event for event in handle.submit(command).events if isinstance(event, CopiesDamaged)]
    for event in damaged:
        count = len(event.files) + len(event.segments)
        if count == 1:
            what = "is damaged or lost and no longer counts; it is copied again"
        else:
            what = "are damaged or lost and no longer count; they are copied again"
        files = "1 file" if count == 1 else f"{count} files"
        message = "topic %(topic)r: %(files)s on node %(node)r %(what)s"
        logs.warning(message, topic=handle.name, node=command.node, files=files, what=what)
    return bool(damaged)


def _first_chunks(state: Topic) -> dict[int, int]:
    """Return the position, in bytes, of the first chunk that the journal names in each append file."""
    starts: dict[int, int] = {}
    for partition in state.partitions:
        for chunk in partition.chunks_between(partition.log_start, partition.log_end):
            starts[chunk.file] = min(chunk.position, starts.get(chunk.file, chunk.position))
    return starts
