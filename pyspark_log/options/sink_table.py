"""The options of a write."""

from __future__ import annotations

from typing import Any, get_args

from pyspark_log.options.option import SINK, Kind, Option
from pyspark_log.options.value import TEXT, TOPIC, boolean, choice, integer
from pyspark_log_coordinator.model import settings
from pyspark_log_coordinator.model.batch import Acks
from pyspark_log_coordinator.model.topic_config import MAX_MESSAGE_BYTES as TOPIC_MAX_MESSAGE_BYTES
from pyspark_log_storage.files.row_files import Compression

_ACKS: dict[str, Acks] = {"all": "all", "-1": "all", "1": "1", "0": "0"}
_KAFKAS_CODECS = frozenset({"gzip", "snappy"})
_BROKERS = "In Kafka this is a broker setting."


def _number(setting: settings.Setting[int], **more: Any) -> Option[int]:
    return Option(
        name=setting.name,
        kinds=SINK,
        value=integer(setting.lowest, setting.highest),
        meaning=setting.meaning,
        **({"default": str(setting.default)} | more),
    )


WRITE_TOPIC = Option(
    name="topic",
    kinds=SINK,
    value=TOPIC,
    unset="the column `topic`",
    meaning="Topic of all rows. It takes precedence over a column `topic`.",
)
ACKS = Option(
    name="acks",
    kinds=SINK,
    value=choice(_ACKS),
    default="all",
    meaning=(
        "When a batch is acknowledged: all or -1: when all in-sync replicas have it on disk; 1: when the leader has it"
        " on disk; 0: before it is on disk."
    ),
    differs="0 also waits for the leader's store, but not for its disk: a batch has no offsets before it is stored.",
    prefixed=("acks",),
)
COMPRESSION_TYPE = Option(
    name="compression.type",
    kinds=SINK,
    value=choice(
        {codec: codec for codec in get_args(Compression)},
        dict.fromkeys(_KAFKAS_CODECS, "chunks are Arrow data, and Arrow does not support this codec"),
    ),
    unset="the topic's compression.type, lz4 by default",
    meaning="Compression of the rows.",
    differs=(
        "gzip and snappy are not supported, because chunks are Arrow data; as `kafka.compression.type` they are ignored"
        " with a warning. The default is the topic's setting, not none."
    ),
    prefixed=("compression.type",),
    only_kafkas=_KAFKAS_CODECS,
)
TXN_APP_ID = Option(
    name="txnAppId",
    kinds=SINK,
    value=TEXT,
    unset="a stream's query id; none for a batch write",
    meaning=(
        "Name of the writer, under which each batch is written exactly once, also if the checkpoint is deleted. A batch"
        " write also needs txnVersion."
    ),
    differs=(
        "Spark's Kafka sink may write rows twice after a failure; here each batch of a writer is written once. The name"
        " is Delta's."
    ),
)
TXN_VERSION = Option(
    name="txnVersion",
    kinds=frozenset({Kind.SINK_BATCH}),
    value=integer(0),
    meaning="Number of this batch of txnAppId. A batch with the last number is skipped; a lower number is an error.",
    differs=(
        "A batch write with this option can be repeated safely, also in `foreachBatch`. A lower number is an error;"
        " Delta skips it."
    ),
    not_here="the number of the micro-batch is used; remove it",
)
TXN_TAKE_OVER = Option(
    name="txnTakeOver",
    kinds=SINK,
    value=boolean(),
    default="false",
    meaning="Whether this query may take over a txnAppId that another query has used.",
    differs=(
        "Without it, a txnAppId of another query, for example one with a new checkpoint, is an error rather than silent"
        " data loss."
    ),
)
RETRIES = _number(settings.RETRIES, prefixed=("retries",))
RETRY_BACKOFF_MS = _number(settings.RETRY_BACKOFF_MS, prefixed=("retry.backoff.ms",))
DELIVERY_TIMEOUT_MS = _number(settings.DELIVERY_TIMEOUT_MS, prefixed=("delivery.timeout.ms",))
MAX_MESSAGE_BYTES = Option(
    name="max.message.bytes",
    kinds=SINK,
    value=integer(1, settings.INT_MAX),
    default=str(TOPIC_MAX_MESSAGE_BYTES),
    meaning="Maximum size of one row in bytes. The topic's own max.message.bytes applies too.",
    differs="It limits a row, not a batch of rows. `kafka.max.request.size` means the same.",
    prefixed=("max.request.size",),
)
DEAD_LETTER_TOPIC = Option(
    name="dead.letter.topic",
    kinds=SINK,
    value=TOPIC,
    unset="a row that cannot be written fails the batch",
    meaning=(
        "Topic of rows that cannot be written: too large, without a topic, for a topic or a partition that does not"
        " exist, or with a header whose key is not UTF-8. They are written in the same batch, with headers that say"
        " why. Only the topic's own max.message.bytes limits their size."
    ),
    differs=(
        "Spark's Kafka sink has none. It is Kafka Connect's errors.deadletterqueue.topic.name, with"
        " errors.deadletterqueue.context.headers.enable."
    ),
)
SCHEMA = Option(
    name="schema",
    kinds=SINK,
    value=choice({"columns": "columns"}),
    unset="a topic that the write creates holds records: key and value",
    meaning=(
        "columns: a topic that the write creates is typed: it has the frame's columns. A topic that exists keeps its"
        " own kind. See [Typed topics](../guides/typed-topics.md)."
    ),
    differs="Spark's Kafka sink has no columns of your own.",
)
MERGE_SCHEMA = Option(
    name="mergeSchema",
    kinds=SINK,
    value=boolean(),
    default="false",
    meaning="Whether a typed topic gets the columns that it lacks, and wider numbers if the frame's are.",
    differs="Not in Kafka. The name is Delta's.",
)
KEY_COLUMN = Option(
    name="key.column",
    kinds=SINK,
    value=TEXT,
    unset="the topic's `key.column`",
    meaning=(
        "Column of a typed topic whose values choose the partitions, as keys do: text in UTF-8, binary, or whole"
        " numbers as Kafka's serializers write them (big-endian). The topic keeps the first one that a write names;"
        " later writes use it, and another one is refused."
    ),
    differs="Not in Kafka, whose keys are a column `key`.",
)
AUTO_CREATE_TOPICS = Option(
    name="auto.create.topics.enable",
    kinds=SINK,
    value=boolean(),
    default="true",
    meaning=(
        "Whether to create a topic that does not exist. If false, it is an error. A later micro-batch does not create"
        " the topic of its option, and only a first write creates"
        " [a log](../guides/unmounted-disk.md)."
    ),
    differs=_BROKERS,
)
NUM_PARTITIONS = _number(settings.NUM_PARTITIONS, differs=_BROKERS)
DEFAULT_REPLICATION_FACTOR = _number(
    settings.DEFAULT_REPLICATION_FACTOR,
    default=None,
    unset=f"{settings.DEFAULT_REPLICATION_FACTOR.default}, or the number of nodes in service if that is smaller",
    differs="In Kafka this is a broker setting, and its default is 1.",
)
REQUEST_TIMEOUT_MS = _number(settings.REQUEST_TIMEOUT_MS, prefixed=("request.timeout.ms",))
BROKER_SESSION_TIMEOUT_MS = _number(
    settings.BROKER_SESSION_TIMEOUT_MS,
    differs="In Kafka this is a controller setting. A write with acks=all does not wait for this time.",
)

OPTIONS: tuple[Option[Any], ...] = tuple(each for each in tuple(globals().values()) if isinstance(each, Option))
"""In the order of docs/reference/options.md."""
