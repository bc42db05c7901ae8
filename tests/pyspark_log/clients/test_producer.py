"""Rows that programs send: where they go, in which order, and what their futures and callbacks say."""

import threading
import time

import numpy as np
import pyarrow as pa
import pytest

from pyspark_log import Producer, RecordMetadata
from pyspark_log.writing.partitioner import murmur2
from pyspark_log_storage.errors import (
    InvalidInput,
    InvalidRecord,
    NoCluster,
    UnknownTopic,
)
from tests.support.pyspark_log.clients.written_rows import GUARD, entries_of, rows_of, values_of


class TestARow:
    def test_is_in_the_log_where_its_future_says(self, log, producer):
        future = producer.send("t", b"value", key=b"key", partition=2, timestamp_ms=1_700_000_000_123)
        assert future.result(GUARD) == RecordMetadata("t", 2, 0, 1_700_000_000_123)
        (row,) = rows_of(log)[2]
        assert (row.key, row.value, row.timestamp, row.headers) == (b"key", b"value", 1_700_000_000_123, ())

    @pytest.mark.parametrize("integer", [np.int64, np.uint8, np.array])
    def test_may_have_integers_of_numpy(self, producer, integer):
        without = producer.send("t", b"")
        future = producer.send("t", b"", partition=integer(2), timestamp_ms=integer(5))
        assert (future.result(GUARD).partition, future.result().timestamp) == (2, 5)
        assert without.result(GUARD).offset == 0

    def test_fails_alone_if_its_time_is_too_far_in_the_future(self, producer):
        good = producer.send("t", b"")
        with pytest.raises(InvalidRecord, match=r"the time of a row is 1700000000000000 ms after 1970.*after"):
            producer.send("t", b"", timestamp_ms=1_700_000_000_000_000)  # microseconds
        assert good.result(GUARD).offset == 0

    def test_may_be_text_a_tombstone_or_empty(self, log, producer):
        for value in ("tschüß", None, b"", bytearray(b"array"), memoryview(b"view")):
            producer.send("one", value)
        producer.flush()
        assert values_of(log, "one") == {0: ["tschüß".encode(), None, b"", b"array", b"view"]}

    @pytest.mark.parametrize(
        "headers", [{"a": b"1", "b": None, "c": "text"}, [("a", b"1"), ("b", None), ("c", "text")]]
    )
    def test_has_headers(self, log, producer, headers):
        producer.send("one", b"with", headers=headers)
        producer.send("one", b"without")
        producer.flush()
        with_them, without = rows_of(log, "one")[0]
        assert with_them.headers == (("a", b"1"), ("b", None), ("c", b"text"))
        assert without.headers == ()

    def test_goes_to_kafkas_partition_of_its_key(self, log, producer):
        keys = [b"key-%d" % number for number in range(50)]
        futures = [producer.send("t", b"", key=key) for key in keys]
        hashes = murmur2(pa.array(keys)).tolist()
        assert [each.result(GUARD).partition for each in futures] == [(each & 0x7FFFFFFF) % 3 for each in hashes]

    def test_without_a_key_goes_with_the_others_of_its_batch(self, log):
        with Producer(log.path, linger_ms=60_000) as producer:
            futures = [producer.send("t", b"") for _ in range(10)]
            producer.flush()
            assert len({each.result(GUARD).partition for each in futures}) == 1
            later = {producer.send("t", b"") for _ in range(1)}
            producer.flush()
            assert {each.result(GUARD).partition for each in later} != {futures[0].result().partition}

    def test_creates_its_topic(self, log):
        with Producer(log.path, num_partitions=4) as producer:
            producer.send("fresh", b"")
            assert producer.partitions_for("fresh") == 4

    def test_creates_no_topic_if_the_options_say_so(self, log):
        with Producer(log.path, auto_create_topics_enable=False) as producer, pytest.raises(UnknownTopic):
            producer.send("missing", b"")

    @pytest.mark.parametrize("creates_topics", [True, False])
    def test_never_creates_a_log(self, tmp_path, creates_topics):
        (tmp_path / "nowhere").mkdir()  # where a disk is to be mounted
        nowhere = Producer(tmp_path / "nowhere", auto_create_topics_enable=creates_topics)
        with nowhere as producer, pytest.raises(NoCluster, match="whether its disk is mounted"):
            producer.send("missing", b"")
        assert not list((tmp_path / "nowhere").iterdir())

    @pytest.mark.parametrize(
        ("row", "reason"),
        [
            ({"value": 5}, "value of a row is of type int"),
            ({"value": b"", "key": ["list"]}, "key of a row is of type list"),
            ({"value": b"", "headers": {"h": 1}}, "header h of a row is of type int"),
            ({"value": b"", "headers": {"\ud800": b""}}, "UTF-8 cannot encode"),
            ({"value": b"", "headers": ["h"]}, "give a dict, or pairs"),
            ({"value": b"", "partition": 3}, "a row names partition 3, but the topic has partitions 0 to 2"),
            ({"value": b"", "headers": 5}, "headers of a row are 5; give a dict, or pairs"),
            ({"value": b"", "partition": -1}, "a row names partition -1"),
            ({"value": b"", "partition": True}, "partition of a row is True; give an integer"),
            ({"value": b"", "timestamp_ms": -1}, "timestamp of a row is -1"),
            ({"value": b"", "timestamp_ms": "5"}, "timestamp_ms of a row is '5'; give an integer"),
            ({"value": b"", "headers": {"h": b"x" * 2_000_000}}, "larger than max.message.bytes"),
        ],
    )
    def test_that_cannot_be_written_is_refused_when_it_is_sent_and_fails_no_other(self, log, producer, row, reason):
        good = producer.send("t", b"good")
        with pytest.raises(InvalidRecord, match=reason):
            producer.send("t", **row)
        assert good.result(GUARD).offset == 0
        assert sum(len(rows) for rows in values_of(log).values()) == 1


