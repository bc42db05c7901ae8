"""Beside Kafka: the same rows through a Kafka broker by confluent-kafka, and through the Python clients.

Both sides use one machine, one copy of each row, acks=all and lz4. They promise different things: a batch of ours is on
the disk when it is acknowledged, and Kafka, with its defaults, has it in the operating system's memory (a broker relies
on its replicas). The broker's processor time counts as Kafka's.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from benchmarks.report import Line
from benchmarks.stopwatch import in_turns
from pyspark_log import Consumer, Producer
from pyspark_log.opening import open_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.stopwatch import Timing

PARTITIONS = 4
KEY_BYTES, VALUE_BYTES = 10, 90
BATCH_ROWS = 50_000
POLL_MS = 1_000
AT_ONCE = 10_000
QUEUE_ROWS = 1_000_000
"""So that Kafka's producer need not wait for room, which with its default it does at every 100,000 rows."""
MEGA = 1_000_000
BACKOFF_MS = 10
"""How long Kafka's consumer waits when it is ahead. With its default, 1,000, it read a quarter as fast."""
JVM = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC")
"""As Kafka's start script chooses."""


def measure_kafka(folder: Path, rows: int, runs: int, log: Callable[[str], object]) -> list[Line]:
    """Return the lines about `rows` rows of 100 bytes, written and read."""
    from tests.servers import kafka as server

    dice = random.Random(7)
    keys = [b"%0*d" % (KEY_BYTES, dice.randrange(10**6)) for _ in range(BATCH_ROWS)]
    values = [dice.randbytes(VALUE_BYTES // 2).hex().encode() for _ in range(BATCH_ROWS)]
    with server.running(folder / "kafka", JVM) as broker:
        log(f"kafka: {rows:,} rows of {KEY_BYTES + VALUE_BYTES} bytes, {runs} runs of each")
        ours = _Ours(str(folder / "beside-kafka"), keys, values, rows, runs + 1)  # one run warms up
        theirs = _Kafkas(broker.address, keys, values, rows, runs + 1)
        written = in_turns([ours.send, ours.send_batches, theirs.send], runs)
        read = in_turns([ours.poll, ours.poll_batches, theirs.consume], runs)
    return [
        _line("written by Producer.send beside Kafka", written[0], written[2], rows),
        _line("written by Producer.send_batch beside Kafka", written[1], written[2], rows),
        _line("read by Consumer.poll beside Kafka", read[0], read[2], rows),
        _line("read by Consumer.poll_batches beside Kafka", read[1], read[2], rows),
    ]


def _line(name: str, ours: Timing, kafkas: Timing, rows: int) -> Line:
    """Return a line whose ratio is that of rows per second, and that of processor time per row."""
    found, least = rows / ours.wall / MEGA, rows / kafkas.wall / MEGA
    note = (
        f"CPU per million rows: {ours.cpu / rows * MEGA:.2f} s, Kafka with its broker {kafkas.cpu / rows * MEGA:.2f} s"
    )
    return Line(name, "M rows/s", found, least, found / least, cpu_ratio=ours.cpu / kafkas.cpu, note=note)


class _Ours:
    """The Python clients. Each run writes a new topic; reads are of the last one that was written row by row."""

    def __init__(self, path: str, keys: list[bytes], values: list[bytes], rows: int, runs: int) -> None:
        self._path, self._keys, self._values, self._rows = path, keys, values, rows
        self._batch = pa.record_batch({"key": pa.array(keys), "value": pa.array(values)})
        self._last = f"rows-{runs}"
        self._new = {kind: iter([f"{kind}-{number}" for number in range(1, runs + 1)]) for kind in ("rows", "batches")}
        open_log(path, create=True)
        with self._producer() as producer:
            for number in range(1, runs + 1):
                for kind in self._new:
                    producer.partitions_for(f"{kind}-{number}")  # creates it

    def send(self) -> None:
        with self._producer() as producer:
            topic, send = next(self._new["rows"]), producer.send
            for number in range(self._rows):
                at = number % BATCH_ROWS
                send(topic, self._values[at], self._keys[at])

    def send_batches(self) -> None:
        with self._producer() as producer:
            topic = next(self._new["batches"])
            for _ in range(self._rows // BATCH_ROWS):
                producer.send_batch(topic, self._batch)

    def poll(self) -> None:
        left, size = self._rows, 0
        with self._consumer() as consumer:
            while left > 0:
                records = consumer.poll(POLL_MS)
                for each in records:
                    size += len(each.key or b"") + len(each.value or b"")
                left -= len(records)
        assert size == self._rows * (KEY_BYTES + VALUE_BYTES), size

    def poll_batches(self) -> None:
        left = self._rows
        with self._consumer() as consumer:
            while left > 0:
                left -= sum(each.rows.num_rows for each in consumer.poll_batches(POLL_MS))

    def _producer(self) -> Producer:
        options: dict[str, Any] = {"acks": "all", "compression.type": "lz4", "num.partitions": PARTITIONS}
        return Producer(self._path, options)

    def _consumer(self) -> Consumer:
        consumer = Consumer(self._path)
        consumer.assign(consumer.partitions(self._last), "earliest")
        return consumer


class _Kafkas:
    """confluent-kafka. Each run writes a new topic; reads are of the last one."""

    def __init__(self, address: str, keys: list[bytes], values: list[bytes], rows: int, runs: int) -> None:
        import confluent_kafka
        from confluent_kafka import admin

        self._library: Any = confluent_kafka
        self._config = {"bootstrap.servers": address, "log_level": 0}
        self._keys, self._values, self._rows = keys, values, rows
        library: Any = admin
        client = library.AdminClient(self._config)
        names = [f"t{number}" for number in range(1, runs + 1)]
        for created in client.create_topics([library.NewTopic(name, PARTITIONS, 1) for name in names]).values():
            created.result(30)
        self._last, self._new = names[-1], iter(names)

    def send(self) -> None:
        topic = next(self._new)
        producer = self._library.Producer(
            {
                **self._config,
                "acks": "all",
                "compression.type": "lz4",
                "partitioner": "murmur2_random",
                "queue.buffering.max.messages": QUEUE_ROWS,
            }
        )
        produce = producer.produce
        for number in range(self._rows):
            at = number % BATCH_ROWS
            while True:
                try:
                    produce(topic, self._values[at], self._keys[at])
                except BufferError:
                    producer.poll(0.001)
                else:
                    break
        assert producer.flush() == 0

    def consume(self) -> None:
        consumer = self._library.Consumer(
            {**self._config, "group.id": "bench", "enable.auto.commit": False, "fetch.queue.backoff.ms": BACKOFF_MS}
        )
        consumer.assign([self._library.TopicPartition(self._last, number, 0) for number in range(PARTITIONS)])
        left, size = self._rows, 0
        while left > 0:
            messages = consumer.consume(min(AT_ONCE, left), POLL_MS / 1000)  # never waits for more than there are
            for each in messages:
                size += len(each.key()) + len(each.value())
            left -= len(messages)
        consumer.close()
        assert size == self._rows * (KEY_BYTES + VALUE_BYTES), size
