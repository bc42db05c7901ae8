"""What the callbacks of a producer's rows may do, and what they cannot break."""

import pyarrow as pa
import pytest

from pyspark_log import Producer
from pyspark_log_storage.errors import InvalidInput
from tests.plain_log import PlainLog

GUARD = 20


@pytest.fixture
def log(tmp_path):
    made = PlainLog(tmp_path)
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
