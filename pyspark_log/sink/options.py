"""The options of a write, and their parser, which is called once at the edge.

Tasks receive the parsed options, so the parser imports the tables of the options only when it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_storage.errors import InvalidOption
from pyspark_log_storage.stores.storage_options import NO_OPTIONS, StorageOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_log_coordinator.model.batch import Acks
    from pyspark_log_coordinator.retry import RetryPolicy
    from pyspark_log_storage.files.row_files import Compression


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


def parse_sink(options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Return the options of a write; warn once of options without effect. Raise `InvalidOption`."""
    from pyspark_log.options import sink_table as table  # tasks must not import the tables
    from pyspark_log.options.given import gather, warn
    from pyspark_log.options.option import Kind
    from pyspark_log.options.table import ASYNC_PROGRESS, PATH, STORAGE_OPTIONS
    from pyspark_log_coordinator.retry import RetryPolicy

    given = gather(options, Kind.SINK_STREAM if streaming else Kind.SINK_BATCH)
    parsed = SinkOptions(
        path=given.get(PATH),
        topic=given.find(table.WRITE_TOPIC),
        acks=given.get(table.ACKS),
        compression=given.find(table.COMPRESSION_TYPE),
        txn_app_id=given.find(table.TXN_APP_ID),
        txn_version=given.find(table.TXN_VERSION),
        txn_take_over=given.get(table.TXN_TAKE_OVER),
        checkpoint=_checkpoint(options) if streaming else None,
        retry=RetryPolicy(
            given.get(table.RETRIES),
            given.get(table.RETRY_BACKOFF_MS),
            given.get(table.DELIVERY_TIMEOUT_MS),
            given.get(table.BROKER_SESSION_TIMEOUT_MS),
        ),
        max_message_bytes=given.get(table.MAX_MESSAGE_BYTES),
        dead_letter_topic=given.find(table.DEAD_LETTER_TOPIC),
        auto_create_topics=given.get(table.AUTO_CREATE_TOPICS),
        num_partitions=given.get(table.NUM_PARTITIONS),
        replication_factor=given.find(table.DEFAULT_REPLICATION_FACTOR),
        request_timeout_ms=given.get(table.REQUEST_TIMEOUT_MS),
        storage_options=given.find(STORAGE_OPTIONS) or StorageOptions.of_environment(),
        has_columns=given.find(table.SCHEMA) is not None,
        merge_schema=given.get(table.MERGE_SCHEMA),
        key_column=given.find(table.KEY_COLUMN),
    )
    given.get(ASYNC_PROGRESS)
    _check_transaction(parsed, streaming=streaming)
    _check_dead_letters(parsed)
    _check_typed(parsed)
    warn(given.ignored, given.kind)
    return parsed


def _checkpoint(options: Mapping[str, str]) -> str | None:
    """Return Spark's own option, which it passes on."""
    return next((text for name, text in options.items() if name.lower() == "checkpointlocation"), None)


def _check_transaction(parsed: SinkOptions, *, streaming: bool) -> None:
    if not streaming and (parsed.txn_app_id is None) != (parsed.txn_version is None):
        has, lacks = ("txnVersion", "txnAppId") if parsed.txn_app_id is None else ("txnAppId", "txnVersion")
        raise InvalidOption(
            lacks,
            f"option {has} is given without {lacks}: an idempotent batch write needs both; set {lacks}, or remove"
            f" {has}",
        )
    if parsed.txn_take_over and parsed.txn_app_id is None:
        raise InvalidOption(
            "txnTakeOver",
            "option txnTakeOver is true, but txnAppId is not set; set txnAppId, or remove txnTakeOver",
        )


def _check_dead_letters(parsed: SinkOptions) -> None:
    if parsed.topic is not None and parsed.topic == parsed.dead_letter_topic:
        raise InvalidOption(
            "dead.letter.topic",
            f"options topic and dead.letter.topic are both {parsed.topic!r}; set dead.letter.topic to another topic",
        )


def _check_typed(parsed: SinkOptions) -> None:
    given = {"schema": parsed.has_columns, "mergeSchema": parsed.merge_schema, "key.column": bool(parsed.key_column)}
    for name, is_set in given.items():
        if is_set and parsed.topic is None:
            raise InvalidOption(name, f"option {name} is about one typed topic; set the option topic, or remove {name}")
