"""What must hold of the replicas, held after every entry of the topic's journal.

The bytes of a file are the same wherever it is, so they are kept once as what was first written (`files`), and every
disk is compared with that.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from pyspark_log_coordinator.journal.paxos import majority
from pyspark_log_coordinator.model.partition import ChunkRef, Holder, NodeId, Partition, SegmentRef
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.replication import replicas
from pyspark_log_coordinator.replication.election import LeaderElected
from pyspark_log_coordinator.segments.swap import SegmentsSwapped
from pyspark_log_coordinator.topic import machine
from pyspark_log_coordinator.topic.sequencing import BatchSequenced
from tests.simulator.departures import Departures
from tests.simulator.disks import Disk
from tests.simulator.invariants import Rows, require


class ReplicatedRows(Rows):
    """A topic's journal, its rows, and who has them."""

    def __init__(
        self,
        disks: Mapping[str, Disk],
        members: Callable[[], Mapping[str, Disk]],
        counts: Counter[str],
        factor: int,
        departures: Departures,
        *args: Any,
    ) -> None:
        """`members` are the disks of the nodes that there are now."""
        super().__init__(*args)
        self.disks = disks
        self._members = members
        self._departures = departures
        self._counts = counts
        self._factor = factor

    def decided(self, events: list[Any], before: Topic, after: Topic) -> None:
        super().decided(events, before, after)
        self._departures.decided(events, before, after)
        self._counts.update(type(each).__name__ for each in events)
        state = before
        for each in events:  # an entry may have batches of other writers, with other acks
            former, state = state, machine.evolve(state, each)
            self._hold_event(each, former, state)
        if is_quorum(after) and before.partitions:
            self._hold_majority(before, after)
        self.hold_replicas(after)

    def _hold_event(self, event: Any, before: Topic, after: Topic) -> None:
        """Hold that an event promises only what enough replicas have."""
        for p, (old, new) in enumerate(zip(before.partitions, after.partitions, strict=False)):
            fenced = set(new.isr).difference(old.isr).intersection(after.fenced)
            require(not fenced, f"partition {p}: {fenced} join the ISR, and are fenced")
            is_moved = new.high_watermark > old.high_watermark and not is_quorum(after)
            is_right = not is_moved or len(new.isr) >= self._enough(after)
            require(is_right, f"partition {p}: the HW moves to {new.high_watermark}, and the ISR is {new.isr}")
        match event:
            case BatchSequenced(acks="all"):
                for p in {chunk.partition for file in event.files for chunk in file.chunks}:
                    partition = after.partitions[p]
                    ends = {node: partition.log_end_offsets[node] for node in partition.isr}
                    is_on_all = set(ends.values()) == {partition.log_end} and len(ends) >= self._enough(after)
                    require(is_on_all, f"partition {p}: the ISR ends at {ends} after a batch with acks=all")
            case LeaderElected():
                epoch = before.partitions[event.partition].leader_epoch
                require(event.leader_epoch == epoch + 1, f"{event} follows epoch {epoch}")
            case SegmentsSwapped():
                isr, new = before.partitions[event.partition].isr, event.segment
                having = {each.node for each in new.holders if before.incarnations.get(each.node) == each.incarnation}
                is_held = having.issuperset(isr) and len(having) >= self._enough(before)
                require(is_held, f"partition {event.partition}: {having} hold {new.name}, and the ISR is {isr}")

    def _enough(self, topic: Topic) -> int:
        """Return how many replicas must have what is promised."""
        return majority(self._factor) if is_quorum(topic) else min(topic.config.min_insync_replicas, self._factor)

    def _hold_majority(self, before: Topic, after: Topic) -> None:
        """Hold that the HW has moved only over rows that a majority of the replicas holds."""
        for p, (old, new) in enumerate(zip(before.partitions, after.partitions, strict=True)):
            mark = new.high_watermark
            if mark == old.high_watermark:
                continue
            having = [each for each in new.replicas if reached(after, new, each) >= mark]
            is_held = len(having) >= majority(len(new.replicas))
            require(is_held, f"partition {p}: the HW has moved to {mark}, and only {having} have these rows")

    def hold_replicas(self, state: Topic) -> None:
        """Hold that each holder has what it is said to have, and that nothing committed is on no disk any more."""
        for p, partition in enumerate(state.partitions):
            where = f"partition {p}"
            for piece in (*partition.segments, *partition.chunks):
                whole = self._whole_copies(state, p, piece)
                if piece.base_offset < partition.high_watermark:
                    what = f"rows {piece.base_offset} to {piece.end_offset} are on no disk"
                    is_there = whole or self._is_on_any_disk(self.keys_of(state, p, piece))
                    require(is_there, f"{where}: {what}, the HW is {partition.high_watermark}")
            require(set(partition.isr) <= set(partition.replicas), f"{where}: the ISR is no part of the replicas")
            for node, end in partition.log_end_offsets.items():
                held = reached(state, partition, node)
                require(end <= held, f"{where}: the LEO of {node} is {end}, and it holds rows up to {held}")
                # Where a majority commits, one that lags is in nobody's way, and only those who have all may lead.
                is_behind = node in partition.isr and held < partition.high_watermark and not is_quorum(state)
                require(not is_behind, f"{where}: {node} is in the ISR and ends at {held}")
            if partition.leader is not None:
                is_right = partition.leader in partition.isr and partition.leader_end == partition.log_end
                require(
                    is_right, f"{where}: {partition.leader} leads {partition.isr}, and ends at {partition.leader_end}"
                )
            starts = partition.epoch_starts
            rise = all(one[0] < two[0] and one[1] < two[1] for one, two in itertools.pairwise(starts))
            require(rise, f"{where}: the leader epochs {starts} do not rise, or one has no rows")

    def hold_equal(self) -> None:
        """Hold that every replica has every file of its partitions, whole."""
        state: Topic = self.states[-1]
        for p, partition in enumerate(state.partitions):
            for piece in (*partition.segments, *partition.chunks):
                for key in self.keys_of(state, p, piece):
                    for node in partition.replicas:
                        require(
                            self.is_whole(key, self.disks[node]), f"node {node} has not got {key} as it was written"
                        )

    def is_whole(self, key: str, disk: Disk) -> bool:
        """Return whether a disk has a file as it was written."""
        return disk.real.data.get(key) == self.files.data[key]

    def _is_on_any_disk(self, keys: set[str]) -> bool:
        """Return whether a disk has files whole, though it may not be said to: a report of their loss came too late.

        Its node's follower finds them and says so again.
        """
        return any(all(self.is_whole(key, disk) for key in keys) for disk in self._members().values())

    def keys_of(self, state: Topic, p: int, piece: SegmentRef | ChunkRef) -> set[str]:
        """Return the keys of what a piece of a partition lies in."""
        if isinstance(piece, SegmentRef):
            return self._keys(f"{p}/{piece.name}")
        return self._keys(f"append/{state.file(piece.file).name}")

    def _whole_copies(self, state: Topic, p: int, piece: SegmentRef | ChunkRef) -> int:
        """Return how many holders really have a piece; each that has not lost it by a fault must."""
        keys = self.keys_of(state, p, piece)
        whole = 0
        for holder in replicas.holders(state, piece):
            disk = self.disks[holder.node]
            known = state.incarnations.get(holder.node)
            require(known == holder.incarnation, f"{holder} is none of the topic's nodes, and is said to hold {keys}")
            there = disk.was_there.get(holder.incarnation, set())
            # An index is made again from the .log, so it is no harm where it came to lie below a mount point.
            absent = {key for key in keys - there if not (disk.was_away and key.endswith(".index"))}
            require(not absent, f"{absent} was never on node {holder.node}, which is said to hold it")
            if disk.incarnation != holder.incarnation or holder.node not in self._members():
                continue  # it was wiped, and the topic does not know it yet, or the node has left
            if all(self.is_whole(key, disk) for key in keys & there):
                whole += 1
            else:
                require(keys & disk.lost, f"{keys} is not whole on node {holder.node}, which is said to hold it")
        return whole


def is_quorum(topic: Topic) -> bool:
    """Return whether a majority commits rows."""
    return topic.config.replication_mode == "quorum"


def reached(topic: Topic, partition: Partition, node: NodeId) -> int:
    """Return up to where a node holds all rows from the log start on."""
    at, holder = partition.log_start, Holder(node, topic.incarnations.get(node, ""))
    for piece in (*partition.segments, *partition.chunks):
        if piece.end_offset > at:
            if holder not in replicas.holders(topic, piece):
                break
            at = piece.end_offset
    return at
