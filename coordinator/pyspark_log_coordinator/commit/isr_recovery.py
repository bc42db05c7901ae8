"""ISR recovery: writers copy to replicas that fell out of the ISR and are reachable again.

A commit that is refused because too few replicas are in sync copies at once (`recover_now`). Otherwise a writer copies
a little after a batch (`recover_inline`), if no follower does. An object is copied as a whole while the next batch
waits, so large ones are left to `pyspark-log node run` and `maintain`.

A follower copies within half a second. So a reachable node that has missed rows for some seconds has no follower, and a
writer copies to it after its first batch, which may be its last (`pyspark-log produce` under cron). The age of the rows
comes from the writers' clocks; if these differ, a node waits longer or two writers copy to it, and nothing else depends
on them. If all replicas are in sync nothing is read.

A member of the ISR that missed a segment gets it in the same way: until all have it, it replaces nothing, and no other
segment of the partition is made.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from pyspark_log_coordinator.commit import commit_catch_up
from pyspark_log_coordinator.replication import file_holders, replicas
from pyspark_log_coordinator.sync import catch_up, replica_file
from pyspark_log_storage.errors import LogError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.model.partition import NodeId, Partition

NOW_SECONDS = 10.0
"""How long a refused commit copies to one node before it is retried."""
INLINE_EVERY_SECONDS = 2.0
"""How often a writer copies to a node; also how long it leaves newly missed rows to a follower."""
INLINE_SECONDS = 0.2
INLINE_BYTES_MAX = 64 * 1024 * 1024
"""A node that lacks a larger object is left to a follower."""


_turns: weakref.WeakKeyDictionary[TopicHandle, dict[NodeId, float]] = weakref.WeakKeyDictionary()
"""When a node had its last turn, or was found out of sync if it had none."""


def recover_now(handle: TopicHandle) -> None:
    """Copy to the replicas that are out of sync."""
    for node in _usable(handle, _not_in_isr):
        _catch_up(handle, node, NOW_SECONDS)


def recover_inline(handle: TopicHandle) -> None:
    """Copy a little to the replicas that are out of sync or lack a staged segment, if it is their turn."""
    behind = _usable(handle, _incomplete) if commit_catch_up.has_several_nodes(handle.journal.state) else []
    if not behind:
        _turns.pop(handle, None)
        return
    now = handle.log.environment.monotonic()
    turns = _turns[handle] = {node: at for node, at in _turns.get(handle, {}).items() if node in behind}
    for node in behind:
        if node not in turns and _may_have_follower(handle, node):
            turns[node] = now
        if node in turns and now - turns[node] < INLINE_EVERY_SECONDS:
            continue
        turns[node] = now
        if all(piece.bytes <= INLINE_BYTES_MAX for piece in replica_file.missing(handle, node)):
            _catch_up(handle, node, INLINE_SECONDS)


def _may_have_follower(handle: TopicHandle, node: NodeId) -> bool:
    """Return whether somebody may be copying to a node that is out of sync: it has missed rows only for a moment.

    Segments do not say when they were made, so a node that lacks one counts as having no follower; so does a node that
    lacks nothing and is not in sync. A node that a partition is being reassigned to is left to the reassignment.
    """
    if any(node in each.adding for each in handle.journal.state.partitions):
        return True
    missing = file_holders.missing(handle.journal.state, node)
    if missing.segments or not missing.files:
        return False
    _, oldest = missing.files[0]
    return handle.now_ms() - oldest.sequenced_ms < INLINE_EVERY_SECONDS * 1000


def _usable(handle: TopicHandle, behind: Callable[[Partition], Iterable[NodeId]]) -> list[NodeId]:
    """Return the replicas that are behind and can be copied to: reachable when last probed, and not fenced."""
    state = handle.journal.state
    out = {node for each in state.partitions for node in behind(each)}
    return sorted(out - set(handle.log.missing_nodes) - set(state.fenced))


def _not_in_isr(partition: Partition) -> Iterable[NodeId]:
    return () if len(partition.isr) == len(partition.replicas) else set(partition.replicas).difference(partition.isr)


def _incomplete(partition: Partition) -> Iterable[NodeId]:
    if not partition.staged:
        return _not_in_isr(partition)
    return {
        node
        for node in partition.replicas
        if node not in partition.isr or not all(replicas.is_held(each.holders, node) for each in partition.staged)
    }


def _catch_up(handle: TopicHandle, node: NodeId, seconds: float) -> None:
    try:
        catch_up.catch_up(handle, node, deadline=handle.log.environment.monotonic() + seconds)
    except LogError as error:
        commit_catch_up.note_behind(handle, node, error)
    else:
        commit_catch_up.note_copied(handle, node)
