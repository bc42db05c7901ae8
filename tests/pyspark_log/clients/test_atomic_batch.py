"""`Producer.batch()`: rows that are in the log whole or not at all."""

from concurrent.futures import CancelledError

import pytest

from pyspark_log import Consumer, Producer
from pyspark_log_storage.errors import BufferExhausted, InvalidInput, InvalidRecord, StoreRefused
from tests.support.plain_log import PlainLog


@pytest.fixture
def log(root):
    made = PlainLog(root)
    made.create("t", 3)
    made.create("u")
    return made


def count(log, topic):
    return sum(each.high_watermark for each in log.log.topic(topic).journal.state.partitions)


def number(log, topic):
    return log.log.topic(topic).journal.number


def test_its_rows_are_one_entry_and_acknowledged_when_the_block_ends(log):
    before = number(log, "t")
    with Producer(log.path, linger_ms=3_600_000, batch_size=100) as producer:
        with producer.batch() as batch:
            futures = [batch.send("t", b"x" * 50, partition=each % 3) for each in range(100)]
            assert count(log, "t") == 0
        assert all(each.done() for each in futures)
        assert futures[-1].result()[:3] == ("t", 0, 33)
        assert (count(log, "t"), number(log, "t")) == (100, before + 1)


def test_an_exception_in_the_block_drops_its_rows(log):
    with Producer(log.path) as producer:
        futures = []

        def write():
            with producer.batch() as batch:
                futures.append(batch.send("t", b"dropped"))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            write()
        (future,) = futures
        assert future.cancelled()
        with pytest.raises(CancelledError):
            future.result()
    assert count(log, "t") == 0


def test_a_row_that_is_refused_drops_the_others(log):
    def write(producer):
        with producer.batch() as batch:
            batch.send("t", b"good")
            batch.send("t", b"bad", partition=7)

    with Producer(log.path) as producer, pytest.raises(InvalidRecord):
        write(producer)
    assert count(log, "t") == 0


def test_rows_that_were_sent_before_come_before(log):
    with Producer(log.path, linger_ms=3_600_000) as producer:
        producer.send("u", b"before")
        with producer.batch() as batch:
            batch.send("u", b"in the batch")
        producer.send("u", b"after")
    with Consumer(log.path) as consumer:
        consumer.assign(consumer.partitions("u"), "earliest")
        assert [row.value for row in consumer.poll()] == [b"before", b"in the batch", b"after"]


def test_each_topic_has_an_entry_of_its_own(log):
    before = number(log, "t"), number(log, "u")
    with Producer(log.path) as producer, producer.batch() as batch:
        for _ in range(5):
            batch.send("t", b"")
            batch.send("u", b"")
    assert (number(log, "t"), number(log, "u")) == (before[0] + 1, before[1] + 1)


def test_an_error_of_the_store_is_raised_where_the_block_ends(cluster):
    with cluster.producer() as (producer, store):
        store.refuse(cluster.entries)
        with pytest.raises(StoreRefused), producer.batch() as batch:
            future = batch.send("t", b"refused")
        assert isinstance(future.exception(), StoreRefused)
        store.forget_troubles()
    assert cluster.values() == [b"first"]


def test_it_holds_no_more_than_the_buffer(log):
    def write(producer):
        with producer.batch() as batch:
            for _ in range(100):
                batch.send("t", b"x" * 100)

    with Producer(log.path, buffer_memory=1000) as producer, pytest.raises(BufferExhausted, match="of this batch"):
        write(producer)
    assert count(log, "t") == 0


def test_a_row_that_does_not_fit_into_a_batch_takes_no_room_in_it(log):
    with Producer(log.path, buffer_memory=1000) as producer, producer.batch() as batch:
        with pytest.raises(BufferExhausted, match="of this batch"):
            batch.send("t", b"x" * 1000)
        batch.send("t", b"x")
    assert count(log, "t") == 1


def test_a_block_without_rows_writes_nothing(log):
    before = number(log, "t")
    with Producer(log.path) as producer, producer.batch():
        pass
    assert number(log, "t") == before


def test_nothing_is_sent_after_the_block(log):
    with Producer(log.path) as producer:
        with producer.batch() as batch:
            batch.send("t", b"")
        with pytest.raises(InvalidInput, match="has ended"):
            batch.send("t", b"")


def test_a_producer_that_is_closed_in_the_block_drops_its_rows(log):
    producer, futures = Producer(log.path), []

    def write():
        with producer.batch() as batch:
            futures.append(batch.send("t", b"dropped"))
            producer.close()

    with pytest.raises(InvalidInput, match="this Producer is closed"):
        write()
    assert futures[0].cancelled()
    assert count(log, "t") == 0
