"""The scrubber reads every file that a node holds, to find damage while another copy is whole.

Readers find damage too, but they read mostly new rows and never write to the journal: they may have no right to, and
one of many readers may have bad memory. So a node's own process reads its files, as HDFS's block scanner does. It
reports a damaged or lost copy and copies it again. A copy that the ISR cannot do without is replaced without a report.
A staged segment of which no whole copy is left is reported, and so given up.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.cluster.nodes import node_of
from pyspark_log_coordinator.sync import catch_up, damage_reports, replica_file
from pyspark_log_storage.errors import (
    CorruptObject,
    LogError,
    NewerFormat,
    ObjectMissing,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
    UnknownTopic,
)
from pyspark_log_storage.objects.node import require_marker

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_coordinator.sync.replica_file import ReplicaFile
    from pyspark_log_storage.stores.store import Store


class ScrubResult(msgspec.Struct, frozen=True):
    """The outcome of one pass over a node."""

    objects: int
    bytes: int
    repaired: tuple[str, ...]
    """The keys of copies that were damaged or lost, and are whole again or given up."""
    failures: tuple[str, ...]
    """Copies that are damaged or lost and could not be copied again."""


def scrub(log: Log, node_id: NodeId, moved: Callable[[int], object] = lambda _: None) -> ScrubResult:
    """Read every file that a node holds once, and copy damaged and lost ones again.

    `moved` gets the number of bytes read since its last call, and may wait (`Throttle`). Raises `InvalidOption` if
    there is no such node, `NodeMissing` if its store is not the one that the cluster knows, `StoreError` if it does not
    answer. A topic whose journal is damaged, or does not answer during a repair, is a failure; the others continue.
    """
    member, store = node_of(log.cluster.state.nodes, node_id), log.node_store(node_id)
    objects = size = 0
    repaired: list[str] = []
    failures: list[str] = []

    def failed(topic: str, error: LogError) -> None:
        failures.append(f"topic {topic!r}: {error.message}")

    for handle in log.topics_on(node_id, failed=failed):
        for file in replica_file.held(handle, node_id):
            try:
                replica_file.check(store, file, moved)
            except (CorruptObject, NewerFormat, StoreError) as error:
                # A store that answers has a bad file, perhaps on a bad sector. On a disk that is not mounted, all would
                # be copied below the mount point.
                require_marker(store, node_id, member.incarnation)
                try:
                    handle.refresh()
                    # Only now, because this looks through all files of the topic.
                    if file.key not in {each.key for each in replica_file.held(handle, node_id)}:
                        continue  # rolled or expired meanwhile
                    repaired += [file.key] if _repair(handle, node_id, file, error) else []
                except UnknownTopic:
                    break  # deleted meanwhile
                except (CorruptObject, NewerFormat, OutcomeUnknown, StoreError) as why:
                    failed(handle.name, why)
            objects += 1
            size += file.bytes
    return ScrubResult(objects, size, tuple(repaired), tuple(failures))


def _repair(handle: TopicHandle, node_id: NodeId, file: ReplicaFile, wrong: LogError) -> bool:
    """Copy a file to a node again; return whether that was needed. Raises `wrong` if no other copy is whole.

    Give up a staged segment instead. Raises `StoreRefused` if the node's store refuses to read it, or to write its
    index.
    """
    stores = handle.log.node_store
    with contextlib.suppress(CorruptObject, ObjectMissing, StoreUnavailable):
        replica_file.check(stores(node_id), file)
        return False
    if not any(_is_whole(stores(each), file) for each in replica_file.sources(handle, file.holders, node_id)):
        if not replica_file.is_staged(handle.journal.state, file) or not damage_reports.report(handle, node_id, file):
            raise wrong
        return True
    if damage_reports.report(handle, node_id, file):
        failures = catch_up.catch_up(handle, node_id).failures
        if failures:
            raise failures[0]
    else:
        catch_up.copy_again(handle, node_id, file)
    return True


def _is_whole(store: Store, file: ReplicaFile) -> bool:
    try:
        return damage_reports.first_bad_byte(store, file) is None
    except LogError:
        return False
