"""What is done around each method that Spark calls."""

import socket

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, StructType

from pyspark_log import spark_calls
from tests.support.direct import source

pytestmark = pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="only Linux has TCP_QUICKACK")


@pytest.fixture
def worker(monkeypatch):
    """This process as a worker that is connected to Spark over TCP; returns its end of the connection."""
    monkeypatch.setenv(spark_calls.TCP_WORKER, "secret")
    spark_calls._connections.cache_clear()
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as connection,
        server.accept()[0],
    ):
        yield connection
    for each in spark_calls._connections():
        each.close()
    spark_calls._connections.cache_clear()


def acknowledges_at_once(connection):
    found = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 1
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
    return found


def test_spark_need_not_wait_to_send_a_worker_its_next_piece(worker):
    acknowledges_at_once(worker)
    during = spark_calls.spark_entry(lambda: acknowledges_at_once(worker))()
    after = acknowledges_at_once(worker)
    (between_batches,) = spark_calls.spark_iterator(lambda: iter([acknowledges_at_once(worker)]))()
    assert (during, after, between_batches) == (True, True, True)


def test_spark_need_not_wait_to_send_a_task_of_the_sink_its_next_rows(worker, tmp_path, monkeypatch):
    context = TaskContext._getOrCreate()
    monkeypatch.setattr(context, "_partitionId", 0)
    monkeypatch.setattr(context, "_localProperties", {})
    seen = []

    def batches():
        for _ in range(2):
            yield pa.record_batch({"value": pa.array([b"v"])})
            seen.append(acknowledges_at_once(worker))

    source(tmp_path, topic="t").writer(StructType().add("value", BinaryType()), overwrite=False).write(batches())
    assert seen == [True, True]


def test_a_worker_does_not_wait_to_send_spark_its_next_piece(worker):
    spark_calls.spark_entry(lambda: None)()
    assert worker.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_the_connections_of_other_programs_are_left_alone(worker, monkeypatch):
    monkeypatch.delenv(spark_calls.TCP_WORKER)
    acknowledges_at_once(worker)
    spark_calls.acknowledge()
    assert not acknowledges_at_once(worker)
