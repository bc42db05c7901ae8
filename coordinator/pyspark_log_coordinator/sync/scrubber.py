"""The scrubber reads every file that a node holds, and copies damaged and lost ones again while another copy is whole.

Readers find damage too, but they read mostly new rows, and may have no right to write to a node. So a node's own
process reads its files, as HDFS's block scanner does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.sync import faults
from pyspark_log_storage.errors import CorruptObject, LogError, NewerFormat, OutcomeUnknown, StoreError
from pyspark_log_storage.objects.node import require_marker

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_coordinator.log.log import Log
    from pyspark_log_coordinator.model.partition import NodeId


class ScrubResult(msgspec.Struct, frozen=True):
    """The outcome of one pass over a node."""

    repaired: tuple[str, ...]
    """The keys of objects that were damaged or lost, and are whole again."""
    failures: tuple[str, ...]
    """Copies that are damaged or lost and could not be copied again."""


def scrub(log: Log, node_id: NodeId, moved: Callable[[int], object] = lambda _: None) -> ScrubResult:
    """Read every file that a node holds once, and copy damaged and lost ones again.

    `moved` gets the number of bytes read since its last call, and may wait (`Throttle`). Raises `InvalidOption` if
    there is no such node, `NodeMissing` if its store is not the one that the cluster knows, `StoreError` if it does not
    answer. A topic whose journal is damaged, or does not answer during a repair, is a failure; the others continue.
    """
    member, store = log.node(node_id), log.node_store(node_id)
    repaired: list[str] = []
    failures: list[str] = []

    def failed(topic: str, error: LogError) -> None:
        failures.append(f"topic {topic!r}: {error.message}")

    for handle in log.topics_on(node_id, failed=failed):
        for fault in faults.faults(handle, [node_id], moved):
            # A store that answers has a bad file, perhaps on a bad sector. On a disk that is not mounted, all would be
            # copied below the mount point.
            require_marker(store, node_id, member.incarnation)
            try:
                repaired += [fault.key] if faults.cure(handle, node_id, fault.file) else []
            except (CorruptObject, NewerFormat, OutcomeUnknown, StoreError) as why:
                failed(handle.name, why)
    return ScrubResult(tuple(repaired), tuple(failures))
