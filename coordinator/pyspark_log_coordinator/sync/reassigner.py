"""Carries out reassignments and additions of partitions, which `reassignment` decides.

One entry of the topic's journal begins a reassignment. Then any process may catch up the new replicas: the one that
began it, another one later, or a follower. The entry in which the last of them joins the ISR ends it. So an interrupted
reassignment leaves nothing to clean up.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.cluster import nodes, placement, reassignment_plan
from pyspark_log_coordinator.cluster.machine import PARTITIONS_MAX, seed_of
from pyspark_log_coordinator.cluster.nodes import FenceNode
from pyspark_log_coordinator.cluster.placement import Placement
from pyspark_log_coordinator.log.node_admin import update_topic
from pyspark_log_coordinator.model.partition import by_number, named
from pyspark_log_coordinator.replication import reassignment
from pyspark_log_coordinator.replication.reassignment import AddPartitions, AlterReplicas
from pyspark_log_coordinator.sync import catch_up, replica_file
from pyspark_log_coordinator.topic import machine
from pyspark_log_storage.errors import InvalidOption, LogError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from pyspark_log_coordinator.cluster.nodes import Node
    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.partition import NodeId, Partition
    from pyspark_log_coordinator.model.topic_state import Topic

PATIENCE_ROUNDS = 20
PATIENCE_SECONDS = 0.25
"""How often, and at which interval, to look for the end of a reassignment whose replicas are all caught up."""


class PartitionMove(msgspec.Struct, frozen=True):
    """The change of a partition's nodes, preferred leader first."""

    partition: int
    before: tuple[NodeId, ...]
    after: tuple[NodeId, ...]

    @property
    def adding(self) -> tuple[NodeId, ...]:
        """The new nodes."""
        return tuple(node for node in self.after if node not in self.before)

    @property
    def removing(self) -> tuple[NodeId, ...]:
        """The nodes that lose their replica."""
        return tuple(node for node in self.before if node not in self.after)


class ReassignmentProgress(msgspec.Struct, frozen=True):
    """What was copied so far, and what keeps reassignments from ending."""

    objects: int
    bytes: int
    unfinished: tuple[int, ...]
    """Partitions that are still being reassigned."""
    failures: tuple[str, ...]


def target_placement(topic: Topic) -> Placement:
    """Return the nodes of each partition after its reassignment, preferred leader first."""
    return tuple(reassignment.target(each) for each in topic.partitions)


def original_placement(topic: Topic) -> Placement:
    """Return the nodes of each partition before its reassignment, preferred leader first."""
    return tuple(reassignment.original(each) for each in topic.partitions)


def placement_on(handle: TopicHandle, wanted: Iterable[NodeId], replication_factor: int | None = None) -> Placement:
    """Return a placement that spreads all partitions evenly over these nodes. Raises `InvalidOption`."""
    members = handle.log.cluster.state.nodes
    for node in wanted:
        if nodes.node_of(members, node).fenced:
            raise InvalidOption("node", f"node {node!r} is fenced; unfence it or choose another node")
    racks = {node: members[node].rack for node in wanted}
    return reassignment_plan.even_out(_relocate(handle, racks, replication_factor, closed=()), racks)


def placement_with_factor(handle: TopicHandle, replication_factor: int) -> Placement:
    """Return a placement with this number of replicas for each partition. Raises `InvalidOption`."""
    racks = {name: each.rack for name, each in handle.log.cluster.state.nodes.items()}
    return _relocate(handle, racks, replication_factor, _unusable(handle.log))


def placement_without(handle: TopicHandle, node_id: NodeId) -> Placement:
    """Return a placement that leaves a node without replicas. Raises `InvalidOption`."""
    racks = {name: each.rack for name, each in handle.log.cluster.state.nodes.items() if name != node_id}
    return _relocate(handle, racks, None, _unusable(handle.log))


def _unusable(log: Log) -> set[NodeId]:
    """Return the nodes that cannot be used now: they get no new replicas, and those that they have may stay."""
    return {name for name, each in log.cluster.state.nodes.items() if each.fenced or name in log.missing_nodes}


def _relocate(
    handle: TopicHandle, racks: Mapping[NodeId, str], replication_factor: int | None, closed: Collection[NodeId]
) -> Placement:
    topic, unusable = handle.journal.state, _unusable(handle.log)
    behind = [_behind(each, unusable) for each in topic.partitions]
    try:
        return reassignment_plan.relocate(target_placement(topic), racks, replication_factor, closed, behind=behind)
    except InvalidOption as error:
        raise InvalidOption(error.option, f"topic {topic.name!r}, {error.message}") from None


