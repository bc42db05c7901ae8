import logging
from itertools import count

import msgspec
import pytest

from pyspark_log.options.subscription import Subscribe
from pyspark_log.reading.positions import report_loss, subscribed
from pyspark_log.reading.source_offset import Position, SourceOffset, TopicPositions
from pyspark_log.reading.tracking import Start, committed_start, go_on, ranges_between, within
from pyspark_log_coordinator.group.state import NO_EPOCH, CommittedOffset
from pyspark_log_storage.errors import DataLoss
from tests.support.plain_log import PlainLog

_number = count()


@pytest.fixture
def log():
    made = PlainLog()
    made.create("t", 2)
    made.append("t", {0: [b"a", b"b", b"c"], 1: [b"d"]})
    return made


def now(log, *topics):
    return subscribed(log.log, Subscribe(topics or ("t",)), missing_is_error=False)


def ended(log, ends, topic="t"):
    topic_id = log.log.topic(topic).topic_id
    return SourceOffset({topic: TopicPositions(topic_id, {p: Position(at, 0) for p, at in ends.items()})})


def test_a_partition_continues_where_its_last_batch_ended_and_a_new_one_begins_explicitly_at_its_first_row(log):
    starts = go_on(ended(log, {0: 2}), now(log), fail_on_data_loss=True)
    assert starts == {("t", 0): Start(Position(2, 0), explicit=False), ("t", 1): Start(Position(0, 0), explicit=True)}


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_topic_that_was_created_again_is_a_loss_or_begins_anew(log, partitions):
    before = ended(log, {0: 3, 1: 1})
    log.delete("t")
    log.create("t", partitions)
    with pytest.raises(DataLoss, match="topic 't' was deleted and created again"):
        go_on(before, now(log), fail_on_data_loss=True)
    starts = go_on(before, now(log), fail_on_data_loss=False)
    assert starts == {("t", number): Start(Position(0, 0), explicit=True) for number in range(partitions)}


def test_a_topic_that_was_deleted_is_a_loss_or_left_out(log):
    before = ended(log, {0: 3, 1: 1})
    log.delete("t")
    with pytest.raises(DataLoss, match="topic 't', partition 0 does not exist or is not subscribed any more"):
        go_on(before, now(log), fail_on_data_loss=True)
    assert go_on(before, now(log), fail_on_data_loss=False) == {}


def test_an_expired_offset_is_a_loss_or_the_first_one_left(log):
    partition = msgspec.structs.replace(now(log).partition("t", 0), log_start=2)
    with pytest.raises(DataLoss, match="offset 1 has expired, the log begins at 2"):
        within(partition, ("t", 0), Position(1, 0), fail_on_data_loss=True)
    assert within(partition, ("t", 0), Position(1, 0), fail_on_data_loss=False) == 2


def test_a_truncated_offset_is_a_loss_or_the_end_of_its_epoch(log):
    partition = msgspec.structs.replace(now(log).partition("t", 0), epoch_starts=((0, 0), (1, 2)), leader_epoch=1)
    with pytest.raises(DataLoss, match="offset 3 of epoch 0 was truncated, that epoch ends at 2"):
        within(partition, ("t", 0), Position(3, 0), fail_on_data_loss=True)
    assert within(partition, ("t", 0), Position(3, 0), fail_on_data_loss=False) == 2
    assert within(partition, ("t", 0), Position(3, 1), fail_on_data_loss=True) == 3
    partition = msgspec.structs.replace(now(log).partition("t", 0), high_watermark=2)  # a damaged copy took it back
    with pytest.raises(DataLoss, match="offset 3 of epoch 0 was truncated, that epoch ends at 2"):
        within(partition, ("t", 0), Position(3, 0), fail_on_data_loss=True)


def test_a_committed_offset_that_was_truncated_is_a_loss(log):
    partition = msgspec.structs.replace(now(log).partition("t", 0), epoch_starts=((0, 0), (1, 2)), leader_epoch=1)
    with pytest.raises(DataLoss, match="offset 3 of epoch 0 was truncated, that epoch ends at 2"):
        committed_start(partition, ("t", 0), CommittedOffset(3, 0, "", 0), fail_on_data_loss=True)
    of_no_epoch = committed_start(partition, ("t", 0), CommittedOffset(3, NO_EPOCH, "", 0), fail_on_data_loss=True)
    assert of_no_epoch == Start(Position(3, 1), explicit=True)


def test_a_batch_of_a_topic_that_was_deleted_since_is_a_loss(log):
    start, end = ended(log, {0: 0, 1: 0}), ended(log, {0: 3, 1: 1})
    log.delete("t")
    with pytest.raises(DataLoss, match="topic 't' was deleted, so"):
        ranges_between(start, end, log.log.topic, fail_on_data_loss=True)
    assert ranges_between(start, end, log.log.topic, fail_on_data_loss=False) == ({}, [])


def test_a_loss_says_what_to_do_or_is_logged_once_if_it_does_not_matter(caplog):
    with pytest.raises(DataLoss, match="set failOnDataLoss=false to continue with the rest"):
        report_loss("something happened", fail=True)
    what = f"loss {next(_number)}"
    with caplog.at_level(logging.WARNING, "pyspark_log"):
        for _ in range(3):
            report_loss(what, fail=False)
    assert [record.getMessage() for record in caplog.records] == [
        f"{what}; continuing with the rest (failOnDataLoss=false)"
    ]
