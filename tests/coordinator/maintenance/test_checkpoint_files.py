"""Checkpoints and a topic's description say what the journal says, and are written only if they have changed."""

import pytest

from pyspark_log_coordinator.maintenance import checkpoint_files, topic_cleanup, topic_description
from pyspark_log_storage.objects import checkpoints
from tests.support.coordinator.stored_topic import AT_ONCE, StoredTopic
from tests.support.memory_store import MemoryStore


@pytest.fixture
def topic():
    return StoredTopic(**AT_ONCE)


def test_the_checkpoints_say_what_the_journal_says(topic):
    topic.fill(4)
    topic.roll(3)
    topic_cleanup.clean_up_topic(topic.handle)
    read = topic.store.read
    assert checkpoints.decode_offsets(read(topic.folder + checkpoints.RECOVERY_POINT), "x") == {("t", 0): 9}
    assert checkpoints.decode_offsets(read(topic.folder + checkpoints.REPLICATION), "x") == {("t", 0): 12}
    assert checkpoints.decode_epochs(read(f"{topic.folder}0/{checkpoints.LEADER_EPOCH}"), "x") == ((0, 0),)


def test_checkpoints_that_have_not_changed_are_not_written_again():
    class PuttingStore(MemoryStore):
        def put(self, key, data):
            put.append(key.rsplit("/", 1)[1])
            super().put(key, data)

    put = []
    topic = StoredTopic(PuttingStore())
    topic.fill(1)
    put.clear()
    checkpoint_files.write_on_nodes(topic.handle)
    kafkas = [checkpoints.RECOVERY_POINT, checkpoints.REPLICATION, checkpoints.LEADER_EPOCH]
    assert sorted(put) == sorted([*kafkas, topic_description.NAME])
    put.clear()
    checkpoint_files.write_on_nodes(topic.handle)
    assert put == []
    topic.fill(1)
    checkpoint_files.write_on_nodes(topic.handle)
    assert put == [topic_description.NAME, checkpoints.REPLICATION]


def test_a_description_has_the_state_of_the_journal(topic):
    topic.fill(3)
    topic.roll(2)
    topic_cleanup.clean_up_topic(topic.handle)
    key = f"{topic.folder}{topic_description.NAME}"
    assert topic_description.decode(topic.store.read(key), key).topic == topic.handle.journal.state
