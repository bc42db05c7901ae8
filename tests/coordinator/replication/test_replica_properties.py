"""Whatever happens to a topic's replicas, in any order, its partitions stay whole and its promises hold."""

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pyspark_log_coordinator.replication import file_holders, replicas
from pyspark_log_coordinator.replication.damaged_copies import CopiesDamaged
from pyspark_log_coordinator.replication.isr_shrink import Lagging
from pyspark_log_coordinator.replication.row_loss import RowsLost
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_coordinator.topic.machine import (
    AddPartitions,
    AlterConfig,
    AlterReplicaNode,
    AlterReplicas,
    CommitBatch,
    DeleteRecords,
    ElectLeaders,
    ElectPreferred,
    FileRef,
    Holder,
    HoldFiles,
    MaintainSegments,
    PartitionReassignment,
    ReportDamage,
    SequencedFile,
    ShrinkIsr,
    Suspect,
    Suspicion,
)
from pyspark_log_coordinator.topic.sequencing import BatchSequenced
from pyspark_log_storage.errors import BatchMismatch, InvalidInput, NodeMissing, NotEnoughReplicas
from tests.support.coordinator.topics import claim, file, started, swap

NODES = "ABCD"
PARTITIONS_MAX = 3

partitions = st.integers(0, PARTITIONS_MAX - 1)
nodes = st.sampled_from(NODES)
some_nodes = st.lists(nodes, max_size=4, unique=True)
assignments = st.lists(nodes, min_size=1, max_size=3, unique=True).map(tuple)
acks = st.sampled_from(["all", "all", "1"])

Row = tuple[str, int]
"""The name of the file that a row came in, and its number there."""


