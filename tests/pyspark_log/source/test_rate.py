"""The limits of a micro-batch in bytes and for each partition."""

import random

import pytest

from pyspark_log_coordinator.maintenance import topic_roll
from pyspark_log_coordinator.topic.machine import AlterConfig
from tests.support.direct import Stream, values
from tests.support.plain_log import PlainLog

LARGE_ROWS, SMALL_ROWS = 4, 400


@pytest.fixture
def log(tmp_path):
    """Topic t with one chunk of large rows, and then one of small ones."""
    made = PlainLog(tmp_path / "log")
    made.create("t")
    made.append("t", {0: [random.Random(number).randbytes(10_000) for number in range(LARGE_ROWS)]})
    made.append("t", {0: [b"small"] * SMALL_ROWS})
    return made


def half_the_large_rows(log):
    """The stored bytes of two large rows, rounded up."""
    return log.log.topic("t").journal.state.partitions[0].chunks[0].length // 2 + 1


def earliest(log, **options):
    return Stream(log.path, **{"subscribe": "t", "startingOffsets": "earliest"} | options)


def sizes(stream):
    """The rows of each micro-batch until none is left."""
    return [len(batch) for batch in iter(stream.batch, None)]


def test_the_lower_of_the_limits_in_rows_and_in_bytes_applies(log):
    stream = earliest(log, maxBytesPerTrigger=half_the_large_rows(log), maxOffsetsPerTrigger=150)
    assert sizes(stream) == [2, 2, 150, 150, 100]


def test_rows_of_a_segment_count_as_equally_large(log):
    handle = log.log.topic("t")
    handle.submit(AlterConfig({"flush.messages": "1"}))
    topic_roll.roll_and_merge(handle)
    (segment,) = log.log.topic("t").journal.state.partitions[0].segments
    fourths = sizes(earliest(log, maxBytesPerTrigger=segment.log_bytes // 4))
    assert sum(fourths) == LARGE_ROWS + SMALL_ROWS
    assert max(fourths) <= segment.rows // 4


def test_each_partition_has_a_limit_of_its_own(log):
    log.create("u", 2)
    log.append("u", {0: [b"a", b"b", b"c", b"d"], 1: [b"e"]})
    stream = Stream(log.path, subscribe="u", startingOffsets="earliest", maxOffsetsPerTriggerPerPartition=3)
    assert values(stream.batch()) == {0: [b"a", b"b", b"c"], 1: [b"e"]}
    assert values(stream.batch()) == {0: [b"d"]}
