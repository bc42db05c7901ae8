"""What a commit copies before and after its entry.

Before: an in-sync replica that lags catches up, and one that joined after the files were named gets the files. So a
node leaves the ISR only if its own write or copy failed, or its disk has lost rows. With acks=1 only the leader is
copied to.

After: a batch with acks=all is committed by its own entry. A replay, of a run that perhaps used acks=1, is acknowledged
only once the high watermark has passed its rows. With acks=1 the commit copies to followers for a bounded time, unless
another process does: the last batch must become visible even if no follower runs. A second writer that copies looks
like a follower, so with several writers it may wait for the next batch. A commit waits for its own rows only.

With a single node nothing is read and nothing is copied.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pyspark_log_coordinator.model import producers
from pyspark_log_coordinator.model.partition import Holder
from pyspark_log_coordinator.replication import replicas
from pyspark_log_coordinator.sync import catch_up
from pyspark_log_coordinator.sync.replica_file import has_newest
from pyspark_log_storage.errors import (
    CorruptObject,
    LogError,
    NotEnoughReplicasAfterAppend,
    StoreError,
    is_node_failure,
)
from pyspark_log_storage.objects.node import require_marker, require_written
from pyspark_log_storage.segments import transfer
from pyspark_log_storage.stores.failover import AllCopiesFailed, first_readable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.model.batch import Acks, SequencedFile
    from pyspark_log_coordinator.model.partition import NodeId, Partition
    from pyspark_log_coordinator.model.producers import ProducerClaim
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_coordinator.topic.sequencing import CommitBatch

CATCH_UP_SECONDS = 10.0
"""How long a commit copies to one lagging in-sync replica before that leaves the ISR."""
FOLLOW_SECONDS = 1.0
"""How long a commit with acks=1 copies to one follower."""


def has_several_nodes(state: Topic) -> bool:
    """Return whether a topic has replicas on more than one node."""
    return len(state.incarnations) > 1


def complete(handle: TopicHandle, command: CommitBatch, failed: Collection[NodeId]) -> CommitBatch:
    """Return the batch with all holders that it can have. `failed` are nodes that a task could not write to.

    Raises `StoreError` if this process is not allowed to use a node that may be well.
    """
    log = handle.log
    for node in _lagging(handle.journal.state, command):
        if node not in failed and node not in log.broken_nodes:
            _catch_up(handle, node, CATCH_UP_SECONDS)
    state = handle.journal.state
    # A disk restored from a backup takes new rows but lacks others. It leaves the ISR if it is no holder.
    holders = {holder.node for file in command.files for holder in file.holders}
    lost = {node for node in sorted(holders) if node in state.incarnations and not has_newest(handle, node)}
    usable = state.incarnations.keys() - lost - set(failed) - log.broken_nodes - set(state.fenced)
    kept = [_without_lost(state, file, lost) for file in command.files]
    wanted = {number: _wanted(state, number, command.acks, level) for number, level in _level(state, kept).items()}
    files = tuple(_with_copies(handle, file, wanted, usable) for file in kept)
    return msgspec.structs.replace(command, files=files)


def follow_up(handle: TopicHandle, command: CommitBatch) -> None:
    """Copy what the promise of `acks` still needs, once the batch is in the log.

    Raises `NotEnoughReplicasAfterAppend` if acks=all and the batch is not committed.
    """
    log, state, acks = handle.log, handle.journal.state, command.acks
    known = _reached.pop(handle, None)  # or what a commit that fails has copied would look like another's
    # A batch without a claim is no replay, so its own entry has committed it.
    ends = {} if acks != "all" or command.claim is None else _uncommitted(state, command.claim)
    if acks == "all" and not ends:
        return
    if acks != "all":
        waiting = [each for each in state.partitions if each.high_watermark < each.log_end]
    else:
        waiting = [state.partitions[number] for number in ends]
    behind = {node for each in waiting for node in _behind(each)} - set(state.fenced)
    for node in sorted(behind - set(log.missing_nodes)):
        if acks == "all" or not _is_followed(handle.journal.state, known, node):
            _catch_up(handle, node, CATCH_UP_SECONDS if acks == "all" else FOLLOW_SECONDS)
    if acks != "all":
        return
    for number, end in ends.items():
        before, now = state.partitions[number], handle.journal.state.partitions[number]
        # An election may have cut the rows meanwhile, and other rows may have their offsets.
        mark = min(now.high_watermark, now.end_of_epoch(before.leader_epoch))
        if mark < end:
            raise NotEnoughReplicasAfterAppend(
                f"topic {state.name!r}, partition {number}: the batch is in the log, but its rows from offset {mark} "
                "on are not on enough in-sync replicas yet; bring nodes back, then try again"
            )


def note_followers(handle: TopicHandle, acks: Acks) -> None:
    """Take note of what followers have at the end of a commit, whatever this process has copied to them meanwhile."""
    if acks != "all" and has_several_nodes(handle.journal.state):  # with acks=all they get batches by their own entries
        _reached[handle] = _followers(handle.journal.state)


def has_uncommitted(state: Topic) -> bool:
    """Return whether some rows are above the high watermark."""
    return any(each.high_watermark < each.log_end for each in state.partitions)


def _uncommitted(state: Topic, claim: ProducerClaim) -> dict[int, int]:
    """Return the end of a batch's rows in each partition in which they are not committed."""
    ends: dict[int, int] = {}
    names = producers.names_of(state.producers, claim)
    for number, partition in enumerate(state.partitions):
        for chunk in partition.chunks_between(partition.high_watermark, partition.log_end):
            file = state.file(chunk.file)
            if file.producer in names and file.batch_id == claim.batch_id:
                ends[number] = chunk.end_offset
    return ends


