"""Checkpoints: files beside a node's rows of a topic that make its folder readable without a journal.

    recovery-point-offset-checkpoint    of each partition: the node holds its rows in segments up to here
    replication-offset-checkpoint       of each partition: the HW, but at most the end of the node's rows
    <partition>/leader-epoch-checkpoint the leader epochs of the node's rows
    description                         see `topic_description`

The first three are Kafka's, for the partitions of which the node is a replica. They are for users and recovery, and no
decision depends on them: of two processes the one with the older state may write last.

A description is what is left of a topic if all journals are lost. So each node gets a newer one before a file that its
description names is deleted there, and also if nothing is deleted: at every 64th entry and after a minute of writing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_coordinator.log import topic_description
from pyspark_log_coordinator.log.reachable_stores import ReachableStores, reachable_nodes
from pyspark_log_coordinator.replication import replicas
from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject, ObjectMissing, StoreUnavailable, StoreUnwritable
from pyspark_log_storage.objects import checkpoints
from pyspark_log_storage.stores.failover import rereads

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.model.partition import NodeId, Partition
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_storage.stores.store import Store


def contents(state: Topic, node_id: NodeId, description: bytes | None = None) -> dict[str, bytes]:
    """Return a node's checkpoints by their names in the topic's folder; none if it has no replica."""
    mine = {number: each for number, each in enumerate(state.partitions) if node_id in each.replicas}
    if not mine:
        return {}
    rolled = {(state.name, number): _rolled_end(each, node_id) for number, each in mine.items()}
    known = {
        (state.name, number): min(each.high_watermark, each.log_end_offsets[node_id]) for number, each in mine.items()
    }
    return {
        **({} if description is None else {topic_description.NAME: description}),
        checkpoints.RECOVERY_POINT: checkpoints.encode_offsets(rolled),
        checkpoints.REPLICATION: checkpoints.encode_offsets(known),
        **{
            f"{number}/{checkpoints.LEADER_EPOCH}": checkpoints.encode_epochs(_epochs(each, node_id))
            for number, each in mine.items()
        },
    }


DESCRIBE_SECONDS = 60.0
"""A writer describes its topic so often."""


def write(store: Store, folder: str, wanted: Mapping[str, bytes]) -> None:
    """Write the checkpoints that have changed, by their names in the topic's folder. Raises `StoreError`."""
    for name, data in wanted.items():
        try:
            is_same = store.read(f"{folder}{name}") == data
        except (ObjectMissing, StoreUnavailable):  # it may be on a bad sector
            is_same = False
        if not is_same:
            store.put(f"{folder}{name}", data)


def damaged(store: Store, folder: str, state: Topic, node_id: NodeId) -> Iterator[tuple[str, CorruptObject]]:
    """Yield the damaged checkpoints of a node by their names in the topic's folder, with what is wrong.

    One that is missing or of an older state is none. Raises `StoreError`, `NewerFormat`.
    """
    for name in contents(state, node_id, b""):
        try:
            _check(store, f"{folder}{name}", state, name)
        except ObjectMissing:
            continue
        except CorruptObject as error:
            yield name, error


@rereads
def _check(store: Store, key: str, state: Topic, name: str) -> None:
    """Raise `CorruptObject` if a checkpoint cannot be decoded, or never was one of this topic and partition."""
    data, where = store.read(key), f"checkpoint {store.url}/{key}"
    if name == topic_description.NAME:
        described = topic_description.decode(data, where).topic
        if (described.name, described.topic_id) != (state.name, state.topic_id):
            raise CorruptObject(where, f"it describes topic {described.name!r} with the id {described.topic_id}")
    elif name.endswith(checkpoints.LEADER_EPOCH):
        # The first epoch begins at the log start, which moves: only the others begin at the same offset for ever.
        starts = dict(state.partitions[int(name.partition("/")[0])].epoch_starts[1:])
        for epoch, start in checkpoints.decode_epochs(data, where)[1:]:
            if starts.get(epoch, start) != start:
                raise CorruptObject(where, f"epoch {epoch} begins at {start}, by the journal at {starts[epoch]}")
    else:
        for topic, partition in checkpoints.decode_offsets(data, where):
            if topic != state.name or partition >= len(state.partitions):
                raise CorruptObject(where, f"it names {topic}-{partition}, which is no partition of {state.name!r}")


def write_on_nodes(handle: TopicHandle, nodes: ReachableStores | None = None) -> None:
    """Write a topic's checkpoints on its nodes, by the known state. `nodes` are those found earlier, if they were."""
    state, folder = handle.journal.state, layout.topic_folder(handle.name, handle.topic_id)
    description = topic_description.encode(handle.description())
    nodes = nodes or reachable_nodes(handle.log)
    nodes.each(lambda name, store: write(store, folder, contents(state, name, description)))
    handle.described_at = handle.log.environment.monotonic()


def write_before_deletion(handle: TopicHandle, nodes: ReachableStores, keys: Mapping[NodeId, Collection[str]]) -> bool:
    """Describe the topic on the nodes from which these files will be deleted. One that fails is left out.

    Return whether some disk is full.
    """
    folder = layout.topic_folder(handle.name, handle.topic_id)
    description = topic_description.encode(handle.description())

    def is_full(name: str, store: Store) -> bool:
        if keys[name]:
            try:
                write(store, folder, {topic_description.NAME: description})
            except StoreUnwritable:
                return True
        return False

    return any(nodes.each(is_full).values())


def _rolled_end(partition: Partition, node_id: NodeId) -> int:
    """Return the end of the segments that the node holds without a gap from the log start."""
    end = partition.log_start
    for segment in partition.segments:
        if not replicas.is_held(segment.holders, node_id):
            return end
        end = segment.end_offset
    return end


def _epochs(partition: Partition, node_id: NodeId) -> list[tuple[int, int]]:
    """Return the first leader epoch and those that the node has rows of; all if the node leads."""
    if partition.leader == node_id:
        return list(partition.epoch_starts)
    first, *later = partition.epoch_starts
    return [first, *(each for each in later if each[1] < partition.log_end_offsets[node_id])]
