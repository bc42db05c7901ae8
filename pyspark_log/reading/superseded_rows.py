"""Superseded rows: the offsets of rows in keyed segments that later keyed segments have newer rows for."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from pyspark_log_coordinator.log.nearest_holders import nearest_first, reachable_holders
from pyspark_log_storage.errors import StoreUnavailable
from pyspark_log_storage.parquet import keyed_segment
from pyspark_log_storage.stores.failover import AllCopiesFailed, first_readable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.model.partition import NodeId


def of_partition(handle: TopicHandle, partition: int) -> NDArray[np.int64]:
    """Return the offsets of the superseded rows of a partition, ascending, some of which may be gone.

    Raises `CorruptObject` or `StoreError` if no node has a readable copy of what says so.
    """
    state = handle.state
    nodes = nearest_first(handle.log, leader=state.partitions[partition].leader)
    found = [np.zeros(0, np.int64)]
    for segment in state.partitions[partition].keyed_segments:
        key = handle.segment(partition, segment.name)
        holders = reachable_holders(handle.log, state, nodes, segment.holders)
        read = functools.partial(_read, handle, key)
        try:
            found.append(first_readable(holders, read))
        except AllCopiesFailed as failed:
            message = f"topic {handle.name!r}, partition {partition}: no node that holds {segment.name} is reachable"
            raise failed.first_or(StoreUnavailable("", segment.name, message)) from None
    return np.sort(np.concatenate(found))


def _read(handle: TopicHandle, key: str, node: NodeId) -> NDArray[np.int64]:
    return keyed_segment.read_superseded(handle.log.node_store(node), key)
