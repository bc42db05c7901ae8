"""The page of options: `python scripts/options_page.py > docs/reference/options.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from pyspark_log.options import SinkOptions, SourceOptions
from pyspark_log.options.consumer import ConsumerOptions, WorkerOptions
from pyspark_log.options.foreign import CLIENTS_IGNORED, CLIENTS_REFUSED, IGNORED, KAFKA_PREFIX, REFUSED, Foreign
from pyspark_log.options.given import TABLE
from pyspark_log.options.option import CLIENTS, EVERYWHERE, REQUIRED, SINK, SOURCE, Kind, Option, Options, table
from pyspark_log.options.producer import ProducerOptions
from pyspark_log_coordinator.group.config import GroupConfig
from pyspark_log_coordinator.model.settings import StoredConfig
from pyspark_log_coordinator.model.topic_config import TopicConfig

HEAD = """\
# Options

<!-- Generated: `python scripts/options_page.py > docs/reference/options.md`. Do not edit. -->

The names are those of Spark's Kafka connector. To move a job, change `format("kafka")` to `format("pyspark_log")`, and
`kafka.bootstrap.servers` to `path`, the address of the cluster.

- Names are case-insensitive. An unknown option is an error.
- If a name is listed with the prefix `kafka.` below, both names mean the same option; different values are an error.
- Options that only configure Kafka's clients are ignored, with one warning that lists them all. So are producer options
  in a read, consumer options in a write, and trigger options in a batch read.
- `startingTimestamp` takes precedence over `startingOffsetsByTimestamp`, and both over `startingOffsets`. So do
  `endingTimestamp`, `endingOffsetsByTimestamp` and `endingOffsets`. The others are ignored with the warning.
- An end before the start is an error: at `load()` if both are offsets or both are timestamps, else when the read is
  planned.
- `load()` refuses a wrong name or value. At that time a Python source does not know whether a batch or a stream will be
  read, so an option that only one of them refuses fails when the query starts. If the read has a `.schema()`, all
  checks happen when the query starts.
"""

ROWS = """\
## Rows

A read returns the columns of Spark's Kafka source: `key` and `value` (binary), `topic` (string), `partition` (int),
`offset` (long), `timestamp` (timestamp), `timestampType` (int), and with `includeHeaders` also `headers`
(`array<struct<key: string, value: binary>>`). `headers` is null for a row without headers, even if the row was written
with an empty array. A `.schema()` selects some of these columns, in any order.

A write takes the columns of Spark's Kafka sink and a timestamp. Other columns are ignored.

| Column | Type | If it is missing or null |
| --- | --- | --- |
| `value` | binary or string | required; null is a tombstone |
| `key` | binary or string | the row has no key |
| `headers` | `array<struct<key: string, value: binary>>` | the row has no headers, as with an empty array |
| `topic` | string | the option `topic`, which also takes precedence over the column; else an error |
| `partition` | int | chosen by the key as in Kafka; a task writes all rows of a batch without a key to one partition |
| `timestamp` | timestamp | the time of the write |

