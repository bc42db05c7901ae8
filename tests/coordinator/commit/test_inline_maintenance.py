"""Inline maintenance: it is bounded and fails no write; past the hard cap it comes before the write."""

import logging

import msgspec
import pyarrow as pa
import pytest

from pyspark_log.writing.rows import Rows
from pyspark_log_coordinator.commit import inline_maintenance
from pyspark_log_coordinator.commit.commit import Batch, commit
from pyspark_log_coordinator.commit.inline_maintenance import (
    CLEAN_UP_EVERY_ENTRIES,
    clean_up,
    roll_past_the_cap,
    run_inline,
)
from pyspark_log_coordinator.log import topic_description
from pyspark_log_coordinator.maintenance import roll_task, topic_cleanup
from pyspark_log_coordinator.maintenance.descriptions import DESCRIBE_SECONDS
from pyspark_log_coordinator.model.batch import StagedFile
from pyspark_log_coordinator.model.producers import ProducerClaim
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_coordinator.segments import compaction_plan, roll_plan
from pyspark_log_coordinator.segments.roll_plan import ROLL_CHUNKS
from pyspark_log_storage.errors import CorruptObject, StoreRefused
from pyspark_log_storage.layout import topic_folder
from pyspark_log_storage.parquet import parquet_segment
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.replicated_topic import ReplicatedTopic, staged
from tests.support.plain_log import PlainLog, flip_bit, record


@pytest.fixture
def log(tmp_path):
    log = PlainLog(tmp_path)
    log.create("t")
    return log


def fill(log, batches):
    for _ in range(batches):
        log.append("t", {0: [b"row"]})


def one(log):
    return log.log.topic("t").journal.state.partitions[0]


def test_a_roll_that_fails_is_logged_and_fails_no_write(log, caplog):
    fill(log, 3)
    [first, *_] = log.files("t")
    flip_bit(first, 8 * 100)
    fill(log, ROLL_CHUNKS)
    assert one(log).segments == ()
    assert one(log).log_end == ROLL_CHUNKS + 3
    [message] = [each for each in caplog.messages if "left for later" in each]
    assert message.startswith("maintenance of topic 't', partition 0 was left for later: ")


@pytest.mark.parametrize("how", ["damaged", "missing"])
def test_past_the_hard_cap_rows_that_cannot_be_read_are_logged_and_fail_no_write(log, monkeypatch, caplog, how):
    fill(log, 10)
    [first, *_] = log.files("t")
    whole = first.read_bytes()
    if how == "damaged":
        flip_bit(first, 8 * 100)
    else:
        first.unlink()
    monkeypatch.setattr(roll_plan, "UNROLLED_CHUNKS_MAX", 10)
    monkeypatch.setattr(roll_plan, "ROLL_CHUNKS", 10)
    fill(log, 3)
    assert (one(log).log_end, len(one(log).chunks)) == (13, 13)
    [message] = [each for each in caplog.messages if "cannot be rolled" in each]
    assert message.startswith("topic 't', partition 0 is past its cap of unrolled chunks and cannot be rolled")
    assert first.name in message
    # Once it is mended the cap holds again, and nothing is lost.
    first.write_bytes(whole)
    fill(log, 1)
    assert (one(log).log_end, one(log).segments[-1].end_offset, len(one(log).chunks)) == (14, 13, 1)
    assert "topic 't', partition 0 can be rolled again" in caplog.messages


def test_past_the_hard_cap_the_other_partitions_are_rolled_although_one_cannot_be(log, monkeypatch):
    log.create("two", partitions=2)
    for _ in range(10):
        log.append("two", {0: [b"row"]})
        log.append("two", {1: [b"row"]})
    flip_bit(next(log.files("two")), 8 * 100)
    monkeypatch.setattr(roll_plan, "UNROLLED_CHUNKS_MAX", 10)
    monkeypatch.setattr(roll_plan, "ROLL_CHUNKS", 10)
    roll_past_the_cap(log.log.topic("two"))
    assert [len(each.chunks) for each in log.log.topic("two").journal.state.partitions] == [10, 0]


def test_past_the_hard_cap_a_full_disk_fails_the_write(log, monkeypatch):
    fill(log, 10)
    monkeypatch.setattr(roll_plan, "UNROLLED_CHUNKS_MAX", 10)
    monkeypatch.setattr(roll_plan, "ROLL_CHUNKS", 10)

    def full(*_, **__):
        raise StoreRefused("the url", "x", "the disk is full")

    monkeypatch.setattr(roll_task, "run_roll", full)
    with pytest.raises(StoreRefused):
        fill(log, 1)


def test_rows_that_cannot_be_rolled_do_not_block_a_writer_for_ever(log, monkeypatch):
    fill(log, 10)
    monkeypatch.setattr(roll_plan, "UNROLLED_CHUNKS_MAX", 10)
    handle = log.log.topic("t")
    stuck = msgspec.structs.replace(handle.journal.state.partitions[0], high_watermark=0)
    handle.journal.state = msgspec.structs.replace(handle.journal.state, partitions=(stuck,))
    roll_past_the_cap(handle)
    assert roll_plan.past_the_cap(handle.journal.state) == [0]


