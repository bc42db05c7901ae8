"""Probes replicas: which nodes answer as themselves and still have the files that an election depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_coordinator.model.partition import Holder
from pyspark_log_coordinator.replication.file_holders import held_alone, newest_held
from pyspark_log_storage import layout
from pyspark_log_storage.errors import LogError
from pyspark_log_storage.segments.transfer import has_object

if TYPE_CHECKING:
    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.model.partition import NodeId


def live(handle: TopicHandle) -> tuple[Holder, ...]:
    """Return the nodes that may be elected: they are reachable and have their required files.

    By the last probe of the nodes and the known state of the topic.
    """
    log, state = handle.log, handle.journal.state
    return tuple(
        Holder(node, incarnation)
        for node, incarnation in state.incarnations.items()
        if node in log.cluster.state.nodes  # not removed since
        and node not in log.missing_nodes
        and has_required_files(handle, node)
    )


def has_required_files(handle: TopicHandle, node: NodeId) -> bool:
    """Return whether a node's store has the newest file that the node holds, and every file that only it holds.

    A leader without them would hold up its followers, and so the HW, forever.
    """
    return has_newest(handle, node) and all(
        _is_there(handle, node, key) for key in held_alone(handle.journal.state, node)
    )


def has_newest(handle: TopicHandle, node: NodeId) -> bool:
    """Return whether a node's store has the newest file that the node holds; False if it does not answer.

    A disk restored from a backup has the right marker, but not this file.
    """
    key = newest_held(handle.journal.state, node)
    return key is None or _is_there(handle, node, key)


def _is_there(handle: TopicHandle, node: NodeId, key: str) -> bool:
    try:
        return has_object(handle.log.node_store(node), f"{layout.topic_folder(handle.name, handle.topic_id)}{key}")
    except LogError:
        return False