def _lagging(state: Topic, command: CommitBatch) -> list[NodeId]:
    """Return the nodes that lag in the batch's partitions and must reach the log end before it."""
    found: set[NodeId] = set()
    for number, level in _level(state, command.files).items():
        partition = state.partitions[number]
        behind = {node for node in partition.replicas if partition.log_end_offsets[node] < partition.log_end}
        if behind:
            found |= behind.intersection(_wanted(state, number, command.acks, level))
    return sorted(found - set(state.fenced))


def _level(state: Topic, files: Sequence[SequencedFile]) -> dict[int, set[NodeId]]:
    """Return the nodes that hold all rows of each of the batch's partitions: those before it, and its own in all files.

    Fenced nodes do not count.
    """
    found: dict[int, set[NodeId]] = {}
    for file in files:
        holders = {holder.node for holder in file.holders} - set(state.fenced)
        for number in {chunk.partition for chunk in file.chunks}:
            if number < len(state.partitions):
                found[number] = found.get(number, holders) & holders
    for number, nodes in found.items():
        partition = state.partitions[number]
        found[number] = {node for node in nodes if partition.log_end_offsets.get(node) == partition.log_end}
    return found


def _wanted(state: Topic, number: int, acks: Acks, having: Collection[NodeId]) -> tuple[NodeId, ...]:
    """Return the nodes that must hold the rows of a partition, given those that hold all of them (`having`)."""
    partition = state.partitions[number]
    if acks != "all":
        return () if partition.leader is None else (partition.leader,)
    if not replicas.by_majority(state.config):
        return partition.isr
    is_enough = len(set(having).intersection(partition.replicas)) >= replicas.required_acks(partition, state.config)
    return () if is_enough else partition.replicas


def _behind(partition: Partition) -> list[NodeId]:
    """Return the members of the ISR that lack uncommitted rows."""
    if partition.high_watermark == partition.log_end:
        return []
    return [node for node in partition.isr if partition.log_end_offsets[node] < partition.log_end]