def _behind(partition: Partition, closed: set[NodeId]) -> set[NodeId]:
    """Return the replicas to remove first. Those in sync stay if all are unusable: only they have every row."""
    out = set(partition.replicas) - set(partition.isr)
    behind = closed | out
    return out if behind.issuperset(partition.replicas) else behind


def _partition_count(number: int, kind: str = "") -> str:
    return f"1 {kind}partition" if number == 1 else f"{number} {kind}partitions"


def moves(topic: Topic, wanted: Placement) -> tuple[PartitionMove, ...]:
    """Return the changes that lead to a placement, without those already under way. Raises `InvalidOption`."""
    if len(wanted) != len(topic.partitions):
        raise InvalidOption(
            "replica.assignment",
            f"topic {topic.name!r} has {_partition_count(len(topic.partitions))}, but the assignment has "
            f"{len(wanted)}; give the nodes of every partition",
        )
    now = target_placement(topic)
    found = tuple(
        PartitionMove(number, now[number], after) for number, after in enumerate(wanted) if after != now[number]
    )
    for each in found:
        if len(each.after) < min(topic.config.min_insync_replicas, len(each.before)):
            raise InvalidOption(
                "replication.factor",
                f"topic {topic.name!r}, partition {each.partition}: a replication factor of {len(each.after)} is less "
                f"than min.insync.replicas={topic.config.min_insync_replicas}; give more nodes, or lower that setting "
                "first",
            )
    return found


def bytes_to_copy(topic: Topic, wanted: Iterable[PartitionMove]) -> int:
    """Return about how many bytes must be copied before these moves, and those under way, can end."""
    moves = {each.partition: each.after for each in wanted}
    nodes = dict.fromkeys((node for after in moves.values() for node in after), "")
    for event in reassignment.decide(topic, AlterReplicas(moves, nodes)):
        topic = machine.evolve(topic, event)
    # A file is copied whole, also for one of its partitions.
    return sum(file.bytes for node in _new_replicas(topic) for file in replica_file.missing(topic, node))


def begin(handle: TopicHandle, wanted: Placement) -> tuple[PartitionMove, ...]:
    """Begin the reassignments that are not yet under way; return them.

    Raises `InvalidInput`, and `InvalidOption` if a node may not have replicas.
    """
    state = handle.refresh()
    check(handle, wanted)
    found = moves(state, wanted)
    if found:
        assignments = {each.partition: each.after for each in found}
        _submit(handle, handle.log.cluster.state.nodes, assignments.values(), partial(AlterReplicas, assignments))
    return found


def check(handle: TopicHandle, wanted: Placement) -> None:
    """Raise `InvalidOption` if a node may not have replicas. Refreshes the cluster."""
    members = handle.log.cluster.refresh().nodes
    there = {node for nodes_ in original_placement(handle.state) for node in nodes_}
    placement.check(wanted, {*nodes.live(members), *there}, members, handle.name)


def add_partitions(handle: TopicHandle, total: int, assignments: Placement | None = None) -> tuple[int, Placement]:
    """Add partitions, up to `total`; return the number of the first new one, and the nodes of the new ones.

    Without assignments the nodes continue the topic's spread. Raises `InvalidOption`, `InvalidInput`.
    """
    state = handle.refresh()
    members = handle.log.cluster.refresh().nodes
    first, now = len(state.partitions), target_placement(state)
    if not first < total <= PARTITIONS_MAX:
        raise InvalidOption(
            "num.partitions",
            f"topic {handle.name!r} already has {_partition_count(first)}, and partitions are never removed; choose "
            f"{first + 1} to {PARTITIONS_MAX}, not {total}",
        )
    live = nodes.live(members)
    if assignments is None:
        factor = max(len(each) for each in now)
        if factor > len(live):
            raise InvalidOption(
                "replication.factor",
                f"topic {handle.name!r} has {factor} replicas of each partition, but only these nodes are not fenced: "
                f"{named(live)}; add or unfence nodes, or give the assignments",
            )
        racks = {name: each.rack for name, each in live.items()}
        assignments = placement.spread(racks, total - first, factor, seed_of(handle.topic_id), first)
    elif len(assignments) != total - first:
        raise InvalidOption(
            "replica.assignment",
            f"topic {handle.name!r} gets {_partition_count(total - first, 'new ')}, but the assignment has "
            f"{len(assignments)}; give the nodes of the new partitions only",
        )
    placement.check(assignments, live, members, handle.name, first=first, replication_factor=len(now[0]))
    if not _submit(handle, members, assignments, partial(AddPartitions, assignments, first=first)):
        raise InvalidOption(
            "num.partitions",
            f"another process added partitions to topic {handle.name!r} meanwhile; check the topic, then try again",
        )
    return first, assignments