def batch(topic, number):
    """A batch of one row, as a task writes it with acks=1."""
    file = staged(topic.log, topic.handle, {0: [b"row"]}, ("0",))
    return Batch(ProducerClaim("q", "q", "r", number), (StagedFile("t", topic.handle.topic_id, file),), "1", ())


@pytest.mark.parametrize("failed", [(), ("1",)])
def test_a_commit_copies_what_was_rolled_to_the_isr_unless_a_task_could_not_write_to_a_member(failed):
    topic = ReplicatedTopic()
    topic.append(on=("0", "1", "2"), acks="all")
    swap, with_rows = topic.rolled(1), batch(topic, 0)
    files = [msgspec.structs.replace(each, failed=failed) for each in with_rows.files]
    commit(topic.handle, msgspec.structs.replace(with_rows, files=tuple(files), swaps=(swap,)), RetryPolicy())
    assert [each.name for each in topic.partition().segments] == ([] if failed else [swap.segments[0].name])


@pytest.mark.parametrize("nodes", [("0",), ("0", "1"), ("0", "1", "2")])
def test_a_topic_is_cleaned_up_however_many_entries_a_batch_has(nodes, monkeypatch):
    topic = ReplicatedTopic(replicas=(nodes,))
    done = []
    monkeypatch.setattr(topic_cleanup, "clean_up_topic", lambda *_, **__: done.append(topic.handle.version))
    topic.handle.refresh()
    before = topic.handle.version
    for number in range(CLEAN_UP_EVERY_ENTRIES):
        commit(topic.handle, batch(topic, number), RetryPolicy())
    assert (topic.handle.version - before) / CLEAN_UP_EVERY_ENTRIES == len(nodes), "followers have entries of their own"
    assert [each // CLEAN_UP_EVERY_ENTRIES for each in done] == list(range(1, len(nodes) + 1))


def test_a_writer_describes_its_topic_after_a_minute_and_a_failure_fails_no_write():
    topic = ReplicatedTopic(environment=fake_environment())
    described, store = topic_folder("t", topic.handle.topic_id) + topic_description.NAME, topic.log.node_store("1")

    def entry_described():
        return topic_description.decode(store.read(described), "x").number

    for number, seconds in enumerate((DESCRIBE_SECONDS - 1, 1, 1)):
        topic.log.environment.sleep(seconds)
        commit(topic.handle, batch(topic, number), RetryPolicy())
        assert (entry_described() == 1) == (number == 0), "as it was created, for a minute"
    known = entry_described()
    assert known < topic.handle.version
    topic.handle.described_at -= DESCRIBE_SECONDS
    for each in topic.stores.at.values():
        each.put = refuse
    commit(topic.handle, batch(topic, 3), RetryPolicy())
    assert entry_described() == known


def refuse(key, _data):
    raise StoreRefused("the url", key, "no space left")


def test_a_cleanup_that_fails_is_logged_and_fails_no_write(log, monkeypatch, caplog):
    def fail(*_, **__):
        raise CorruptObject("x", "the test made this up")

    monkeypatch.setattr(topic_cleanup, "clean_up_topic", fail)
    monkeypatch.setattr(inline_maintenance, "CLEAN_UP_EVERY_ENTRIES", 1)
    cause = "the test made this up"
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            run_inline(log.log.topic("t"), first=1)
        monkeypatch.undo()
        clean_up(log.log.topic("t"), 1)
    assert caplog.messages[-2:] == [
        f"cleanup of topic 't' was left for later: x is damaged: {cause}; restore it from a replica or a backup",
        "cleanup of topic 't' goes on",
    ]


def test_past_the_hard_cap_rows_of_another_partition_that_cannot_be_compacted_fail_no_write(log, monkeypatch):
    log.create("two", partitions=2, cleanup_policy="compact")

    def write(*partitions):
        count = len(partitions)
        rows = Rows(record([b"value"] * count, [b"key"] * count), None, pa.array(partitions, pa.int32()))
        log.append_rows("two", rows)

    write(0)
    for _ in range(9):
        write(0, 1)
    monkeypatch.setattr(roll_plan, "UNROLLED_CHUNKS_MAX", 10)
    monkeypatch.setattr(roll_plan, "INLINE_LAG_MS", 0)
    monkeypatch.setattr(compaction_plan, "INLINE_CHUNKS", 9)
    monkeypatch.setattr(parquet_segment, "ROW_GROUP_BYTES", 1)
    monkeypatch.setattr(parquet_segment, "ROW_BYTES_MAX", 1)  # each row is too large for Parquet
    monkeypatch.setattr(roll_plan, "ROLL_CHUNKS", 10)
    write(0)
    assert [(len(each.segments), each.log_end) for each in log.log.topic("two").partitions] == [(1, 11), (0, 9)]
