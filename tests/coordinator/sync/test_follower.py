"""A follower catches up all topics of its node, writes checkpoints, and deletes files that no entry names."""

import gc
import weakref

import pytest

from pyspark_log_coordinator.log import node_admin
from pyspark_log_coordinator.maintenance import checkpoint_files, topic_description
from pyspark_log_coordinator.sync import follower as following
from pyspark_log_coordinator.sync.follower import Follower, FollowerRound
from pyspark_log_coordinator.sync.scrubber import scrub
from pyspark_log_coordinator.topic.machine import AlterReplicaNode, DeleteTopic, RaiseOrphanFloor
from pyspark_log_storage import layout
from pyspark_log_storage.errors import InvalidOption, NodeMissing, ObjectMissing
from pyspark_log_storage.objects import checkpoints
from tests.support.coordinator.replicated_topic import ReplicatedTopic, write
from tests.support.coordinator.several_nodes import Stores
from tests.support.coordinator.troubled_store import ALWAYS, TroubledStore
from tests.support.elsewhere import PlainStore
from tests.support.memory_store import MemoryStore


@pytest.fixture
def topic():
    return ReplicatedTopic()


def checkpoint(topic, name, file):
    """Return a node's checkpoint of topic t."""
    folder = layout.topic_folder("t", topic.handle.topic_id)
    data = topic.log.node_store(name).read(f"{folder}{file}")
    return checkpoints.decode_epochs(data, file) if "/" in file else checkpoints.decode_offsets(data, file)


def test_a_round_catches_up_every_topic_with_replicas_on_the_node(topic):
    other = topic.log.create_topic("u", 1, replicas=[["0", "1"]])
    topic.log.create_topic("elsewhere", 1, replicas=[["0", "2"]])
    topic.append()
    write(topic.log, other, 0, {0: [b"u"]}, on=["0"])
    follower = Follower(topic.log, "1")
    behind = follower.behind()
    assert follower.round() == FollowerRound(2, behind, ())
    assert (follower.behind(), follower.round()) == (0, FollowerRound(0, 0, ()))
    assert other.refresh().partitions[0].log_end_offsets == {"0": 1, "1": 1}
    assert {key.split("/")[1] for key in topic.log.node_store("1").list("topics/")} == {"t", "u"}


def test_a_file_that_cannot_be_copied_is_reported_with_its_topic_and_the_others_go_on(topic):
    other = topic.log.create_topic("u", 1, replicas=[["0", "1"]])
    lost = topic.append()
    write(topic.log, other, 0, {0: [b"u"]}, on=["0"])
    topic.log.node_store("0").delete(topic.handle.append_file(lost))
    done = Follower(topic.log, "1").round()
    assert done.objects == 1
    (failure,) = done.failures
    assert failure.startswith("topic 't': ")
    assert lost in failure


def test_a_topic_deleted_meanwhile_does_no_harm(topic):
    topic.append()
    topic.handle.submit(DeleteTopic())
    assert Follower(topic.log, "1").round() == FollowerRound(0, 0, ())


def test_what_was_written_for_a_topic_is_forgotten_when_that_is_deleted(topic):
    follower = Follower(topic.log, "1")
    follower.round()
    assert follower._written.keys() == {topic.handle.topic_id}
    topic.log.delete_topic("t")
    follower.round()
    assert follower._written.keys() == set()
    handle = weakref.ref(topic.handle)
    del topic.handle
    topic.log.create_topic("u", 1)
    gc.collect()
    assert handle() is None


def test_a_topic_deleted_while_it_is_copied_does_no_harm_to_the_others(topic):
    other = topic.log.create_topic("u", 1, replicas=[["0", "1"]])
    topic.append()
    write(topic.log, other, 0, {0: [b"u"]}, on=["0"])

    def moved(_):
        if "t" in topic.log.topics():
            topic.log.delete_topic("t")

    assert Follower(topic.log, "1").round(moved).failures == ()
    assert other.refresh().partitions[0].log_end_offsets == {"0": 1, "1": 1}


def test_an_entry_of_which_no_answer_came_is_a_failure_and_the_next_round_goes_on():
    topic = ReplicatedTopic(Stores(lambda url: TroubledStore(PlainStore(url))))
    other = topic.log.create_topic("u", 1, replicas=[["0", "1"]])
    topic.append()
    write(topic.log, other, 0, {0: [b"u"]}, on=["0"])
    root = topic.stores.at["/cluster"]
    root.lose_answers(f"{topic.handle.journal.folder}entries", times=ALWAYS)
    follower = Follower(topic.log, "1")
    (failure,) = follower.round().failures
    assert failure.startswith("topic 't': ")
    assert "may or may not have been written" in failure
    assert other.refresh().partitions[0].log_end_offsets["1"] == 1
    root.forget_troubles()
    assert follower.round().failures == ()
    assert topic.partition().log_end_offsets["1"] == 1


