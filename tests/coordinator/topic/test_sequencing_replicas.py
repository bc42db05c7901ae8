"""Sequencing a batch on several replicas: ISR, high watermark and refusals by acks."""

import msgspec
import pytest

from pyspark_log_coordinator.model.batch import SequencedFile
from pyspark_log_coordinator.model.partition import Holder
from pyspark_log_coordinator.topic.machine import AlterConfig
from pyspark_log_storage.errors import (
    InvalidOption,
    NotEnoughReplicas,
)
from tests.support.coordinator.topics import after, claim, commit, decide, file, incarnation, started

ABC = ("A", "B", "C")


@pytest.mark.parametrize(("first", "second", "end"), [(ABC, ("A", "B"), 3), (("A", "B"), ABC, 0)])
def test_a_member_that_holds_one_of_two_files_leaves_the_isr_and_does_not_skip_the_other(first, second, end):
    files = file({0: 3}, on=first), file({0: 2}, on=second)
    state = after(started(replicas=ABC), commit(claim(0), *files))
    assert state.partitions[0].isr == ("A", "B")
    assert state.partitions[0].log_end_offsets["C"] == end


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


def test_a_batch_behind_rows_that_no_holder_has_is_refused():
    state = after(started(replicas=ABC), commit(claim(0), file({0: 2}, on=("A",)), acks="1"))
    with pytest.raises(NotEnoughReplicas, match="the only copy of offsets 0 to 1 is on A"):
        decide(state, commit(claim(1), file({0: 3}, on=("B", "C"))))


def test_a_holder_in_another_incarnation_holds_nothing():
    stale = SequencedFile("0-f", (Holder("A", incarnation("A")), Holder("B", "wiped")), file({0: 3}).chunks)
    state = after(started(replicas=("A", "B")), commit(claim(0), stale))
    assert state.partitions[0].isr == ("A",)
    assert state.files[0].holders == (Holder("A", incarnation("A")),)
    with pytest.raises(NotEnoughReplicas):
        decide(started(), commit(claim(0), msgspec.structs.replace(stale, holders=(Holder("A", "wiped"),))))
