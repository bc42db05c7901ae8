"""What a topic may answer to a command, said once more from the design: rules over a state, a command and its events.

`what_if` asks. Each rule says when something must happen as well as when it must not.
"""

from __future__ import annotations

from typing import Any

from pyspark_log_coordinator.model.partition import NodeId, Partition, SegmentRef
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.replication.damage import ReportDamage
from pyspark_log_coordinator.replication.damaged_copies import CopiesDamaged
from pyspark_log_coordinator.replication.election import ElectLeaders, ElectPreferred, LeaderElected
from pyspark_log_coordinator.replication.file_holders import HoldFiles
from pyspark_log_coordinator.replication.isr_shrink import IsrShrunk, ShrinkIsr
from pyspark_log_coordinator.replication.node_changes import AlterReplicaNode
from pyspark_log_coordinator.replication.reassignment import AddPartitions, ReplicasAltered
from pyspark_log_coordinator.replication.suspicion import CancelSuspicion, NodeSuspected, Suspect, SuspicionCancelled
from pyspark_log_coordinator.segments.first_offsets import SetFirstOffsets
from pyspark_log_coordinator.segments.orphans import ConfirmDeletions, DeletionsConfirmed, RaiseOrphanFloor
from pyspark_log_coordinator.segments.retention import ApplyRetention, DeleteRecords
from pyspark_log_coordinator.segments.swap import SegmentsSwapped, SegmentStaged, SwapSegments
from pyspark_log_coordinator.topic.machine import MaintainSegments
from pyspark_log_coordinator.topic.sequencing import CommitBatch
from pyspark_log_storage.errors import LogError
from tests.simulator import batch_rules
from tests.simulator.invariants import require
from tests.simulator.replica_rules import enough, followed, is_quorum, may_swap, reached


def hold(topic: Topic, command: Any, events: list[Any], after: Topic, now: int) -> None:
    """Hold the events that a command was answered with at `now` (ms), and the state after them."""
    match command:
        case ElectLeaders():
            _hold_elections(topic, command, events, after)
        case ElectPreferred():
            _hold_preferred(topic, command, events)
        case ShrinkIsr():
            _hold_shrunk(topic, command, events)
        case Suspect() | CancelSuspicion():
            _hold_suspicion(topic, command, events)
        case AlterReplicaNode():
            _hold_led(topic, command, after)
        case HoldFiles():
            known = topic.incarnations.get(command.node)
            require(command.incarnation == known, f"{command} is taken, and the incarnation is {known}")
        case ReportDamage():
            _hold_damage(topic, command, events, after)
        case CommitBatch():
            batch_rules.hold_answer(topic, command, events, after)
        case MaintainSegments():
            _hold_swaps(topic, command, events)
        case AddPartitions():
            _hold_added(topic, command, after)
        case _:
            _hold_log(topic, command, events, after, now)


def _hold_log(topic: Topic, command: Any, events: list[Any], after: Topic, now: int) -> None:
    """Hold what becomes of the log's ends, and of files that nothing needs."""
    match command:
        case ApplyRetention():
            starts = [_retained_from(each, topic, now) for each in topic.partitions]
            require([each.log_start for each in after.partitions] == starts, f"{events} at {now}: {starts} are due")
        case DeleteRecords():
            mark = topic.partitions[command.partition].high_watermark
            before = mark if command.before == -1 else command.before
            start = max(before, topic.partitions[command.partition].log_start)
            is_right = 0 <= before <= mark and after.partitions[command.partition].log_start == start
            require(is_right, f"{command} leads to {events}, the HW is {mark}")
        case ConfirmDeletions():
            keys = _pending(topic)
            left = keys[keys.index(command.last) + 1 :] if command.last in keys else keys
            # Any entry also swaps in a staged segment that has become due, which replaces other files.
            following = [each for each in events if not isinstance(each, DeletionsConfirmed)]
            more = _pending(followed(topic, following))[len(keys) :]
            require(_pending(after) == [*left, *more], f"{command} of {keys} leads to {events}")
        case RaiseOrphanFloor():
            _hold_floor(topic, command, after, now)
        case SetFirstOffsets():
            _hold_first_offsets(topic, command, after)


