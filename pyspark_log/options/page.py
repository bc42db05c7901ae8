"""docs/options.md, made from the table: `python -m pyspark_log.options.page > docs/options.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from pyspark_log.options.foreign import IGNORED, KAFKA_PREFIX, REFUSED, Foreign
from pyspark_log.options.option import EVERYWHERE, REQUIRED, SINK, SOURCE, Kind, Option
from pyspark_log.options.table import TABLE
from pyspark_log_coordinator.model import topic_config

HEAD = """\
# Options

<!-- Made by `python -m pyspark_log.options.page > docs/options.md` from pyspark_log/options/table.py. -->

The names are those of Spark's Kafka connector, so a job moves by changing its format and its address:
`format("kafka")` becomes `format("pyspark_log")`, and `path` names the cluster root.

- Case does not matter in names. An option that does not exist is an error.
- `kafka.X` means X for the names with `kafka.` below. Both with two values is an error.
- Options that only steer Kafka's clients are ignored, with one warning that names them all; so are those of a
  producer in a read, and of a consumer in a write, and those of triggers in a batch read.
- Of several options for where a read starts, the first of `startingTimestamp`, `startingOffsetsByTimestamp`
  and `startingOffsets` counts; of those for where it ends, the first of `endingTimestamp`,
  `endingOffsetsByTimestamp` and `endingOffsets`. The others are ignored with the warning.
- An end before the start is an error: at `load()` if both are offsets or both are times, else when the read is planned,
  which turns the times into offsets.
- `load()` refuses a wrong name or value. Spark does not tell a Python source at that time whether a batch or a stream
  will be read, so what only one of them refuses, such as an end of a stream or a batch that starts at latest, is an
  error when the query starts; so is everything if the read has a `.schema()`, which Spark then does not ask for.
"""

ROWS = """\
## Rows

A row that is read has the columns of Spark's Kafka source: `key` and `value` (binary), `topic` (string), `partition`
(int), `offset` (long), `timestamp` (timestamp), `timestampType` (int), and with `includeHeaders` also `headers`
(`array<struct<key: string, value: binary>>`), which is null for a row without headers, also if it was written with an
empty array. A `.schema()` chooses among them, in any order.

A frame that is written has the columns of Spark's Kafka sink, and may have a time. Other columns are left out.

| Column | Type | Where it is absent or null |
| --- | --- | --- |
| `value` | binary or string | it must be there; a null is a tombstone |
| `key` | binary or string | the row has no key |
| `headers` | `array<struct<key: string, value: binary>>` | the row has no headers, as with an empty array |
| `topic` | string | the option `topic` says it, and goes before the column; else an error |
| `partition` | int | by the key as in Kafka; rows without a key go to one partition for each task and batch |
| `timestamp` | timestamp | the time of the write |
"""
TOPIC_SETTINGS = """
These are no options of a query: `pyspark-log topics create --config` sets them, and `topics alter` changes them. Names
and defaults are those of Kafka's topics; `replica.lag.time.max.ms` is one of Kafka's brokers, `orphan.retention.ms` and
`replication.mode` are this log's own.
`compression.type` has no gzip and no snappy; nor is there `producer`, since a writer may always choose for itself.
`cleanup.policy` can only be `delete`.
"""

ELSEWHERE = (
    (
        "an unknown option",
        "An error that names the nearest one; Spark's Kafka connector ignores it in silence.",
    ),
    ("a number or word out of range", "An error when the query is made, before any task runs."),
    (
        "a batch write's mode",
        '`mode("append")` must be said: Spark lets no Python data source serve its default, errorifexists.',
    ),
    (
        '`outputMode("update")`',
        "Spark refuses it for every Python data source; write from `foreachBatch`, with `txnAppId` and `txnVersion`.",
    ),
    (
        "`trigger(continuous=...)`, real-time mode",
        "Spark has neither for Python data sources; a micro-batch of few rows takes about 0.1 s.",
    ),
    (
        "a column `timestamp` of a frame that is written",
        "Is stored as the rows' time, from which `retention.ms` counts; Spark's Kafka sink leaves such a column out.",
    ),
    (
        "the column `timestampType`",
        "Always 0, CreateTime: there is no broker that would set times.",
    ),
    (
        "a replayed micro-batch",
        "Changes nothing, where Spark's Kafka sink writes its rows again; one with another number of rows is an error.",
    ),
    (
        "a batch frame, also the static side of a join",
        (
            "Is planned [once for each `load()`](spark.md#a-batch-frame-is-planned-once), as of every Python data"
            " source; the Kafka connector looks again at each use."
        ),
    ),
    (
        "`trigger(availableNow=True)`",
        (
            "If a topic is deleted or created again during the run, and `failOnDataLoss` is false, the run reads no"
            " more of it and ends; the next run reads the new topic from its start. The Kafka connector fails if the"
            " topic is gone or shorter."
        ),
    ),
    (
        "a checkpoint of Kafka's source",
        "Cannot be gone on from: its offsets mean nothing here. Start with a new one.",
    ),
)
"""Differences that belong to no single option."""


def page() -> str:
    """Return the text of docs/options.md."""
    parts = [
        HEAD,
        ROWS,
        _section("Source: `spark.read` and `spark.readStream`", _options(SOURCE)),
        _section("Sink: `df.write` and `df.writeStream`", _options(SINK)),
        _section("Settings of a topic", _topic_settings()) + TOPIC_SETTINGS,
        _section("Where we differ from Spark's Kafka connector, and why", _differences()),
        _section("Accepted and ignored", _foreign(IGNORED)),
        _section("Refused", _foreign(REFUSED)),
    ]
    return "\n".join(parts)


def _section(title: str, rows: Iterable[Sequence[str]]) -> str:
    head, *body = (f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)
    rule = "|" + " --- |" * (head.count(" | ") + 1)
    return "\n".join([f"## {title}", "", head, rule, *body, ""])


def _options(side: frozenset[Kind]) -> Iterable[Sequence[str]]:
    yield "Option", "For", "Takes", "Default", "Meaning"
    for option in TABLE:
        if here := option.kinds & side:
            yield _name(option), _which(here), option.value.takes, _default(option), option.meaning


def _topic_settings() -> Iterable[Sequence[str]]:
    yield "Setting", "Takes", "Default", "Meaning"
    for each in topic_config.all_settings():
        yield f"`{each.name}`", each.takes, f"`{each.default}`", each.meaning


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
    if kinds == EVERYWHERE:
        return "both"
    return "source" if kinds <= SOURCE else "sink"


if __name__ == "__main__":
    sys.stdout.write(page())
