"""Sequencing a batch on several replicas: ISR, high watermark and refusals by acks."""

import msgspec
import pytest

from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.replication.election import LeaderElected
from pyspark_log_coordinator.replication.isr_shrink import IsrShrunk
from pyspark_log_coordinator.topic.machine import (
    AlterConfig,
    Holder,
    SequencedFile,
)
from pyspark_log_storage.errors import (
    InvalidOption,
    NotEnoughReplicas,
)
from tests.support.coordinator.topics import after, claim, commit, decide, file, incarnation, started

ABC = ("A", "B", "C")


# Replicas


def test_with_acks_all_the_isr_shrinks_to_those_who_hold_the_batch_and_the_high_watermark_follows():
    batch = file({1: 3}, on=("A", "C"))
    assert decide(started(2, ABC), commit(claim(0), batch))[0] == IsrShrunk(1, ("A", "C"))
    for acks, isr, high_watermark in (("all", ("A", "C"), 3), ("1", ABC, 0)):
        other, one = after(started(2, ABC), commit(claim(0), batch, acks=acks)).partitions
        assert (one.isr, one.high_watermark, one.log_end) == (isr, high_watermark, 3)
        assert one.log_end_offsets == {"A": 3, "B": 0, "C": 3}
        assert other.isr == ABC


@pytest.mark.parametrize(("first", "second", "end"), [(ABC, ("A", "B"), 3), (("A", "B"), ABC, 0)])
def test_a_member_that_holds_one_of_two_files_leaves_the_isr_and_does_not_skip_the_other(first, second, end):
    files = file({0: 3}, on=first), file({0: 2}, on=second)
    state = after(started(replicas=ABC), commit(claim(0), *files))
    assert state.partitions[0].isr == ("A", "B")
    assert state.partitions[0].log_end_offsets["C"] == end


def test_a_member_that_left_does_not_come_back_by_holding_a_later_batch():
    state = after(started(replicas=ABC), commit(claim(0), file({0: 3}, on=("A", "B"))))
    state = after(state, commit(claim(1), file({0: 2}, on=ABC)))
    assert state.partitions[0].isr == ("A", "B")
    assert state.partitions[0].log_end_offsets["C"] == 0


def test_a_batch_that_too_few_hold_is_refused():
    with pytest.raises(NotEnoughReplicas, match=r"min\.insync\.replicas is 2"):
        decide(started(replicas=ABC, min_insync=2), commit(claim(0), file({0: 3}, on=("A",))))
    state = after(started(replicas=ABC), commit(claim(0), file({0: 3}, on=("A",))))
    strict = msgspec.structs.replace(state, config=TopicConfig(min_insync_replicas=2))
    with pytest.raises(NotEnoughReplicas, match=r"min\.insync\.replicas is 2"):
        decide(strict, commit(claim(1), file({0: 3}, on=("A",))))
    with pytest.raises(NotEnoughReplicas, match="no in-sync replica holds the batch"):
        decide(started(replicas=ABC), commit(claim(1), file({0: 3}, on=())))


def test_one_replica_cannot_be_asked_for_more_than_itself():
    state = after(started(replicas=("A",), min_insync=3), commit(claim(0), file({0: 3})))
    assert state.partitions[0].high_watermark == 3


def test_more_in_sync_replicas_than_there_are_cannot_be_asked_for():
    state = started(2, ("A", "B"))
    with pytest.raises(InvalidOption, match="cannot require 3 in-sync replicas: it has 2"):
        decide(state, AlterConfig({"min.insync.replicas": "3"}))
    assert after(state, AlterConfig({"min.insync.replicas": "2"})).config.min_insync_replicas == 2
    assert after(started(min_insync=2), AlterConfig({"retention.ms": "1"})).config.retention_ms == 1


@pytest.mark.parametrize("acks", ["1", "0"])
def test_a_batch_that_the_leader_does_not_hold_is_refused_unless_all_replicas_are_asked(acks):
    with pytest.raises(NotEnoughReplicas, match="leader's node 'A'"):
        decide(started(replicas=ABC), commit(claim(0), file({0: 3}, on=("B", "C")), acks=acks))


def test_with_acks_all_another_leads_where_the_leader_does_not_hold_the_batch():
    state = after(started(replicas=ABC), commit(claim(0), file({0: 2}, on=ABC)))
    command = commit(claim(1), file({0: 3}, on=("B", "C")))
    elected, _ = decide(state, command)
    assert elected == LeaderElected(0, "B", 1, 2, ("B", "C"))
    partition = after(state, command).partitions[0]
    assert (partition.leader, partition.isr, partition.high_watermark) == ("B", ("B", "C"), 5)
    assert [chunk.leader_epoch for chunk in partition.chunks] == [0, 1]


def test_a_batch_behind_rows_that_no_holder_has_is_refused():
    state = after(started(replicas=ABC), commit(claim(0), file({0: 2}, on=("A",)), acks="1"))
    with pytest.raises(NotEnoughReplicas, match="the only copy of offsets 0 to 1 is on A"):
        decide(state, commit(claim(1), file({0: 3}, on=("B", "C"))))


def test_one_partition_that_is_refused_refuses_the_whole_batch():
    files = file({0: 1}, on=ABC), file({1: 1}, on=())
    with pytest.raises(NotEnoughReplicas, match="partition 1"):
        decide(started(partitions=2, replicas=ABC), commit(claim(0), *files))


def test_a_holder_in_another_incarnation_holds_nothing():
    stale = SequencedFile("0-f", (Holder("A", incarnation("A")), Holder("B", "wiped")), file({0: 3}).chunks)
    state = after(started(replicas=("A", "B")), commit(claim(0), stale))
    assert state.partitions[0].isr == ("A",)
    assert state.files[0].holders == (Holder("A", incarnation("A")),)
    with pytest.raises(NotEnoughReplicas):
        decide(started(), commit(claim(0), msgspec.structs.replace(stale, holders=(Holder("A", "wiped"),))))


def test_a_holder_that_is_no_replica_is_no_replica_afterwards():
    state = after(started(replicas=("A", "B")), commit(claim(0), file({0: 3}, on=("A", "B", "Z"))))
    assert set(state.partitions[0].log_end_offsets) == {"A", "B"}
