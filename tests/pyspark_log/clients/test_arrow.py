"""Arrow batches: sent and read without a Python object for each row."""

import pyarrow as pa
import pytest

from pyspark_log import BatchMetadata, Consumer, Producer
from pyspark_log_storage.columns import schema
from pyspark_log_storage.columns.column_ddl import parse
from pyspark_log_storage.errors import InvalidRecord, UnknownTopic
from tests.support.plain_log import PlainLog


@pytest.fixture
def log(root):
    made = PlainLog(root)
    made.create("t", 2)
    made.create("one", max_message_bytes=1000)
    return made


@pytest.fixture
def producer(log):
    with Producer(log.path, linger_ms=0) as made:
        yield made


def read(log, topic):
    with Consumer(log.path) as consumer:
        consumer.assign(consumer.partitions(topic), "earliest")
        batches = []
        while found := consumer.poll_batches():
            batches += found
        return batches


def test_a_batch_is_one_entry_and_its_future_names_the_offsets(log, producer):
    before = log.log.topic("t").journal.number
    rows = pa.record_batch({"value": pa.array([b"%d" % n for n in range(10)]), "partition": pa.array([0, 1] * 5)})
    assert producer.send_batch("t", rows).result(60) == BatchMetadata("t", {0: (0, 5), 1: (0, 5)})
    assert producer.send_batch("t", rows).result(60).offsets == {0: (5, 10), 1: (5, 10)}
    assert log.log.topic("t").journal.number == before + 2


def test_all_columns_come_back(log, producer):
    columns = {
        "key": pa.array(["a", None]),
        "value": pa.array([b"1", b"2"], pa.large_binary()),
        "timestamp": pa.array([1_700_000_000_000_000, 1_700_000_000_000_001], schema.TIMESTAMP),
        "headers": pa.array([[{"key": "h", "value": b"w"}], None], schema.HEADERS),
        "ignored": pa.array([1, 2]),
    }
    producer.send_batch("one", pa.table(columns)).result(60)
    (batch,) = read(log, "one")
    assert (batch.topic, batch.partition, batch.offset) == ("one", 0, 0)
    assert batch.rows.to_pydict()["key"] == [b"a", None]
    assert batch.rows.column("value").to_pylist() == [b"1", b"2"]
    assert batch.rows.column("timestamp").equals(columns["timestamp"])
    assert batch.rows.column("headers").to_pylist() == [[{"key": "h", "value": b"w"}], None]


def test_timestamps_that_are_numbers_of_an_unknown_unit_are_refused(log, producer):
    log.log.create_topic("typed", 1, columns=parse("id INT"))
    times = pa.array([1_700_000_000_000])
    for topic, column in (("t", {"value": [b"1"]}), ("typed", {"id": pa.array([1], pa.int32())})):
        for numbers in (times, times.dictionary_encode()):
            with pytest.raises(InvalidRecord, match="column 'timestamp' is int64, a number of an unknown unit; cast"):
                producer.send_batch(topic, pa.table(column | {"timestamp": numbers}))
        rows = pa.table(column | {"timestamp": times.cast(pa.timestamp("ms"))})
        producer.send_batch(topic, rows).result(60)
        (batch,) = read(log, topic)
        assert batch.rows.column("timestamp").cast(pa.int64()).to_pylist() == [1_700_000_000_000_000]


def test_batches_and_rows_keep_their_order(log, producer):
    producer.send("one", b"first")
    producer.send_batch("one", pa.record_batch({"value": pa.array([b"second", b"third"])}))
    assert producer.send("one", b"fourth").result(60).offset == 3
    values = [value for batch in read(log, "one") for value in batch.rows.column("value").to_pylist()]
    assert values == [b"first", b"second", b"third", b"fourth"]


def test_small_batches_that_wait_share_an_entry(log):
    before = log.log.topic("t").journal.number
    with Producer(log.path, linger_ms=3_600_000) as producer:
        futures = [
            producer.send_batch("t", pa.record_batch({"value": pa.array([b"%d" % n]), "key": pa.array([b"%d" % n])}))
            for n in range(200)
        ]
        offsets = [each.result(60).offsets for each in futures]
    assert log.log.topic("t").journal.number < before + 100
    for partition in (0, 1):
        mine = [each[partition] for each in offsets if partition in each]
        assert mine == [(n, n + 1) for n in range(len(mine))]


