"""The options of a write, parsed once at the edge. Tasks get their values without this module."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, get_args

from pyspark_log.options.option import SINK, Given, Kind, Option, Options, opt
from pyspark_log.options.source import SourceOptions
from pyspark_log.options.value import COUNT, TEXT, TOPIC, boolean, choice, integer
from pyspark_log_coordinator.model import settings
from pyspark_log_coordinator.model.batch import Acks
from pyspark_log_coordinator.model.topic_config import MAX_MESSAGE_BYTES
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_storage.errors import InvalidOption
from pyspark_log_storage.files.row_files import Compression

_ACKS: dict[str, Acks] = {"all": "all", "-1": "all", "1": "1", "0": "0"}
_CODECS: dict[str, Compression] = {codec: codec for codec in get_args(Compression)}
_FACTOR = settings.DEFAULT_REPLICATION_FACTOR


def _number(setting: settings.Setting[int], also: str = "") -> Option[int]:
    return opt(setting.name, integer(setting.lowest, setting.highest), str(setting.default), also=also)


class SinkOptions(Options, kinds=SINK):
    """The options of a write."""

    path = SourceOptions.path
    topic = opt("topic", TOPIC)
    acks = opt("acks", choice(_ACKS), "all", also="kafka.acks")
    compression = opt("compression.type", choice(_CODECS), also="kafka.compression.type")
    txn_app_id = opt("txnAppId", TEXT)
    txn_version = opt("txnVersion", integer(0), kinds={Kind.SINK_BATCH})
    txn_take_over = opt("txnTakeOver", boolean, "false")
    retries = _number(settings.RETRIES, "kafka.retries")
    retry_backoff_ms = _number(settings.RETRY_BACKOFF_MS, "kafka.retry.backoff.ms")
    delivery_timeout_ms = _number(settings.DELIVERY_TIMEOUT_MS, "kafka.delivery.timeout.ms")
    max_message_bytes = opt("max.message.bytes", COUNT, str(MAX_MESSAGE_BYTES), also="kafka.max.request.size")
    dead_letter_topic = opt("dead.letter.topic", TOPIC)
    has_columns = opt("schema", choice({"columns": True}), unset=False)
    merge_schema = opt("mergeSchema", boolean, "false")
    key_column = opt("key.column", TEXT)
    auto_create_topics = opt("auto.create.topics.enable", boolean, "true")
    num_partitions = _number(settings.NUM_PARTITIONS)
    replication_factor = opt(_FACTOR.name, integer(1, _FACTOR.highest))
    request_timeout_ms = _number(settings.REQUEST_TIMEOUT_MS, "kafka.request.timeout.ms")
    broker_session_timeout_ms = _number(settings.BROKER_SESSION_TIMEOUT_MS)
    storage_options = SourceOptions.storage_options
    async_progress = SourceOptions.async_progress
    retry: RetryPolicy
    checkpoint: str | None
    """The checkpointLocation of a query; None in a batch write, and if Spark takes it from its own settings."""
    query_name: str
    """The queryName of a query; empty if it has none."""

    def made_of(self, given: Given) -> dict[str, Any]:
        is_stream = given.kind is Kind.SINK_STREAM
        given.require(SinkOptions.txn_version, SinkOptions.txn_app_id)
        if not is_stream:
            given.require(SinkOptions.txn_app_id, SinkOptions.txn_version)
        given.require(SinkOptions.txn_take_over, SinkOptions.txn_app_id)
        given.require(SinkOptions.has_columns, SinkOptions.topic)
        given.require(SinkOptions.merge_schema, SinkOptions.topic)
        given.require(SinkOptions.key_column, SinkOptions.topic)
        if self.topic is not None and self.topic == self.dead_letter_topic:
            message = f"options topic and dead.letter.topic are both {self.topic!r}; set dead.letter.topic to another"
            raise InvalidOption("dead.letter.topic", f"{message} topic")
        sparks = given.sparks if is_stream else {}
        own = {"checkpoint": sparks.get("checkpointlocation"), "query_name": sparks.get("queryname", "")}
        return own | {"retry": retry_policy(self)}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the values alone: a task that gets them must not import the declarations."""
        return SimpleNamespace, (), vars(self)


def retry_policy(options: Any) -> RetryPolicy:
    """Return how a sink or a Producer tries again."""
    return RetryPolicy(
        options.retries, options.retry_backoff_ms, options.delivery_timeout_ms, options.broker_session_timeout_ms
    )