class TestAFuture:
    def test_of_every_row_of_a_batch_has_its_own_offset(self, log):
        with Producer(log.path) as producer:
            futures = [producer.send("t", b"%d" % number, key=b"%d" % (number % 7)) for number in range(1000)]
        rows = values_of(log)
        for number, future in enumerate(futures):
            assert rows[future.result().partition][future.result().offset] == b"%d" % number

    def test_calls_back(self, producer):
        called = threading.Event()
        found = []
        future = producer.send("one", b"a")
        future.add_done_callback(lambda each: (found.append(each.result().offset), called.set()))
        assert called.wait(GUARD)
        future.add_done_callback(lambda each: found.append(each.result().offset))
        assert found == [0, 0]


class TestOnDelivery:
    def test_is_called_with_the_place_of_each_row_in_order(self, producer):
        told = []
        for number in range(100):
            producer.send("one", b"", on_delivery=lambda error, where, n=number: told.append((n, error, where.offset)))
        producer.flush()
        assert told == [(number, None, number) for number in range(100)]

    def test_is_called_with_the_error(self, log, producer):
        told = []
        producer.send("one", b"").result(GUARD)
        log.delete("one")
        producer.send("one", b"", on_delivery=lambda error, where: told.append((error, where)))
        producer.flush()
        ((error, where),) = told
        assert isinstance(error, UnknownTopic)
        assert where is None

    def test_may_send_but_not_wait_for_itself(self, producer):
        answers = []

        def send_more(error, where):
            producer.send("one", b"more")
            with pytest.raises(InvalidInput, match="a callback of a row cannot flush"):
                producer.flush()
            answers.append(where.offset)

        producer.send("one", b"", on_delivery=send_more).result(GUARD)
        producer.flush()
        assert answers == [0]
        assert producer.send("one", b"").result(GUARD).offset == 2


