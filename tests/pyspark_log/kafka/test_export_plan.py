"""Where an export goes on, and what it refuses, by what Kafka and the log say."""

from types import SimpleNamespace

import pytest

from pyspark_log.kafka.client import KafkaTopic, PartitionOffsets
from pyspark_log.kafka.export_plan import ExportedRows, PartitionExport, plan
from pyspark_log_coordinator.topic.machine import DeleteRecords
from pyspark_log_storage.errors import InvalidInput
from tests.support.coordinator.topics import after, commit, file, started
from tests.support.plain_log import NOON_MS, PlainLog


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


@pytest.mark.parametrize("is_damaged", [True, False])
def test_an_export_goes_on_behind_a_row_that_cannot_be_read_any_more(monkeypatch, is_damaged):
    """Nobody knows whether that row is the one in Kafka, and the rows after it are whole."""
    log = PlainLog()
    handle = log.create("t")
    log.append("t", {0: [b"a"]})
    log.append("t", {0: [b"b"]})
    state = handle.refresh()
    if is_damaged:
        log.log.store.put(handle.append_file(state.file(state.partitions[0].chunks[0].file).name), b"damaged")
    values = {"key": None, "value": b"other", "timestamp": (1, NOON_MS), "headers": [("pyspark-log.offset", b"0")]}
    message = SimpleNamespace(**{name: lambda value=value: value for name, value in values.items()})
    monkeypatch.setattr(ExportedRows, "_read", lambda *_: [message])
    rows = ExportedRows(None, None, KafkaTopic("t", "cluster", "id", 1, {}), [PartitionOffsets(0, 2)])
    if is_damaged:
        assert rows.last(handle, 0) == 0
    else:
        with pytest.raises(InvalidInput, match="the row at offset 0 is not the one that was exported"):
            rows.last(handle, 0)
