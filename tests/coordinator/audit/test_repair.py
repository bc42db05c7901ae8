"""Repair on one node: a damaged description is written again."""

import pytest

from pyspark_log_coordinator.audit.repair import repair
from pyspark_log_coordinator.log import topic_description
from pyspark_log_coordinator.maintenance import descriptions
from tests.support.coordinator.audited_topic import audit


@pytest.mark.parametrize("damage", [lambda whole: whole[:-1], lambda _: b"0\n1\nother 0 0\n"])
def test_a_damaged_description_is_named_and_written_again(topic, damage):
    descriptions.write_on_nodes(topic.handle)
    key = topic.folder + topic_description.NAME
    whole = topic.store.read(key)
    topic.store.put(key, damage(whole))
    [found] = audit(topic).findings
    assert (found.what, found.repairable) == (key, True)
    assert repair(topic.handle) == [key]
    assert topic.store.read(key) == whole
    assert audit(topic).sound


def test_the_whole_description_of_another_topic_is_damage(topic):
    descriptions.write_on_nodes(topic.handle)
    key = topic.folder + topic_description.NAME
    whole = topic.store.read(key)
    other = topic.log.create_topic("other", 1)
    topic.store.put(key, topic_description.encode(other.description()))
    [found] = audit(topic).findings
    assert "it describes topic 'other'" in found.detail
    assert repair(topic.handle) == [key]
    assert topic_description.decode(topic.store.read(key), "x").topic.name == "t"
    assert len(topic.store.read(key)) == len(whole)
    assert audit(topic).sound


def test_a_description_of_an_older_state_is_no_fault(topic):
    descriptions.write_on_nodes(topic.handle)
    topic.append({0: [b"later"]})
    assert audit(topic).sound


def test_repair_of_a_sound_topic_changes_nothing(topic):
    before = {key: topic.store.read(key) for key in topic.store.list("")}
    assert repair(topic.handle) == []
    assert {key: topic.store.read(key) for key in topic.store.list("")} == before
