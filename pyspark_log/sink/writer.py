"""The sink: writers that Spark calls for a batch or a micro-batch.

    driver      DefaultSource.writer / streamWriter    checks options and columns, finds the topic
    executors   write                                  stages the task's rows (one append file for each topic)
    driver      commit                                 commits the files of all tasks, one journal entry for each topic

Spark makes a new writer for `commit` of a stream, in another process; all that it needs is in the messages. Modules
that only the driver needs are imported in functions: every worker process would pay for them.

If the topic does not exist, the tasks create it: they know the number of the micro-batch, and the driver does not.
"""

from __future__ import annotations

import functools
import itertools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from pyspark_log.opening import canonical, forget_logs, open_log, stores_at
from pyspark_log.spark_calls import acknowledge, spark_entry
from pyspark_log.writing.destination import Destination, destination_of
from pyspark_log.writing.rows import Rows, rows_of
from pyspark_log.writing.staging import RetryingStaging, Staging
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.model.batch import StagedFile
from pyspark_log_coordinator.model.settings import INT_MAX
from pyspark_log_coordinator.retry import retry
from pyspark_log_storage import logs
from pyspark_log_storage.errors import InvalidInput, NoCluster, UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.types import StructType

    from pyspark_log.options import SinkOptions
    from pyspark_log.sink.topics import Creates
    from pyspark_log.writing.typed_rows import TypedPlan
    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.maintenance.roll_input import RollTask
    from pyspark_log_coordinator.model.producers import ProducerClaim
    from pyspark_log_coordinator.segments.swap import SwapSegments


QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
RUN_ID = "spark.jobGroup.id"


@dataclass(frozen=True)
class StagedMessage(WriterCommitMessage):
    """The commit message of a task. The ids are Spark's, empty for a batch write."""

    files: tuple[StagedFile, ...]
    swaps: tuple[SwapSegments, ...]
    query_id: str
    run_id: str
    dead_letters: int