Rows that cannot be written fail the batch, or are [dead letters](../guides/dead-letters.md). A
[typed topic](../guides/typed-topics.md) has columns of its own in place of `key`, `value` and `headers`.
"""
TOPIC_SETTINGS = """
These are not options of a query: set them with `pyspark-log topics create --config`, change them with `topics alter`.
Names and defaults are those of Kafka's topics, except that `replica.lag.time.max.ms` is a broker setting in Kafka, and
`orphan.retention.ms` and `replication.mode` do not exist there. `compression.type` does not support gzip, snappy and
`producer`; a writer can always set its own compression.
"""
GROUP_SETTINGS = """
Each group has its own: change them with `pyspark-log groups alter --config`. Names and defaults are those of Kafka's
brokers, which have one value for all groups. What a member chooses for itself, such as `session.timeout.ms`, is an
option of the [Consumer](#consumer).
"""

BY_NAME = """
The [Python clients](clients.md) take these options by name in a dict, or as keywords with `_` for `.`. Values may be
numbers and booleans. Options of Kafka's clients about brokers and logins are
[ignored with a warning](#accepted-and-ignored-by-the-python-clients); those that a program cannot do without are
[refused](#refused-by-the-python-clients) with what to do instead.
"""

ELSEWHERE = (
    (
        "an unknown option",
        "An error that suggests the nearest name; Spark's Kafka connector silently ignores it.",
    ),
    ("an invalid value", "An error before any task runs."),
    (
        "a batch write's mode",
        'Must be `mode("append")`: Spark does not let a Python data source support the default, errorifexists.',
    ),
    (
        '`outputMode("update")`',
        (
            "Spark refuses it for every Python data source (`pyspark_log does not support Update mode`); write from "
            "`foreachBatch`, with `txnAppId` and `txnVersion`."
        ),
    ),
    (
        "`trigger(continuous=...)`",
        (
            "Spark does not support it for Python data sources. A read is refused; a write logs an error for each "
            "epoch and writes nothing. Use `trigger(processingTime=...)`; "
            "[a micro-batch is short](../benchmarks.md#beside-the-others)."
        ),
    ),
    (
        "`trigger(realTime=...)`",
        "Spark refuses it for Python data sources (`STREAMING_REAL_TIME_MODE`); use `trigger(processingTime=...)`.",
    ),
    (
        "the column `timestamp` in a write",
        "Stored as the rows' timestamp, from which `retention.ms` counts; Spark's Kafka sink ignores it.",
    ),
    (
        "the column `timestampType`",
        "Always 0 (CreateTime): there is no broker that sets timestamps.",
    ),
    (
        "a replayed micro-batch",
        "Changes nothing; Spark's Kafka sink writes its rows again. It is an error if its number of rows has changed.",
    ),
    (
        "a batch DataFrame, also the static side of a join",
        (
            "Planned [once for each `load()`](../guides/batch-reads.md#a-batch-frame-is-planned-once), as for every"
            " Python data source; the Kafka connector plans it again at each use."
        ),
    ),
    (
        "`trigger(availableNow=True)`",
        (
            "If a topic is deleted or recreated during the run, and `failOnDataLoss` is false, the run stops reading it"
            " and ends; the next run reads the new topic from its start. The Kafka connector fails if the topic was"
            " deleted or is shorter."
        ),
    ),
    (
        "a topic that is removed from `subscribe`, and subscribed again later",
        (
            "The query continues where it was: its offset keeps the topic's positions meanwhile. The Kafka connector"
            " forgets them, and reads the topic from its start. The removal needs `failOnDataLoss=false` in both."
        ),
    ),
    (
        "a checkpoint of Kafka's source",
        "Cannot be resumed, because its offsets mean nothing here. Start with a new checkpoint.",
    ),
)
"""Differences that are not about a single option."""


def page() -> str:
    """Return the text of docs/reference/options.md."""
    parts = [
        HEAD,
        ROWS,
        _section("Source: `spark.read` and `spark.readStream`", _options(SourceOptions, SOURCE)),
        _section("Sink: `df.write` and `df.writeStream`", _options(SinkOptions, SINK)),
        _section("Producer", _client_options(ProducerOptions)) + BY_NAME,
        _section("Consumer", _client_options(ConsumerOptions)),
        _section("Worker", _client_options(WorkerOptions)),
        _section("Differences from Kafka's clients", _client_differences()),
        _section("Settings of a topic", _settings(TopicConfig)) + TOPIC_SETTINGS,
        _section("Settings of a group", _settings(GroupConfig)) + GROUP_SETTINGS,
        _section("Differences from Spark's Kafka connector", _differences()),
        _section("Accepted and ignored", _foreign(IGNORED)),
        _section("Refused", _foreign(REFUSED)),
        _section("Accepted and ignored by the Python clients", _foreign(CLIENTS_IGNORED)),
        _section("Refused by the Python clients", _foreign(CLIENTS_REFUSED)),
    ]
    return "\n".join(parts)


def _section(title: str, rows: Iterable[Sequence[str]]) -> str:
    head, *body = (f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)
    rule = "|" + " --- |" * (head.count(" | ") + 1)
    return "\n".join([f"## {title}", "", head, rule, *body, ""])


def _options(options: type[Options], side: frozenset[Kind]) -> Iterable[Sequence[str]]:
    yield "Option", "For", "Value", "Default", "Meaning"
    for option in table(options):
        yield _name(option), _which(option.kinds & side), option.value.takes, _default(option), option.meaning


def _client_options(options: type[Options]) -> Iterable[Sequence[str]]:
    yield "Option", "Value", "Default", "Meaning"
    for option in table(options):
        others = (name for name in option.prefixed if name != option.name)
        names = ", ".join(f"`{name}`" for name in (option.name, *others))
        yield names, option.value.takes, _default(option), option.meaning


def _client_differences() -> Iterable[Sequence[str]]:
    yield "Option", "How it differs"
    for option in (*table(ProducerOptions), *table(ConsumerOptions)):
        if option.differs:
            yield f"`{option.name}`", option.differs


def _settings(config: type[StoredConfig]) -> Iterable[Sequence[str]]:
    yield "Setting", "Value", "Default", "Meaning"
    default = config().words()
    for each in config.settings():
        yield f"`{each.name}`", each.takes, f"`{default[each.name] or 'none'}`", each.meaning.text


def _differences() -> Iterable[Sequence[str]]:
    yield "What", "How it differs"
    for option in TABLE:
        if option.differs:
            yield f"`{option.name}`", option.differs
    yield from ELSEWHERE


def _foreign(rows: Iterable[Foreign]) -> Iterable[Sequence[str]]:
    yield "Options", "In", "Why"
    for row in rows:
        silence = "" if row.warns else " (without a warning)"
        yield ", ".join(f"`{name}`" for name in row.names), _side(row.kinds), row.why + silence


def _name(option: Option[Any]) -> str:
    aliases = [KAFKA_PREFIX + client for client in option.prefixed]
    return ", ".join(f"`{name}`" for name in (option.name, *aliases))


def _default(option: Option[Any]) -> str:
    if option.default is not None:
        return f"`{option.default}`"
    return f"**{option.unset}**" if option.unset == REQUIRED else option.unset


def _which(kinds: frozenset[Kind]) -> str:
    if len(kinds) > 1:
        return "both"
    return "batch" if kinds <= {Kind.SOURCE_BATCH, Kind.SINK_BATCH} else "streaming"


def _side(kinds: frozenset[Kind]) -> str:
    if kinds in (EVERYWHERE, CLIENTS):
        return "both" if kinds == EVERYWHERE else "all"
    if kinds <= CLIENTS:
        return ", ".join(kind.value.removeprefix("a ") for kind in Kind if kind in kinds)
    return "source" if kinds <= SOURCE else "sink"


if __name__ == "__main__":
    sys.stdout.write(page())