def _submit(
    handle: TopicHandle,
    members: Mapping[NodeId, Node],
    assignments: Iterable[tuple[NodeId, ...]],
    command_of: Callable[[dict[NodeId, str]], machine.Command],
) -> bool:
    """Submit a command with the incarnations of the nodes of some assignments; return whether it changed anything."""
    chosen = {node: members[node] for each in assignments for node in each}
    _tell(handle, chosen)
    outcome = handle.submit(command_of({node: chosen[node].incarnation for node in sorted(chosen)}))
    _check_nodes_again(handle, chosen)
    return bool(outcome.events)


def _tell(handle: TopicHandle, wanted: Iterable[NodeId]) -> None:
    """Let the topic know these nodes as the cluster does: it may have missed that one was wiped, and holds nothing."""
    for node in sorted(wanted):  # in one order, as a simulated world must be
        update_topic(handle, node)


def _check_nodes_again(handle: TopicHandle, chosen: Mapping[NodeId, Node]) -> None:
    """Raise `InvalidOption` if a node was removed after it was chosen; tell the topic if one was fenced.

    The removal of a node reads the topics after the node was fenced. If it has not seen these replicas, it is refused,
    because the node is fenced once more; or this process sees that the node was removed.
    """
    cluster = handle.log.cluster
    members = cluster.refresh().nodes
    for node, known in sorted(chosen.items()):
        if node in members and members[node].fencings != known.fencings:
            members = cluster.submit(FenceNode(node, again=True)).state.nodes
        if node not in members:
            raise InvalidOption(
                "node", f"node {node!r} was removed meanwhile; reassign topic {handle.name!r} to other nodes"
            )
    _tell(handle, chosen)


def run(handle: TopicHandle, moved: Callable[[int], object] = lambda _: None) -> ReassignmentProgress:
    """Catch up the new replicas until all reassignments of the topic have ended, whichever process began them.

    `moved` gets the number of bytes copied since its last call, and may wait. If a node is missing, or a file is
    damaged on every holder, the others continue. Raises what reading the journals raises.
    """
    log = handle.log
    objects = size = waited = 0
    before: tuple[int, ...] = ()
    while True:
        state = handle.refresh()
        log.cluster.refresh()
        log.probe_nodes()
        failures: list[str] = []
        entry, copied = handle.journal.number, 0
        for node in _new_replicas(state):
            problem = _why_unusable(log, node)
            if problem:
                failures.append(problem)
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
        partitions = enumerate(handle.refresh().partitions)
        unfinished = tuple(number for number, each in partitions if reassignment.is_reassigning(each))
        if not unfinished:
            return ReassignmentProgress(objects, size, (), ())
        # While others write, there is always something to copy: that does not help what has failed.
        is_stuck = bool(failures) and unfinished == before
        before = unfinished
        if (copied or handle.journal.number > entry) and not is_stuck:
            waited = 0
            continue  # more may have been written meanwhile
        if failures or waited == PATIENCE_ROUNDS:
            return ReassignmentProgress(objects, size, unfinished, tuple(dict.fromkeys(failures)))
        waited += 1
        log.environment.sleep(PATIENCE_SECONDS)


def _new_replicas(topic: Topic) -> list[NodeId]:
    """Return the nodes that partitions under reassignment are to be on, also those that are to lead them."""
    moving = filter(reassignment.is_reassigning, topic.partitions)
    found = {node for each in moving for node in reassignment.target(each)}
    return sorted(found, key=by_number)


def _why_unusable(log: Log, node: NodeId) -> str:
    """Return why a node cannot be caught up, or an empty string."""
    member = log.cluster.state.nodes.get(node)
    if member is None:
        return f"node {node!r} was removed; reassign to other nodes or cancel"
    if member.fenced:
        return f"node {node!r} is fenced; unfence it, reassign to other nodes or cancel"
    missing = log.missing_nodes.get(node)
    return "" if missing is None else missing.message


def topics_to_drain(log: Log, node_id: NodeId) -> list[tuple[TopicHandle, Placement]]:
    """Return the topics with replicas on a node, and placements that leave the node without replicas.

    Raises `InvalidOption` if there is no such node, or too few others.
    """
    return [(handle, placement_without(handle, node_id)) for handle in log.topics_on(node_id)]
