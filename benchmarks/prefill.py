"""A topic with a past: many small batches, each its own append file and journal entry, by the product's own code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_log_coordinator.producers import ProducerClaim
from pyspark_log_coordinator.sequencing import CommitBatch, Holder, SequencedFile
from pyspark_log_storage import schema
from pyspark_log_storage.append_file import AppendFileWriter
from pyspark_log_storage.layout import born_name

if TYPE_CHECKING:
    from pyspark_log_coordinator.log import Log, TopicHandle

VALUE = '{{"id":{},"carrier":"UA","origin":"EWR","delay":14,"at":"2013-12-16 21:10:16","air":441}}'


class Producer:
    """Writes batches with the same number of rows in every partition."""

    def __init__(self, log: Log, topic: str, partitions: int, rows: int) -> None:
        """`rows` in each partition of each batch."""
        self._log = log
        self._handle: TopicHandle = log.ensure_topic(topic, partitions)
        self._partitions = partitions
        keys = pa.array([f"key-{i}".encode() for i in range(rows)])
        values = pa.array([VALUE.format(i).encode() for i in range(rows)])
        times = pa.repeat(pa.scalar(1_700_000_000_000_000, schema.TIMESTAMP), rows)
        self._batch = pa.record_batch([keys, values, times], schema=schema.RECORD)
        self._sent = 0

    def send(self, batches: int = 1) -> None:
        """Write so many batches."""
        for _ in range(batches):
            handle, environment = self._handle, self._log.environment
            name = born_name(handle.journal.number, environment.nonce())
            file = AppendFileWriter(self._log.store, handle.append_file(name), durable=False)
            for partition in range(self._partitions):
                file.append(partition, self._batch, schema.RECORD_ID, "lz4")
            file.close()
            holders = tuple(Holder(*item) for item in handle.journal.state.incarnations.items())
            claim = ProducerClaim("prefill", "prefill", "prefill", self._sent)
            handle.submit(CommitBatch(claim, (SequencedFile(name, holders, tuple(file.chunks)),)))
            self._sent += 1
