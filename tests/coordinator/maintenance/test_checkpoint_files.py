"""Checkpoints say what the journal says, and are written only if they have changed."""

import pytest

from pyspark_log_coordinator.maintenance import checkpoint_files, topic_cleanup, topic_description
from pyspark_log_storage.errors import StoreUnavailable
from pyspark_log_storage.objects import checkpoints
from tests.support.coordinator.stored_topic import AT_ONCE, StoredTopic
from tests.support.elsewhere import PlainStore


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
    class PuttingStore(PlainStore):
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


def test_a_checkpoint_on_a_bad_sector_is_written_again():
    class BadSector(PlainStore):
        bad = ""

        def read(self, key, *place):
            if key == self.bad:
                raise StoreUnavailable(self.url, key, "input/output error")
            return super().read(key, *place)

        def put(self, key, data):
            super().put(key, data)
            self.bad = self.bad.replace(key, "")

    topic = StoredTopic(BadSector())
    topic.fill(1)
    topic.store.bad = topic.folder + checkpoints.REPLICATION
    topic_cleanup.clean_up_topic(topic.handle)
    assert checkpoints.decode_offsets(topic.store.read(topic.folder + checkpoints.REPLICATION), "x") == {("t", 0): 3}
