"""A user's program, for type checkers: they see the types of the installed packages, and refuse the marked lines."""

from pyspark_log import Consumer, Producer
from pyspark_log_coordinator.model.partition import Partition
from pyspark_log_storage.errors import LogError


def send(path: str, rows: list[bytes]) -> list[int]:
    """Return the offsets of rows."""
    with Producer(path) as producer:
        futures = [producer.send("t", row, key=None) for row in rows]
        return [future.result().offset for future in futures]


def values(path: str) -> list[bytes | None]:
    """Return the values of a poll."""
    with Consumer(path) as consumer:
        return [record.value for record in consumer.poll(timeout_ms=0)]


def explain(error: LogError) -> str:
    """Return what an error says."""
    return str(error)


def wrong(producer: Producer, consumer: Consumer, partition: Partition, error: LogError) -> None:
    """Do what type checkers refuse."""
    producer.send(1, b"row")  # refused
    consumer.poll(timeout_ms="soon")  # refused
    print(error.no_such_attribute)  # refused
    print(partition.no_such_attribute)  # refused