def test_a_report_of_which_no_answer_came_does_not_end_a_scrub():
    topic = ReplicatedTopic(Stores(lambda url: TroubledStore(PlainStore(url))))
    other = topic.log.create_topic("u", 1, replicas=[["0", "1"]])
    topic.append(on=["0", "1"])
    write(topic.log, other, 0, {0: [b"u"]}, on=["0", "1"])
    (key,) = topic.log.node_store("1").list(f"{layout.topic_folder('t', topic.handle.topic_id)}append/")
    topic.log.node_store("1").put(key, b"damaged")
    topic.stores.at["/cluster"].lose_answers(f"{topic.handle.journal.folder}entries", times=ALWAYS)
    done = scrub(topic.log, "1")
    (failure,) = done.failures
    assert "may or may not have been written" in failure
    assert done.objects == 2


def test_a_topic_with_a_damaged_journal_does_not_keep_the_others_from_being_copied_and_scrubbed(topic):
    other = topic.log.create_topic("u", 1, replicas=[["0", "1"]])
    write(topic.log, other, 0, {0: [b"u"]}, on=["0"])
    for key in list(topic.log.store.list(topic.handle.journal.folder)):
        topic.log.store.put(key, b"damaged")
    log = topic.stores.log()
    follower = Follower(log, "1")
    assert follower.behind() > 0
    done = follower.round()
    assert other.refresh().partitions[0].log_end_offsets == {"0": 1, "1": 1}
    assert [each.startswith("topic 't': journal") for each in done.failures] == [True]
    following.clean_up_node(log, "1")
    scrubbed = scrub(log, "1")
    assert (scrubbed.objects, scrubbed.failures) == (1, done.failures)


def test_a_topic_deleted_while_it_is_scrubbed_does_no_harm_to_the_others(topic):
    other = topic.log.create_topic("u", 1, replicas=[["0", "1"]])
    names = [topic.append(on=("0", "1")) for _ in range(3)]
    write(topic.log, other, 0, {0: [b"u"]}, on=["0", "1"])

    def moved(_):
        if "t" in topic.log.topics():
            topic.log.delete_topic("t")
            for name in names:
                topic.log.node_store("1").delete(topic.handle.append_file(name))

    done = scrub(topic.log, "1", moved)
    assert (done.objects, done.failures) == (1, ())


def test_a_scrub_gives_up_a_staged_segment_without_a_whole_copy(topic):
    for _ in range(2):
        topic.append(on=("0", "1", "2"), acks="all")
    key = topic.handle.segment(0, topic.roll(2))
    topic.log.node_store("0").put(layout.segment_file(key), b"damaged")
    done = scrub(topic.log, "0")
    assert (done.repaired, done.failures) == ((key,), ())
    assert topic.partition().staged == ()


def test_an_unknown_node_is_an_error(topic):
    with pytest.raises(InvalidOption, match="node '9' does not exist"):
        Follower(topic.log, "9")


def test_every_process_may_follow_for_a_node(topic):
    topic.append()
    first, second = Follower(topic.log, "1"), Follower(topic.open()[0], "1")
    assert (first.round().objects, second.round().objects) == (1, 0)


# Checkpoints


def test_a_round_writes_the_checkpoints_of_what_the_node_has():
    topic = ReplicatedTopic(replicas=(("0", "1"), ("1", "2"), ("0", "2")))
    topic.append({0: [b"a"], 1: [b"b", b"c"], 2: [b"d"]}, on=("0", "1"), acks="1")
    Follower(topic.log, "1").round()
    Follower(topic.log, "2").round()
    assert checkpoint(topic, "1", checkpoints.RECOVERY_POINT) == {("t", 0): 0, ("t", 1): 0}
    assert checkpoint(topic, "1", checkpoints.REPLICATION) == {("t", 0): 1, ("t", 1): 0}
    assert checkpoint(topic, "2", checkpoints.REPLICATION) == {("t", 1): 2, ("t", 2): 1}
    assert checkpoint(topic, "2", f"1/{checkpoints.LEADER_EPOCH}") == ((0, 0),)
    with pytest.raises(ObjectMissing):
        checkpoint(topic, "1", f"2/{checkpoints.LEADER_EPOCH}")
    Follower(topic.log, "1").round()
    assert checkpoint(topic, "1", checkpoints.REPLICATION) == {("t", 0): 1, ("t", 1): 2}


def test_the_recovery_point_is_the_end_of_the_segments_that_the_node_has(topic):
    for _ in range(3):
        topic.append(on=("0", "2"), acks="all")
    topic.roll(2)
    Follower(topic.log, "2").round()
    contents = checkpoint_files.contents(topic.handle.refresh(), "1")
    assert checkpoints.decode_offsets(contents[checkpoints.RECOVERY_POINT], "") == {("t", 0): 0}
    assert checkpoints.decode_offsets(contents[checkpoints.REPLICATION], "") == {("t", 0): 0}
    Follower(topic.log, "1").round()
    for name in ("1", "2"):
        assert checkpoint(topic, name, checkpoints.RECOVERY_POINT) == {("t", 0): 2}
        assert checkpoint(topic, name, checkpoints.REPLICATION) == {("t", 0): 3}


