"""A node's checkpoints: Kafka's text files beside what it holds of a topic, so that its folder is readable by itself.

    recovery-point-offset-checkpoint    of each partition: to there the node holds its rows in segments
    replication-offset-checkpoint       of each partition: the HW, as far as the node has the rows
    <partition>/leader-epoch-checkpoint the leader epochs of the rows that the node has

Of the partitions of which the node is a replica. They are a copy for people and for recovery, and decide nothing: of
two processes the one that knows less may write last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_coordinator.replication import replicas
from pyspark_log_storage import checkpoints
from pyspark_log_storage.errors import ObjectMissing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_log_coordinator.model.partition import NodeId, Partition
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_storage.store import Store


def contents(state: Topic, node_id: NodeId) -> dict[str, bytes]:
    """Return the checkpoints of a node, by their names in the topic's folder; none where it has no replica."""
    mine = {number: each for number, each in enumerate(state.partitions) if node_id in each.replicas}
    if not mine:
        return {}
    rolled = {(state.name, number): _rolled_end(each, node_id) for number, each in mine.items()}
    known = {
        (state.name, number): min(each.high_watermark, each.log_end_offsets[node_id]) for number, each in mine.items()
    }
    return {
        checkpoints.RECOVERY_POINT: checkpoints.encode_offsets(rolled),
        checkpoints.REPLICATION: checkpoints.encode_offsets(known),
        **{
            f"{number}/{checkpoints.LEADER_EPOCH}": checkpoints.encode_epochs(_epochs(each, node_id))
            for number, each in mine.items()
        },
    }


def write(store: Store, folder: str, wanted: Mapping[str, bytes]) -> None:
    """Write those checkpoints, by their names in the topic's folder, that have changed. Raises `StoreError`."""
    for name, data in wanted.items():
        try:
            same = store.read(f"{folder}{name}") == data
        except ObjectMissing:
            same = False
        if not same:
            store.put(f"{folder}{name}", data)


def _rolled_end(partition: Partition, node_id: NodeId) -> int:
    """Return the end of the segments that the node holds, without a gap from the log start on."""
    end = partition.log_start
    for segment in partition.segments:
        if not replicas.is_held(segment.holders, node_id):
            return end
        end = segment.end_offset
    return end


def _epochs(partition: Partition, node_id: NodeId) -> list[tuple[int, int]]:
    """Return the leader epochs that the node has rows of, and the first one; all where the node leads."""
    if partition.leader == node_id:
        return list(partition.epoch_starts)
    first, *later = partition.epoch_starts
    return [first, *(each for each in later if each[1] < partition.log_end_offsets[node_id])]
