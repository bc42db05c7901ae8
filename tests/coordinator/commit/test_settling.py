"""Settling: when a writer copies to a replica that is out of sync, and when it leaves that to a follower."""

from types import SimpleNamespace

import msgspec
import pytest

from pyspark_log_coordinator.commit import settling
from pyspark_log_coordinator.commit.settling import TURN_EVERY_SECONDS
from pyspark_log_coordinator.log import node_admin
from pyspark_log_coordinator.sync import catch_up, reassigner, replica_file
from pyspark_log_coordinator.topic.sequencing import CommitBatch
from pyspark_log_storage import layout
from pyspark_log_storage.errors import StoreUnavailable
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.replicated_topic import ALL, ReplicatedTopic, staged


def environment():
    """Return an environment whose time of day advances with its monotonic clock."""
    fake = fake_environment()
    return msgspec.structs.replace(fake, now_ms=lambda: int(fake.monotonic() * 1000))


@pytest.fixture
def topic():
    """A topic of which node 2 missed a batch and is reachable again."""
    topic = ReplicatedTopic(environment=environment())
    topic.append(on=("0", "1"), acks="all")
    return topic


def isr_after(topic, seconds):
    """Return the ISR after a batch without rows, so many seconds later."""
    topic.log.environment.sleep(seconds)
    settling.settle_after(topic.handle, topic.handle.journal.state, CommitBatch(None, (), "all"), ())
    return topic.partition().isr


def test_with_acks_one_a_writer_copies_to_followers_unless_another_process_has_since_its_last_batch():
    topic = ReplicatedTopic()
    batch = SimpleNamespace(acks="1", files=[SimpleNamespace(chunks=[SimpleNamespace(partition=0)])])

    def ends_after_a_batch():
        before = topic.handle.refresh()
        topic.append(on=("0",))
        topic.handle.refresh()
        settling.settle_after(topic.handle, before, batch, ())
        return topic.partition().log_end_offsets

    assert ends_after_a_batch() == {"0": 1, "1": 1, "2": 1}
    topic.append(on=("0",))
    catch_up.catch_up(topic.handle, "1")
    assert ends_after_a_batch() == {"0": 3, "1": 2, "2": 3}, "node 1 has a follower"


def test_a_node_that_has_just_left_the_isr_is_left_to_a_follower_for_a_while(topic):
    assert isr_after(topic, 0) == ("0", "1")
    assert isr_after(topic, TURN_EVERY_SECONDS / 2) == ("0", "1")
    assert isr_after(topic, TURN_EVERY_SECONDS / 2) == ALL


def test_a_copy_that_failed_is_retried_at_the_next_turn_of_its_node(topic, monkeypatch, caplog):
    tried = []

    def fails(*_, **__):
        tried.append(topic.log.environment.monotonic())
        raise StoreUnavailable("/disk/2", "key", "it takes nothing")

    monkeypatch.setattr(catch_up, "catch_up", fails)
    for _ in range(6):
        isr_after(topic, TURN_EVERY_SECONDS / 2)
    assert tried == [3.0, 5.0], "found at 1"
    assert caplog.messages[-1:] == ["node '2' is behind in topic 't': it takes nothing"]
    monkeypatch.undo()
    isr_after(topic, TURN_EVERY_SECONDS)
    assert caplog.messages[-2:] == [
        "node '2' is behind in topic 't': it takes nothing",
        "node '2' gets the rows of topic 't' again",
    ]


def test_a_writer_copies_nothing_to_a_fenced_node_nor_to_one_that_was_missing_when_nodes_were_probed(topic):
    topic.log.missing_nodes = {"2": StoreUnavailable("/disk/2", "", "it is away")}
    assert isr_after(topic, TURN_EVERY_SECONDS) == ("0", "1")
    topic.log.missing_nodes = {}
    node_admin.set_fenced(topic.log, "2", fenced=True)
    isr_after(topic, TURN_EVERY_SECONDS)
    assert topic.keys("2") == []
    node_admin.set_fenced(topic.log, "2", fenced=False)
    assert isr_after(topic, TURN_EVERY_SECONDS) == ALL


def test_a_node_that_a_partition_is_reassigned_to_is_left_to_the_reassignment_at_first():
    topic = ReplicatedTopic(replicas=[("0", "1")], environment=environment())
    topic.append(on=("0", "1"), acks="all")
    reassigner.begin(topic.handle, (("0", "2"),))
    assert isr_after(topic, TURN_EVERY_SECONDS) == ("0", "1")
    assert topic.keys("2") == []
    assert isr_after(topic, TURN_EVERY_SECONDS) == ("0", "2")


def test_a_node_that_lacks_one_large_object_among_small_ones_is_left_to_a_follower(topic, monkeypatch):
    topic.append({0: [b"x" * 10_000]}, on=("0", "1"), acks="all")
    small, large = sorted(piece.bytes for piece in replica_file.missing(topic.handle.state, "2"))
    monkeypatch.setattr(settling, "TURN_BYTES_MAX", large - 1)
    assert small < large
    assert isr_after(topic, TURN_EVERY_SECONDS) == ("0", "1")
    assert topic.keys("2") == []
    monkeypatch.setattr(settling, "TURN_BYTES_MAX", large)
    assert isr_after(topic, TURN_EVERY_SECONDS) == ALL


def test_a_copy_of_a_refused_batch_does_not_count_if_its_disk_was_unmounted_meanwhile(monkeypatch):
    topic = ReplicatedTopic()
    batch = CommitBatch(None, (staged(topic.log, topic.handle, {0: [b"row"]}, ("0",)),))
    disk = topic.log.node_store("1")
    real = disk.open_write

    def open_unmounted(*args, **kwargs):
        disk.delete(layout.MARKER)
        return real(*args, **kwargs)

    monkeypatch.setattr(disk, "open_write", open_unmounted)
    (file,) = settling.with_copies(topic.handle, batch).files
    assert [holder.node for holder in file.holders] == ["0", "2"]