def _without_lost(state: Topic, file: SequencedFile, lost: Collection[NodeId]) -> SequencedFile:
    """Return a file without the `lost` holders, and without those that were wiped."""
    kept = [holder for holder in file.holders if holder.node not in lost]
    return msgspec.structs.replace(file, holders=replicas.of_current_incarnations(state, kept))


def _with_copies(
    handle: TopicHandle, file: SequencedFile, wanted: Mapping[int, Sequence[NodeId]], usable: Collection[NodeId]
) -> SequencedFile:
    """Return a file with the `usable` nodes that are `wanted` for its partitions and got a copy."""
    state, holders = handle.journal.state, list(file.holders)
    nodes = {node for chunk in file.chunks for node in wanted.get(chunk.partition, ())}
    for node in sorted(nodes.intersection(usable) - {holder.node for holder in holders}):

        def failed(_source: NodeId, error: CorruptObject | StoreError, node: NodeId = node) -> None:
            if not is_node_failure(error):
                raise error
            note_behind(handle, node, error)

        with contextlib.suppress(AllCopiesFailed):
            first_readable([holder.node for holder in holders], partial(_copy, handle, file, node), failed)
            holders.append(Holder(node, state.incarnations[node]))
            note_copied(handle, node)
    return msgspec.structs.replace(file, holders=tuple(holders))


def _copy(handle: TopicHandle, file: SequencedFile, node: NodeId, source: NodeId) -> None:
    log, key, incarnation = handle.log, handle.append_file(file.name), handle.journal.state.incarnations[node]
    target = log.node_store(node)
    require_marker(target, node, incarnation)
    if transfer.has_object(target, key):
        transfer.check_append_file(target, key, file.chunks)
    else:
        transfer.copy_append_file(log.node_store(source), target, key, file.chunks)
    require_written(target, node, incarnation, key)


def _catch_up(handle: TopicHandle, node: NodeId, seconds: float) -> None:
    """Copy what a node lacks, for a bounded time. A node that fails is left behind."""
    try:
        catch_up.catch_up(handle, node, deadline=handle.log.environment.monotonic() + seconds)
    except (StoreError, CorruptObject) as error:
        if not is_node_failure(error):
            raise
        note_behind(handle, node, error)
    else:
        note_copied(handle, node)


def note_behind(handle: TopicHandle, node: NodeId, error: LogError) -> None:
    """Log that nothing can be copied to a node of a topic; once, until `note_copied`."""
    message = "node %(node)r is behind in topic %(topic)r: %(error)s"
    handle.log.failures.note((handle.topic_id, node), error, message, node=node, topic=handle.name)


def note_copied(handle: TopicHandle, node: NodeId) -> None:
    """Log that rows can be copied to a node again, if that had failed."""
    message = "node %(node)r gets the rows of topic %(topic)r again"
    handle.log.failures.end((handle.topic_id, node), message, node=node, topic=handle.name)


class _Followers(NamedTuple):
    """What followers have."""

    leader_epochs: int
    """The sum of the leader epochs: if a leader changes, the sums of before and after are of other partitions."""
    ends: Mapping[NodeId, int]
    """The sum of each node's LEOs in partitions that others lead: where it leads, it gets rows by each batch."""


_reached: weakref.WeakKeyDictionary[TopicHandle, _Followers] = weakref.WeakKeyDictionary()
"""What followers had at the end of this process's last commit, if that was one with acks=1."""


def _followers(state: Topic) -> _Followers:
    ends: Counter[NodeId] = Counter()
    for each in state.partitions:
        for node, end in each.log_end_offsets.items():
            if node != each.leader:
                ends[node] += end
    return _Followers(sum(each.leader_epoch for each in state.partitions), ends)


def _is_followed(state: Topic, known: _Followers | None, node: NodeId) -> bool:
    """Return whether another process has copied to the node since this one took note of what followers have."""
    now = _followers(state)
    if known is None or known.leader_epochs != now.leader_epochs or node not in known.ends:
        return False
    return now.ends.get(node, 0) > known.ends[node]
