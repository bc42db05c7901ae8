"""Upkeep in passing: bounded, never in the way of a write, and past the hard cap before it."""

import logging

import msgspec
import pytest

from pyspark_log.sink import in_passing
from pyspark_log.sink.in_passing import HOUSEKEEPING_EVERY, housekeep_when_due, ride_along, roll_past_the_cap
from pyspark_log_coordinator import maintenance, upkeep
from pyspark_log_coordinator.maintenance import ROLL_CHUNKS
from pyspark_log_storage.errors import CorruptObject
from tests.plain_log import PlainLog, flip_bit


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


def test_writers_roll_what_has_become_many(log):
    fill(log, ROLL_CHUNKS + 1)
    assert [(each.base_offset, each.end_offset) for each in one(log).segments] == [(0, ROLL_CHUNKS)]
    assert len(one(log).chunks) == 1


def test_a_long_life_leaves_few_chunks_and_few_files(log):
    fill(log, 3 * ROLL_CHUNKS)
    assert len(one(log).chunks) <= ROLL_CHUNKS + 1
    assert one(log).log_end == 3 * ROLL_CHUNKS


def test_a_job_that_fails_is_told_and_does_not_fail_the_write(log, caplog):
    fill(log, 3)
    [first, *_] = log.files("t")
    flip_bit(first, 8 * 100)
    fill(log, ROLL_CHUNKS)
    assert one(log).segments == ()
    assert one(log).log_end == ROLL_CHUNKS + 3
    assert "maintenance of topic 't', partition 0 was left for later" in caplog.text


def test_past_the_hard_cap_a_partition_is_rolled_before_anything_is_appended(log, monkeypatch):
    fill(log, 10)
    monkeypatch.setattr(maintenance, "UNROLLED_CHUNKS_MAX", 10)
    monkeypatch.setattr(maintenance, "ROLL_CHUNKS", 10)
    roll_past_the_cap(log.log, log.log.topic("t"))
    assert (len(one(log).segments), len(one(log).chunks)) == (1, 0)


def test_past_the_hard_cap_a_damaged_chunk_fails_the_write_with_an_error_that_names_it(log, monkeypatch):
    fill(log, 10)
    [first, *_] = log.files("t")
    flip_bit(first, 8 * 100)
    monkeypatch.setattr(maintenance, "UNROLLED_CHUNKS_MAX", 10)
    monkeypatch.setattr(maintenance, "ROLL_CHUNKS", 10)
    with pytest.raises(CorruptObject, match=first.name):
        fill(log, 1)


def test_what_cannot_be_rolled_does_not_hold_a_writer_for_ever(log, monkeypatch):
    fill(log, 10)
    monkeypatch.setattr(maintenance, "UNROLLED_CHUNKS_MAX", 10)
    handle = log.log.topic("t")
    stuck = msgspec.structs.replace(handle.journal.state.partitions[0], high_watermark=0)
    handle.journal.state = msgspec.structs.replace(handle.journal.state, partitions=(stuck,))
    roll_past_the_cap(log.log, handle)
    assert maintenance.must_roll(handle.journal.state)


def test_housekeeping_is_done_at_every_64th_entry(log, monkeypatch):
    done = []
    monkeypatch.setattr(upkeep, "housekeep", lambda _, handle, **__: done.append(handle.journal.number))
    fill(log, 2 * HOUSEKEEPING_EVERY)
    assert done == [HOUSEKEEPING_EVERY, 2 * HOUSEKEEPING_EVERY]


def test_housekeeping_that_fails_is_told_and_does_not_fail_the_write(log, monkeypatch, caplog):
    def fail(*_, **__):
        raise CorruptObject("x", "the test made this up")

    monkeypatch.setattr(upkeep, "housekeep", fail)
    monkeypatch.setattr(in_passing, "HOUSEKEEPING_EVERY", 1)
    with caplog.at_level(logging.WARNING):
        housekeep_when_due(log.log, log.log.topic("t"))
    assert "housekeeping of topic 't' was left for later" in caplog.text


def test_a_job_in_a_task_gives_its_swap(log):
    fill(log, ROLL_CHUNKS)
    handle = log.log.topic("t")
    [work] = in_passing.planned_work(handle)
    [swap] = ride_along(log.log, work)
    assert (swap.partition, swap.segment.base_offset, swap.segment.end_offset) == (0, 0, ROLL_CHUNKS)
    assert one(log).segments == ()
