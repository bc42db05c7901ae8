"""What must hold of the replicas, held after every entry of the topic's journal.

The bytes of a file are the same wherever it is, so they are kept once as what was first written (`files`), and every
disk is compared with that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from pyspark_log_coordinator.journal.paxos import majority
from pyspark_log_coordinator.model.partition import ChunkRef, SegmentRef
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.replication import replicas
from pyspark_log_coordinator.segments.swap import SegmentStaged
from pyspark_log_coordinator.topic import replica_commands
from pyspark_log_coordinator.topic.sequencing import BatchSequenced
from tests.simulator import replica_rules
from tests.simulator.departures import Departures
from tests.simulator.disks import Disk
from tests.simulator.invariants import Rows, require

_COUNTED = replica_commands.Event | SegmentStaged


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
        self._counts.update(type(each).__name__ for each in events if isinstance(each, _COUNTED))
        state = before
        for each in events:  # an entry may have batches of other writers, with other acks
            state = replica_rules.followed(state, [each])
            if isinstance(each, BatchSequenced) and each.acks == "all":
                self._hold_promise(each, state)
        if after.config.replication_mode == "quorum" and before.partitions:
            self._hold_majority(before, after)
        self.hold_replicas(after)
        replica_rules.hold_state(after)

    def _hold_promise(self, event: BatchSequenced, state: Topic) -> None:
        """Hold that every member of the ISR has a batch with acks=all, and that these are enough."""
        for p in {chunk.partition for file in event.files for chunk in file.chunks}:
            partition = state.partitions[p]
            ends = {node: partition.log_end_offsets[node] for node in partition.isr}
            require(set(ends.values()) == {partition.log_end}, f"partition {p}: the ISR ends at {ends} after acks=all")
            is_quorum = state.config.replication_mode == "quorum"
            enough = majority(self._factor) if is_quorum else min(state.config.min_insync_replicas, self._factor)
            require(len(ends) >= enough, f"partition {p}: a batch with acks=all is on {len(ends)} nodes alone")

    def _hold_majority(self, before: Topic, after: Topic) -> None:
        """Hold that the HW has moved only over rows that a majority of the replicas holds."""
        for p, (old, new) in enumerate(zip(before.partitions, after.partitions, strict=True)):
            mark = new.high_watermark
            if mark == old.high_watermark:
                continue
            having = [each for each in new.replicas if replica_rules.reached(after, new, each) >= mark]
            is_held = len(having) >= majority(len(new.replicas))
            require(is_held, f"partition {p}: the HW has moved to {mark}, and only {having} have these rows")

    def hold_replicas(self, state: Topic) -> None:
        """Hold that each holder has what it is said to have, and that nothing committed is on no disk any more."""
        for p, partition in enumerate(state.partitions):
            where = f"partition {p}"
            for piece in (*partition.segments, *partition.staged, *partition.chunks):
                whole = self._whole_copies(state, p, piece)
                if piece.base_offset < partition.high_watermark and piece not in partition.staged:
                    what = f"rows {piece.base_offset} to {piece.end_offset} are on no disk"
                    is_there = whole or self._is_on_any_disk(self.keys_of(state, p, piece))
                    require(is_there, f"{where}: {what}, the HW is {partition.high_watermark}")
            for each in partition.staged:
                is_held = any(holder.node in partition.replicas for holder in each.holders)
                require(is_held, f"{where}: no replica holds the staged segment {each.name}")
            require(set(partition.isr) <= set(partition.replicas), f"{where}: the ISR is no part of the replicas")
            # Where a majority commits, one that lags is in nobody's way, and only those who have all may lead.
            bound = () if state.config.replication_mode == "quorum" else partition.isr
            for node in bound:
                reached = replica_rules.reached(state, partition, node)
                require(reached >= partition.high_watermark, f"{where}: {node} is in the ISR and ends at {reached}")

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
