"""What the callbacks of a producer's rows may do, and what they cannot break."""

import threading
import time

import pyarrow as pa
import pytest

from pyspark_log import Producer
from pyspark_log.clients.sender import Sender
from pyspark_log_storage.errors import InvalidInput
from tests.support.plain_log import PlainLog

GUARD = 20


@pytest.fixture
def log(root):
    made = PlainLog(root)
    made.create("t")
    return made


def leave(*_):
    raise SystemExit(1)


class TestACallbackThatRaisesSystemExit:
    @pytest.mark.parametrize(
        "give",
        [
            lambda producer: producer.send("t", b"", on_delivery=leave),
            lambda producer: producer.send("t", b"").add_done_callback(leave),
            lambda producer: producer.send_batch("t", pa.record_batch({"value": [b""]})).add_done_callback(leave),
        ],
        ids=["on_delivery", "future", "future of a batch"],
    )
    def test_does_not_keep_other_rows_from_being_written(self, log, give):
        with Producer(log.path, linger_ms=50) as producer:
            give(producer)
            beside = producer.send("t", b"in the same request")
            assert producer.flush(GUARD) == 0
            assert beside.result(GUARD).offset == 1
            assert producer.send("t", b"later").result(GUARD).offset == 2

    def test_does_not_keep_other_callbacks_from_being_called(self, log):
        called = []
        with Producer(log.path, linger_ms=50) as producer:
            producer.send("t", b"", on_delivery=leave)
            producer.send("t", b"", on_delivery=lambda *_: called.append("the one after it"))
        assert called == ["the one after it"]

    def test_does_not_keep_other_rows_from_failing(self, log, monkeypatch):
        monkeypatch.setattr("pyspark_log.clients.sender.Sender._stage", lambda *_: 1 / 0)
        with Producer(log.path, linger_ms=50) as producer:
            producer.send("t", b"", on_delivery=leave)
            for future in (producer.send("t", b""), producer.send("t", b"")):
                with pytest.raises(ZeroDivisionError):
                    future.result(GUARD)
            assert all(thread.is_alive() for thread in producer._sender.threads)


def test_a_callback_cannot_use_a_block_which_would_wait_for_itself(log):
    errors = []

    def call(*_):
        try:
            with producer.batch() as batch:
                batch.send("t", b"never")
        except InvalidInput as error:
            errors.append(error.message)

    with Producer(log.path, linger_ms=0) as producer:
        producer.send("t", b"", on_delivery=call)
        assert producer.flush(GUARD) == 0
    assert errors == ["a callback of a row cannot use batch(): it would wait for itself; do it in another thread"]


def test_flush_waits_for_the_callbacks(log):
    called = []
    with Producer(log.path, linger_ms=3_600_000) as producer:
        for _ in range(3):
            producer.send("t", b"", on_delivery=lambda *_: (time.sleep(0.05), called.append(1)))
        assert producer.flush(GUARD) == 0
        assert len(called) == 3


def test_a_callback_may_send_when_the_buffer_was_full(log):
    sent = []
    with Producer(log.path, linger_ms=0, buffer_memory=100, max_block_ms=2000) as producer:
        producer.send("t", b"x" * 30, on_delivery=lambda *_: sent.append(producer.send("t", b"x" * 30)))
        assert producer.flush(GUARD) == 0
        assert sent[0].result(GUARD).offset == 1


def test_flush_goes_on_when_another_thread_closes_the_producer_in_haste(log, monkeypatch):
    monkeypatch.setattr(Sender, "start", lambda _: None)  # nothing is ever written
    producer = Producer(log.path, linger_ms=0)
    producer._sender.threads = []
    producer.send("t", b"")
    thread = threading.Thread(target=producer.flush, daemon=True)
    thread.start()
    producer.close(timeout=0.1)
    thread.join(GUARD)
    assert not thread.is_alive()
