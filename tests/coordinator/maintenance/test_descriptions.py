"""A topic's description says what the journal says, and is written only if it has changed."""

from unittest import mock

import pytest

from pyspark_log_coordinator.log import topic_description
from pyspark_log_coordinator.maintenance import descriptions, topic_cleanup
from pyspark_log_storage.errors import StoreRefused, StoreUnwritable
from tests.support.coordinator.stored_topic import AT_ONCE, StoredTopic
from tests.support.memory_store import MemoryStore


@pytest.fixture
def topic():
    return StoredTopic(**AT_ONCE)


def test_a_description_that_has_not_changed_is_not_written_again():
    class PuttingStore(MemoryStore):
        def put(self, key, data):
            put.append(key.rsplit("/", 1)[1])
            super().put(key, data)

    put = []
    topic = StoredTopic(PuttingStore())
    topic.fill(1)
    put.clear()
    descriptions.write_on_nodes(topic.handle)
    assert put == [topic_description.NAME]
    put.clear()
    descriptions.write_on_nodes(topic.handle)
    assert put == []
    topic.fill(1)
    descriptions.write_on_nodes(topic.handle)
    assert put == [topic_description.NAME]


def described(topic):
    key = f"{topic.folder}{topic_description.NAME}"
    return topic_description.decode(topic.store.read(key), key)


def test_a_description_is_the_whole_state_from_the_creation_on(topic):
    assert (described(topic).number, described(topic).topic) == (1, topic.handle.state)
    topic.fill(3)
    topic.roll(2)
    topic_cleanup.clean_up_topic(topic.handle)
    assert (described(topic).number, described(topic).topic) == (topic.handle.version, topic.handle.state)


def test_no_description_names_a_file_that_has_been_deleted():
    """Each deletion could be the last thing that happens before all journals are lost."""

    class WatchedStore(MemoryStore):
        def delete(self, key):
            if "/append/" in key:
                named.update({topic.handle.append_file(each.name) for each in described(topic).topic.files} & {key})
                deleted.append(key)
            super().delete(key)

    named, deleted = set(), []
    topic = StoredTopic(WatchedStore(), **AT_ONCE)
    topic.fill(4)
    descriptions.write_on_nodes(topic.handle)
    topic.roll(3)
    topic_cleanup.clean_up_topic(topic.handle)
    assert (len(deleted), named) == (3, set())


def test_a_full_disk_is_described_once_files_are_deleted():
    class FullStore(MemoryStore):
        is_full = False

        def put(self, key, data):
            if self.is_full and key.endswith(topic_description.NAME):
                raise StoreUnwritable(self.url, key, "no space left")
            super().put(key, data)

        def delete(self, key):
            super().delete(key)
            self.is_full &= "/append/" not in key

    topic = StoredTopic(store := FullStore(), **AT_ONCE)
    topic.fill(2)
    descriptions.write_on_nodes(topic.handle)
    assert len(described(topic).topic.files) == 2
    topic.roll()
    old, store.is_full = topic.keys("append/"), True
    assert topic_cleanup.expire(topic.handle)[0] == len(old)
    assert topic.keys("append/") == []
    assert described(topic).topic.files == ()


def test_a_node_that_cannot_be_described_keeps_its_files(topic, monkeypatch):
    topic.fill(2)
    topic.roll()
    before = topic.keys("append/")
    refusal = StoreRefused(topic.store.url, "description", "no space left")
    monkeypatch.setattr(topic.store, "put", mock.Mock(side_effect=refusal))
    with pytest.raises(StoreRefused):
        topic_cleanup.clean_up_topic(topic.handle)
    assert topic.keys("append/") == before
