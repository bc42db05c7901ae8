"""The options of a write, as the driver has parsed them (`pyspark_log.options`) and tasks get them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from pyspark_log.options import Acks, Compression


class SinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a write was asked for."""

    path: str
    topic: str | None
    """None: each row's column `topic` says it."""
    acks: Acks
    compression: Compression | None
    """None: each topic's own."""
    txn_app_id: str | None
    """None: a stream goes by its query id, and a batch write is not idempotent."""
    txn_version: int | None
    """Set with txn_app_id in a batch write; None in a stream, whose batch id it is."""
    txn_take_over: bool
    retries: int
    retry_backoff_ms: int
    delivery_timeout_ms: int
    max_message_bytes: int
    auto_create_topics: bool
    num_partitions: int
    replication_factor: int | None
    """None: as many as there are nodes, 3 at most."""
    request_timeout_ms: int
    session_timeout_ms: int
