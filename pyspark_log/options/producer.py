"""The options of a Python `Producer`: those of a write, and how rows are gathered into batches.

First their table, then the parser, which is called once at the edge.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from pyspark_log.options import sink_table
from pyspark_log.options.client_config import gather
from pyspark_log.options.option import PRODUCER, Kind, Option
from pyspark_log.options.value import JSON_OPTIONS, boolean, integer
from pyspark_log_coordinator.model.batch import Acks
from pyspark_log_coordinator.model.settings import INT_MAX
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_storage.files.row_files import Compression
from pyspark_log_storage.stores.storage_options import NO_OPTIONS, StorageOptions

T = TypeVar("T")


def _as_in_a_write(option: Option[T], **changes: Any) -> Option[T]:
    return msgspec.structs.replace(option, kinds=PRODUCER, **changes)


ACKS = _as_in_a_write(sink_table.ACKS)
LINGER_MS = Option(
    name="linger.ms",
    kinds=PRODUCER,
    value=integer(0, INT_MAX),
    default="5",
    meaning="How long the first row of a batch waits for more, in milliseconds. 0: while other batches are written.",
    prefixed=("linger.ms", "queue.buffering.max.ms"),
)
BATCH_SIZE = Option(
    name="batch.size",
    kinds=PRODUCER,
    value=integer(1, INT_MAX),
    default=str(1024 * 1024),
    meaning="Size of the rows of a topic, in bytes, that are a full batch and wait no longer.",
    differs="A batch has the rows of all partitions of a topic, so the default is 1 MiB, not 16 KiB.",
    prefixed=("batch.size",),
)
BUFFER_MEMORY = Option(
    name="buffer.memory",
    kinds=PRODUCER,
    value=integer(1),
    default=str(32 * 1024 * 1024),
    meaning="Size of the rows that are not written yet, in bytes. When it is reached, `send` waits.",
    differs="It counts keys, values, headers and 64 bytes for each row, not the memory that Python takes for them.",
    prefixed=("buffer.memory",),
)
MAX_BLOCK_MS = Option(
    name="max.block.ms",
    kinds=PRODUCER,
    value=integer(0, INT_MAX),
    default="60000",
    meaning="How long `send` waits while the buffer is full or for a new topic, in milliseconds. "
    "After that it raises `BufferExhausted`.",
    prefixed=("max.block.ms",),
)
COMPRESSION_TYPE = _as_in_a_write(
    sink_table.COMPRESSION_TYPE,
    only_kafkas=frozenset(),
    differs="gzip and snappy are not supported, because chunks are Arrow data. The default is the topic's setting.",
)
ENABLE_IDEMPOTENCE = Option(
    name="enable.idempotence",
    kinds=PRODUCER,
    value=boolean(),
    default="true",
    meaning=(
        "Whether to repeat a batch whose outcome is unknown, which the log then has once. If false, its futures raise"
        " `OutcomeUnknown`."
    ),
    differs="It works with any acks. If false, such a batch is not repeated, so that no row is in the log twice.",
    prefixed=("enable.idempotence",),
)
DELIVERY_TIMEOUT_MS = _as_in_a_write(
    sink_table.DELIVERY_TIMEOUT_MS,
    meaning="How long a batch is retried, in milliseconds, from the time when it was full or had lingered.",
)
RETRIES = _as_in_a_write(sink_table.RETRIES)
RETRY_BACKOFF_MS = _as_in_a_write(sink_table.RETRY_BACKOFF_MS)
REQUEST_TIMEOUT_MS = _as_in_a_write(sink_table.REQUEST_TIMEOUT_MS)
MAX_MESSAGE_BYTES = _as_in_a_write(
    sink_table.MAX_MESSAGE_BYTES,
    name="max.request.size",
    prefixed=("max.request.size", "message.max.bytes"),
    differs="It limits a row, not a batch of rows.",
)
AUTO_CREATE_TOPICS = _as_in_a_write(sink_table.AUTO_CREATE_TOPICS)
NUM_PARTITIONS = _as_in_a_write(sink_table.NUM_PARTITIONS)
DEFAULT_REPLICATION_FACTOR = _as_in_a_write(sink_table.DEFAULT_REPLICATION_FACTOR)
BROKER_SESSION_TIMEOUT_MS = _as_in_a_write(sink_table.BROKER_SESSION_TIMEOUT_MS)

STORAGE_OPTIONS = Option(
    name="storage_options",
    kinds=PRODUCER,
    value=JSON_OPTIONS,
    unset="those in PYSPARK_LOG_STORAGE_OPTIONS",
    meaning=(
        "Credentials and settings of object stores, as a dict or JSON, with s3fs's names. See"
        " [object stores](../guides/object-stores.md)."
    ),
    prefixed=("storage.options",),
    secret=True,
)

OPTIONS: tuple[Option[Any], ...] = tuple(each for each in tuple(globals().values()) if isinstance(each, Option))
"""In the order of docs/reference/options.md."""


class ProducerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed options. Sizes in bytes, times in seconds."""

    acks: Acks
    linger: float
    batch_size: int
    buffer_memory: int
    max_block: float
    compression: Compression | None
    """None: each topic's own."""
    idempotent: bool
    retry: RetryPolicy
    request_timeout: float
    max_message_bytes: int
    auto_create_topics: bool
    num_partitions: int
    replication_factor: int | None
    """None: the default, which depends on the number of nodes."""
    storage_options: StorageOptions = NO_OPTIONS


def parse_producer(config: Mapping[str, object] | None, keywords: Mapping[str, object]) -> ProducerOptions:
    """Return the options. Raise `InvalidOption`."""
    given = gather(config, keywords, OPTIONS, Kind.PRODUCER)
    return ProducerOptions(
        acks=given.get(ACKS),
        linger=given.get(LINGER_MS) / 1000,
        batch_size=given.get(BATCH_SIZE),
        buffer_memory=given.get(BUFFER_MEMORY),
        max_block=given.get(MAX_BLOCK_MS) / 1000,
        compression=given.find(COMPRESSION_TYPE),
        idempotent=given.get(ENABLE_IDEMPOTENCE),
        retry=RetryPolicy(
            given.get(RETRIES),
            given.get(RETRY_BACKOFF_MS),
            given.get(DELIVERY_TIMEOUT_MS),
            given.get(BROKER_SESSION_TIMEOUT_MS),
        ),
        request_timeout=given.get(REQUEST_TIMEOUT_MS) / 1000,
        max_message_bytes=given.get(MAX_MESSAGE_BYTES),
        auto_create_topics=given.get(AUTO_CREATE_TOPICS),
        num_partitions=given.get(NUM_PARTITIONS),
        replication_factor=given.find(DEFAULT_REPLICATION_FACTOR),
        storage_options=given.find(STORAGE_OPTIONS) or StorageOptions.of_environment(),
    )
