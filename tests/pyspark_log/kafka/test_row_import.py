"""Messages of Kafka as rows, and what an import does with them. What comes from a broker is in `test_with_kafka`."""

import contextlib
from types import SimpleNamespace

import pyarrow as pa
import pytest

from pyspark_log.kafka import import_plan
from pyspark_log.kafka.client import KafkaTopic, PartitionOffsets
from pyspark_log.kafka.import_plan import PartitionImport
from pyspark_log.kafka.offset_headers import without
from pyspark_log.kafka.row_import import Imported, RowImport, _rows
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_storage.errors import BatchMismatch, InvalidInput, InvalidRecord
from tests.support.plain_log import PlainLog

TOPIC = KafkaTopic("t", "cluster", "id", 1, {})


def message(ms, headers=None):
    values = {"headers": headers, "key": None, "value": b"v", "offset": 7, "timestamp": (1, ms)}
    return SimpleNamespace(**{name: lambda value=value: value for name, value in values.items()})


def test_the_time_of_a_message_is_kept_or_an_error_that_names_the_row():
    for ms in (-1, 0, 1_700_000_000_000, 9_223_372_036_854_774):
        times = _rows([message(ms)], 0, 7).record.column("timestamp")
        assert times.cast(pa.int64()).to_pylist() == [ms * 1000]
    for ms in (1_700_000_000_000_000_000, -(2**63)):
        with pytest.raises(InvalidRecord, match=f"the row at offset 7 has the time {ms} ms, which is too large"):
            _rows([message(ms)], 0, 7)


def test_a_row_with_a_header_of_our_name_gets_one_of_its_own_though_it_keeps_its_offset():
    given = [("kafka.offset", b"3"), ("h", b"1")]
    found = _rows([message(0, given)], 0, 7).record.column("headers").to_pylist()
    assert [(each["key"], each["value"]) for each in found[0]] == [*given, ("kafka.offset", b"7")]
    assert without([*given, ("kafka.offset", b"7")], "kafka.offset") == given, "an export has the row as it was"
    assert "headers" not in _rows([message(0)], 0, 7).record.schema.names


class Message:
    """A message of partition 0, or its end."""

    def __init__(self, offset, *, is_end=False):
        self._offset, self._is_end = offset, is_end

    def __len__(self):
        return 1

    def error(self):
        return "its end" if self._is_end else None

    def offset(self):
        return self._offset

    def partition(self):
        return 0

    def headers(self):
        return None

    def key(self):
        return None

    def value(self):
        return b"%d" % self._offset

    def timestamp(self):
        return 1, 0


class Kafka:
    """A Kafka whose client returns these messages, some at a time."""

    library = SimpleNamespace(TopicPartition=lambda *place: place)

    def __init__(self, *answers):
        self._answers = iter(answers)

    def consumer(self):
        return SimpleNamespace(incremental_assign=list, incremental_unassign=list, close=lambda: None)

    def receive(self, _, __):
        return next(self._answers)

    def errors(self):
        return contextlib.nullcontext()


@pytest.fixture
def log(tmp_path):
    made = PlainLog(tmp_path)
    made.create("t")
    return made


def imported(log, plan, *answers, keeps_offsets=False):
    """Import messages, and return what was imported."""
    whole = RowImport(
        log.log, log.log.topic("t"), Kafka(*answers), TOPIC, RetryPolicy(retries=0), keeps_offsets=keeps_offsets
    )
    [found] = whole.run([plan], lambda _: None)
    return found


def end(log):
    return log.log.topic("t").partitions[0].log_end


def test_an_import_ends_with_the_last_row_that_its_plan_names(log):
    plan = PartitionImport(0, 0, 3, 0, is_resumed=False)
    answers = [Message(0), Message(1)], [Message(2), Message(3), Message(4)]
    assert imported(log, plan, *answers) == Imported(0, rows=3, next=3, offset=0)
    assert end(log) == 3


def test_the_end_of_a_partition_that_is_still_written_does_not_end_an_import_before_its_last_row(log):
    plan = PartitionImport(0, 0, 3, 0, is_resumed=False)
    answers = [Message(0), Message(1, is_end=True)], [Message(1), Message(2)]
    assert imported(log, plan, *answers).rows == 3


def test_a_message_that_arrives_again_is_imported_once(log):
    plan = PartitionImport(0, 1, 4, 0, is_resumed=False)
    answers = [Message(0), Message(1)], [Message(1), Message(2)], [Message(2), Message(3)]
    assert imported(log, plan, *answers) == Imported(0, rows=3, next=4, offset=0)


def test_an_import_that_keeps_offsets_ends_at_a_gap_with_the_rows_before_it(log):
    plan = PartitionImport(0, 0, 5, 0, is_resumed=False)
    with pytest.raises(InvalidInput, match="partition 0: Kafka has no row with offset 2, the next is 3"):
        imported(log, plan, [Message(0), Message(1), Message(3), Message(4)], keeps_offsets=True)
    assert end(log) == 2


def test_the_log_says_where_the_next_import_goes_on(log):
    imported(log, PartitionImport(0, 0, 9, 0, is_resumed=False), [Message(0), Message(6)], [Message(9, is_end=True)])
    state = log.log.topic("t").state
    [plan] = import_plan.plan(TOPIC, [PartitionOffsets(0, 9)], [0], "t", state, keeps_offsets=False)
    assert plan == PartitionImport(0, 7, 9, 2, is_resumed=True)


def test_rows_that_would_get_other_offsets_than_planned_are_not_imported(log):
    plan = PartitionImport(0, 0, 2, 0, is_resumed=False)
    log.append("t", {0: [b"another writer's"]})
    with pytest.raises(BatchMismatch):
        imported(log, plan, [Message(0), Message(1)])
    assert end(log) == 1
