"""The options of a write, parsed once at the edge. Tasks get their values without this module."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, get_args

from pyspark_log.options.option import (
    ASYNC_PROGRESS,
    PATH,
    SINK,
    STORAGE_OPTIONS,
    AlwaysSet,
    Given,
    Kind,
    Option,
    Options,
)
from pyspark_log.options.value import TEXT, TOPIC, boolean, choice, integer
from pyspark_log_coordinator.model import settings
from pyspark_log_coordinator.model.batch import Acks
from pyspark_log_coordinator.model.topic_config import MAX_MESSAGE_BYTES as TOPIC_MAX_MESSAGE_BYTES
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_storage.errors import InvalidOption
from pyspark_log_storage.files.row_files import Compression

_ACKS: dict[str, Acks] = {"all": "all", "-1": "all", "1": "1", "0": "0"}
_CODECS: dict[str, Compression] = {codec: codec for codec in get_args(Compression)}
_KAFKAS_CODECS = frozenset({"gzip", "snappy"})
_BROKERS = "In Kafka this is a broker setting."


def _number(setting: settings.Setting[int], **more: Any) -> AlwaysSet[int]:
    return AlwaysSet(
        name=setting.name,
        kinds=SINK,
        value=integer(setting.lowest, setting.highest),
        meaning=setting.meaning,
        default=str(setting.default),
        **more,
    )


class SinkOptions(Options):
    """The options of a write."""

    path = PATH
    topic = Option(
        name="topic",
        kinds=SINK,
        value=TOPIC,
        unset="the column `topic`",
        meaning="Topic of all rows. It takes precedence over a column `topic`.",
    )
    acks = AlwaysSet(
        name="acks",
        kinds=SINK,
        value=choice(_ACKS),
        default="all",
        meaning=(
            "When a batch is acknowledged: all or -1: when all in-sync replicas have it on disk; 1: when the leader has"
            " it on disk; 0: before it is on disk."
        ),
        differs=(
            "0 also waits for the leader's store, but not for its disk: a batch has no offsets before it is stored."
        ),
        prefixed=("acks",),
    )
    compression = Option(
        name="compression.type",
        kinds=SINK,
        value=choice(
            _CODECS,
            dict.fromkeys(_KAFKAS_CODECS, "chunks are Arrow data, and Arrow does not support this codec"),
        ),
        unset="the topic's compression.type, lz4 by default",
        meaning="Compression of the rows.",
        differs=(
            "gzip and snappy are not supported, because chunks are Arrow data; as `kafka.compression.type` they are"
            " ignored with a warning. The default is the topic's setting, not none."
        ),
        prefixed=("compression.type",),
        only_kafkas=_KAFKAS_CODECS,
    )
    txn_app_id = Option(
        name="txnAppId",
        kinds=SINK,
        value=TEXT,
        unset="a stream's query id; none for a batch write",
        meaning=(
            "Name of the writer, under which each batch is written exactly once. A batch write also needs txnVersion."
            " Under it, a stream with a new checkpoint is refused, instead of writing again what the old one wrote."
            " See [Exactly once](../guides/exactly-once.md)."
        ),
        differs=(
            "Spark's Kafka sink may write rows twice after a failure; here each batch of a writer is written once. The"
            " name is Delta's."
        ),
    )
    txn_version = Option(
        name="txnVersion",
        kinds=frozenset({Kind.SINK_BATCH}),
        value=integer(0),
        meaning=(
            "Number of this batch of txnAppId. A batch with the last number is skipped; a lower number is an error."
        ),
        differs=(
            "A batch write with this option can be repeated safely, also in `foreachBatch`. A lower number is an error;"
            " Delta skips it."
        ),
        not_here="the number of the micro-batch is used; remove it",
    )
    txn_take_over = AlwaysSet(
        name="txnTakeOver",
        kinds=SINK,
        value=boolean(),
        default="false",
        meaning="Whether this query may take over a txnAppId that another query has used.",
        differs=(
            "Without it, a txnAppId of another query, for example one with a new checkpoint, is an error rather than"
            " silent data loss."
        ),
    )
    retries = _number(settings.RETRIES, prefixed=("retries",))
    retry_backoff_ms = _number(settings.RETRY_BACKOFF_MS, prefixed=("retry.backoff.ms",))
    delivery_timeout_ms = _number(settings.DELIVERY_TIMEOUT_MS, prefixed=("delivery.timeout.ms",))
    max_message_bytes = AlwaysSet(
        name="max.message.bytes",
        kinds=SINK,
        value=integer(1, settings.INT_MAX),
        default=str(TOPIC_MAX_MESSAGE_BYTES),
        meaning="Maximum size of one row in bytes. The topic's own max.message.bytes applies too.",
        differs="It limits a row, not a batch of rows. `kafka.max.request.size` means the same.",
        prefixed=("max.request.size",),
    )
    dead_letter_topic = Option(
        name="dead.letter.topic",
        kinds=SINK,
        value=TOPIC,
        unset="a row that cannot be written fails the batch",
        meaning=(
            "Topic of rows that cannot be written: too large, without a topic, for a topic or a partition that does not"
            " exist, or with a header that is null or whose key is null or not UTF-8. They are written in the same"
            " batch, with headers that say why. Only the topic's own max.message.bytes limits their size."
        ),
        differs=(
            "Spark's Kafka sink has none. It is Kafka Connect's errors.deadletterqueue.topic.name, with"
            " errors.deadletterqueue.context.headers.enable."
        ),
    )
    has_columns = AlwaysSet(
        name="schema",
        kinds=SINK,
        value=choice({"columns": True}),
        or_else=bool,
        unset="a topic that the write creates holds records: key and value",
        meaning=(
            "columns: a topic that the write creates is typed: it has the frame's columns. A topic that exists keeps"
            " its own kind. See [Typed topics](../guides/typed-topics.md)."
        ),
        differs="Spark's Kafka sink has no columns of your own.",
    )
    merge_schema = AlwaysSet(
        name="mergeSchema",
        kinds=SINK,
        value=boolean(),
        default="false",
        meaning="Whether a typed topic gets the columns that it lacks, and wider numbers if the frame's are.",
        differs="Not in Kafka. The name is Delta's.",
    )
    key_column = Option(
        name="key.column",
        kinds=SINK,
        value=TEXT,
        unset="the topic's `key.column`",
        meaning=(
            "Column of a typed topic whose values choose the partitions, as keys do: text in UTF-8, binary, or whole"
            " numbers as Kafka's serializers write them (big-endian). Several are separated by commas. The topic keeps"
            " the first one that a write names; later writes use it, and another one is refused."
        ),
        differs="Not in Kafka, whose keys are a column `key`.",
    )
    auto_create_topics = AlwaysSet(
        name="auto.create.topics.enable",
        kinds=SINK,
        value=boolean(),
        default="true",
        meaning=(
            "Whether to create a topic that does not exist. If false, it is an error. A later micro-batch does not"
            " create the topic of its option, and only a first write creates [a log](../guides/unmounted-disk.md)."
        ),
        differs=_BROKERS,
    )
    num_partitions = _number(settings.NUM_PARTITIONS, differs=_BROKERS)
    replication_factor = Option(
        name=settings.DEFAULT_REPLICATION_FACTOR.name,
        kinds=SINK,
        value=integer(1, settings.DEFAULT_REPLICATION_FACTOR.highest),
        unset=f"{settings.DEFAULT_REPLICATION_FACTOR.default}, or the number of nodes in service if that is smaller",
        meaning=settings.DEFAULT_REPLICATION_FACTOR.meaning,
        differs="In Kafka this is a broker setting, and its default is 1.",
    )
    request_timeout_ms = _number(settings.REQUEST_TIMEOUT_MS, prefixed=("request.timeout.ms",))
    broker_session_timeout_ms = _number(
        settings.BROKER_SESSION_TIMEOUT_MS,
        differs="In Kafka this is a controller setting. A write with acks=all does not wait for this time.",
    )
    storage_options = STORAGE_OPTIONS
    async_progress = ASYNC_PROGRESS
    retry: RetryPolicy
    checkpoint: str | None
    """The checkpointLocation of a query; None in a batch write, and if Spark takes it from its own settings."""

    def __init__(self, given: Given, options: Mapping[str, object]) -> None:
        """`options` are all that Spark passes, of which `checkpointLocation` is its own. Raise `InvalidOption`."""
        super().__init__(given)
        policy = RetryPolicy(
            self.retries, self.retry_backoff_ms, self.delivery_timeout_ms, self.broker_session_timeout_ms
        )
        places = [str(text) for name, text in options.items() if name.lower() == "checkpointlocation"]
        is_stream = given.kind is Kind.SINK_STREAM
        self._set(retry=policy, checkpoint=places[0] if places and is_stream else None)
        self._check_transaction(streaming=is_stream)
        self._check_dead_letters()
        self._check_typed()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the values alone: a task that gets them must not import the declarations."""
        return SimpleNamespace, (), vars(self)

    def _check_transaction(self, *, streaming: bool) -> None:
        if not streaming and (self.txn_app_id is None) != (self.txn_version is None):
            has, lacks = ("txnVersion", "txnAppId") if self.txn_app_id is None else ("txnAppId", "txnVersion")
            raise InvalidOption(
                lacks,
                f"option {has} is given without {lacks}: an idempotent batch write needs both; set {lacks}, or remove"
                f" {has}",
            )
        if self.txn_take_over and self.txn_app_id is None:
            raise InvalidOption(
                "txnTakeOver",
                "option txnTakeOver is true, but txnAppId is not set; set txnAppId, or remove txnTakeOver",
            )

    def _check_dead_letters(self) -> None:
        if self.topic is not None and self.topic == self.dead_letter_topic:
            raise InvalidOption(
                "dead.letter.topic",
                f"options topic and dead.letter.topic are both {self.topic!r}; set dead.letter.topic to another topic",
            )

    def _check_typed(self) -> None:
        given = {"schema": self.has_columns, "mergeSchema": self.merge_schema, "key.column": bool(self.key_column)}
        for name, is_set in given.items():
            if is_set and self.topic is None:
                raise InvalidOption(
                    name, f"option {name} is about one typed topic; set the option topic, or remove {name}"
                )