class TestBatches:
    def test_are_one_journal_entry_for_each_topic(self, log):
        before = entries_of(log, "t"), entries_of(log, "one")
        with Producer(log.path, linger_ms=60_000) as producer:
            for number in range(100):
                producer.send("t", b"", partition=number % 3)
                producer.send("one", b"")
        assert (entries_of(log, "t"), entries_of(log, "one")) == (before[0] + 1, before[1] + 1)

    def test_wait_for_linger_ms_only(self, log):
        with Producer(log.path, linger_ms=20) as producer:
            assert producer.send("one", b"").result(GUARD).offset == 0

    def test_that_are_full_do_not_wait(self, log):
        with Producer(log.path, linger_ms=3_600_000, batch_size=1000) as producer:
            futures = [producer.send("one", b"x" * 500) for _ in range(2)]
            assert [each.result(10).offset for each in futures] == [0, 1]

    def test_of_several_threads_keep_the_order_of_each_thread(self, log):
        with Producer(log.path, linger_ms=1, batch_size=1000, buffer_memory=5000) as producer:

            def send(name):
                for number in range(200):
                    producer.send("one", b"%d %d" % (name, number))

            threads = [threading.Thread(target=send, args=(name,)) for name in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(GUARD)
        by_thread = {}
        for value in values_of(log, "one")[0]:
            name, number = map(int, value.split())
            by_thread.setdefault(name, []).append(number)
        assert by_thread == {name: list(range(200)) for name in range(6)}

    def test_of_one_topic_do_not_wait_for_those_of_another_for_ever(self, log):
        with Producer(log.path, linger_ms=0, batch_size=1) as producer:
            many = [producer.send("t", b"") for _ in range(50)]
            producer.send("one", b"").result(GUARD)
            assert not many[-1].done()


def leave(*_):
    raise SystemExit(1)


class TestACallbackThatRaises:
    @pytest.mark.parametrize(
        "give",
        [
            lambda producer: producer.send("one", b"", on_delivery=lambda *_: 1 / 0),
            lambda producer: producer.send("one", b"", on_delivery=leave),
            lambda producer: producer.send("one", b"").add_done_callback(leave),
            lambda producer: producer.send_batch("one", pa.record_batch({"value": [b""]})).add_done_callback(leave),
        ],
        ids=["on_delivery", "on_delivery that exits", "future", "future of a batch"],
    )
    def test_does_not_keep_other_rows_from_being_written(self, log, give):
        with Producer(log.path, linger_ms=50) as producer:
            give(producer)
            beside = producer.send("one", b"in the same request")
            assert producer.flush(GUARD) == 0
            assert beside.result(GUARD).offset == 1
            assert producer.send("one", b"later").result(GUARD).offset == 2

    def test_does_not_keep_other_rows_from_failing(self, log, monkeypatch):
        monkeypatch.setattr("pyspark_log.clients.sender.Sender._stage", lambda *_: 1 / 0)
        with Producer(log.path, linger_ms=50) as producer:
            producer.send("one", b"", on_delivery=leave)
            for future in (producer.send("one", b""), producer.send("one", b"")):
                with pytest.raises(ZeroDivisionError):
                    future.result(GUARD)
            assert all(thread.is_alive() for thread in producer._sender.threads)


def test_flush_waits_for_the_callbacks(log):
    called = []
    with Producer(log.path, linger_ms=3_600_000) as producer:
        for _ in range(3):
            producer.send("one", b"", on_delivery=lambda *_: (time.sleep(0.05), called.append(1)))
        assert producer.flush(GUARD) == 0
        assert len(called) == 3


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_flush_and_close_refuse_a_time_that_cannot_pass_and_may_wait_without_end(log, timeout):
    with Producer(log.path) as producer:
        for wait in (producer.flush, producer.close):
            with pytest.raises(InvalidInput, match="or None to wait without end"):
                wait(timeout)
        producer.send("one", b"")
        assert producer.flush(float("inf")) == 0
