"""Arrow batches of a typed topic, by the Python clients."""

import threading

import pyarrow as pa
import pytest

import pyspark_log
from pyspark_log import Consumer, Producer
from pyspark_log.clients.row_input import arrow_rows
from pyspark_log.clients.sender import Sender
from pyspark_log.writing.destination import check_rows, destination_of
from pyspark_log_coordinator.audit.verify import verify
from pyspark_log_coordinator.maintenance import topic_roll
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.topic.machine import AlterConfig
from pyspark_log_storage.columns.column_ddl import parse
from pyspark_log_storage.errors import InvalidInput, InvalidRecord
from tests.support.plain_log import PlainLog


@pytest.fixture
def log(tmp_path):
    made = PlainLog(tmp_path)
    made.log.create_topic("t", 2, columns=parse("id INT NOT NULL, name STRING"))
    return made


@pytest.fixture
def producer(log):
    with Producer(log.path, linger_ms=0) as made:
        yield made


def poll(log):
    with Consumer(log.path) as consumer:
        consumer.assign(consumer.partitions("t"), "earliest")
        batches = []
        while found := consumer.poll_batches():
            batches += found
        return batches


def rows(log):
    found = [row for batch in poll(log) for row in batch.rows.drop_columns(["timestamp"]).to_pylist()]
    return sorted(found, key=lambda row: row["id"])


def test_typed_batches_come_back_as_the_newest_columns(log, producer):
    names = pa.array(["a", None], pa.large_string())
    first = pa.table({"id": pa.array([1, 2], pa.int64()), "name": names, "partition": pa.array([0, 1])})
    assert producer.send_batch("t", first).result(60).offsets == {0: (0, 1), 1: (0, 1)}
    log.log.topic("t").evolve(parse("id BIGINT, at DATE"))
    producer.send_batch("t", pa.table({"id": pa.array([3], pa.int8())})).result(60)
    assert rows(log) == [
        {"id": 1, "name": "a", "at": None},
        {"id": 2, "name": None, "at": None},
        {"id": 3, "name": None, "at": None},
    ]
    assert {str(batch.rows.schema.field("id").type) for batch in poll(log)} == {"int64"}


def test_rows_that_were_staged_before_a_key_column_was_added_lack_a_key(log):
    handle = log.log.topic("t")
    rows = arrow_rows(pa.table({"id": pa.array([1], pa.int32())}), destination_of(handle, None, 1000), 0)
    handle.evolve(parse("id INT NOT NULL, k STRING"))
    handle.alter_config({"key.column": "k", "cleanup.policy": "compact"})
    with pytest.raises(InvalidRecord, match="a row has a null in the column 'k', which is its key"):
        check_rows(destination_of(handle, None, 1000), rows.record)


def test_rows_that_were_sent_before_and_after_a_key_column_was_set_are_written_together(log, monkeypatch):
    log.log.create_topic("one", 1, columns=parse("id INT"))
    go, take = threading.Event(), Sender._next_request
    monkeypatch.setattr(Sender, "_next_request", lambda self: (go.wait(60), take(self))[1])
    rows = pa.table({"id": pa.array([1, 2], pa.int32())})
    with Producer(log.path) as producer:
        sent = [producer.send_batch("one", rows)]
        log.log.topic("one").alter_config({"key.column": "id"})
        producer._sender._refresh("one")
        sent.append(producer.send_batch("one", rows))
        go.set()
        assert [each.result(60).offsets for each in sent] == [{0: (0, 2)}, {0: (2, 4)}]


def test_rows_of_several_schemas_survive_rolls(log, producer):
    for number in range(6):
        producer.send_batch("t", pa.table({"id": pa.array([number], pa.int32()), "partition": [0]})).result(60)
        if number % 2:
            log.log.topic("t").evolve(parse(f"c{number} DOUBLE"))
    handle = log.log.topic("t")
    handle.submit(AlterConfig({"flush.messages": "1"}))
    topic_roll.roll_and_merge(handle)
    partition = handle.refresh().partitions[0]
    assert (partition.log_end, len(partition.chunks)) == (6, 0)
    assert [row["id"] for row in rows(log)] == list(range(6))
    assert set(rows(log)[0]) == {"id", "name", "c1", "c3", "c5"}


def test_times_that_microseconds_cannot_hold_are_refused(log, producer):
    log.log.topic("t").evolve(parse("at TIMESTAMP, times ARRAY<TIMESTAMP>"))
    fine = pa.array([1500], pa.timestamp("ns", "UTC"))
    with pytest.raises(InvalidRecord, match="column 'at' has a time that microseconds cannot hold; round it"):
        producer.send_batch("t", pa.table({"id": pa.array([1], pa.int32()), "at": fine}))
    for column in ({"timestamp": fine}, {"times": pa.array([[1500]], pa.list_(fine.type))}):
        with pytest.raises(InvalidRecord, match="topic 't': a column of the batch has a value that cannot be written"):
            producer.send_batch("t", pa.table({"id": pa.array([1], pa.int32()), **column}))
    whole = pa.array([2000], pa.timestamp("ns", "UTC"))
    producer.send_batch("t", pa.table({"id": pa.array([1], pa.int32()), "at": whole})).result(60)
    assert [row["at"].microsecond for row in rows(log)] == [2]


