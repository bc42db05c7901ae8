"""Where an export goes on, and what it refuses, by what Kafka and the log say."""

import pytest

from pyspark_log.kafka.client import PartitionOffsets
from pyspark_log.kafka.export_plan import PartitionExport, plan
from pyspark_log_coordinator.topic.machine import DeleteRecords
from pyspark_log_storage.errors import InvalidInput
from tests.support.coordinator.topics import after, commit, file, started


def planned(state, last, begin=0, end=0, start=0):
    [found] = plan(state, [start], [PartitionOffsets(begin, end)], [last])
    return found


def of_rows(count):
    return after(started(), commit(None, file({0: count})))


def test_a_partition_that_was_never_exported_begins_where_it_is_read_from():
    assert planned(of_rows(10), None, start=4) == PartitionExport(0, 4, 10, 6, is_resumed=False)


def test_an_aborted_first_transaction_leaves_no_row_and_the_export_begins_again():
    assert planned(of_rows(10), None, end=6) == PartitionExport(0, 0, 10, 10, is_resumed=False)


def test_an_export_goes_on_behind_the_last_row_in_kafka():
    assert planned(of_rows(10), 5, end=8, start=0) == PartitionExport(0, 6, 10, 4, is_resumed=True)


def test_rows_that_kafka_has_deleted_say_nothing_of_what_was_exported():
    with pytest.raises(InvalidInput, match="has no rows any more and begins at offset 8"):
        planned(of_rows(10), None, begin=8, end=8)


def test_rows_that_expired_before_they_were_exported_are_an_error():
    with pytest.raises(InvalidInput, match=r"the next row to export has offset 6, and .* from 8 to 10"):
        planned(after(of_rows(10), DeleteRecords(0, 8)), 5, end=8)


def test_a_topic_in_kafka_that_is_ahead_is_an_error():
    with pytest.raises(InvalidInput, match="the next row to export has offset 21"):
        planned(of_rows(10), 20, end=30)
