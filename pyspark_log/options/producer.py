"""The options of a Python `Producer`, parsed once at the edge."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pyspark_log.options import producer_table as table
from pyspark_log.options.client_config import gather
from pyspark_log.options.option import Kind
from pyspark_log_coordinator.model.batch import Acks
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_storage.files.compression import Compression
from pyspark_log_storage.stores.storage_options import NO_OPTIONS, StorageOptions


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
    given = gather(config, keywords, table.OPTIONS, Kind.PRODUCER)
    return ProducerOptions(
        acks=given.get(table.ACKS),
        linger=given.get(table.LINGER_MS) / 1000,
        batch_size=given.get(table.BATCH_SIZE),
        buffer_memory=given.get(table.BUFFER_MEMORY),
        max_block=given.get(table.MAX_BLOCK_MS) / 1000,
        compression=given.find(table.COMPRESSION_TYPE),
        idempotent=given.get(table.ENABLE_IDEMPOTENCE),
        retry=RetryPolicy(
            given.get(table.RETRIES),
            given.get(table.RETRY_BACKOFF_MS),
            given.get(table.DELIVERY_TIMEOUT_MS),
            given.get(table.BROKER_SESSION_TIMEOUT_MS),
        ),
        request_timeout=given.get(table.REQUEST_TIMEOUT_MS) / 1000,
        max_message_bytes=given.get(table.MAX_MESSAGE_BYTES),
        auto_create_topics=given.get(table.AUTO_CREATE_TOPICS),
        num_partitions=given.get(table.NUM_PARTITIONS),
        replication_factor=given.find(table.DEFAULT_REPLICATION_FACTOR),
        storage_options=given.find(table.STORAGE_OPTIONS) or StorageOptions.of_environment(),
    )
