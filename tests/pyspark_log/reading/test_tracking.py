import logging

import msgspec
import pytest

from pyspark_log.reading.positions import report_loss, warn_of_loss
from pyspark_log.reading.source_offset import Position, SourceOffset, TopicPositions
from pyspark_log.reading.tracking import Start, committed_start, ranges_between, within
from pyspark_log_coordinator.group.state import NO_EPOCH, CommittedOffset
from pyspark_log_storage.errors import DataLoss
from tests.support.plain_log import PlainLog


@pytest.fixture
def log():
    made = PlainLog()
    made.create("t", 2)
    made.append("t", {0: [b"a", b"b", b"c"], 1: [b"d"]})
    return made


def partition(log, **changes):
    return msgspec.structs.replace(log.log.topic("t").partitions[0], **changes)


SECOND_EPOCH = {"epoch_starts": ((0, 0), (1, 2)), "leader_epoch": 1}


def test_a_truncated_offset_is_a_loss_or_the_end_of_its_epoch(log):
    found = partition(log, **SECOND_EPOCH)
    with pytest.raises(DataLoss, match="offset 3 of epoch 0 was truncated, that epoch ends at 2"):
        within(found, ("t", 0), Position(3, 0), fail_on_data_loss=True)
    assert within(found, ("t", 0), Position(3, 0), fail_on_data_loss=False) == 2
    assert within(found, ("t", 0), Position(3, 1), fail_on_data_loss=True) == 3
    with pytest.raises(DataLoss, match="offset 3 of epoch 0 was truncated, that epoch ends at 2"):
        # A damaged copy took the high watermark back.
        within(partition(log, high_watermark=2), ("t", 0), Position(3, 0), fail_on_data_loss=True)


def test_a_committed_offset_without_an_epoch_is_one_of_the_newest(log):
    committed = CommittedOffset(3, NO_EPOCH, "", 0)
    found = committed_start(partition(log, **SECOND_EPOCH), ("t", 0), committed, fail_on_data_loss=True)
    assert found == Start(Position(3, 1), explicit=True)


def test_a_batch_of_a_topic_that_was_deleted_since_is_a_loss(log):
    topic_id = log.log.topic("t").topic_id
    start, end = (SourceOffset({"t": TopicPositions(topic_id, {0: Position(at, 0)})}) for at in (0, 3))
    log.delete("t")
    with pytest.raises(DataLoss, match="topic 't' was deleted, so"):
        ranges_between(start, end, log.log.topic, fail_on_data_loss=True)
    assert ranges_between(start, end, log.log.topic, fail_on_data_loss=False) == ({}, [])


def test_a_loss_says_what_to_do_or_is_logged_once_if_it_does_not_matter(caplog):
    with pytest.raises(DataLoss, match="set failOnDataLoss=false to continue with the rest"):
        report_loss("something happened", fail=True)
    warn_of_loss.cache_clear()
    with caplog.at_level(logging.WARNING, "pyspark_log"):
        for _ in range(3):
            report_loss("it is lost", fail=False)
    assert caplog.messages == ["it is lost; continuing with the rest (failOnDataLoss=false)"]
