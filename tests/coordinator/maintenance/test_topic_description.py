"""A topic's description survives a round trip, and cleaning up keeps it up to date."""

import msgspec
import pytest

from pyspark_log_coordinator.maintenance import topic_cleanup, topic_description
from pyspark_log_storage.errors import CorruptObject, NewerFormat
from tests.support.coordinator.stored_topic import StoredTopic


@pytest.fixture
def topic():
    topic = StoredTopic(partitions=2)
    topic.fill(3, partitions=(0, 1))
    topic.roll(2)
    return topic


def test_it_is_read_back_as_it_was_written(topic):
    description = topic_description.of(topic.handle)
    again = topic_description.decode(topic_description.encode(description), "t")
    assert again == description
    state = topic.handle.journal.state
    assert (again.number, again.topic.config, again.topic.producers) == (
        topic.handle.journal.number,
        state.config,
        state.producers,
    )
    assert [list(each.chunks) for each in again.topic.partitions] == [list(each.chunks) for each in state.partitions]
    assert [each.segments for each in again.topic.partitions] == [(), ()]  # they describe themselves


def test_cleaning_up_writes_it_if_it_has_changed(topic):
    key = f"{topic.folder}{topic_description.NAME}"
    topic_cleanup.clean_up_topic(topic.handle)
    first = topic.store.read(key)
    topic.fill(1)
    topic_cleanup.clean_up_topic(topic.handle)
    assert topic_description.decode(topic.store.read(key), key).number > topic_description.decode(first, key).number


def test_damage_and_newer_formats_are_distinguished(topic):
    data = topic_description.encode(topic_description.of(topic.handle))
    with pytest.raises(CorruptObject):
        topic_description.decode(data[:-1] + bytes([data[-1] ^ 1]), "t")
    newer = topic_description.seal(b"PLTD", 1, msgspec.msgpack.encode({"number": 1, "more": 2}))
    with pytest.raises(NewerFormat):
        topic_description.decode(newer, "t")
