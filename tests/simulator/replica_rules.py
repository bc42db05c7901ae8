"""The rules of replication, said once more from the design: what one event may do to a topic, and what may never be.

Nothing here is taken from the rules under test: each is a few lines over the state before an event and after it. They
are held of every event that is decided, and of every one that might be (`what_if`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from pyspark_log_coordinator.model.partition import ChunkRef, Holder, NodeId, Partition, SegmentRef
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.replication.damaged_copies import CopiesDamaged
from pyspark_log_coordinator.replication.election import LeaderElected
from pyspark_log_coordinator.replication.file_holders import FilesHeld
from pyspark_log_coordinator.replication.isr_shrink import IsrShrunk
from pyspark_log_coordinator.replication.node_changes import ReplicasFenced, ReplicasRenewed
from pyspark_log_coordinator.replication.reassignment import ReplicasAltered
from pyspark_log_coordinator.replication.suspicion import NodeSuspected, SuspicionCancelled
from pyspark_log_coordinator.segments.first_offsets import FirstOffsetsSet
from pyspark_log_coordinator.segments.swap import SegmentsSwapped
from pyspark_log_coordinator.topic import machine
from pyspark_log_coordinator.topic.sequencing import BatchSequenced
from tests.simulator.invariants import require

_MOVES_THE_HW = BatchSequenced | FilesHeld | IsrShrunk | LeaderElected | ReplicasAltered | ReplicasFenced
"""After these the HW of a partition that they change is what its LEOs say."""
_LETS_JOIN = BatchSequenced | FilesHeld | LeaderElected


def followed(topic: Topic, events: Iterable[Any]) -> Topic:
    """Return the topic after the events, each of which is held against the rules."""
    for event in events:
        after = machine.evolve(topic, event)
        hold_event(event, topic, after)
        topic = after
    return topic


def hold_event(event: Any, before: Topic, after: Topic) -> None:
    """Hold what one event does to a topic."""
    for p, (old, new) in enumerate(zip(before.partitions, after.partitions, strict=False)):
        if new is not old and not isinstance(event, FirstOffsetsSet):
            hold_high_watermark(event, f"partition {p}", after, old, new)
            _hold_joining(event, f"partition {p}", after, old, new)
    match event:
        case LeaderElected():
            _hold_election(event, before, after.partitions[event.partition])
        case ReplicasFenced():
            _hold_fenced(event.node, before, after)
        case ReplicasRenewed():
            _hold_wiped(event.node, after)
        case ReplicasAltered() if not event.adding and not event.removing:
            _hold_moved(event, before)
        case NodeSuspected():
            is_new = event.node not in before.suspects and event.number == before.suspicions + 1
            require(is_new, f"{event}: the suspicions were {before.suspects}")
        case SuspicionCancelled():
            require(before.suspects.get(event.node) == event.number, f"{event} of {before.suspects}")
        case FilesHeld():
            _hold_alive({event.node}, after)
        case BatchSequenced():
            _hold_alive({holder.node for file in event.files for holder in file.holders}, after)
        case CopiesDamaged():
            _hold_given_up(event, after)
        case SegmentsSwapped():
            _hold_swapped(event, before, after)


def hold_state(topic: Topic) -> None:
    """Hold what is true of a topic between two entries."""
    for p, partition in enumerate(topic.partitions):
        where = f"partition {p}"
        for piece in (*partition.all_segments, *partition.chunks):
            former = [each for each in holders(topic, piece) if topic.incarnations.get(each.node) != each.incarnation]
            require(not former, f"{where}: {former} are holders, which were wiped since or are unknown")
        for node, end in partition.log_end_offsets.items():
            has = reached(topic, partition, node)
            require(end <= has, f"{where}: the LEO of {node} is {end}, and it holds rows up to {has}")
        if partition.leader is not None:
            require(partition.leader in partition.isr, f"{where}: {partition.leader} leads, out of the ISR")
            require(partition.leader_end == partition.log_end, f"{where}: the leader {partition.leader} lacks rows")
        if not is_quorum(topic):
            behind = [node for node in partition.isr if partition.log_end_offsets[node] < partition.high_watermark]
            require(not behind, f"{where}: {behind} are in the ISR and below the HW {partition.high_watermark}")
        starts = partition.epoch_starts
        rise = all(one[0] < two[0] and one[1] < two[1] for one, two in itertools.pairwise(starts))
        require(rise, f"{where}: the leader epochs {starts} do not rise, or one has no rows")


def hold_high_watermark(event: Any, where: str, topic: Topic, old: Partition, new: Partition) -> None:
    """Hold that the HW is the smallest LEO of an ISR that is large enough, or of a majority, and never goes back."""
    mark, known = new.high_watermark, min(old.high_watermark, new.log_end)
    if is_quorum(topic):
        is_enough = True
        due = sorted(new.log_end_offsets.values(), reverse=True)[len(new.replicas) // 2]
    else:
        is_enough = len(new.isr) >= max(1, min(topic.config.min_insync_replicas, factor(new)))
        due = min((new.log_end_offsets[node] for node in new.isr), default=0)
    what = f"{where}: the HW is {mark} after {type(event).__name__}, was {known}, and may be {due}"
    require(known <= mark <= max(known, due if is_enough else 0), what)
    is_of_another = isinstance(event, FilesHeld) and event.node not in new.replicas
    if isinstance(event, _MOVES_THE_HW) and is_enough and not is_of_another:
        require(mark >= due, what)


def _hold_joining(event: Any, where: str, topic: Topic, old: Partition, new: Partition) -> None:
    """Hold that who joins the ISR has all committed rows, has reached the leader epoch, and is not fenced."""
    joined = set(new.isr) - set(old.isr)
    if not joined:
        return
    what = f"{where}: {joined} join the ISR with {type(event).__name__}"
    if not is_quorum(topic):  # else who has a batch that a majority has is in sync before it is sequenced
        require(isinstance(event, _LETS_JOIN), what)
        if isinstance(event, LeaderElected):
            require(joined == {event.leader}, what)
            return
    require(not joined & set(topic.fenced), f"{what}, and are fenced")
    is_elected = isinstance(event, LeaderElected)
    needed = new.high_watermark if is_elected else max(new.high_watermark, new.epoch_start)
    ends = {node: new.log_end_offsets[node] for node in joined}
    require(min(ends.values()) >= needed, f"{what} at {ends}, where {needed} is needed")


def _hold_election(event: LeaderElected, before: Topic, new: Partition) -> None:
    """Hold that an election begins a new epoch, and that whoever is elected may lead."""
    old, leader = before.partitions[event.partition], event.leader
    require(event.leader_epoch == old.leader_epoch + 1 == new.leader_epoch, f"{event} after epoch {old.leader_epoch}")
    if leader is None:
        require(event.isr == old.isr, f"{event}: the ISR was {old.isr}")
        return
    require(leader not in before.fenced, f"{event}: {leader} is fenced")
    require(old.log_end_offsets[leader] == event.start == old.log_end, f"{event}: the leader lacks rows, or has more")
    require(new.epoch_starts[-1] == (event.leader_epoch, event.start), f"{event} is recorded as {new.epoch_starts}")
    if leader not in old.isr and not is_quorum(before):
        require(event.isr == (leader,), f"{event}: others are in sync after an unclean election")


def _hold_fenced(node: NodeId, before: Topic, after: Topic) -> None:
    """Hold that a node that was fenced leaves each ISR of which it is not the last member."""
    require(node in after.fenced, f"{node} was fenced, and is not")
    for p, (old, new) in enumerate(zip(before.partitions, after.partitions, strict=True)):
        left = tuple(each for each in old.isr if each != node) or old.isr
        require(new.isr == left, f"partition {p}: the ISR {old.isr} becomes {new.isr} as {node} is fenced")


def _hold_wiped(node: NodeId, after: Topic) -> None:
    """Hold that a node that was wiped holds nothing, is in no ISR, and is not suspected."""
    require(node not in after.suspects, f"{node} begins anew, under suspicion")
    for p, partition in enumerate(after.partitions):
        where = f"partition {p}: {node} was wiped"
        require(node not in partition.isr, f"{where}, and is in the ISR")
        end = partition.log_end_offsets.get(node, partition.log_start)
        require(end == partition.log_start, f"{where}, and its LEO is {end} from {partition.log_start} on")
        for piece in (*partition.all_segments, *partition.chunks):
            has = [each for each in holders(after, piece) if each.node == node]
            require(not has, f"{where}, and holds {piece.base_offset} to {piece.end_offset}")
        require(
            all(_is_held(each, partition.replicas) for each in partition.staged), f"{where}: a staged segment is lost"
        )


def _hold_given_up(event: CopiesDamaged, after: Topic) -> None:
    """Hold that copies that are damaged do not count any more."""
    for number, _ in event.files:
        require(event.node not in {each.node for each in after.file(number).holders}, f"{event}: file {number} counts")
    for p, name, _ in event.segments:
        for each in after.partitions[p].all_segments:
            is_held = each.name == name and event.node in {holder.node for holder in each.holders}
            require(not is_held, f"{event}: {name} counts")


def _hold_swapped(event: SegmentsSwapped, before: Topic, after: Topic) -> None:
    """Hold that a segment has the place of whole neighbours, that the ISR holds it, and that nothing else changes."""
    p, new = event.partition, event.segment
    old, partition = before.partitions[p], after.partitions[p]
    what = f"partition {p}: {new} is swapped in"
    require(may_swap(before, p, new), f"{what}, and the ISR is {old.isr}")
    gone = old.pieces_between(new.base_offset, new.end_offset)
    kept = [each for each in old.pieces_between(0, old.log_end) if each not in gone]
    left = [each for each in partition.pieces_between(0, partition.log_end) if each.base_offset != new.base_offset]
    same = [(each.base_offset, each.end_offset) for each in kept] == [
        (each.base_offset, each.end_offset) for each in left
    ]
    require(same, f"{what}, and {kept} become {left}")
    pending = {each.key for each in after.pending_deletions}
    names = [each.name for each in gone if isinstance(each, SegmentRef)]
    require(pending >= {f"{p}/{name}" for name in names}, f"{what}, and {names} are never deleted")


def may_swap(topic: Topic, p: int, new: SegmentRef) -> bool:
    """Return whether no promise is broken if a segment that fits its range is swapped in."""
    partition = topic.partitions[p]
    has = {each.node for each in new.holders if topic.incarnations.get(each.node) == each.incarnation}
    if not has.issuperset(partition.isr) or len(partition.isr) < enough(topic, partition):
        return False
    level = [each for each in partition.replicas if partition.log_end_offsets[each] >= partition.high_watermark]
    return not is_quorum(topic) or len(has.intersection(level)) > len(partition.replicas) // 2


def _hold_moved(event: ReplicasAltered, before: Topic) -> None:
    """Hold that a reassignment ends when all added nodes are in the ISR, and that those who stay have the rows."""
    old, left = before.partitions[event.partition], event.replicas
    target = tuple(node for node in old.replicas if node not in old.removing)
    if left != target or not (old.adding or old.removing):
        return  # it was cancelled, or only the order is another
    require(set(old.adding) <= set(old.isr), f"{event}: {old.adding} were added, and the ISR is {old.isr}")
    require(old.leader is None or old.leader in left, f"{event}: {old.leader} leads")
    require(not old.isr or set(old.isr) & set(left), f"{event}: nobody of the ISR {old.isr} is left")
    having = [node for node in left if old.log_end_offsets[node] >= old.high_watermark]
    require(not is_quorum(before) or len(having) > len(left) // 2, f"{event}: only {having} have all committed rows")


def _hold_alive(nodes: set[NodeId], after: Topic) -> None:
    suspected = nodes & after.suspects.keys()
    require(not suspected, f"{suspected} are suspected, and an entry names them as holders")


def is_quorum(topic: Topic) -> bool:
    """Return whether a majority commits rows."""
    return topic.config.replication_mode == "quorum"


def factor(partition: Partition) -> int:
    """Return the number of replicas, while they move the smaller one of before and after."""
    after = [node for node in partition.replicas if node not in partition.removing]
    return min(len(partition.before or partition.replicas), len(after))


def enough(topic: Topic, partition: Partition) -> int:
    """Return how many replicas must have a batch with acks=all."""
    if is_quorum(topic):
        return len(partition.replicas) // 2 + 1
    return max(1, min(topic.config.min_insync_replicas, factor(partition)))


def holders(topic: Topic, piece: SegmentRef | ChunkRef) -> tuple[Holder, ...]:
    """Return the holders of a piece of a partition."""
    return piece.holders if isinstance(piece, SegmentRef) else topic.files[piece.file - topic.first_file].holders


def reached(topic: Topic, partition: Partition, node: NodeId, without: Iterable[object] = ()) -> int:
    """Return up to where a node holds all rows from the log start on, if it has lost the files `without`.

    These are numbers of append files, and names of segments.
    """
    at, lost = partition.log_start, set(without)
    for piece in (*partition.segments, *partition.chunks):
        name = piece.name if isinstance(piece, SegmentRef) else piece.file
        if piece.end_offset > at:
            if name in lost or Holder(node, topic.incarnations.get(node, "")) not in holders(topic, piece):
                break
            at = piece.end_offset
    return at


def _is_held(segment: SegmentRef, nodes: Iterable[NodeId]) -> bool:
    return bool({each.node for each in segment.holders} & set(nodes))