def _pending(topic: Topic) -> list[str]:
    return [each.key for each in topic.pending_deletions]


def hold_refusal(topic: Topic, command: Any, error: LogError) -> None:
    """Hold that a command was refused rightly."""
    what = f"{command} is refused: {error!r}"
    match command:
        case CommitBatch():
            require(batch_rules.outcome(topic, command) is batch_rules.Outcome.REFUSED, what)
        case DeleteRecords():
            require(not -1 <= command.before <= topic.partitions[command.partition].high_watermark, what)
        case SetFirstOffsets():
            require(not _may_begin(topic, command), what)
        case HoldFiles():
            require(command.incarnation != topic.incarnations.get(command.node), what)


def _hold_elections(topic: Topic, command: ElectLeaders, events: list[Any], after: Topic) -> None:
    """Hold who is elected, where, and who stays in sync.

    A leader is replaced if it is fenced, or a suspicion of it still stands. The live member of the ISR with most rows
    leads, of equals the preferred one. Only if there is none, nobody may still come back with all rows, and somebody
    allowed it, does the replica lead that really has most.
    """
    live = {each.node for each in command.live if topic.incarnations.get(each.node) == each.incarnation}
    gone = {each.node for each in command.unreachable if topic.suspects.get(each.node) == each.number} - live
    found = {each.node: each for each in command.set_back if topic.incarnations.get(each.node) == each.incarnation}
    moved = {each.partition for each in events if isinstance(each, ReplicasAltered)}
    elected: dict[int, LeaderElected] = {}
    for each in events:
        if isinstance(each, LeaderElected):
            elected.setdefault(each.partition, each)
    for p, partition in enumerate(topic.partitions):
        event, leader = elected.get(p), partition.leader
        what = f"partition {p} of {partition.isr}, led by {leader}: {event} where {live} are live and {gone} gone"
        is_due = leader is None or leader in gone or leader in topic.fenced
        if (command.partitions is not None and p not in command.partitions) or not is_due:
            require(event is None or p in moved, f"{what}: no election is due")
            continue
        able = [node for node in partition.replicas if node in live and node not in topic.fenced]
        clean = _most_rows(
            {node: partition.log_end_offsets[node] for node in able if _may_lead(topic, partition, able, node)}
        )
        if clean is not None:
            kept = [node for node in partition.isr if node not in gone and node not in topic.fenced]
            isr = tuple(node for node in partition.replicas if node in (*kept, clean))
            require(event is not None and (event.leader, event.isr) == (clean, isr), f"{what}: {clean} must lead {isr}")
            continue
        voters = partition.replicas if is_quorum(topic) else partition.isr
        absent = {*live, *gone, *topic.fenced, *(found.keys() - topic.suspects.keys())}
        ends = {
            node: _really_reached(topic, p, partition, node, found)
            for node in partition.replicas
            if node not in topic.fenced and (node in live or node in found)
        }
        unclean = _most_rows(ends) if absent.issuperset(voters) else None
        if unclean is not None and (command.unclean or topic.config.unclean_leader_election_enable):
            require(
                event is not None and (event.leader, event.isr) == (unclean, (unclean,)), f"{what}: {ends} are there"
            )
            lost = {name for number, name in found[unclean].segments if number == p} if unclean in found else set()
            kept = [one.name for one in after.partitions[p].all_segments if _has(one.holders, unclean)]
            require(not lost.intersection(kept), f"{what}: it has lost {lost}, which count")
        elif leader is not None:
            require(event is not None and event.leader is None, f"{what}: nobody may lead")
        else:
            require(event is None or p in moved, f"{what}: nobody may lead")


