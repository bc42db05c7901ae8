"""The state machine of the cluster: topics and snapshots."""

from typing import get_args

import msgspec
import pytest

from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.cluster.cluster_state import Cluster, GroupRecord, TopicRecord, topic_of
from pyspark_log_coordinator.cluster.machine import (
    PARTITIONS_MAX,
    CreateTopic,
    DeletionsFinished,
    FinishDeletions,
    RemoveTopic,
    StartCluster,
)
from pyspark_log_coordinator.cluster.nodes import AT_THE_ROOT, Node
from pyspark_log_coordinator.journal.state_machine import JournalBegun, JournalEnded
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_storage.errors import InvalidName, InvalidOption, TopicExists
from tests.support.coordinator.clusters import NOW, after


def create(name="flights", topic_id="1", partitions=2, min_insync=1):
    return CreateTopic(name, topic_id, partitions, TopicConfig(min_insync_replicas=min_insync), (b"schema",))


@pytest.fixture
def started():
    return after(Cluster(), StartCluster("c", (Node("0", AT_THE_ROOT, "", "first"),)))


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "ü", "x" * 250])
def test_a_name_that_cannot_be_a_path_is_refused(started, name):
    with pytest.raises(InvalidName):
        cluster.decide(started, create(name), NOW)


def test_a_number_of_partitions_or_in_sync_replicas_out_of_bounds_is_refused(started):
    for partitions in (0, -1, PARTITIONS_MAX + 1):
        with pytest.raises(InvalidOption, match="partitions"):
            cluster.decide(started, create(partitions=partitions), NOW)
    with pytest.raises(InvalidOption, match="has 1 node"):
        cluster.decide(started, create(min_insync=2), NOW)


def test_a_name_is_taken_until_its_topic_is_removed(started):
    state = after(started, create())
    with pytest.raises(TopicExists, match="flights"):
        cluster.decide(state, create(topic_id="2"), NOW)
    assert cluster.decide(state, RemoveTopic("flights", "2"), NOW) == [], "another life of the name"
    state = after(state, RemoveTopic("flights", "1"))
    assert cluster.decide(state, RemoveTopic("flights", "1"), NOW) == []
    assert topic_of(after(state, create(topic_id="2")), "flights").topic_id == "2"


def test_a_removed_topic_is_remembered_until_its_deletion_is_finished(started):
    state = after(started, create(), RemoveTopic("flights", "1"), create(topic_id="2"), RemoveTopic("flights", "2"))
    assert state.deletions == {"1": "flights", "2": "flights"}
    assert cluster.decide(state, FinishDeletions(("2", "3")), NOW) == [DeletionsFinished(("2",))]
    state = after(state, FinishDeletions(("2", "3")))
    assert state.deletions == {"1": "flights"}
    assert cluster.decide(state, FinishDeletions(("2",)), NOW) == []


FLIGHTS = TopicRecord("flights", "1", 0, TopicConfig(), (("0",),), (b"schema",))


@pytest.mark.parametrize(
    "forged",
    [
        {"deletions": {"../x": "flights"}},
        {"deletions": {"1": ".."}},
        {"topics": {"..": msgspec.structs.replace(FLIGHTS, name="..")}},
        {"topics": {"flights": msgspec.structs.replace(FLIGHTS, topic_id="../1")}},
        {"groups": {"g": GroupRecord("g", "../g", 0)}},
    ],
    ids=str,
)
def test_a_name_that_would_lead_to_another_folder_is_not_read(started, forged):
    stored = cluster.MACHINE.encode_state(msgspec.structs.replace(started, **forged))
    with pytest.raises(msgspec.ValidationError, match="matching regex"):
        cluster.MACHINE.decode_state(stored)


def test_a_snapshot_is_the_state_and_one_with_another_field_is_not_guessed_at(started):
    state = after(started, create(), create("other", "2"), RemoveTopic("flights", "1"))
    assert cluster.MACHINE.decode_state(cluster.MACHINE.encode_state(state)) == state
    stored = msgspec.msgpack.decode(cluster.MACHINE.encode_state(started))
    with pytest.raises(msgspec.ValidationError):
        cluster.MACHINE.decode_state(msgspec.msgpack.encode({**stored, "mood": "good"}))


def test_an_events_name_tells_which_machine_it_is_of():
    """`pyspark-log dump` shows an entry without knowing of which journal it is."""
    of_cluster, of_topic = (set(get_args(machine.Event)) for machine in (cluster, topic))
    names = [each.__name__ for each in of_cluster | of_topic]
    assert len(set(names)) == len(names)
    assert of_cluster & of_topic == {JournalBegun, JournalEnded}
