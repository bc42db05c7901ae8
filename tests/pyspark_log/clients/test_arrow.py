"""Arrow batches, of records and of columns: sent and read without a Python object for each row."""

import datetime as dt

import pyarrow as pa
import pytest

from pyspark_log import BatchMetadata, Consumer, Producer
from pyspark_log_storage.columns import schema
from pyspark_log_storage.columns.column_ddl import parse
from pyspark_log_storage.errors import InvalidInput, InvalidRecord
from tests.support.plain_log import PlainLog


@pytest.fixture
def log(tmp_path):
    made = PlainLog(tmp_path)
    made.create("t", 2)
    made.create("one", max_message_bytes=1000)
    return made


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


def test_batches_and_rows_keep_their_order(log):
    with Producer(log.path, linger_ms=3_600_000) as producer:
        first = producer.send("one", b"first")
        batch = producer.send_batch("one", pa.record_batch({"value": pa.array([b"second", b"third"])}))
        last = producer.send("one", b"fourth")
        producer.flush()
    assert (first.result().offset, batch.result().offsets, last.result().offset) == (0, {0: (1, 3)}, 3)
    values = [value for batch in read(log, "one") for value in batch.rows.column("value").to_pylist()]
    assert values == [b"first", b"second", b"third", b"fourth"]


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
        ({"value": pa.array([b""]), "partition": pa.array([9])}, "a row names partition 9"),
        ({"value": pa.array([b"", b""]), "partition": pa.array([9, None])}, "a row names partition 9"),
        ({"value": pa.array([b"", b""]), "partition": pa.array([-1, 0])}, "a row names partition -1"),
        (
            {"value": pa.array([b"", b""]), "timestamp": pa.array([0, 2**60], pa.timestamp("us"))},
            r"timestamp\.after\.max",
        ),
        ({"value": pa.array([b"x" * 2000])}, "larger than max.message.bytes"),
        ({"value": pa.array([b""]), "partition": pa.array(["text"])}, "a type that cannot be written"),
    ],
)
def test_a_batch_that_cannot_be_written_is_refused_and_fails_no_other(producer, columns, reason):
    good = producer.send("one", b"good")
    with pytest.raises(InvalidRecord, match=reason):
        producer.send_batch("one", pa.record_batch(columns))
    assert good.result(60).offset == 0


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


@pytest.fixture
def typed(log):
    log.log.create_topic("typed", 2, columns=parse("id INT NOT NULL, name STRING"))
    return log


def rows(log):
    found = [row for batch in read(log, "typed") for row in batch.rows.drop_columns(["timestamp"]).to_pylist()]
    return sorted(found, key=lambda row: row["id"])


def test_typed_batches_come_back_as_the_newest_columns(typed, producer):
    names = pa.array(["a", None], pa.large_string())
    first = pa.table({"id": pa.array([1, 2], pa.int64()), "name": names, "partition": pa.array([0, 1])})
    assert producer.send_batch("typed", first).result(60).offsets == {0: (0, 1), 1: (0, 1)}
    typed.log.topic("typed").evolve(parse("id BIGINT, at DATE"))
    producer.send_batch("typed", pa.table({"id": pa.array([3], pa.int8())})).result(60)
    assert rows(typed) == [
        {"id": 1, "name": "a", "at": None},
        {"id": 2, "name": None, "at": None},
        {"id": 3, "name": None, "at": None},
    ]
    assert {str(batch.rows.schema.field("id").type) for batch in read(typed, "typed")} == {"int64"}


def test_times_that_microseconds_cannot_hold_are_refused(typed, producer):
    typed.log.topic("typed").evolve(parse("at TIMESTAMP, times ARRAY<TIMESTAMP>"))
    fine = pa.array([1500], pa.timestamp("ns", "UTC"))
    with pytest.raises(InvalidRecord, match="column 'at' has a time that microseconds cannot hold; round it"):
        producer.send_batch("typed", pa.table({"id": pa.array([1], pa.int32()), "at": fine}))
    inside = "column 'times' has a value inside that .* cannot hold .*; round or cast it"
    for column, said in (
        ({"timestamp": fine}, "a column of the batch has a value that cannot be written"),
        ({"times": pa.array([[1500]], pa.list_(fine.type))}, inside),
    ):
        with pytest.raises(InvalidRecord, match=f"topic 'typed': {said}"):
            producer.send_batch("typed", pa.table({"id": pa.array([1], pa.int32()), **column}))
    whole = pa.array([2000], pa.timestamp("ns", "UTC"))
    producer.send_batch("typed", pa.table({"id": pa.array([1], pa.int32()), "at": whole})).result(60)
    assert [row["at"].microsecond for row in rows(typed)] == [2]


def test_the_large_lists_of_polars_and_nanoseconds_inside_are_taken(typed, producer):
    typed.log.topic("typed").evolve(parse("items ARRAY<STRUCT<name: STRING, times: ARRAY<TIMESTAMP>>>"))
    times = pa.large_list(pa.timestamp("ns", "UTC"))
    kind = pa.large_list(pa.struct([("times", times), ("name", pa.large_string())]))
    items = pa.array([[], [{"times": [2000, None], "name": "a"}], None], kind)[1:]
    producer.send_batch("typed", pa.table({"id": pa.array([1, 2], pa.int32()), "items": items})).result(60)
    at = dt.datetime(1970, 1, 1, 0, 0, 0, 2, dt.timezone.utc)
    found = sorted((row["id"], row["items"]) for row in rows(typed))
    assert found == [(1, [{"name": "a", "times": [at, None]}]), (2, None)]


def test_what_does_not_fit_is_refused_where_it_is_sent(typed, producer):
    with pytest.raises(InvalidRecord, match=r"topic 'typed' is typed: .* send Arrow rows .* with send_batch"):
        producer.send("typed", b"v")
    with pytest.raises(InvalidRecord, match="topic 'typed': there is no column 'x'"):
        producer.send_batch("typed", pa.table({"id": [1], "x": [1]}))
    with pytest.raises(InvalidRecord, match="topic 'typed': column 'id' is null"):
        producer.send_batch("typed", pa.table({"id": pa.array([None], pa.int32())}))
    with pytest.raises(InvalidRecord, match="topic 'typed': column 'id' has type uint8, which a topic cannot store"):
        producer.send_batch("typed", pa.table({"id": pa.array([1], pa.uint8())}))
    with pytest.raises(InvalidRecord, match="topic 'typed': a row names partition 7"):
        producer.send_batch("typed", pa.table({"id": pa.array([1], pa.int32()), "partition": [7]}))
    assert producer.send_batch("typed", pa.table({"id": pa.array([], pa.int32())})).result(60).offsets == {}
    assert rows(typed) == []


def test_rows_one_by_one_of_another_topic_leave_out_no_typed_row(typed, producer):
    typed.create("plain")
    typed.append("plain", {0: [b"a"]})
    producer.send_batch("typed", pa.table({"id": pa.array([1], pa.int32()), "partition": [0]})).result(60)
    with Consumer(typed.path) as consumer:
        consumer.assign([("plain", 0), ("typed", 0)], "earliest")
        assert [record.value for record in consumer.poll(10)] == [b"a"]
        with pytest.raises(InvalidInput, match=r"topic 'typed' is typed"):
            consumer.poll(10)
        assert consumer.position(("typed", 0)) == 0
        assert [batch.topic for batch in consumer.poll_batches(10)] == ["typed"]
