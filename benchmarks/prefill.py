"""A topic with a past: many small batches, each with an append file and a journal entry.

The past may be written on a clock of its own, so that the topic keeps as much for a time (replaced files, for example)
as it would after a real past.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest import mock

import msgspec
import pyarrow as pa

from pyspark_log.writing.destination import destination_of
from pyspark_log.writing.rows import rows_of
from pyspark_log.writing.staging import Staging
from pyspark_log_coordinator.commit.commit import commit_staged
from pyspark_log_coordinator.commit.inline_maintenance import plan_inline, roll_inline
from pyspark_log_coordinator.environment import Environment, real_environment
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.model.batch import SequencedFile, StagedFile
from pyspark_log_coordinator.model.partition import Holder
from pyspark_log_coordinator.model.producers import ProducerClaim
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_storage.columns import schema
from pyspark_log_storage.files.append_file import AppendFileWriter
from pyspark_log_storage.layout import born_name
from pyspark_log_storage.stores.addresses import open_store
from pyspark_log_storage.stores.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.model.topic_config import TopicConfig
    from pyspark_log_coordinator.segments.swap import SwapSegments

VALUE = '{{"id":{},"carrier":"UA","origin":"EWR","delay":14,"at":"2013-12-16 21:10:16","air":441}}'

PARTITIONS = 8
TASKS = 2
STEP_MS = 100
"""Ten batches a second."""
US_PER_MS = 1_000
MAX_MESSAGE_BYTES = 1_000_000


class Clock:
    """A clock that advances in steps."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    @classmethod
    def before_now(cls, steps: int) -> Clock:
        """Return a clock that shows the present after this many steps."""
        return cls(time.time_ns() // 1_000_000 - steps * STEP_MS)

    def step(self, steps: int = 1) -> None:
        self.now_ms += steps * STEP_MS

    def environment(self) -> Environment:
        """Return the environment of a process with this clock."""
        return msgspec.structs.replace(real_environment(), now_ms=lambda: self.now_ms, store_clock=None)


@contextmanager
def without_flushing() -> Iterator[None]:
    """Let this process write without waiting for the disk: while it makes a past, not while it measures."""
    with mock.patch.object(os, "fsync", _no_flush), mock.patch.object(os, "fdatasync", _no_flush):
        yield


def _no_flush(fd: int) -> None:
    del fd


def another_process(path: Path | str, environment: Environment | None = None, *, create: bool = False) -> Log:
    """Return the log as opened by a new process."""
    return opened(open_store(str(path)), environment, create=create)


def opened(store: Store, environment: Environment | None = None, *, create: bool = False) -> Log:
    """Return the log in a store, opened."""
    log = Log(store, environment or real_environment())
    log.open(create=create)
    return log


class Writer:
    """Sequences files, and maintains the topic as the tasks of a write and its commit do."""

    def __init__(
        self, log: Log, topic: str, partitions: int, config: TopicConfig | None = None, tasks: int = TASKS
    ) -> None:
        """`tasks` is the number of tasks of a batch, and so the number of maintenance jobs that it may do inline."""
        self.log = log
        self.handle: TopicHandle = log.ensure_topic(topic, partitions, config)
        self.tasks = tasks
        self.sent = 0
        self.segments = 0
        """How many segments were made inline."""

    def ride(self) -> list[SwapSegments]:
        """Do the inline maintenance of the tasks of a batch."""
        works = plan_inline(self.handle)[: self.tasks]
        swaps = [swap for work in works for swap in roll_inline(self.log.store_at, work, self.log.environment)]
        self.segments += len(swaps)
        return swaps

    def commit(self, staged: Sequence[StagedFile], swaps: Sequence[SwapSegments]) -> None:
        """Sequence the next batch."""
        claim = ProducerClaim("prefill", "prefill", "prefill", self.sent)
        commit_staged(self.log, [[file] for file in staged], claim, "all", RetryPolicy(), self.handle.name, swaps=swaps)
        self.sent += 1


class SmallBatches(Writer):
    """Micro-batches of given rows; every task stages its share as the sink does."""

    def __init__(self, log: Log, clock: Clock, topic: str, rows: pa.Table, batch_rows: int, tasks: int) -> None:
        super().__init__(log, topic, PARTITIONS, tasks=tasks)
        self.clock = clock
        self._rows = rows.combine_chunks()
        self._batch_rows = batch_rows

    def send(self, batches: int) -> None:
        """Write `batches` batches; after the last rows the first ones are written again."""
        share = self._batch_rows // self.tasks
        for _ in range(batches):
            start = self.sent * self._batch_rows % (len(self._rows) - self._batch_rows + 1)
            shares = [self._rows.slice(start + task * share, share) for task in range(self.tasks)]
            self.commit([self._stage(rows, task) for task, rows in enumerate(shares)], self.ride())
            self.clock.step()

    def _stage(self, rows: pa.Table, task: int) -> StagedFile:
        destination = destination_of(self.handle, None, MAX_MESSAGE_BYTES)
        staging = Staging(
            self.log.store_at,
            lambda _: destination,
            self.handle.name,
            environment=self.log.environment,
            durable=True,
            sticky=task,
        )
        for batch in rows.to_batches():
            staging.add(rows_of(batch, now_us=self.clock.now_ms * US_PER_MS, by_topic_column=False))
        (staged,) = staging.finish()
        return staged


class Producer(Writer):
    """Writes batches with the same number of rows in every partition."""

    def __init__(
        self,
        log: Log,
        topic: str,
        partitions: int,
        rows: int,
        clock: Clock | None = None,
        config: TopicConfig | None = None,
    ) -> None:
        """Write `rows` rows into each partition of each batch. A clock advances with each batch."""
        super().__init__(log, topic, partitions, config)
        self._partitions = partitions
        self._clock = clock
        self._keys = pa.array([f"key-{i}".encode() for i in range(rows)])
        self._values = pa.array([VALUE.format(i).encode() for i in range(rows)])

    def send(self, batches: int = 1) -> None:
        """Write `batches` batches."""
        for _ in range(batches):
            staged = self.stage()
            # Inline maintenance, as in the tasks of a write: the topic is measured as it really would be.
            self.commit([staged], self.ride())
            if self._clock is not None:
                self._clock.step()

    def stage(self) -> StagedFile:
        """Write an append file, which no entry names yet."""
        handle, environment = self.handle, self.log.environment
        times = pa.repeat(pa.scalar(environment.now_ms() * US_PER_MS, schema.TIMESTAMP), len(self._keys))
        batch = pa.record_batch([self._keys, self._values, times], schema=schema.RECORD)
        name = born_name(handle.journal.number, environment.nonce())
        file = AppendFileWriter(self.log.store.open_write(handle.append_file(name), durable=False))
        for partition in range(self._partitions):
            file.append(partition, batch, schema.RECORD_ID, "lz4")
        file.close()
        holders = tuple(Holder(*item) for item in handle.journal.state.incarnations.items())
        return StagedFile(handle.name, handle.topic_id, SequencedFile(name, holders, tuple(file.chunks)))
