"""Settling: commits copy to the replicas that are behind, for a bounded time, because there may be no follower.

    before a refused commit is tried again    `settle` copies what replicas lack, and `with_copies` the batch itself
    after a commit                            `settle_after`: members of the ISR that this batch left behind get its
                                              rows at once, unless a follower copies; others get a little, in turns

So a member of the ISR that lags leaves it with a batch of acks=all, and is back in a moment. With acks=1 the rows are
committed when the followers have them, and the last batch must become visible even if no follower runs. A second writer
that copies looks like a follower, so with several writers it may wait for the next batch.

A follower copies within half a second. So a reachable node that has missed rows for some seconds has no follower, and a
writer copies to it after its first batch, which may be its last (`pyspark-log produce` under cron). The age of the rows
comes from the writers' clocks; if these differ, a node waits longer or two writers copy to it, and nothing else depends
on them.

With a single node nothing is read and nothing is copied.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.model import producers
from pyspark_log_coordinator.replication import replicas
from pyspark_log_coordinator.sync import catch_up, faults, replica_file
from pyspark_log_coordinator.sync.replica_file import ReplicaFile
from pyspark_log_storage.errors import (
    CorruptObject,
    LogError,
    NotEnoughReplicasAfterAppend,
    StoreError,
    is_node_failure,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.model.batch import SequencedFile
    from pyspark_log_coordinator.model.partition import NodeId, Partition
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_coordinator.topic.sequencing import CommitBatch

REFUSED_SECONDS = 10.0
"""How long a refused commit copies before it is tried again."""
BEHIND_SECONDS = 1.0
"""How long a commit copies to the members of the ISR that it left behind."""
TURN_EVERY_SECONDS = 2.0
"""How often a writer copies to a node out of sync; also how long it leaves newly missed rows to a follower."""
TURN_SECONDS = 0.2
TURN_BYTES_MAX = 64 * 1024 * 1024
"""A node that lacks a larger object is left to `pyspark-log node run` and `maintain`: it is copied as a whole."""

_turns: weakref.WeakKeyDictionary[TopicHandle, dict[NodeId, float]] = weakref.WeakKeyDictionary()
"""When a node had its last turn, or was found out of sync if it had none."""
_reached: weakref.WeakKeyDictionary[TopicHandle, dict[NodeId, int]] = weakref.WeakKeyDictionary()
"""What followers had at the end of this process's last commit, if that was one with acks=1."""


_NOT_IN_THE_LOG = -1
"""In the place of the number that a file gets when its batch is sequenced."""


def settle(handle: TopicHandle, deadline: float, nodes: Collection[NodeId] | None = None) -> None:
    """Copy to the replicas that are behind, or to those of `nodes`, what they lack; begin no file after the deadline.

    The deadline is a time of the monotonic clock. A node that fails is left behind; the error is logged.
    """
    for node in _reachable_behind(handle):
        if nodes is None or node in nodes:
            try:
                catch_up.catch_up(handle, node, deadline=deadline)
            except LogError as error:
                _note_behind(handle, node, error)
            else:
                _note_copied(handle, node)


def settle_after(handle: TopicHandle, before: Topic, command: CommitBatch, failed: Collection[NodeId]) -> None:
    """Copy to the replicas that a batch left behind, and to others if it is their turn.

    `before` is the topic without the batch, `failed` are nodes that a task could not write to.
    """
    clock, acks, known = handle.log.environment.monotonic, command.acks, _reached.pop(handle, None)
    behind = _missed(before, handle.journal.state, command) - set(failed)
    if acks != "all":
        now = _follower_ends(handle.journal.state)
        behind = {node for node in behind if known is None or now.get(node, 0) <= known.get(node, 0)}
    if behind:
        settle(handle, clock() + BEHIND_SECONDS, behind)
    if turns := _taking_turns(handle):
        settle(handle, clock() + TURN_SECONDS, turns)
    if acks != "all":  # with acks=all they get batches by their own entries
        _reached[handle] = _follower_ends(handle.journal.state)


def with_real_holders(handle: TopicHandle, command: CommitBatch) -> CommitBatch:
    """Return the batch without holders whose disk has lost rows or was wiped: they take new rows but lack others.

    Such a node leaves the ISR with the batch. Raises `StoreRefused` if this process may not use a node.
    """
    state = handle.journal.state
    holders = {holder.node for file in command.files for holder in file.holders}
    real = {each for each in sorted(holders) if each in state.incarnations and replica_file.has_newest(handle, each)}

    def kept(file: SequencedFile) -> SequencedFile:
        found = replicas.of_current_incarnations(state, (each for each in file.holders if each.node in real))
        return msgspec.structs.replace(file, holders=found)

    return msgspec.structs.replace(command, files=tuple(map(kept, command.files)))


def with_copies(handle: TopicHandle, command: CommitBatch) -> CommitBatch:
    """Copy a refused batch to the nodes that must hold it, and return it with these holders.

    Raises `StoreError` if this process may not use a node that may be well.
    """
    state = handle.journal.state
    usable = state.incarnations.keys() - handle.log.broken_nodes - set(state.fenced)
    found = with_real_holders(handle, command)
    numbers = {chunk.partition for file in found.files for chunk in file.chunks}.intersection(
        range(len(state.partitions))
    )
    wanted = {number: set(_wanted(state, number, found)) & usable for number in numbers}
    files = tuple(_with_copies(handle, file, wanted) for file in found.files)
    return msgspec.structs.replace(found, files=files)


