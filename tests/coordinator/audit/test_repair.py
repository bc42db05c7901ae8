"""Repair on one node: only indexes are rebuilt."""

import random

import pytest

from pyspark_log_coordinator.audit.repair import repair
from tests.coordinator.audited_topic import audit, cut_last_chunk, flip

pytestmark = pytest.mark.no_faults("an audit reports what it cannot read")


# Repair


@pytest.mark.parametrize("how", ["missing", "flipped", "of another"])
def test_repair_rebuilds_the_index(topic, how):
    key = f"{topic.segment_key(0)}.index"
    whole = topic.store.read(key)
    if how == "missing":
        topic.store.delete(key)
    elif how == "flipped":
        flip(topic, key, 70)
    else:
        topic.store.put(key, topic.store.read(f"{topic.segment_key(1)}.index"))
    assert repair(topic.handle) == [key]
    assert topic.store.read(key) == whole
    assert audit(topic).sound


def test_repair_of_a_sound_topic_changes_nothing(topic):
    before = {key: topic.store.read(key) for key in topic.store.list("")}
    assert repair(topic.handle) == []
    assert {key: topic.store.read(key) for key in topic.store.list("")} == before


@pytest.mark.parametrize("how", ["flipped", "cut between chunks", "cut behind the header", "missing"])
def test_repair_leaves_a_segment_without_another_copy_and_its_index(topic, how):
    topic.append({0: [random.Random(1).randbytes(300_000)]})
    topic.roll()
    key = topic.segment_key(2)
    if how == "flipped":
        flip(topic, f"{key}.log", -1)
    elif how == "cut between chunks":
        cut_last_chunk(topic, key)
    elif how == "cut behind the header":
        topic.store.put(f"{key}.log", topic.store.read(f"{key}.log")[:64])
    else:
        topic.store.delete(f"{key}.log")
    before = {each: topic.store.read(each) for each in topic.store.list("")}
    assert repair(topic.handle) == []
    assert {each: topic.store.read(each) for each in topic.store.list("")} == before
    assert not audit(topic).sound
