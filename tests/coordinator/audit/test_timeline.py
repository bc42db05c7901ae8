"""The timeline: every kind of event is known to it, and what it says of leaders and ISRs is what came of them."""

from __future__ import annotations

import re
from typing import get_args
from unittest import mock

import msgspec
import pytest

from pyspark_log_coordinator.audit import timeline
from pyspark_log_coordinator.audit.timeline import Lane
from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.cluster.cluster_state import Cluster
from pyspark_log_coordinator.cluster.nodes import Node, NodeChanged
from pyspark_log_coordinator.group import machine as group
from pyspark_log_coordinator.model.partition import Holder
from pyspark_log_coordinator.replication.election import ElectLeaders
from pyspark_log_coordinator.replication.file_holders import HoldFiles
from pyspark_log_coordinator.replication.node_changes import AlterReplicaNode
from pyspark_log_coordinator.segments.retention import DeleteRecords
from pyspark_log_coordinator.sync.replica_file import ids, missing
from pyspark_log_coordinator.topic import machine as topic
from tests.support.coordinator.replicated_topic import ALL, ReplicatedTopic


class _Anything(mock.MagicMock):
    """A value that a sentence may do anything with."""

    def __format__(self, how):
        return ""


SILENT = {
    # What they change in leaders and ISRs is said, whatever event changes it.
    "LeaderElected", "IsrShrunk", "FilesHeld", "ReplicasFenced", "ReplicasUnfenced",
    # About files alone.
    "OrphanFloorRaised", "FloorMarked", "DeletionsConfirmed", "DeletionsFinished",
    # The rebalance goes on.
    "RebalanceExtended",
}  # fmt: skip
KINDS = [kind for machine in (cluster, topic, group) for kind in get_args(machine.Event)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda each: each.__name__)
def test_every_event_has_words_or_is_silent_on_purpose(kind):
    told = list(timeline.said(None, _Anything(), [_Anything(spec=kind)]))
    if kind.__name__ in SILENT:
        assert told == []
    else:
        [one] = told
        assert len(re.findall(r"[a-z]{2,}", one.words)) >= 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"incarnation": "another"}, "begins anew, without data, at /disk/1"),
        ({"url": "/moved"}, "moved with its data at /moved"),
        ({"rack": "a"}, "is in rack 'a'"),
        ({"fenced": True, "fencings": 1}, "was fenced"),
        ({}, "was returned to service"),
    ],
)
def test_a_change_of_a_node_is_told_by_what_it_was_before(changes, words):
    node = Node("1", "/disk/1", "", "first")
    [first] = timeline.said(Cluster(), Cluster(), [NodeChanged(node)])
    assert first.words == "node 1 joined, at /disk/1"
    known = Cluster(nodes={"1": msgspec.structs.replace(node, fenced=not changes)})
    [told] = timeline.said(known, known, [NodeChanged(msgspec.structs.replace(node, **changes))])
    assert told.words == f"node 1 {words}"
    assert told.is_bad == ("fenced" in words or "anew" in words)


@pytest.fixture
def story():
    """A topic whose leader was fenced and returned, with deleted rows."""
    made = ReplicatedTopic(replicas=(ALL, ("1", "2", "0")))
    for _ in range(3):
        made.append({0: [b"a"], 1: [b"b"]}, on=ALL, acks="all")
    made.handle.submit(DeleteRecords(0, 1))
    incarnation = made.handle.state.incarnations["0"]
    made.handle.submit(AlterReplicaNode("0", incarnation, fenced=True))
    made.append({0: [b"c"], 1: [b"d"]}, on=("1", "2"), acks="all")
    made.handle.submit(AlterReplicaNode("0", incarnation))
    made.handle.submit(HoldFiles("0", incarnation, *ids(missing(made.handle.state, "0"))))
    live = tuple(Holder(node, made.handle.state.incarnations[node]) for node in ALL)
    made.handle.submit(ElectLeaders(live))
    return made


def numbers(text):
    return [int(each) for each in re.findall(r"\d+", text)]


def test_what_is_said_of_leaders_and_isrs_leads_to_those_of_the_state(story):
    leaders, isrs = {0: "0", 1: "1"}, {0: set(ALL), 1: set(ALL)}
    for each in timeline.moments(story.handle):
        if found := re.fullmatch(r"node (\w+) leads partitions? (.*?)(?: in place of .*)?", each.words):
            leaders |= dict.fromkeys(numbers(found[2]), found[1])
        elif found := re.fullmatch(r"partitions? (.*) lost the leader, .*", each.words):
            leaders |= dict.fromkeys(numbers(found[1]), None)
        elif found := re.fullmatch(r"node (\w+) (left|joined) the ISR of partitions? (.*)", each.words):
            for number in numbers(found[3]):
                (isrs[number].discard if found[2] == "left" else isrs[number].add)(found[1])
    state = story.handle.refresh().partitions
    assert leaders == {number: each.leader for number, each in enumerate(state)}
    assert isrs == {number: set(each.isr) for number, each in enumerate(state)}
    assert leaders[0] != "0", "nothing was elected"


def test_a_story_is_told_in_words(story):
    said = [(each.lane, each.words, each.is_bad) for each in timeline.moments(story.handle)]
    assert (Lane.SEGMENTS, "partition 0: 1 rows were deleted; it begins at 1", False) in said
    assert (Lane.ELECTIONS, "node 1 leads partition 0 in place of node 0", False) in said
    assert (Lane.ISR, "node 0 joined the ISR of partitions 0, 1", False) in said
    assert (Lane.ISR, "node 0 left the ISR of partitions 0, 1", True) in said


def test_a_batch_begins_at_the_end_of_the_log_though_its_rows_are_not_committed():
    made = ReplicatedTopic(min_insync_replicas="2")
    made.append({0: [b"a", b"b"]}, on=("0",))
    made.append({0: [b"c"]}, on=("0",))
    assert made.partition().high_watermark == 0
    said = [each.words for each in timeline.moments(made.handle) if each.lane is Lane.BATCHES]
    assert said == [
        "batch 0 of 'q': 2 rows (partition 0 from 0 to 1)",
        "batch 1 of 'q': 1 row (partition 0 from 2 to 2)",
    ]


def test_an_entry_that_was_trimmed_or_does_not_exist_yet_is_none(topic):
    journal = topic.handle.journal
    oldest = next(journal.objects.snapshots())
    journal.objects.delete_before(oldest)
    for number in (1, oldest - 1, journal.number + 1):
        assert timeline.entry_of(topic.handle, number) is None
    _, [event] = timeline.entry_of(topic.handle, journal.number)
    assert event["event"] == "BatchSequenced"