def test_what_does_not_fit_is_refused_where_it_is_sent(log, producer):
    with pytest.raises(InvalidRecord, match=r"topic 't' is typed: .* send Arrow rows .* with send_batch"):
        producer.send("t", b"v")
    with pytest.raises(InvalidRecord, match="topic 't': there is no column 'x'"):
        producer.send_batch("t", pa.table({"id": [1], "x": [1]}))
    with pytest.raises(InvalidRecord, match="topic 't': column 'id' is null"):
        producer.send_batch("t", pa.table({"id": pa.array([None], pa.int32())}))
    with pytest.raises(InvalidRecord, match="topic 't': column 'id' has type uint8, which a topic cannot store"):
        producer.send_batch("t", pa.table({"id": pa.array([1], pa.uint8())}))
    with pytest.raises(InvalidRecord, match="topic 't' has no partition 7"):
        producer.send_batch("t", pa.table({"id": pa.array([1], pa.int32()), "partition": [7]}))
    assert producer.send_batch("t", pa.table({"id": pa.array([], pa.int32())})).result(60).offsets == {}
    assert rows(log) == []


def test_a_null_in_the_column_with_the_keys_of_a_compacted_topic_is_refused_with_its_name(tmp_path):
    log = PlainLog(tmp_path)
    log.log.create_topic(
        "t", 1, TopicConfig(key_column="id", cleanup_policy="compact"), columns=parse("id INT, name STRING")
    )
    with (
        Producer(log.path, linger_ms=0) as producer,
        pytest.raises(InvalidRecord, match=r"a null in the column 'id', which is its key, .* fill it, or set"),
    ):
        producer.send_batch("t", pa.table({"name": ["a"]}))


def test_a_key_may_be_several_columns_none_of_them_null(tmp_path):
    log = PlainLog(tmp_path)
    config = TopicConfig(key_column="id,name", cleanup_policy="compact", min_cleanable_dirty_ratio=0.0)
    handle = log.log.create_topic("t", 1, config, columns=parse("id INT, name STRING, v INT"))

    def newest():
        found = pa.table(pyspark_log.scan(str(tmp_path), "t", columns=["id", "name", "v"], latest=True))
        return sorted(tuple(row.values()) for row in found.to_pylist())

    with Producer(log.path, linger_ms=0) as producer:
        for key in ({"id": [1], "v": [1]}, {"name": ["a"], "v": [1]}):
            with pytest.raises(InvalidRecord, match="a null in one of the columns id,name, which are its key"):
                producer.send_batch("t", pa.table(key))
        producer.send_batch("t", pa.table({"id": [1, 1, 2, 1], "name": [*"abaa"], "v": [1, 2, 3, 4]})).result(60)
        assert newest() == [(1, "a", 4), (1, "b", 2), (2, "a", 3)]
        topic_roll.roll_and_merge(handle)
        assert newest() == [(1, "a", 4), (1, "b", 2), (2, "a", 3)]
        producer.send_batch("t", pa.table({"id": [1, 2], "name": [*"bb"], "v": [5, 6]})).result(60)
        assert newest() == [(1, "a", 4), (1, "b", 5), (2, "a", 3), (2, "b", 6)]
        topic_roll.roll_and_merge(handle)
        assert newest() == [(1, "a", 4), (1, "b", 5), (2, "a", 3), (2, "b", 6)]
    assert len(handle.refresh().partitions[0].keyed_segments) == 2
    assert verify(handle).findings == []


def test_rows_one_by_one_have_no_key_and_value(log, producer):
    producer.send_batch("t", pa.table({"id": pa.array([1], pa.int32())})).result(60)
    with Consumer(log.path) as consumer:
        consumer.assign(consumer.partitions("t"), "earliest")
        with pytest.raises(InvalidInput, match=r"topic 't' is typed: .* read them with poll_batches"):
            consumer.poll(10)


def test_rows_one_by_one_of_another_topic_leave_out_no_typed_row(log, producer):
    log.create("plain")
    log.append("plain", {0: [b"a"]})
    producer.send_batch("t", pa.table({"id": pa.array([1], pa.int32()), "partition": [0]})).result(60)
    with Consumer(log.path) as consumer:
        consumer.assign([("plain", 0), ("t", 0)], "earliest")
        assert [record.value for record in consumer.poll(10)] == [b"a"]
        with pytest.raises(InvalidInput, match=r"topic 't' is typed"):
            consumer.poll(10)
        assert consumer.position(("t", 0)) == 0
        assert [batch.topic for batch in consumer.poll_batches(10)] == ["t"]