def check_committed(handle: TopicHandle, command: CommitBatch) -> None:
    """Raise `NotEnoughReplicasAfterAppend` if a replayed batch with acks=all is in the log, but not committed.

    The own entry of a batch with acks=all has committed it. So only the rows of a replay, of a run that perhaps used
    acks=1, may be above the high watermark.
    """
    state = handle.journal.state
    if command.acks != "all" or command.claim is None:
        return
    names = producers.names_of(state.producers, command.claim)
    for number, partition in enumerate(state.partitions):
        for chunk in partition.chunks_between(partition.high_watermark, partition.log_end):
            file = state.file(chunk.file)
            if file.producer in names and file.batch_id == command.claim.batch_id:
                raise NotEnoughReplicasAfterAppend(
                    f"topic {state.name!r}, partition {number}: the batch is in the log, but its rows from offset "
                    f"{max(chunk.base_offset, partition.high_watermark)} on are not on enough in-sync replicas yet; "
                    "bring nodes back, then try again"
                )


def _note_behind(handle: TopicHandle, node: NodeId, error: LogError) -> None:
    """Log that nothing can be copied to a node of a topic; once, until something is copied to it."""
    message = "node %(node)r is behind in topic %(topic)r: %(error)s"
    handle.log.failures.note((handle.topic_id, node), error, message, node=node, topic=handle.name)


def _note_copied(handle: TopicHandle, node: NodeId) -> None:
    message = "node %(node)r gets the rows of topic %(topic)r again"
    handle.log.failures.end((handle.topic_id, node), message, node=node, topic=handle.name)


def _reachable_behind(handle: TopicHandle) -> list[NodeId]:
    """Return the replicas that lack something, were reachable when nodes were last probed, and are not fenced."""
    state = handle.journal.state
    behind = {node for each in state.partitions for node in _behind(each)}
    return sorted(behind - set(handle.log.missing_nodes) - set(state.fenced))


def _missed(before: Topic, after: Topic, command: CommitBatch) -> set[NodeId]:
    """Return the members of the ISRs before a batch that lack rows of its partitions now."""
    numbers = {chunk.partition for file in command.files for chunk in file.chunks}
    pairs = [(before.partitions[each], after.partitions[each]) for each in numbers if each < len(before.partitions)]
    return {
        node
        for old, new in pairs
        for node in old.isr
        if node in new.replicas and (node not in new.isr or new.log_end_offsets[node] < new.log_end)
    }


def _follower_ends(state: Topic) -> dict[NodeId, int]:
    """Return the sum of each node's LEOs in partitions that others lead: where it leads, each batch moves them."""
    ends = dict.fromkeys(state.incarnations, 0)
    for partition in state.partitions:
        for node, end in partition.log_end_offsets.items():
            if node != partition.leader:
                ends[node] = ends.get(node, 0) + end
    return ends


def _taking_turns(handle: TopicHandle) -> list[NodeId]:
    """Return the nodes out of sync whose turn it is."""
    behind = _reachable_behind(handle)
    if not behind:
        _turns.pop(handle, None)
        return []
    now = handle.log.environment.monotonic()
    turns = _turns[handle] = {node: at for node, at in _turns.get(handle, {}).items() if node in behind}
    chosen = []
    for node in behind:
        if node not in turns and _may_have_follower(handle, node):
            turns[node] = now
        if node in turns and now - turns[node] < TURN_EVERY_SECONDS:
            continue
        turns[node] = now
        if all(piece.bytes <= TURN_BYTES_MAX for piece in replica_file.missing(handle.journal.state, node)):
            chosen.append(node)
    return chosen


def _may_have_follower(handle: TopicHandle, node: NodeId) -> bool:
    """Return whether somebody may be copying to a node that is behind: it has missed rows only for a moment.

    Segments do not say when they were made, so a node that lacks one counts as having no follower; so does a node that
    lacks nothing and is not in sync. A node that a partition is being reassigned to is left to the reassignment.
    """
    state = handle.journal.state
    if any(node in each.adding for each in state.partitions):
        return True
    missing = replica_file.missing(state, node)
    if not missing or missing[0].segment is not None:
        return False
    oldest = state.file(missing[0].number)
    return handle.now_ms() - oldest.sequenced_ms < TURN_EVERY_SECONDS * 1000


def _wanted(state: Topic, number: int, command: CommitBatch) -> tuple[NodeId, ...]:
    """Return the nodes that must hold the rows of a partition."""
    partition = state.partitions[number]
    if command.acks != "all":
        return () if partition.leader is None else (partition.leader,)
    return replicas.voters(partition, state.config)


def _with_copies(handle: TopicHandle, file: SequencedFile, wanted: dict[int, set[NodeId]]) -> SequencedFile:
    """Return a file with the nodes that are wanted for its partitions and got a copy."""
    key = handle.append_file(file.name)
    nodes = {node for chunk in file.chunks for node in wanted.get(chunk.partition, ())}
    of_batch = ReplicaFile(key, _NOT_IN_THE_LOG, file.holders, sum(each.length for each in file.chunks), file.chunks)
    copied = []
    for node in sorted(nodes - {holder.node for holder in file.holders}):
        try:
            holder = faults.give_copy(handle, node, of_batch)
        except (CorruptObject, StoreError) as error:
            if not is_node_failure(error):
                raise
            _note_behind(handle, node, error)
        else:
            copied.append(holder)
            _note_copied(handle, node)
    return msgspec.structs.replace(file, holders=(*file.holders, *copied))


def _behind(partition: Partition) -> list[NodeId]:
    end = partition.log_end
    if len(partition.isr) == len(partition.replicas) and all(
        end == each for each in partition.log_end_offsets.values()
    ):
        return []  # as nearly always
    return [node for node in partition.replicas if node not in partition.isr or partition.log_end_offsets[node] < end]
