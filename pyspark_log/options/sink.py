"""The options of a write, parsed once at the edge."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_log.options import sink_table as table
from pyspark_log.options.given import Given, gather, warn
from pyspark_log.options.option import Kind
from pyspark_log.options.table import ASYNC_PROGRESS, PATH, STORAGE_OPTIONS
from pyspark_log.sink_options import SinkOptions
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_storage.errors import InvalidOption
from pyspark_log_storage.stores.storage_options import StorageOptions


def parse_sink(options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Return the options of a write; warn once of options without effect. Raise `InvalidOption`."""
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
    _check_transaction(parsed, given)
    _check_dead_letters(parsed)
    _check_typed(parsed)
    warn(given.ignored, given.kind)
    return parsed


def _checkpoint(options: Mapping[str, str]) -> str | None:
    """Return Spark's own option, which it passes on."""
    return next((text for name, text in options.items() if name.lower() == "checkpointlocation"), None)


def _check_transaction(parsed: SinkOptions, given: Given) -> None:
    if given.kind is Kind.SINK_BATCH and (parsed.txn_app_id is None) != (parsed.txn_version is None):
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
