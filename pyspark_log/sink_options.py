"""The parsed options of a write. Tasks receive them, so they are kept apart from the parser in `options`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_storage.stores.storage_options import NO_OPTIONS, StorageOptions

if TYPE_CHECKING:
    from pyspark_log_coordinator.model.batch import Acks
    from pyspark_log_coordinator.retry import RetryPolicy
    from pyspark_log_storage.files.compression import Compression


class SinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed options of a write."""

    path: str
    topic: str | None
    """None: the column `topic` of each row."""
    acks: Acks
    compression: Compression | None
    """None: each topic's own."""
    txn_app_id: str | None
    """None: a stream uses its query id, and a batch write is not idempotent."""
    txn_version: int | None
    """Set with txn_app_id in a batch write; None in a stream, which uses the number of the micro-batch."""
    txn_take_over: bool
    checkpoint: str | None
    """The checkpointLocation of a query; None in a batch write, and if Spark takes it from its own settings."""
    retry: RetryPolicy
    max_message_bytes: int
    dead_letter_topic: str | None
    """None: a row that cannot be written is an error."""
    auto_create_topics: bool
    num_partitions: int
    replication_factor: int | None
    """None: the default, which depends on the number of nodes."""
    request_timeout_ms: int
    storage_options: StorageOptions = NO_OPTIONS
    has_columns: bool = False
    """Whether a topic that the write creates is typed."""
    merge_schema: bool = False
    key_column: str | None = None
    """None: the topic's, if it has one."""
