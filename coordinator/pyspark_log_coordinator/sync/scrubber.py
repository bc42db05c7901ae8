"""Scrubbing: what a node is said to hold is read, file after file, so that damage is found while another copy is whole.

A reader finds damage too, and goes on with another node; but it reads what is new, and has no part in the journal: it
may have no right to write there, and there are many of them, one of which may have bad memory. So it only says what it
has met, and a node's own follower looks for itself, as HDFS's block scanner does. A copy that is bad is reported, and
copied again by the same process. What the journal cannot do without is copied again in its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.cluster.nodes import node_of
from pyspark_log_coordinator.log.topics import topics_on
from pyspark_log_coordinator.sync import catch_up, damage_reports, replica_file
from pyspark_log_storage.errors import CorruptObject, LogError, ObjectMissing, StoreError
from pyspark_log_storage.node import require_marker

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_coordinator.sync.replica_file import ReplicaFile


class ScrubResult(msgspec.Struct, frozen=True):
    """What came of reading all once."""

    objects: int
    bytes: int
    mended: tuple[str, ...]
    """The keys of what was damaged or gone, and is whole again."""
    failures: tuple[str, ...]
    """What is damaged or gone, and whole nowhere else, or could not be copied."""


def scrub(log: Log, node_id: NodeId, moved: Callable[[int], object] = bool) -> ScrubResult:
    """Read all that a node is said to hold once, and make again what is bad.

    `moved` is told how many bytes have passed since it was told last, and may wait (`copying.Throttle`). Raises
    `InvalidOption` where there is no such node, `NodeMissing` where its store is not the one that the cluster knows,
    and `StoreError` where it does not answer.
    """
    member = node_of(log.cluster.state.nodes, node_id)
    objects = size = 0
    mended: list[str] = []
    failures: list[str] = []
    for handle in topics_on(log, node_id):
        for piece in replica_file.held(handle, node_id):
            if not damage_reports.is_held(handle.refresh(), node_id, piece):
                continue  # rolled or expired meanwhile
            objects += 1
            size += piece.bytes
            try:
                replica_file.check(log.node_store(node_id), piece, moved)
            except (CorruptObject, ObjectMissing) as error:
                # Else all would be copied below the mount point of a disk that is not mounted.
                require_marker(log.node_store(node_id), node_id, member.incarnation)
                try:
                    mended += [piece.key] if _mend(handle, node_id, piece, error) else []
                except (CorruptObject, StoreError) as why:
                    failures.append(f"topic {handle.name!r}: {why.message}")
    return ScrubResult(objects, size, tuple(mended), tuple(failures))


def _mend(handle: TopicHandle, node_id: NodeId, piece: ReplicaFile, wrong: LogError) -> bool:
    """Make a node's bad copy again; return whether it was bad. Raises `wrong` where no other is whole."""
    state = handle.refresh()
    if not damage_reports.is_held(state, node_id, piece) or _is_whole(handle.log, node_id, piece):
        return False
    if not any(_is_whole(handle.log, source, piece) for source in replica_file.sources(handle, piece.holders, node_id)):
        raise wrong
    if damage_reports.report(handle, node_id, piece):
        failures = catch_up.catch_up(handle, node_id).failures
        if failures:
            raise failures[0]
    else:
        catch_up.copy_again(handle, node_id, piece)
    return True


def _is_whole(log: Log, node_id: NodeId, piece: ReplicaFile) -> bool:
    try:
        return damage_reports.first_bad_byte(log.node_store(node_id), piece) is None
    except LogError:
        return False
