"""A roll or merge writes the same rows as a new segment, or fails and leaves nothing."""

import random

import msgspec
import pytest

from pyspark_log_coordinator.segments.swap import MaintainSegments
from pyspark_log_storage.columns import schema
from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.files import append_file
from pyspark_log_storage.segments import segment
from tests.support.coordinator.stored_topic import AT_ONCE, StoredTopic


@pytest.fixture
def topic():
    return StoredTopic(**AT_ONCE)


def test_large_chunks_are_copied_byte_for_byte(topic):
    dice = random.Random(2)
    for _ in range(3):
        topic.append({0: [dice.randbytes(300_000)]}, compression="zstd")
    chunks = topic.job().chunks
    before = [
        append_file.read_bytes(
            topic.store, topic.handle.append_file(topic.handle.journal.state.file(each.file).name), each.place(0), "x"
        ).to_pybytes()
        for each in chunks
    ]
    topic.roll()
    key = f"{topic.segment_key()}.log"
    assert [topic.store.read(key, each.position, each.length) for each in topic.entries()] == before


@pytest.mark.parametrize("form", ["log", "parquet"])
def test_chunks_of_two_leader_epochs_are_not_joined(form):
    topic = StoredTopic(**AT_ONCE, segment_format=form)
    topic.fill(4)
    job = topic.job()
    later = [msgspec.structs.replace(each, leader_epoch=1) for each in job.chunks[2:]]
    job = msgspec.structs.replace(job, chunks=(*job.chunks[:2], *later), epoch_starts=((0, 0), (1, 6)))
    topic.handle.submit(MaintainSegments((topic.carry_out(job),)))
    assert [(each.leader_epoch, each.rows) for each in topic.entries()] == [(0, 6), (1, 6)]
    topic.check()


def test_chunks_of_two_schemas_are_not_joined(topic):
    topic.fill(2)
    topic.append({0: [b"x", b"y"]}, with_headers=True)
    topic.fill(2)
    topic.roll()
    assert [(each.schema_id, each.rows) for each in topic.entries()] == [
        (schema.RECORD_ID, 6),
        (schema.RECORD_WITH_HEADERS_ID, 2),
        (schema.RECORD_ID, 6),
    ]
    topic.check()


def test_the_journal_describes_a_segment_correctly(topic):
    topic.append({0: [b"a", b"b"]}, times_ms=[50, 10])
    topic.append({0: [b"c"]}, times_ms=[30])
    topic.roll()
    [ref] = topic.handle.journal.state.partitions[0].segments
    assert (ref.base_offset, ref.end_offset, ref.chunks, ref.level) == (0, 3, 1, 1)
    assert (ref.min_timestamp, ref.max_timestamp, ref.timestamp_reached) == (10_000, 50_000, 50_000)
    assert ref.log_bytes == topic.store.size(f"{topic.segment_key()}.log")


# Damage


@pytest.mark.parametrize("how", ["flipped", "cut between two chunks"])
def test_a_damaged_segment_fails_a_merge_with_an_error_that_names_it_and_leaves_nothing(topic, how):
    for _ in range(2):
        topic.fill(1)
        topic.append({0: [random.Random(4).randbytes(300_000)]})
        topic.roll()
    key = topic.segment_key(1)
    if how == "flipped":
        topic.damage(f"{key}.log")
    else:
        last = segment.scan(topic.store, key)[-1].position
        topic.store.put(f"{key}.log", topic.store.read(f"{key}.log")[:last])
    before = topic.keys("0/")
    with pytest.raises(CorruptObject, match=key.rsplit("/", 1)[1]):
        topic.carry_out(topic.merge_job())
    assert topic.keys("0/") == before


def test_an_index_that_is_damaged_does_not_stop_a_merge(topic):
    for _ in range(2):
        topic.fill(2)
        topic.roll()
    topic.damage(f"{topic.segment_key(1)}.index")
    topic.merge()
    topic.check()
