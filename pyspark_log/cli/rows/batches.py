"""Batches of lines that are written to a topic, each with one append file for each node and one journal entry.

The steps are those of the Spark sink: stage, then commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from pyspark_log.options import SinkOptions
from pyspark_log.options.given import UnknownOption, gather
from pyspark_log.options.option import Kind
from pyspark_log.writing.destination import destination_of
from pyspark_log.writing.rows import rows_of
from pyspark_log.writing.staging import RetryingStaging, Staging
from pyspark_log_coordinator.commit.commit import commit_staged, detect_failures
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_storage.errors import InvalidOption

if TYPE_CHECKING:
    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.batch import Acks
    from pyspark_log_storage.files.row_files import Compression


_TAKEN = (SinkOptions.retries, SinkOptions.retry_backoff_ms, SinkOptions.delivery_timeout_ms)
_FLAGS = {
    SinkOptions.acks.name: "--acks",
    SinkOptions.compression.name: "--compression",
    SinkOptions.path.name: "--path",
    SinkOptions.topic.name: "TOPIC",
    SinkOptions.auto_create_topics.name: "--create",
}
"""Options of the sink that are arguments of `produce`."""


def parse_produce(settings: Mapping[str, str]) -> RetryPolicy:
    """Return how long to retry a write, as --config says it with the names of the Spark sink's options.

    Raises `InvalidOption`, also for options that have no effect here.
    """
    names = [option.name for option in _TAKEN]
    try:
        given = gather(settings, Kind.SINK_BATCH)
    except UnknownOption as error:
        nearest = error.guess if error.guess in names else _FLAGS.get(error.guess or "")
        hint = f"did you mean {nearest}?" if nearest is not None else f"expected one of {', '.join(names)}"
        raise InvalidOption(error.option, f"unknown --config {error.option}; {hint}") from None
    others = [(name, f"use {_FLAGS[name]} instead" if name in _FLAGS else None) for name in given.texts]
    others += [(name, "it has no effect") for name in given.ignored]
    for name, why in others:
        if name not in names:
            raise InvalidOption(
                name,
                f"produce does not support --config {name}: {why or 'remove it'}; expected one of {', '.join(names)}",
            )
    return RetryPolicy(*(given.get(option) for option in _TAKEN))


class Written(msgspec.Struct):
    """The rows added to one partition. Rows of other writers may be between the first and the last."""

    rows: int
    first_offset: int
    last_offset: int


class Batches:
    """Decodes lines and writes the rows in batches."""

    def __init__(
        self,
        log: Log,
        handle: TopicHandle,
        decode: Callable[[list[bytes], int], pa.RecordBatch],
        *,
        acks: Acks,
        compression: Compression | None,
        policy: RetryPolicy,
    ) -> None:
        """`decode` returns the rows of lines, given the number of the first line."""
        self._log = log
        self._handle = handle
        self._decode = decode
        self._acks = acks
        self._compression = compression
        self._policy = policy
        self._staging: RetryingStaging | None = None
        self._lines_decoded = 0
        self.lines_written = 0
        self.written: dict[int, Written] = {}
        """By partition."""

    @property
    def lines_pending(self) -> int:
        """The number of lines in the current batch."""
        return self._lines_decoded - self.lines_written

    @property
    def bytes_pending(self) -> int:
        """The number of bytes of the current batch in memory."""
        return 0 if self._staging is None else self._staging.bytes_added

    def add(self, lines: list[bytes]) -> None:
        """Add lines to the current batch. Raise `InvalidRecord`, `StoreError` or `UnknownTopic`."""
        rows = rows_of(
            self._decode(lines, self._lines_decoded + 1), now_us=self._log.clock.now_ms() * 1000, by_topic_column=False
        )
        if self._staging is None:
            self._staging = RetryingStaging(self._begun, self._log.environment, self._policy, kept_bytes_max=None)
        self._staging.add(rows)
        self._lines_decoded += len(lines)

    def end(self) -> None:
        """Write the current batch. Raise the errors of `add` and `commit_staged`, including `OutcomeUnknown`."""
        if self._staging is None:
            return
        staged = self._staging.finish()
        self._staging = None
        done = commit_staged(self._log, [staged], None, self._acks, self._policy, None)
        self.lines_written = self._lines_decoded
        for offsets in done.values():
            for partition, (start, end) in offsets.items():
                before = self.written.get(partition, Written(0, start, end))
                self.written[partition] = Written(before.rows + end - start, before.first_offset, end - 1)

    def discard(self) -> None:
        """Discard the current batch."""
        if self._staging is not None:
            self._staging.discard()
            self._staging = None

    def _begun(self, *, again: bool) -> Staging:
        if again:
            self._log.open(create=False)
            detect_failures(self._handle, self._policy)
        state = self._handle.refresh()
        destination = destination_of(self._handle, self._compression, state.config.max_message_bytes, self._acks)
        return Staging(
            self._log.store_at,
            lambda _: destination,
            self._handle.name,
            environment=self._log.environment,
            durable=self._acks != "0",
            sticky=destination.born,  # grows with every batch, so rows without key take turns
        )