def test_a_batch_may_be_larger_than_the_buffer(log):
    rows = pa.record_batch({"value": pa.array([b"x" * 100] * 1000)})
    with Producer(log.path, linger_ms=0, buffer_memory=5000) as producer:
        futures = [producer.send_batch("one", rows) for _ in range(3)]
        assert [each.result(60).offsets for each in futures] == [{0: (n * 1000, n * 1000 + 1000)} for n in range(3)]


def test_a_batch_without_rows_is_done_at_once(producer):
    empty = pa.record_batch({"value": pa.array([], pa.binary())})
    assert producer.send_batch("one", empty).result(0).offsets == {}
    assert producer.send_batch("one", pa.Table.from_batches([empty])).result(0).offsets == {}
    assert producer.send_batch("one", pa.Table.from_batches([], empty.schema)).result(0).offsets == {}


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"other": pa.array([b""])}, r"no column 'value' \(it has other\)"),
        ({"value": pa.array([1])}, "a type that cannot be written"),
        ({"value": pa.array([b""]), "partition": pa.array([9])}, "has no partition 9"),
        ({"value": pa.array([b"", b""]), "partition": pa.array([9, None])}, "has no partition 9"),
        ({"value": pa.array([b"", b""]), "partition": pa.array([-1, 0])}, "has no partition -1"),
        ({"value": pa.array([b"x" * 2000])}, "larger than max.message.bytes"),
        ({"value": pa.array([b""]), "partition": pa.array(["text"])}, "a type that cannot be written"),
    ],
)
def test_a_batch_that_cannot_be_written_is_refused_and_fails_no_other(producer, columns, reason):
    good = producer.send("one", b"good")
    with pytest.raises(InvalidRecord, match=reason):
        producer.send_batch("one", pa.record_batch(columns))
    assert good.result(60).offset == 0


def test_batches_with_and_without_partitions_that_wait_together_are_all_written(log, producer):
    values = [b"%d" % number for number in range(40)]
    futures = []
    for first in range(0, 40, 4):
        without = {"value": pa.array(values[first : first + 1])}
        with_them = {"value": pa.array(values[first + 1 : first + 3]), "partition": pa.array([0, 0])}
        futures += [producer.send_batch("one", pa.record_batch(each)) for each in (without, with_them)]
        producer.send("one", values[first + 3], partition=None if first % 8 else 0)
    producer.flush()
    starts = [start for first in range(0, 40, 4) for start in (first, first + 1)]
    assert [each.result(60).offsets[0][0] for each in futures] == starts
    assert [value for batch in read(log, "one") for value in batch.rows.column("value").to_pylist()] == values


def test_a_table_that_does_not_fit_into_one_batch_is_refused(producer, monkeypatch):
    class LargeTable:
        """As a table with a column of more than 2 GiB."""

        num_rows = 2

        def combine_chunks(self):
            return self

        def to_batches(self):
            return [pa.record_batch({"value": pa.array([b""])})] * 2

    with monkeypatch.context() as patch:
        patch.setattr(pa, "Table", LargeTable)
        with pytest.raises(InvalidRecord, match=r"the 2 rows do not fit into one batch.* send smaller batches"):
            producer.send_batch("one", LargeTable())


def test_a_table_whose_headers_do_not_fit_into_one_batch_is_refused(producer):
    entries = 2**31 - 2  # of type null, which takes no memory
    headers = pa.ListArray.from_arrays(pa.array([0, entries], pa.int32()), pa.nulls(entries))
    table = pa.table({"value": pa.array([b"", b""]), "headers": pa.chunked_array([headers, headers])})
    with pytest.raises(InvalidRecord, match=r"the rows do not fit into one batch.* send smaller batches"):
        producer.send_batch("one", table)


def test_an_error_reaches_the_future(log, producer):
    rows = pa.record_batch({"value": pa.array([b""])})
    producer.send_batch("one", rows).result(60)
    log.delete("one")
    with pytest.raises(UnknownTopic):
        producer.send_batch("one", rows).result(60)


def test_a_read_returns_no_more_than_fetch_max_bytes(log, producer):
    for _ in range(10):
        producer.send_batch("one", pa.record_batch({"value": pa.array([b"x" * 100] * 100)})).result(60)
    with Consumer(log.path, fetch_max_bytes=25_000, max_partition_fetch_bytes=10_000) as consumer:
        consumer.assign(consumer.partitions("one"), "earliest")
        sizes = []
        while found := consumer.poll_batches():
            sizes.append(sum(batch.rows.num_rows for batch in found))
    assert sum(sizes) == 1000
    assert max(sizes) <= 300
