"""A reader whose files maintenance moves, or retention takes, between planning and reading."""

import pytest

from pyspark_log.source.batch_reader import SplitPartition, read_split
from pyspark_log.source.planning import Range, split_of
from pyspark_log_coordinator import upkeep
from pyspark_log_coordinator.topic import AlterConfig, DeleteRecords
from pyspark_log_storage.errors import DataLoss
from tests.plain_log import PlainLog


@pytest.fixture
def log(tmp_path):
    """Topic t of ten rows in ten chunks, which are due for rolling."""
    log = PlainLog(tmp_path)
    handle = log.create("t", file_delete_delay_ms=0)
    for number in range(10):
        log.append("t", {0: [b"%d" % number]})
    handle.submit(AlterConfig({"flush.messages": "1"}))
    return log


def planned(log):
    return SplitPartition(log.path, split_of(log.log, log.log.topic("t"), Range("t", 0, 0, 10)))


def move(log):
    """Roll what there is, and remove the files that it was in."""
    handle = log.log.topic("t")
    upkeep.maintain(log.log, handle, log.log.environment.nonce)
    upkeep.housekeep(log.log, handle)


def values(split):
    return [value for batch in read_split(split, ("value",)) for value in batch.column("value").to_pylist()]


def test_rows_that_were_moved_are_found_again(log):
    split = planned(log)
    move(log)
    assert list(log.log.store.list(f"topics/t/{split.split.topic_id}/append/")) == []
    assert values(split) == [b"%d" % number for number in range(10)]


@pytest.mark.parametrize("before", [1, 5, 10])
def test_rows_that_were_deleted_meanwhile_are_data_loss(log, before):
    split = planned(log)
    log.log.topic("t").submit(DeleteRecords(0, before))
    move(log)
    with pytest.raises(DataLoss, match=f"offsets 0 to {before - 1} expired or were deleted"):
        values(split)


def test_rows_of_a_topic_that_was_deleted_and_created_again_are_data_loss(log):
    split = planned(log)
    log.delete("t")
    handle = log.create("t")
    for number in range(10):
        log.append("t", {0: [b"other %d" % number]})
    assert handle.topic_id != split.split.topic_id
    for key in list(log.log.store.list(f"topics/t/{split.split.topic_id}/append/")):
        log.log.store.delete(key)
    with pytest.raises(DataLoss, match="created again"):
        values(split)