def _may_lead(topic: Topic, partition: Partition, able: list[NodeId], node: NodeId) -> bool:
    if is_quorum(topic):
        has_rows = partition.log_end_offsets[node] >= partition.high_watermark
        return has_rows and len(able) >= enough(topic, partition)
    return node in partition.isr


def _really_reached(topic: Topic, p: int, partition: Partition, node: NodeId, found: dict[NodeId, Any]) -> int:
    if node not in found:
        return partition.log_end_offsets[node]
    lost = [*found[node].files, *(name for number, name in found[node].segments if number == p)]
    return reached(topic, partition, node, lost)


def _most_rows(ends: dict[NodeId, int]) -> NodeId | None:
    """Return the node that has most rows, of equals the first."""
    return next((node for node, end in ends.items() if end == max(ends.values())), None)


def _hold_preferred(topic: Topic, command: ElectPreferred, events: list[Any]) -> None:
    """Hold that a preferred leader is live and has every row, and is elected then."""
    live = {each.node for each in command.live if topic.incarnations.get(each.node) == each.incarnation}
    elected = {each.partition: each.leader for each in events if isinstance(each, LeaderElected)}
    for p, partition in enumerate(topic.partitions):
        first = partition.replicas[0]
        able = first in live and first in partition.isr and first not in topic.fenced
        has_all = partition.log_end_offsets[first] == partition.log_end
        is_chosen = command.partitions is None or p in command.partitions
        is_due = is_chosen and partition.leader not in (None, first) and able and has_all
        require(
            (elected.get(p) == first) == is_due, f"partition {p}: {elected.get(p)} is elected, {first} is preferred"
        )


def _hold_shrunk(topic: Topic, command: ShrinkIsr, events: list[Any]) -> None:
    """Hold that those leave who lack rows of the leader, and either lagged in its epoch or are under suspicion."""
    gone = {each.node for each in command.unreachable if topic.suspects.get(each.node) == each.number}
    shrunk = {each.partition: each.isr for each in events if isinstance(each, IsrShrunk)}
    for p, partition in enumerate(topic.partitions):
        ends = partition.log_end_offsets
        lagging = {
            node
            for seen in command.lagging
            if seen.partition == p and seen.leader_epoch == partition.leader_epoch
            for node in seen.nodes
            if node in ends and ends[node] < seen.leader_end
        }
        leaving = {
            node
            for node in partition.isr
            if partition.leader is not None and node in lagging | gone and ends[node] < partition.leader_end
        }
        isr = tuple(node for node in partition.isr if node not in leaving)
        require(
            shrunk.get(p, partition.isr) == isr, f"partition {p}: {shrunk.get(p)} of {partition.isr} stay, not {isr}"
        )


def _hold_suspicion(topic: Topic, command: Suspect | CancelSuspicion, events: list[Any]) -> None:
    """Hold that a node is suspected once, in its incarnation, and that a suspicion is cancelled by whoever knew it."""
    known, is_present = topic.suspects.get(command.node), topic.incarnations.get(command.node) == command.incarnation
    due: list[Any] = []
    if isinstance(command, Suspect) and is_present and known is None:
        due = [NodeSuspected(command.node, topic.suspicions + 1)]
    elif isinstance(command, CancelSuspicion) and is_present and known == command.number:
        due = [SuspicionCancelled(command.node, command.number)]
    found = [each for each in events if isinstance(each, NodeSuspected | SuspicionCancelled)]
    require(found == due, f"{command} leads to {found}, not to {due}")


