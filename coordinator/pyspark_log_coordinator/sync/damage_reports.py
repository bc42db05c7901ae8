"""Bad copies: what a node is said to hold and does not have, or not as it was written, and that the journal is told so.

lost       the store answers with the right marker, and files are not there: a disk was restored from an old backup
damaged    a file is there, and its bytes are not those that the journal names

Nothing has to be waited for then, as it has where a node does not answer: the store says so by itself. Each is looked
at twice: a disk may be read wrongly once. Of a damaged copy it is told only by who has read another that is whole; who
finds nothing whole anywhere may have bad memory himself. What a report may change is decided in `damage`: from its
entry on the copy is not counted, and a follower, or whoever copies, makes it again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark_log_coordinator.replication import file_holders, replicas
from pyspark_log_coordinator.replication.damage import ReportDamage
from pyspark_log_coordinator.replication.damaged import Damaged
from pyspark_log_coordinator.replication.set_back import SetBack
from pyspark_log_coordinator.sync.replica_file import check_segment
from pyspark_log_storage import append_file, layout, recovery
from pyspark_log_storage.errors import CorruptObject, LogError, ObjectMissing
from pyspark_log_storage.node import require_marker

if TYPE_CHECKING:
    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_coordinator.sync.replica_file import ReplicaFile
    from pyspark_log_storage.store import Store

_logger = logging.getLogger("pyspark_log")


def report_lost(handle: TopicHandle, node: NodeId) -> None:
    """Tell the journal which files a node has lost, by the state that is known.

    Nothing where the store does not answer as that node. Raises what `Journal.submit` raises.
    """
    lost = _lost(handle, node)
    if lost is not None:
        begins = _begins(handle.journal.state)
        files = tuple((number, begins[number]) for number in lost.files)
        segments = tuple((number, name, 0) for number, name in lost.segments)
        _submit(handle, ReportDamage(node, lost.incarnation, files, segments))


def set_back(handle: TopicHandle) -> tuple[SetBack, ...]:
    """Return which nodes of a topic answer and have lost files, by the last roll call and the state that is known."""
    log = handle.log
    there = [node for node in handle.journal.state.incarnations if node in log.cluster.state.nodes]
    found = (_lost(handle, node) for node in there if node not in log.missing_nodes)
    return tuple(each for each in found if each is not None)


def _lost(handle: TopicHandle, node: NodeId) -> SetBack | None:
    """Return what a node has lost, by the state that is known; None for nothing, or if nothing is known of its disk."""
    state = handle.journal.state
    try:
        there = _listed(handle, node)
    except LogError:
        return None
    held = file_holders.held(state, node)
    files = tuple(number for number, file in held.files if handle.append_file(file.name) not in there)
    segments = tuple(
        (number, each.name)
        for number, each in (*held.segments, *held.staged)
        if f"{handle.segment(number, each.name)}.log" not in there
    )
    return SetBack(node, state.incarnations[node], files, segments) if files or segments else None


def report(handle: TopicHandle, node: NodeId, piece: ReplicaFile) -> bool:
    """Look at a node's copy of a file once more; tell the journal where it is bad; return whether it counts no more.

    For who has read another copy that is whole. Raises what `Journal.submit` raises.
    """
    incarnation = handle.journal.state.incarnations.get(node, "")
    try:
        store = handle.log.node_store(node)
        position = first_bad_byte(store, piece)
        # Of a disk that was unmounted meanwhile nothing is known.
        require_marker(store, node, incarnation)
    except LogError:
        return False
    if position is None:
        return False
    if piece.segment is None:
        return _submit(handle, ReportDamage(node, incarnation, ((piece.number, position),)))
    return _submit(handle, ReportDamage(node, incarnation, (), ((piece.number, piece.segment.name, position),)))


def first_bad_byte(store: Store, piece: ReplicaFile) -> int | None:
    """Return where a store's copy of a file begins not to be what the journal says, None where it is whole.

    That is the begin of a chunk, or of what is missing. Raises `StoreError`, `NewerFormat`.
    """
    if piece.segment is None:
        for place in sorted(piece.places, key=lambda each: each.position):
            try:
                append_file.read_bytes(store, piece.key, place, piece.key)
            except (CorruptObject, ObjectMissing):
                return place.position
        return None
    try:
        entries, why = recovery.good_chunks(store, piece.key)
    except ObjectMissing:
        return 0
    if why is None:
        try:
            check_segment(piece.segment, entries)
        except CorruptObject:
            pass
        else:
            return None
    end = entries[-1].position + entries[-1].length if entries else 0
    return min(end, piece.segment.log_bytes - 1)


def _submit(handle: TopicHandle, command: ReportDamage) -> bool:
    """Tell the journal, and the log; return whether anything is not counted any more."""
    events = handle.submit(command).events
    for event in events:
        if isinstance(event, Damaged):
            count = len(event.files) + len(event.segments)
            message = "topic %r: node %r holds %d files no more, which are damaged or gone; they are copied again"
            _logger.warning(message, handle.name, command.node, count)
    return any(isinstance(event, Damaged) for event in events)


def is_held(state: Topic, node: NodeId, piece: ReplicaFile) -> bool:
    """Return whether the journal says that a node holds a file, and still needs that."""
    found = file_holders.held(state, node)
    if piece.segment is None:
        return any(number == piece.number for number, _ in found.files)
    return any(
        number == piece.number and each.name == piece.segment.name and replicas.is_held(each.holders, node)
        for number, each in (*found.segments, *found.staged)
    )


def _listed(handle: TopicHandle, node: NodeId) -> set[str]:
    incarnation = handle.journal.state.incarnations[node]
    store = handle.log.node_store(node)
    require_marker(store, node, incarnation)
    there = set(store.list(layout.topic_folder(handle.name, handle.topic_id)))
    # Of a disk that was unmounted meanwhile nothing is known.
    require_marker(store, node, incarnation)
    return there


def _begins(state: Topic) -> dict[int, int]:
    """Return where in each append file the first chunk begins that the journal names (bytes)."""
    begins: dict[int, int] = {}
    for partition in state.partitions:
        for chunk in partition.chunks_between(partition.log_start, partition.log_end):
            begins[chunk.file] = min(chunk.position, begins.get(chunk.file, chunk.position))
    return begins
