"""A topic with a past: many small batches, each its own append file and journal entry, by the product's own code."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_log.sink.in_passing import planned_work, ride_along
from pyspark_log.sink.sequence import Patience, sequence
from pyspark_log.sink.staging import StagedFile
from pyspark_log_coordinator.producers import ProducerClaim
from pyspark_log_coordinator.sequencing import SequencedFile
from pyspark_log_coordinator.topic_state import Holder
from pyspark_log_storage import schema
from pyspark_log_storage.append_file import AppendFileWriter
from pyspark_log_storage.layout import born_name

if TYPE_CHECKING:
    from pyspark_log_coordinator.log import Log, TopicHandle

VALUE = '{{"id":{},"carrier":"UA","origin":"EWR","delay":14,"at":"2013-12-16 21:10:16","air":441}}'

TASKS = 2
"""Whose rows each batch is supposed to be: so many jobs ride along with it."""


class Producer:
    """Writes batches with the same number of rows in every partition."""

    def __init__(self, log: Log, topic: str, partitions: int, rows: int) -> None:
        """`rows` in each partition of each batch."""
        self._log = log
        self._handle: TopicHandle = log.ensure_topic(topic, partitions)
        self._partitions = partitions
        keys = pa.array([f"key-{i}".encode() for i in range(rows)])
        values = pa.array([VALUE.format(i).encode() for i in range(rows)])
        times = pa.repeat(pa.scalar(time.time_ns() // 1000, schema.TIMESTAMP), rows)
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
            staged = StagedFile(handle.name, handle.topic_id, SequencedFile(name, holders, tuple(file.chunks)))
            # Upkeep in passing, as the tasks of a write do it: what is measured is a topic as it really is.
            swaps = [swap for work in planned_work(handle)[:TASKS] for swap in ride_along(self._log, work)]
            sequence(self._log, [[staged]], claim, "all", Patience(), handle.name, swaps=swaps)
            self._sent += 1