def _hold_led(topic: Topic, command: AlterReplicaNode, after: Topic) -> None:
    """Hold that in the place of a node that was wiped or fenced another member of the ISR leads, if one may."""
    if command.node not in topic.incarnations:
        return
    require((command.node in after.fenced) == command.fenced, f"{command}: {after.fenced} are fenced")
    is_wiped = topic.incarnations[command.node] != command.incarnation
    is_fenced = command.fenced and command.node not in topic.fenced
    if is_wiped and is_fenced and is_quorum(topic):
        return  # it may have been one of the majority that elected another leader before it was fenced
    for p, (old, new) in enumerate(zip(topic.partitions, after.partitions, strict=True)):
        if old.leader != command.node or not (is_wiped or is_fenced):
            continue
        if is_quorum(topic) and new.replicas != old.replicas:
            continue  # a majority of the former replicas has elected the leader before the reassignment ended
        able = [node for node in new.replicas if node not in after.fenced and node not in after.suspects]
        able = [node for node in able if _may_lead(after, new, able, node)]
        what = f"partition {p}: {command.node} led the ISR {old.isr}, and {new.leader} leads"
        require(new.leader in able if able else new.leader is None or new.leader in after.suspects, what)


def _hold_damage(topic: Topic, command: ReportDamage, events: list[Any], after: Topic) -> None:
    """Hold that a report, which may be false, costs a copy at most: another one is left, and enough members are."""
    node, suspects = command.node, topic.suspects.keys()
    if topic.incarnations.get(node) != command.incarnation:
        require(not events, f"{command} changes something, and {node} is {topic.incarnations.get(node)!r}")
        return

    def doubted(numbers: list[int]) -> set[NodeId]:
        """Return the nodes that do not count as others, for a file of these partitions."""
        is_out = all(node not in topic.partitions[p].isr for p in numbers)
        return {node} if command.are_lost and is_out else {node} | suspects

    for event in (each for each in events if isinstance(each, CopiesDamaged)):
        for number, _ in event.files:
            needing = [p for p, each in enumerate(topic.partitions) if number in {one.file for one in each.chunks}]
            others = {each.node for each in topic.file(number).holders} - doubted(needing)
            require(others, f"{event}: no other copy of file {number} is known to be there")
        for p, name, position in event.segments:
            partition = topic.partitions[p]
            one = next(each for each in partition.all_segments if each.name == name)
            others = {each.node for each in one.holders} - doubted([p])
            require(0 <= position < one.log_bytes, f"{event}: {name} has {one.log_bytes} bytes")
            require(others or one in partition.staged, f"{event}: no other copy of {name} is known to be there")
    for p, (old, new) in enumerate(zip(topic.partitions, after.partitions, strict=True)):
        mark, staying = old.high_watermark, [each for each in new.isr if each not in suspects]
        what = f"partition {p}: {node} has lost rows, the ISR {old.isr} becomes {new.isr}, and {suspects} are suspected"
        if is_quorum(topic):
            staying = [each for each in staying if new.log_end_offsets[each] >= mark]
            has_lost = old.log_end_offsets.get(node, 0) >= mark > new.log_end_offsets.get(node, 0)
        else:
            has_lost = node in old.isr and node not in new.isr
        require(not has_lost or len(staying) >= enough(topic, old), what)
        if old.leader == node != new.leader:
            is_level = old.log_end_offsets[new.leader] == old.log_end if new.leader is not None else False
            require(is_level and new.leader not in suspects, f"{what}: {new.leader} leads")


def _hold_swaps(topic: Topic, command: MaintainSegments, events: list[Any]) -> None:
    """Hold that a segment that fits is swapped in at once, or staged if the ISR lacks it and somebody can copy it."""
    for each in command.swaps:
        p, new = each.partition, each.segment
        partition = topic.partitions[p]
        found = [
            one for one in events if isinstance(one, SegmentsSwapped | SegmentStaged) and one.segment.name == new.name
        ]
        known = {one.node for one in new.holders if topic.incarnations.get(one.node) == one.incarnation}
        due: list[type] = []
        if _fits(topic, each) and may_swap(topic, p, new):
            due = [SegmentsSwapped]
        elif _fits(topic, each) and known.intersection(partition.replicas):
            due = [SegmentStaged]
        require([type(one) for one in found] == due, f"partition {p}: {each} leads to {found}, not {due}")


