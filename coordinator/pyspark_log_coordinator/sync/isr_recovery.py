"""Rejoining: a replica that fell out of the ISR, and is there again, gets what it misses from who writes.

A commit that is refused because too few replicas are in sync copies at once. Else a writer copies in passing, where no
follower does: a little after a batch, now and then. What is too large for that is left to `pyspark-log node run` and
`maintain`: an object is copied as a whole, and the next batch waits meanwhile.

A follower copies within half a second what a node misses. So if the journal says that a node that answers has missed
rows for some seconds, nobody follows for it, and a writer copies to it after its first batch: it may be its last, as
that of `pyspark-log produce` under cron. The age of the rows is told by the writers' clocks. If these differ, a node
waits longer, or is copied to by two at once; nothing else depends on them. If all replicas are in sync nothing is read.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark_log_coordinator.replication import file_holders
from pyspark_log_coordinator.sync import catch_up, replica_file
from pyspark_log_storage.errors import LogError

if TYPE_CHECKING:
    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.model.partition import NodeId

NOW_SECONDS = 10.0
"""How long a commit that was refused copies to one node before it is tried again."""
INLINE_EVERY_SECONDS = 2.0
"""How often a writer copies in passing; for so long it leaves rows to others that have just been missed."""
INLINE_SECONDS = 0.2
INLINE_BYTES_MAX = 64 * 1024 * 1024
"""Where an object is larger, a writer copies nothing in passing."""

_logger = logging.getLogger("pyspark_log")

_turns: dict[tuple[str, NodeId], float] = {}
"""When it was last a node's turn, by topic id and node; if it never was, when the node was found out of sync."""


def recover_now(handle: TopicHandle) -> None:
    """Copy to the replicas that are out of sync. One that cannot be copied to is left where it is."""
    for node in _out_of_sync(handle):
        _catch_up(handle, node, NOW_SECONDS)


def recover_inline(handle: TopicHandle) -> None:
    """Copy a little to the replicas that are out of sync, where it is their turn."""
    now = handle.log.environment.monotonic()
    behind = _out_of_sync(handle)
    for topic_id, node in [*_turns]:
        if topic_id == handle.topic_id and node not in behind:
            del _turns[topic_id, node]
    for node in behind:
        key = handle.topic_id, node
        if key not in _turns and not _is_left_alone(handle, node):
            _turns[key] = now
        if key in _turns and now - _turns[key] < INLINE_EVERY_SECONDS:
            continue
        _turns[key] = now
        if all(piece.bytes <= INLINE_BYTES_MAX for piece in replica_file.missing(handle, node)):
            _catch_up(handle, node, INLINE_SECONDS)


def _is_left_alone(handle: TopicHandle, node: NodeId) -> bool:
    """Return whether a node that is out of sync has missed something for so long that nobody can be following for it.

    Segments say nothing of when they were made. A node that lacks one, or lacks nothing and was not told to be back, is
    taken to be left alone. A node that a partition is moving to is not: the process that moves it copies.
    """
    if any(node in partition.adding for partition in handle.journal.state.partitions):
        return False
    missing = file_holders.missing(handle.journal.state, node)
    if missing.segments or not missing.files:
        return True
    _, oldest = missing.files[0]
    return handle.now_ms() - oldest.sequenced_ms >= INLINE_EVERY_SECONDS * 1000


def _out_of_sync(handle: TopicHandle) -> list[NodeId]:
    """Return the nodes that could be in sync again: they answered the last roll call, and are not fenced."""
    state = handle.journal.state
    out = {node for each in state.partitions for node in each.replicas if node not in each.isr}
    return sorted(out - set(handle.log.missing_nodes) - set(state.fenced))


def _catch_up(handle: TopicHandle, node: NodeId, seconds: float) -> None:
    log = handle.log
    try:
        catch_up.catch_up(handle, node, until=log.environment.monotonic() + seconds)
    except LogError as error:
        _logger.warning("node %r stays out of sync in topic %r: %s", node, handle.name, error)
