"""The options of a Python `Producer`: those of a write, and how rows are gathered into batches."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pyspark_log.options.given import CLIENT_STORAGE_OPTIONS, gather_client
from pyspark_log.options.option import AlwaysSet, Given, Kind, Options, table
from pyspark_log.options.sink import SinkOptions
from pyspark_log.options.value import boolean, integer, seconds
from pyspark_log_coordinator.model.settings import INT_MAX
from pyspark_log_coordinator.retry import RetryPolicy


class ProducerOptions(Options):
    """The options of a Producer. Sizes in bytes, times without a unit in the name in seconds."""

    acks = msgspec.structs.replace(SinkOptions.acks, prefixed=("request.required.acks",))
    linger = AlwaysSet(
        name="linger.ms",
        value=seconds(0),
        default="5",
        meaning=(
            "How long the first row of a batch waits for more, in milliseconds. 0: while other batches are written."
        ),
        prefixed=("queue.buffering.max.ms",),
    )
    batch_size = AlwaysSet(
        name="batch.size",
        value=integer(1, INT_MAX),
        default=str(4 * 1024 * 1024),
        meaning="Size of the rows of a topic, in bytes, that are a full batch and wait no longer.",
        differs="A batch has the rows of all partitions of a topic, so the default is 4 MiB, not 16 KiB.",
    )
    buffer_memory = AlwaysSet(
        name="buffer.memory",
        value=integer(1),
        default=str(32 * 1024 * 1024),
        meaning="Size of the rows that are not written yet, in bytes. When it is reached, `send` waits.",
        differs="It counts keys, values, headers and 64 bytes for each row, not the memory that Python takes for them.",
    )
    max_block = AlwaysSet(
        name="max.block.ms",
        value=seconds(0),
        default="60000",
        meaning=(
            "How long `send` waits while the buffer is full or for a new topic, in milliseconds. After that it raises"
            " `BufferExhausted`."
        ),
    )
    compression = msgspec.structs.replace(
        SinkOptions.compression,
        prefixed=("compression.codec",),
        differs="gzip and snappy are not supported, because chunks are Arrow data. The default is the topic's setting.",
    )
    idempotent = AlwaysSet(
        name="enable.idempotence",
        value=boolean(),
        default="true",
        meaning=(
            "Whether to repeat a batch whose outcome is unknown, which the log then has once. If false, its futures"
            " raise `OutcomeUnknown`."
        ),
        differs="It works with any acks. If false, such a batch is not repeated, so that no row is in the log twice.",
    )
    delivery_timeout_ms = msgspec.structs.replace(
        SinkOptions.delivery_timeout_ms,
        meaning="How long a batch is retried, in milliseconds, from the time when it was full or had lingered.",
        prefixed=("message.timeout.ms",),
    )
    retries = msgspec.structs.replace(SinkOptions.retries, prefixed=("message.send.max.retries",))
    retry_backoff_ms = SinkOptions.retry_backoff_ms
    request_timeout = msgspec.structs.replace(SinkOptions.request_timeout_ms, value=seconds(1))
    max_message_bytes = msgspec.structs.replace(
        SinkOptions.max_message_bytes,
        name="max.request.size",
        prefixed=("message.max.bytes",),
        differs="It limits a row, not a batch of rows.",
    )
    auto_create_topics = msgspec.structs.replace(SinkOptions.auto_create_topics, prefixed=("allow.auto.create.topics",))
    num_partitions = SinkOptions.num_partitions
    replication_factor = SinkOptions.replication_factor
    broker_session_timeout_ms = SinkOptions.broker_session_timeout_ms
    storage_options = CLIENT_STORAGE_OPTIONS
    retry: RetryPolicy

    def __init__(self, given: Given) -> None:
        """Raise `InvalidOption`."""
        super().__init__(given)
        self._set(
            retry=RetryPolicy(
                self.retries, self.retry_backoff_ms, self.delivery_timeout_ms, self.broker_session_timeout_ms
            )
        )


def parse_producer(config: Mapping[str, object] | None, keywords: Mapping[str, object]) -> ProducerOptions:
    """Return the options. Raise `InvalidOption`."""
    return ProducerOptions(gather_client(config, keywords, table(ProducerOptions), Kind.PRODUCER))