class _Writer:
    """What a batch writer and a stream writer have in common.

    They inherit an `abort` that does nothing: Spark also calls it after `commit` raised, when an entry may exist that
    names the files.
    """

    _streaming: ClassVar[bool]

    @spark_entry
    def __init__(self, schema: StructType, options: SinkOptions) -> None:
        self.options = options
        self._destinations: dict[str, Destination] = {}
        self._works: tuple[RollTask, ...] = ()
        self._typed: TypedPlan | None = None
        """How rows of a typed topic are written; None: records."""
        self._absent: StructType | None = None
        """The frame's columns if its topic, or the whole log, did not exist when the write was planned."""
        retry(real_environment(), options.retry, functools.partial(self._plan, schema))

    def _log(self) -> Log:
        return open_log(self.options.path, self.options.storage_options)

    def _plan(self, schema: StructType) -> None:
        """Find the topic, check the frame's columns, and plan the tasks. Creates nothing."""
        from pyspark_log.sink import topics

        topics.check_known(self.options)
        try:
            handle = self._prepare(schema, topics.Creates.NOTHING)
        except (NoCluster, UnknownTopic):
            if not self.options.auto_create_topics:
                raise
            self._absent = schema
            return
        if handle is not None:
            from pyspark_log_coordinator.commit import inline_maintenance

            self._works = inline_maintenance.plan_inline(handle)

    def _prepare(self, schema: StructType, may_create: Creates) -> TopicHandle | None:
        """Find or create the topics that the options name, and check the frame's columns."""
        from pyspark_log.sink import topics

        options = self.options
        log, handle, self._typed = topics.prepare(options, schema, may_create)
        if handle is not None:
            self._destinations[handle.name] = self._destination(handle)
        if options.dead_letter_topic is not None:
            letters = topics.dead_letter_topic(log, options, may_create)
            self._destinations[letters.name] = self._destination(letters)
        return handle

    def _find(self, log: Log, name: str) -> TopicHandle:
        from pyspark_log.sink import topics

        return topics.find(log, name, self.options, self._may_create)

    @property
    def _may_create(self) -> Creates:
        """What the task may create."""
        from pyspark_log.sink import topics

        context = TaskContext.get()
        assert context is not None
        return topics.creates(self.options, context.getLocalProperty(BATCH_ID), streaming=self._streaming)

    def _destination(self, handle: TopicHandle) -> Destination:
        options = self.options
        row_bytes_max = INT_MAX if handle.name == options.dead_letter_topic else options.max_message_bytes
        found = destination_of(handle, options.compression, row_bytes_max, options.acks)
        return msgspec.structs.replace(found, clock_offset_ms=0)  # tasks run on other machines, whose clocks are others

    @spark_entry
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage a task's rows; runs in an executor's Python worker."""
        options, context = self.options, TaskContext.get()
        assert context is not None
        sticky = context.partitionId() + int(context.getLocalProperty(BATCH_ID) or 0)
        if self._absent is not None:
            forget_logs()  # a log that this process knows may have gone since: the plan found none
            prepare = functools.partial(self._prepare, self._absent, self._may_create)
            retry(real_environment(), options.retry, prepare)

        now_us = time.time_ns() // 1000
        stagings, letters = [self._staging(options.topic, sticky)], None
        if options.dead_letter_topic is not None:
            from pyspark_log.writing.dead_letters import DeadLetters

            stagings.append(self._staging(options.dead_letter_topic, sticky))
            letters = DeadLetters(
                functools.partial(self._rows, now_us=now_us),
                self._destination_named,
                options.topic,
                self._typed,
                options.dead_letter_topic,
                stagings[1],
            )
        try:
            for batch in iterator:
                acknowledge()
                for rows in [self._rows(batch, now_us)] if letters is None else letters.passed(batch, now_us):
                    stagings[0].add(rows)
            files = [file for each in stagings for file in each.finish()]
        except BaseException:
            for each in stagings:
                each.discard()
            raise
        # Inside foreachBatch a batch writer sees the stream's ids too, but it is not that stream's sink.
        query_id = (context.getLocalProperty(QUERY_ID) or "") if self._streaming else ""
        run_id = (context.getLocalProperty(RUN_ID) or "") if self._streaming else ""
        swaps: tuple[SwapSegments, ...] = ()
        if (task := context.partitionId()) < len(self._works):
            from pyspark_log_coordinator.commit import inline_maintenance

            store_at = stores_at(canonical(options.path), options.storage_options)
            swaps = inline_maintenance.roll_inline(store_at, self._works[task], real_environment())
        return StagedMessage(tuple(files), swaps, query_id, run_id, 0 if letters is None else letters.count)

    def _staging(self, topic: str | None, sticky: int) -> RetryingStaging:
        options, environment, begun = self.options, real_environment(), itertools.count()

        def begin() -> Staging:
            return Staging(
                stores_at(canonical(options.path), options.storage_options),
                functools.cache(self._destination_now) if next(begun) else self._destination_named,
                topic,
                environment=environment,
                durable=options.acks != "0",
                sticky=sticky,
                slower_seconds=options.request_timeout_ms / 1000,
            )

        return RetryingStaging(begin, environment, options.retry)

    def _rows(self, batch: pa.RecordBatch, now_us: int) -> Rows:
        if self._typed is None:
            return rows_of(batch, now_us=now_us, by_topic_column=self.options.topic is None)
        from pyspark_log.writing.typed_rows import typed_rows

        assert self.options.topic is not None
        return typed_rows(batch, self._typed, self.options.topic, now_us=now_us)

    def _destination_named(self, topic: str) -> Destination:
        found = self._destinations.get(topic)
        if found is None:
            found = self._destinations[topic] = self._destination(self._find(self._log(), topic))
        return found

    def _destination_now(self, topic: str) -> Destination:
        """Return the topic's present state, after a leader has been elected if need be."""
        from pyspark_log_coordinator.commit.commit import detect_failures

        handle = self._find(self._log(), topic)
        detect_failures(handle, self.options.retry)
        found = self._destinations[topic] = self._destination(handle)
        return found

    def _commit(self, messages: Sequence[WriterCommitMessage | None], claim: ProducerClaim | None) -> None:
        from pyspark_log.sink import topics
        from pyspark_log_coordinator.commit.commit import commit_staged

        options = self.options
        staged = [message for message in messages if isinstance(message, StagedMessage)]
        files = [message.files for message in staged]
        swaps = [swap for message in staged for swap in message.swaps]
        log = retry(real_environment(), options.retry, self._log)
        done = commit_staged(log, files, claim, options.acks, options.retry, options.topic, swaps=swaps)
        topics.committed.update((options.path, topic) for topic in done)
        if dead_letters := sum(message.dead_letters for message in staged):
            logs.warning(
                "rows that could not be written: %(count)d; they are in the dead letter topic %(topic)r",
                count=dead_letters,
                topic=options.dead_letter_topic,
                producer=None if claim is None else claim.producer,
                batch=None if claim is None else claim.batch_id,
            )


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Writes a batch frame: idempotent with txnAppId and txnVersion, else a plain append."""

    _streaming = False

    @spark_entry
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit what the tasks staged."""
        from pyspark_log_coordinator.model.producers import ProducerClaim

        options, claim = self.options, None
        if options.txn_app_id is not None:
            assert options.txn_version is not None
            claim = ProducerClaim(options.txn_app_id, "", "", options.txn_version, options.txn_take_over)
        self._commit(messages, claim)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query, each exactly once."""

    _streaming = True

    @spark_entry
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit a micro-batch; do nothing if an earlier run did it."""
        from pyspark_log_coordinator.model.producers import ProducerClaim

        first = next((message for message in messages if isinstance(message, StagedMessage)), None)
        if first is None:
            raise InvalidInput(
                "trigger(continuous=...) cannot write to pyspark_log: Spark calls no task of the sink, so no row is "
                "written; use trigger(processingTime=...)"
            )
        options = self.options
        producer = options.txn_app_id or first.query_id
        claim = ProducerClaim(
            producer,
            first.query_id,
            first.run_id,
            batchId,
            options.txn_take_over,
            follows=True,
            query_name=options.query_name,
        )
        self._commit(messages, claim)