class Replicas(RuleBasedStateMachine):
    """A topic, its twin that was restored from a snapshot, and beside them the rows as plain lists."""

    @initialize(min_insync=st.integers(1, 3), unclean=st.booleans(), mode=st.sampled_from(["isr", "isr", "quorum"]))
    def begin(self, min_insync: int, unclean: bool, mode: str) -> None:
        self.state = started(2, "ABC", min_insync, unclean_leader_election_enable=unclean, replication_mode=mode)
        self.twin = self.state
        self.rows: list[list[Row]] = [[], []]
        self.incarnations = dict(self.state.incarnations) | {"D": "incarnation of D"}
        self.batches = itertools.count()
        self.may_lose = unclean
        self.decoder = msgspec.msgpack.Decoder(list[topic.Event])

    @rule(
        parts=st.lists(st.tuples(partitions, st.integers(1, 3)), min_size=1, max_size=3),
        on=some_nodes,
        acks=acks,
        rolled=st.sets(partitions),
    )
    def write(self, parts: list[tuple[int, int]], on: list[str], acks: Any, rolled: set[int]) -> None:
        """Write a batch, and roll the oldest chunk of some partitions on the first of its nodes in passing."""
        parts = [(number % len(self.state.partitions), rows) for number, rows in parts]
        number = next(self.batches)
        holders = tuple(Holder(node, self.incarnations[node]) for node in on)
        batch = SequencedFile(f"{0:020d}-{number}", holders, file(parts).chunks)
        swaps = [
            msgspec.structs.replace(made, segment=msgspec.structs.replace(made.segment, holders=holders[:1]))
            for p, one in enumerate(self.state.partitions)
            if p in rolled and one.chunks
            for made in [swap(one.chunks[0].base_offset, one.chunks[0].end_offset, p, epoch=one.leader_epoch)]
        ]
        command = CommitBatch(claim(number), (batch,), acks, tuple(swaps))
        if any(isinstance(each, BatchSequenced) for each in self.submit(command)):
            assert topic.decide(self.state, command, 0) == [], "a replay changes nothing"

    @rule(node=nodes, chosen=st.sets(st.integers(0, 40)), all_of_it=st.booleans(), old_life=st.booleans())
    def copy(self, node: str, chosen: set[int], all_of_it: bool, old_life: bool) -> None:
        missing = file_holders.missing(self.state, node)
        files = tuple(each for each, _ in missing.files if all_of_it or each % 40 in chosen)
        segments = [(number, each.name) for number, each in (*missing.segments, *missing.staged)]
        segments = [each for i, each in enumerate(segments) if all_of_it or i in chosen]
        incarnation = "another" if old_life else self.incarnations[node]
        command = HoldFiles(node, incarnation, (*files, 10_000), (*segments, (0, "gone"), (99, "nowhere")))
        if self.submit(command):
            assert not old_life
            assert not topic.decide(self.state, command, 0), "what changes nothing is no entry"

    @rule(number=partitions, data=st.data(), on=some_nodes)
    def roll(self, number: int, data: Any, on: list[str]) -> None:
        number %= len(self.state.partitions)
        one = self.state.partitions[number]
        bounds = sorted({each.base_offset for each in (*one.segments, *one.chunks)} | {one.log_end})
        first = data.draw(st.sampled_from(bounds))
        last = data.draw(st.sampled_from(bounds))
        if first < last:
            made = swap(first, last, number, epoch=one.leader_epoch)
            holders = tuple(Holder(node, self.incarnations[node]) for node in on)
            made = msgspec.structs.replace(made, segment=msgspec.structs.replace(made.segment, holders=holders))
            self.submit(MaintainSegments((made,)))

    @rule(number=partitions, data=st.data())
    def delete_records(self, number: int, data: Any) -> None:
        number %= len(self.state.partitions)
        self.submit(DeleteRecords(number, data.draw(st.integers(0, self.state.partitions[number].high_watermark))))

    @rule(number=partitions, lagging=some_nodes, epochs_ago=st.integers(0, 1))
    def shrink(self, number: int, lagging: list[str], epochs_ago: int) -> None:
        one = self.state.partitions[number % len(self.state.partitions)]
        self.submit(ShrinkIsr((Lagging(number, tuple(lagging), one.leader_epoch - epochs_ago, one.leader_end),)))

    @rule(node=nodes, chosen=st.sets(st.integers(0, 40)), all_of_it=st.booleans(), lost=st.booleans())
    def damage(self, node: str, chosen: set[int], all_of_it: bool, lost: bool) -> None:
        """Report copies of a node, true or not: no report costs a row or the promise of min.insync.replicas."""
        before = self.state
        chunks = [chunk for one in before.partitions for chunk in one.chunks]
        files = {each.file: each.position for each in chunks if all_of_it or each.file % 40 in chosen}
        segments = [
            (number, each.name, 0)
            for number, one in enumerate(before.partitions)
            for i, each in enumerate((*one.segments, *one.staged))
            if all_of_it or i in chosen
        ]
        named = (*files.items(), (10_000, 0)), (*segments, (0, "gone", 0))
        assert not topic.decide(before, ReportDamage(node, "another", *named), 0)
        command = ReportDamage(node, self.incarnations[node], *named, are_lost=lost)
        if not self.submit(command, loses=False):
            return
        assert not any(isinstance(each, CopiesDamaged) for each in topic.decide(self.state, command, 0))
        for old, new in zip(before.partitions, self.state.partitions, strict=True):
            needed = replicas.required_acks(old, before.config)
            assert new.leader is not None or old.leader is None
            committed = [sum(end >= old.high_watermark for end in one.log_end_offsets.values()) for one in (old, new)]
            for had, has in ((len(old.isr), len(new.isr)), committed):
                assert has >= min(needed, had)
            for had, has in zip((*old.segments, *old.chunks), (*new.segments, *new.chunks), strict=True):
                assert replicas.holders(self.state, has) or not replicas.holders(before, had)

    @rule(node=nodes)
    def suspect(self, node: str) -> None:
        self.submit(Suspect(node, self.incarnations[node]))

    @rule(live=some_nodes, gone=some_nodes, numbers_ago=st.integers(0, 1), unclean=st.booleans())
    def elect(self, live: list[str], gone: list[str], numbers_ago: int, unclean: bool) -> None:
        suspicions = tuple(Suspicion(node, self.state.suspects.get(node, 0) - numbers_ago) for node in gone)
        may_lose, self.may_lose = self.may_lose, self.may_lose or unclean
        self.submit(ElectLeaders(self.holders(live), suspicions, unclean=unclean))
        self.may_lose = may_lose

    @rule(live=some_nodes)
    def elect_preferred(self, live: list[str]) -> None:
        self.submit(ElectPreferred(self.holders(live)), loses=False)

    @rule(node=nodes)
    def wipe(self, node: str) -> None:
        self.incarnations[node] += "'"
        self.submit(AlterReplicaNode(node, self.incarnations[node], fenced=node in self.state.fenced))

    @rule(node=nodes, fenced=st.booleans())
    def fence(self, node: str, fenced: bool) -> None:
        self.submit(AlterReplicaNode(node, self.incarnations[node], fenced))

    @rule(number=partitions, to=assignments)
    def reassign(self, number: int, to: tuple[str, ...]) -> None:
        self.submit(AlterReplicas((PartitionReassignment(number, to),), dict(self.incarnations)), loses=False)

    @rule(to=assignments)
    def add_partition(self, to: tuple[str, ...]) -> None:
        if len(self.state.partitions) < PARTITIONS_MAX:
            self.submit(AddPartitions((to,), dict(self.incarnations)), loses=False)

    @rule(min_insync=st.integers(1, 3), mode=st.sampled_from(["isr", "quorum"]))
    def alter(self, min_insync: int, mode: str) -> None:
        self.submit(AlterConfig({"min.insync.replicas": f"{min_insync}", "replication.mode": mode}), loses=False)
        for one in self.state.partitions:
            assert replicas.advance(one, self.state.config) == one

    def holders(self, live: list[str]) -> tuple[Holder, ...]:
        return tuple(Holder(node, self.incarnations[node]) for node in live)

    def submit(self, command: topic.Command, *, loses: bool = True) -> list[Any]:
        """Carry a command out, or not where it is refused; the state before it is what it was."""
        stored = topic.MACHINE.encode_state(self.state)
        try:
            events = topic.decide(self.state, command, 0)
        except (NotEnoughReplicas, NodeMissing, InvalidInput, BatchMismatch):
            events = []
        assert topic.MACHINE.encode_state(self.state) == stored
        read = self.decoder.decode(msgspec.msgpack.encode(events))
        for event, again in zip(events, read, strict=True):
            before, self.state = self.state, topic.evolve(self.state, event)
            self.twin = topic.evolve(self.twin, again)
            self.hold(before, event)
            assert loses or not isinstance(event, RowsLost)
        return events

    def hold(self, before: topic.Topic, event: Any) -> None:
        """Hold an event against the state before it."""
        self.rows += [[] for _ in self.state.partitions[len(self.rows) :]]
        if isinstance(event, BatchSequenced):
            for one in event.files:
                for i, chunk in enumerate(one.chunks):
                    self.rows[chunk.partition] += [(f"{one.name}/{i}", row) for row in range(chunk.rows)]
        if isinstance(event, RowsLost):
            assert event.start >= before.partitions[event.partition].high_watermark or self.may_lose
            lost = self.rows[event.partition][event.start :]
            assert len(lost) == event.end - event.start
            del self.rows[event.partition][event.start :]
            for batch in event.batches:
                known = self.state.producers[batch.producer]
                assert known.batch_id != batch.batch_id or known.rows_lost >= batch.rows
        for old, new in zip(before.partitions, self.state.partitions, strict=False):
            assert old.leader_epoch <= new.leader_epoch
            assert old.log_start <= new.log_start
            assert old.high_watermark <= new.high_watermark or isinstance(event, RowsLost)
        assert before.next_file <= self.state.next_file

    @rule()
    def restart(self) -> None:
        """Another process begins at a snapshot."""
        self.twin = topic.MACHINE.decode_state(topic.MACHINE.encode_state(self.state))

    @invariant()
    def the_twin_is_the_same(self) -> None:
        assert self.twin == self.state

    @invariant()
    def partitions_are_whole(self) -> None:
        for number, one in enumerate(self.state.partitions):
            assert one.log_start <= one.high_watermark <= one.log_end == len(self.rows[number])
            pieces = [*one.segments, *one.chunks]
            at = pieces[0].base_offset if pieces else one.log_end
            assert at <= one.log_start
            for piece in pieces:
                assert piece.base_offset == at
                at = piece.end_offset
            assert at == one.log_end
            for chunk in one.chunks:
                ref: FileRef = self.state.file(chunk.file)
                assert self.rows[number][chunk.base_offset] == (f"{ref.name}/{chunk.position // 64}", 0)
            epochs = [epoch for epoch, _ in one.epoch_starts]
            starts = [start for _, start in one.epoch_starts]
            assert epochs == sorted(set(epochs))
            assert starts == sorted(set(starts))

    @invariant()
    def what_a_replica_has_follows_from_who_holds_what(self) -> None:
        for one in self.state.partitions:
            assert set(one.log_end_offsets) == set(one.replicas)
            for node, end in one.log_end_offsets.items():
                assert end == replicas.log_end_offset(self.state, one, node, one.log_start)

    @invariant()
    def leaders_have_every_row_and_members_of_the_isr_what_is_committed(self) -> None:
        quorum = self.state.config.replication_mode == "quorum"
        for one in self.state.partitions:
            assert set(one.isr) <= set(one.replicas)
            assert one.leader is None or one.leader in one.isr
            assert one.leader is None or one.log_end_offsets[one.leader] == one.log_end
            assert one.leader not in self.state.fenced
            assert one.isr != () or one.leader is None
            for node in one.isr if not quorum else ():
                assert one.log_end_offsets[node] >= one.high_watermark
            # Each member can read all rows that it should have, whichever others are lost.
            for segment in one.segments if not quorum else ():
                assert {holder.node for holder in segment.holders} >= set(one.isr)

    @invariant()
    def nothing_is_held_by_a_node_of_another_life(self) -> None:
        known = self.state.incarnations
        segments = [each for one in self.state.partitions for each in (*one.segments, *one.staged)]
        for each in (*self.state.files, *segments):
            assert all(known.get(holder.node) == holder.incarnation for holder in each.holders)

    @invariant()
    def reassignments_end(self) -> None:
        for one in self.state.partitions:
            assert set(one.adding) | set(one.removing) <= set(one.replicas)
            left = tuple(node for node in one.replicas if node not in one.removing)
            is_kept = replicas.keeps_committed(one, left, len(left), self.state.config)
            ready = set(one.adding) <= set(one.isr) and not set(one.adding) & set(one.removing) and is_kept
            able = [node for node in one.isr if one.log_end_offsets[node] == one.log_end and node not in one.removing]
            if (one.adding or one.removing) and ready and one.leader is not None:
                assert not [node for node in able if node not in self.state.fenced]


TestReplicas = Replicas.TestCase
TestReplicas.settings = settings(max_examples=15, stateful_step_count=40, deadline=None)


@pytest.mark.deep
class TestManyReplicas(Replicas.TestCase):
    """The same, for longer."""

    settings = settings(max_examples=500, stateful_step_count=50, deadline=None)
