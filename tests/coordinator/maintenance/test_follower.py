"""A follower catches up all topics of its node, describes them, and deletes files that no entry names."""

import pytest

from pyspark_log_coordinator.maintenance import follower as following
from pyspark_log_coordinator.maintenance.follower import Follower, FollowerRound
from pyspark_log_coordinator.sync.faults import scrub
from pyspark_log_storage import layout
from pyspark_log_storage.errors import NodeMissing
from tests.support.coordinator.replicated_topic import ReplicatedTopic, write
from tests.support.coordinator.several_nodes import Stores
from tests.support.coordinator.troubled_store import ALWAYS, TroubledStore
from tests.support.memory_store import MemoryStore


@pytest.fixture
def topic():
    return ReplicatedTopic()


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


def test_an_entry_of_which_no_answer_came_is_a_failure_and_the_next_round_goes_on():
    topic = ReplicatedTopic(Stores(lambda url: TroubledStore(MemoryStore(url))))
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
    (key,) = (each for each in log.node_store("1").list("topics/u/") if "/append/" in each)
    log.node_store("1").delete(key)
    scrubbed = scrub(log, "1")
    assert (scrubbed.repaired, scrubbed.failures) == ((key,), done.failures)


@pytest.mark.parametrize(
    "act", [lambda log, moved: Follower(log, "1").round(moved), lambda log, moved: scrub(log, "1", moved)]
)
def test_a_topic_deleted_while_its_files_are_read_does_no_harm_to_the_others(topic, act):
    other = topic.log.create_topic("u", 1, replicas=[["0", "1"]])
    names = [topic.append(on=("0", "1")), topic.append(on=("0",))]
    write(topic.log, other, 0, {0: [b"u"]}, on=["0"])

    def moved(_):
        if "t" in topic.log.topics():
            topic.log.delete_topic("t")
            topic.log.node_store("1").delete(topic.handle.append_file(names[0]))

    assert act(topic.log, moved).failures == ()
    Follower(topic.log, "1").round()
    assert other.refresh().partitions[0].log_end_offsets == {"0": 1, "1": 1}


# Cleaning


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


def test_a_disk_that_is_unmounted_is_noticed_without_a_new_entry(topic):
    topic.append()
    follower = Follower(topic.log, "1")
    for _ in range(3):
        follower.round()
    topic.log.node_store("1").delete(layout.MARKER)
    with pytest.raises(NodeMissing):
        follower.round()
