"""The export of a topic's rows to Kafka, each once: what `pyspark-log export kafka` does.

Rows are written in Kafka's transactions. The transactional id is that of the two topics, so a new export fences one
that still runs, and Kafka aborts the transaction of one that was killed (KIP-98).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyspark_log.kafka.offset_headers import KAFKA_OFFSET, LOG_OFFSET, headers_of, without
from pyspark_log.reading.fetch import fetch
from pyspark_log.reading.planning import Range, find_again, split_of
from pyspark_log.writing.destination import is_typed
from pyspark_log_storage.columns.row_offsets import each_of, offsets_from
from pyspark_log_storage.errors import InvalidInput, InvalidRecord

if TYPE_CHECKING:
    from confluent_kafka import Producer

    from pyspark_log.kafka.client import Kafka, KafkaTopic
    from pyspark_log.kafka.export_plan import PartitionExport
    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_storage.columns.row_offsets import Offsets

TRANSACTION_ROWS = 100_000
TRANSACTION_BYTES = 16 * 1024 * 1024
_US_PER_MS = 1000
_QUEUE_KBYTES = 64 * 1024
_POLL_SECONDS = 0.1
_ABORT_SECONDS = 10
_MESSAGE_BYTES, _MESSAGE_BYTES_MAX = 1_000_000, 1_000_000_000
"""librdkafka's own default, and the largest message that it sends."""


def check(handle: TopicHandle) -> None:
    """Raise `InvalidInput` for a topic that cannot be exported, before anything is created in Kafka for it."""
    if is_typed(handle):
        raise InvalidInput(
            f"topic {handle.name!r} is typed, and Kafka has records of key and value; write it from Spark, for example "
            "with to_json(struct(*)) as the value"
        )


class RowExport:
    """Exports the rows of one topic. It fences earlier exports to the same topic when it is made."""

    def __init__(self, log: Log, handle: TopicHandle, kafka: Kafka, topic: KafkaTopic, compression: str) -> None:
        """Raises `LogError`."""
        self._log = log
        self._handle = handle
        self._kafka = kafka
        self._topic = topic
        self._settings = {
            "transactional.id": f"pyspark-log/{handle.topic_id}/{topic.topic_id}",
            "transaction.timeout.ms": int(kafka.timeout_seconds * 1000),
            "compression.type": compression,
            "queue.buffering.max.kbytes": _QUEUE_KBYTES,
            "queue.buffering.max.messages": 2 * TRANSACTION_ROWS,
            "linger.ms": 20,
            "message.max.bytes": min(
                max(_MESSAGE_BYTES, int(topic.config.get("max.message.bytes", 0))), _MESSAGE_BYTES_MAX
            ),
        }
        self._producer = self._new_producer()

    def _new_producer(self) -> Producer:
        """Return a producer, once Kafka has ended the transactions of those before it."""
        producer = self._kafka.producer(**self._settings)
        with self._kafka.errors():
            producer.init_transactions(self._kafka.timeout_seconds)
        return producer

    def run(self, plans: Sequence[PartitionExport], advance: Callable[[int], object]) -> None:
        """Export what is planned. `advance` is called with the number of rows of each transaction.

        When it returns, readers of committed rows see all of them: Kafka acknowledges a commit before it has written
        the transaction's markers into the partitions, and until then these seem to end before the rows. An export that
        began meanwhile is fenced, and has to be run again.

        Transactions that were committed before an error stay, and the one at the error is aborted. Raises `LogError`,
        `InvalidRecord`.
        """
        try:
            for each in plans:
                if each.rows > 0:
                    self._export(each, advance)
            self._producer = self._new_producer()
        except BaseException:
            self._abort()
            raise

    def _export(self, plan: PartitionExport, advance: Callable[[int], object]) -> None:
        split = split_of(self._handle, Range(self._handle.name, plan.partition, plan.next, plan.end))
        rows = size = 0
        for offset, batch in fetch(self._log.store_at, split, functools.partial(find_again, self._log, split)):
            for first in range(0, batch.num_rows, TRANSACTION_ROWS):
                record = batch.slice(first, TRANSACTION_ROWS)
                if rows + record.num_rows > TRANSACTION_ROWS or size + record.nbytes > TRANSACTION_BYTES:
                    self._commit(rows, advance)
                    rows = size = 0
                if rows == 0:
                    self._begin()
                self._write(plan.partition, offsets_from(offset, first), record)
                rows, size = rows + record.num_rows, size + record.nbytes
        self._commit(rows, advance)

    def _begin(self) -> None:
        with self._kafka.errors():
            self._producer.begin_transaction()

    def _commit(self, rows: int, advance: Callable[[int], object]) -> None:
        if rows:
            with self._kafka.errors():
                self._producer.commit_transaction(self._kafka.timeout_seconds)
            advance(rows)

    def _abort(self) -> None:
        """Abort the transaction, if there is one: until Kafka did so itself, readers would wait behind its rows."""
        with contextlib.suppress(self._kafka.library.KafkaException):
            self._producer.abort_transaction(_ABORT_SECONDS)

    def _write(self, partition: int, offsets: Offsets, record: pa.RecordBatch) -> None:
        times = (record.column("timestamp").cast(pa.int64()).to_numpy() // _US_PER_MS).tolist()
        keys, values = record.column("key").to_pylist(), record.column("value").to_pylist()
        numbers = each_of(offsets, record.num_rows).tolist()
        columns = zip(numbers, keys, values, times, headers_of(record), strict=True)
        with self._kafka.errors():
            for number, key, value, ms, headers in columns:
                if any(name is None for name, _ in headers):
                    raise InvalidRecord(
                        f"topic {self._handle.name!r}, partition {partition}, offset {number}: a header has no key, "
                        "which Kafka requires; export another topic, or write the row again with one"
                    )
                if ms == 0:
                    raise InvalidRecord(
                        f"topic {self._handle.name!r}, partition {partition}, offset {number}: the row's time is the "
                        "first millisecond of 1970, in place of which Kafka's client writes the present time; export "
                        "another topic, or write the row again with another time"
                    )
                own = [*without(headers, KAFKA_OFFSET), (LOG_OFFSET, b"%d" % number)]
                self._produce(key=key, value=value, partition=partition, timestamp=ms, headers=own)

    def _produce(self, **row: Any) -> None:
        producer: Producer = self._producer
        while True:
            try:
                producer.produce(self._topic.name, **row)
            except BufferError:  # until the broker has taken some rows
                producer.poll(_POLL_SECONDS)
            else:
                return
