"""Moving: carrying out reassignments and additions of partitions, which `reassignment` decides.

A reassignment begins with one entry of the topic's journal. Then the nodes that are new copy what they lack, whoever
does it: the process that began it, another that goes on where that stopped, or a follower. The entry in which the last
of them is in sync ends it. So it can be cut short at any point, and nothing has to be cleaned up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.cluster import nodes, placement, reassignment_plan
from pyspark_log_coordinator.cluster.machine import PARTITIONS_MAX, seed_of
from pyspark_log_coordinator.cluster.placement import Placement
from pyspark_log_coordinator.log.node_admin import update_topic
from pyspark_log_coordinator.log.topics import topics_on
from pyspark_log_coordinator.model.node_order import by_number, named
from pyspark_log_coordinator.replication import reassignment, replicas
from pyspark_log_coordinator.replication.reassignment import AddPartitions, AlterReplicas
from pyspark_log_coordinator.sync import catch_up, replica_file
from pyspark_log_storage.errors import InvalidOption, LogError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_coordinator.model.topic_state import Topic

PATIENCE_ROUNDS = 20
PATIENCE_SECONDS = 0.25
"""How often, and after how long, one looks again for a reassignment that has all its copies and does not end."""


class PartitionMove(msgspec.Struct, frozen=True):
    """How the nodes of one partition change, preferred leader first."""

    partition: int
    before: tuple[NodeId, ...]
    after: tuple[NodeId, ...]

    @property
    def adding(self) -> tuple[NodeId, ...]:
        """The nodes that are new."""
        return tuple(node for node in self.after if node not in self.before)

    @property
    def removing(self) -> tuple[NodeId, ...]:
        """The nodes that go."""
        return tuple(node for node in self.before if node not in self.after)


class ReassignmentProgress(msgspec.Struct, frozen=True):
    """What carrying out came to: how many objects were copied, of how many bytes, and what is in the way."""

    objects: int
    bytes: int
    unfinished: tuple[int, ...]
    """The partitions whose reassignment has not ended."""
    failures: tuple[str, ...]


def target_placement(topic: Topic) -> Placement:
    """Return the nodes that each partition is to be on, preferred leader first."""
    return tuple(reassignment.target(each) for each in topic.partitions)


def original_placement(topic: Topic) -> Placement:
    """Return the nodes that each partition was on before the reassignments that are under way."""
    return tuple(reassignment.original(each) for each in topic.partitions)


def reassigning_partitions(topic: Topic) -> tuple[int, ...]:
    """Return the partitions that are being reassigned."""
    return tuple(number for number, each in enumerate(topic.partitions) if each.adding or each.removing)


def placement_on(log: Log, topic: Topic, wanted: Iterable[NodeId], replication_factor: int | None = None) -> Placement:
    """Return where the partitions shall be so that all are on these nodes, evenly. Raises `InvalidOption`."""
    members = log.cluster.state.nodes
    for node in wanted:
        if nodes.node_of(members, node).fenced:
            raise InvalidOption("node", f"node {node!r} is fenced; unfence it, or name another")
    racks = {node: members[node].rack for node in wanted}
    return _relocate(topic, racks, replication_factor, even=True)


def placement_with_factor(log: Log, topic: Topic, replication_factor: int) -> Placement:
    """Return where the partitions shall be so that each has so many replicas. Raises `InvalidOption`."""
    return _relocated(log, topic, set(), replication_factor)


def placement_without(log: Log, topic: Topic, node_id: NodeId) -> Placement:
    """Return where the partitions shall be so that none is on a node. Raises `InvalidOption`."""
    return _relocated(log, topic, {node_id}, None)


def _relocated(log: Log, topic: Topic, leaving: set[NodeId], replication_factor: int | None) -> Placement:
    members = log.cluster.state.nodes
    racks = {name: each.rack for name, each in members.items() if name not in leaving}
    # Nobody waits for a disk that is away; what is on it may stay on it.
    closed = {name for name, each in members.items() if each.fenced or name in log.missing_nodes}
    return _relocate(topic, racks, replication_factor, closed)


def _relocate(
    topic: Topic,
    racks: Mapping[NodeId, str],
    replication_factor: int | None,
    closed: Collection[NodeId] = (),
    *,
    even: bool = False,
) -> Placement:
    try:
        return reassignment_plan.relocate(target_placement(topic), racks, replication_factor, closed, even=even)
    except InvalidOption as error:
        raise InvalidOption(error.option, f"topic {topic.name!r}, {error.message}") from None


def moves(topic: Topic, wanted: Placement) -> tuple[PartitionMove, ...]:
    """Return which partitions are not yet as wanted, nor on the way there. Raises `InvalidOption`."""
    if len(wanted) != len(topic.partitions):
        raise InvalidOption(
            "replica.assignment",
            f"topic {topic.name!r} has {len(topic.partitions)} partition(s), and the assignment names nodes for "
            f"{len(wanted)}; name those of every partition",
        )
    now = target_placement(topic)
    found = tuple(
        PartitionMove(number, now[number], after) for number, after in enumerate(wanted) if after != now[number]
    )
    for each in found:
        if len(each.after) < min(topic.config.min_insync_replicas, len(each.before)):
            raise InvalidOption(
                "replication.factor",
                f"topic {topic.name!r}, partition {each.partition} would have {len(each.after)} replicas, and "
                f"min.insync.replicas is {topic.config.min_insync_replicas}; name more nodes, or lower that first",
            )
    return found


def bytes_to_copy(topic: Topic, wanted: Iterable[PartitionMove]) -> int:
    """Return about how many bytes moves will copy. A file is copied whole, whichever of its partitions moves."""
    sizes: dict[int, int] = {}
    for partition in topic.partitions:
        for chunk in partition.chunks:
            sizes[chunk.file] = max(sizes.get(chunk.file, 0), chunk.position + chunk.length)
    size = 0
    files: set[tuple[NodeId, int]] = set()
    for node, number in ((node, each.partition) for each in wanted for node in each.adding):
        partition = topic.partitions[number]
        size += sum(each.log_bytes for each in partition.segments if not replicas.is_held(each.holders, node))
        files.update((node, chunk.file) for chunk in partition.chunks)
    lacking = (number for node, number in files if not replicas.is_held(topic.file(number).holders, node))
    return size + sum(sizes[number] for number in lacking)


def begin(handle: TopicHandle, wanted: Placement) -> tuple[PartitionMove, ...]:
    """Begin the reassignments that are not under way yet; return these.

    Raises `InvalidInput`, and `InvalidOption` where a node is none that replicas may be on.
    """
    state = handle.refresh()
    members = handle.log.cluster.refresh().nodes
    there = {node for nodes_ in original_placement(state) for node in nodes_}
    placement.check(wanted, {*nodes.live(members), *there}, members, handle.name)
    found = moves(state, wanted)
    if found:
        named_nodes = {node for each in found for node in each.after}
        command = AlterReplicas(
            tuple(reassignment.PartitionReassignment(each.partition, each.after) for each in found),
            {node: members[node].incarnation for node in named_nodes},
        )
        handle.submit(command)
        _look_again(handle, named_nodes)
    return found


def add_partitions(handle: TopicHandle, total: int, assignments: Placement | None = None) -> tuple[int, Placement]:
    """Give a topic more partitions, `total` in all; return the first new one's number, and the nodes of the new ones.

    Without assignments they go on where the topic's spread ended. Raises `InvalidOption`, `InvalidInput`.
    """
    state = handle.refresh()
    members = handle.log.cluster.refresh().nodes
    first, now = len(state.partitions), target_placement(state)
    if not first < total <= PARTITIONS_MAX:
        raise InvalidOption(
            "num.partitions",
            f"topic {handle.name!r} has {first} partition(s), and {total} would be no more; partitions are never taken "
            f"away: choose {first + 1} to {PARTITIONS_MAX}",
        )
    live = nodes.live(members)
    if assignments is None:
        factor = max(len(each) for each in now)
        if factor > len(live):
            raise InvalidOption(
                "replication.factor",
                f"topic {handle.name!r} has {factor} replicas of each partition, and the nodes that are not "
                f"fenced are {named(live)}; add or unfence nodes, or choose them by hand",
            )
        racks = {name: each.rack for name, each in live.items()}
        assignments = placement.spread(racks, total - first, factor, seed_of(handle.topic_id), first)
    elif len(assignments) != total - first:
        raise InvalidOption(
            "replica.assignment",
            f"topic {handle.name!r} has {first} partition(s), so {total - first} would be new, and the assignment "
            f"names nodes for {len(assignments)}; name those of the new ones only",
        )
    placement.check(assignments, live, members, handle.name, first=first, replication_factor=len(now[0]))
    named_nodes = {node for each in assignments for node in each}
    command = AddPartitions(assignments, {node: members[node].incarnation for node in named_nodes}, first)
    if not handle.submit(command).events:
        raise InvalidOption(
            "num.partitions",
            f"topic {handle.name!r} got partitions from somebody else meanwhile; look at it, and try again",
        )
    _look_again(handle, named_nodes)
    return first, assignments


def _look_again(handle: TopicHandle, wanted: Iterable[NodeId]) -> None:
    """Make sure that no node was fenced or removed between the look at the cluster and the topic's entry.

    Who removes a node looks at the topics after it was fenced: so one of the two sees the other.
    """
    members = handle.log.cluster.refresh().nodes
    for node in wanted:
        if node not in members:
            raise InvalidOption(
                "node", f"node {node!r} was removed meanwhile; reassign topic {handle.name!r} again, to other nodes"
            )
        update_topic(handle, node)


def bytes_behind(handle: TopicHandle) -> int:
    """Return about how many bytes are to be copied before the reassignments that are under way can end."""
    state = handle.journal.state
    return sum(piece.bytes for node in _copying(state) for piece in replica_file.missing(handle, node))


def run(handle: TopicHandle, moved: Callable[[int], object] = bool) -> ReassignmentProgress:
    """Copy to the nodes that are new until the reassignments that are under way have ended, whoever began them.

    `moved` is told how many bytes have passed since it was told last, and may wait. Where a node is away, or a file
    damaged everywhere, the others go on. Raises what reading the journals raises.
    """
    log = handle.log
    objects = size = waited = 0
    while True:
        state = handle.refresh()
        log.cluster.refresh()
        log.probe_nodes()
        failures: list[str] = []
        entry, copied = handle.journal.number, 0
        for node in _copying(state):
            hindrance = _hindrance(log, node)
            if hindrance:
                failures.append(hindrance)
                continue
            try:
                done = catch_up.catch_up(handle, node, moved=moved)
            except LogError as error:
                failures.append(f"node {node!r}: {error.message}")
                continue
            copied += done.objects
            size += done.bytes
            failures += [f"node {node!r}: {each.message}" for each in done.failures]
        objects += copied
        unfinished = reassigning_partitions(handle.refresh())
        if not unfinished:
            return ReassignmentProgress(objects, size, (), ())
        if copied or handle.journal.number > entry:
            waited = 0
            continue  # what was written meanwhile
        if failures or waited == PATIENCE_ROUNDS:
            return ReassignmentProgress(objects, size, unfinished, tuple(dict.fromkeys(failures)))
        waited += 1
        log.environment.sleep(PATIENCE_SECONDS)


def _copying(topic: Topic) -> list[NodeId]:
    """Return the nodes that partitions are moving to, or that are to lead instead of one that goes."""
    found = {node for number in reassigning_partitions(topic) for node in reassignment.target(topic.partitions[number])}
    return sorted(found, key=by_number)


def _hindrance(log: Log, node: NodeId) -> str:
    """Return what keeps a node from being copied to, empty if nothing does."""
    member = log.cluster.state.nodes.get(node)
    if member is None:
        return f"node {node!r} was removed; reassign to other nodes, or cancel"
    if member.fenced:
        return f"node {node!r} is fenced; unfence it, reassign to other nodes, or cancel"
    missing = log.missing_nodes.get(node)
    return "" if missing is None else missing.message


def topics_to_drain(log: Log, node_id: NodeId) -> list[tuple[TopicHandle, Placement]]:
    """Return the topics with replicas on a node, and where these would be without it.

    Raises `InvalidOption` where there is no such node, or the others are too few.
    """
    return [(handle, placement_without(log, handle.journal.state, node_id)) for handle in topics_on(log, node_id)]