def _fits(topic: Topic, swap: SwapSegments) -> bool:
    """Return whether a segment of chunks is made of what is in its range, of committed rows, and is worth it."""
    partition, new = topic.partitions[swap.partition], swap.segment
    present = partition.pieces_between(new.base_offset, new.end_offset)
    segments = [each for each in present if isinstance(each, SegmentRef)]
    is_whole = bool(present) and (present[0].base_offset, present[-1].end_offset) == (new.base_offset, new.end_offset)
    is_done = len(present) == len(segments) == 1 and (segments[0].is_parquet or segments[0].level >= new.level)
    is_next = bool(segments) or partition.chunks[:1] == present[:1]
    is_staged = any(
        each.base_offset < new.end_offset and new.base_offset < each.end_offset for each in partition.staged
    )
    is_known = swap.based_on == partition.leader_epoch and new.born >= topic.orphan_floor
    is_dense = all(each.keyed is None for each in segments)
    is_committed = new.end_offset <= partition.high_watermark
    return is_whole and is_next and is_known and is_dense and is_committed and not (is_done or is_staged)


def _retained_from(partition: Partition, topic: Topic, now: int) -> int:
    """Return where the log starts after retention: what is too old, or too much, and whole segments alone."""
    config, start = topic.config, partition.log_start
    sizes = [each.log_bytes for each in partition.segments]
    size = sum(sizes) + sum(each.length for each in partition.chunks)
    for each in partition.segments if config.cleanup_policy != "compact" else ():
        is_old = config.retention_ms >= 0 and each.max_timestamp // 1000 < now - config.retention_ms
        size -= each.log_bytes
        if not is_old and not 0 <= config.retention_bytes <= size:
            break
        start = each.end_offset
    return start


def _hold_floor(topic: Topic, command: RaiseOrphanFloor, after: Topic, now: int) -> None:
    """Hold that the floor is an entry that was marked long enough ago, and which producers it lets be forgotten."""
    mark, floor = topic.floor_mark, topic.orphan_floor
    is_due = mark is not None and now - mark.at_ms >= topic.config.orphan_retention_ms
    due = max(floor, mark.number) if mark is not None and is_due else floor
    require(after.orphan_floor == due, f"{command}: the floor is {after.orphan_floor} after {mark}, not {due}")
    if due > floor:
        kept = {name for name, each in topic.producers.items() if each.born is None or each.born >= due}
        require(after.producers.keys() == kept, f"{command}: {list(after.producers)} are known, not {kept}")


def _hold_added(topic: Topic, command: AddPartitions, after: Topic) -> None:
    """Hold that partitions are added once, empty, and that no fenced node is in sync."""
    count = len(topic.partitions)
    new = after.partitions[count:]
    is_due = command.first in {None, count}
    require(len(new) == (len(command.assignments) if is_due else 0), f"{command} adds {new} to {count}")
    for nodes, partition in zip(command.assignments, new, strict=False):
        able = tuple(node for node in nodes if node not in topic.fenced)
        told = partition.replicas, partition.isr, partition.leader, partition.log_end
        require(told == (nodes, able, next(iter(able), None), 0), f"{command} adds {partition}")


def _may_begin(topic: Topic, command: SetFirstOffsets) -> bool:
    """Return whether partitions may begin at other offsets: those that have never had a row, or begin there."""
    starts = {p: (topic.partitions[p].log_start, topic.partitions[p].log_end) for p in command.offsets}
    return all(starts[p][1] == 0 or starts[p] == (offset, offset) for p, offset in command.offsets.items())


def _hold_first_offsets(topic: Topic, command: SetFirstOffsets, after: Topic) -> None:
    require(_may_begin(topic, command), f"{command} is taken, and there were rows")
    for p, offset in command.offsets.items():
        new = after.partitions[p]
        found = {new.log_start, new.log_end, new.high_watermark, *new.log_end_offsets.values(), new.epoch_start}
        require(found == {offset}, f"{command}: partition {p} begins at {found}")


def _has(some: Any, node: NodeId) -> bool:
    return node in {each.node for each in some}