def test_a_round_writes_the_topics_description(topic):
    topic.append(on=("0", "2"), acks="all")
    Follower(topic.log, "1").round()
    key = f"{layout.topic_folder('t', topic.handle.topic_id)}{topic_description.NAME}"
    described = topic_description.decode(topic.log.node_store("1").read(key), key)
    state = topic.handle.refresh()
    assert (described.number, described.topic) == (topic.handle.journal.number, state)  # there is no segment yet


def test_a_node_that_has_no_rows_of_an_epoch_does_not_know_it(topic):
    topic.append(on=("0", "1"), acks="all")
    state = topic.handle.refresh()
    topic.handle.submit(AlterReplicaNode("0", state.incarnations["0"], fenced=True))
    topic.append(on=("1",), acks="1")
    partition = topic.partition()
    assert (partition.leader, partition.epoch_starts) == ("1", ((0, 0), (1, 1)))
    state = topic.handle.refresh()
    epochs = {
        name: checkpoints.decode_epochs(
            checkpoint_files.contents(state, name)[f"0/{checkpoints.LEADER_EPOCH}"], "epochs"
        )
        for name in "012"
    }
    assert epochs == {"0": ((0, 0),), "1": ((0, 0), (1, 1)), "2": ((0, 0),)}


def test_checkpoints_that_have_not_changed_are_not_written_again(topic):
    topic.append()
    follower = Follower(topic.log, "1")
    follower.round()
    folder = layout.topic_folder("t", topic.handle.topic_id)
    topic.log.node_store("1").put(f"{folder}{checkpoints.REPLICATION}", b"?")
    follower.round()
    assert topic.log.node_store("1").read(f"{folder}{checkpoints.REPLICATION}") == b"?"
    Follower(topic.log, "1").round()
    assert checkpoint(topic, "1", checkpoints.REPLICATION) == {("t", 0): 0}


# Cleaning


def test_only_files_that_no_entry_names_are_deleted_from_the_node():
    topic = ReplicatedTopic(orphan_retention_ms="0", file_delete_delay_ms="0")
    kept = topic.append(on=("0", "1", "2"), acks="all")
    store = topic.log.node_store("1")
    orphan = topic.handle.append_file(layout.born_name(0, "ab" * 16))
    store.create(orphan, b"nobody names it")
    assert following.clean_up_node(topic.log, "1") == 0
    for _ in range(2):
        topic.handle.submit(RaiseOrphanFloor(topic.handle.journal.number))
    assert topic.handle.refresh().orphan_floor > 0
    assert following.clean_up_node(topic.log, "1") == 1
    assert topic.keys("1") == [f"append/{kept}"]


def test_a_staged_segment_is_no_orphan():
    topic = ReplicatedTopic(orphan_retention_ms="0")
    for _ in range(2):
        topic.append(on=("0", "1", "2"), acks="all")
    name = topic.roll(2)
    for _ in range(3):
        topic.handle.submit(RaiseOrphanFloor(topic.handle.journal.number))
    assert [each.name for each in topic.partition().staged] == [name]
    following.clean_up_node(topic.log, "0")
    assert f"0/{name}.log" in topic.keys("0")


def test_nothing_is_removed_from_a_disk_that_is_another():
    topic = ReplicatedTopic()
    topic.append()
    topic.log.node_store("1").delete("node")
    with pytest.raises(NodeMissing):
        following.clean_up_node(topic.log, "1")
    node_admin.renew(topic.log, "1")
    assert following.clean_up_node(topic.log, "1") == 0


def test_on_an_object_store_a_topic_without_new_entries_costs_one_look(monkeypatch):
    monkeypatch.setattr(MemoryStore, "is_object_store", True, raising=False)
    topic = ReplicatedTopic()
    topic.append()
    follower = Follower(topic.log, "1")
    follower.round()
    follower.round()
    with monkeypatch.context() as settled:
        settled.setattr(following.catch_up, "catch_up", None)
        assert follower.round() == FollowerRound(0, 0, ())
    topic.append(on=["0"])
    assert follower.round().objects == 1


def test_on_an_object_store_a_file_that_could_not_be_copied_is_tried_again_without_a_new_entry(monkeypatch):
    monkeypatch.setattr(MemoryStore, "is_object_store", True, raising=False)
    topic = ReplicatedTopic()
    key = topic.handle.append_file(topic.append())
    lost = topic.log.node_store("0").read(key)
    topic.log.node_store("0").delete(key)
    follower = Follower(topic.log, "1")
    for _ in range(3):
        assert len(follower.round().failures) == 1
    topic.log.node_store("0").create(key, lost)
    assert follower.round() == FollowerRound(1, len(lost), ())


@pytest.mark.on_disk("a bucket is not mounted, so it is not asked again")
def test_a_disk_that_is_unmounted_is_noticed_without_a_new_entry(topic):
    topic.append()
    follower = Follower(topic.log, "1")
    for _ in range(3):
        follower.round()
    topic.log.node_store("1").delete(layout.MARKER)
    with pytest.raises(NodeMissing):
        follower.round()
