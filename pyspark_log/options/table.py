"""The table of all options: the parser, the error messages and docs/reference/options.md come from these rows."""

from __future__ import annotations

from typing import Any

from pyspark_log.options import sink_table, source_table
from pyspark_log.options.option import EVERYWHERE, REQUIRED, Option
from pyspark_log.options.value import JSON_OPTIONS, URL, boolean

PATH = Option(
    name="path",
    kinds=EVERYWHERE,
    value=URL,
    unset=REQUIRED,
    meaning=(
        "Address of the cluster: its root, or one or several of its journal nodes. `.load(path)`, `.start(path)` and"
        " `.save(path)` set it too. A table of Spark's catalog has no options: give them with each statement, as in"
        " `FROM events WITH (path='...', subscribe='...')`."
    ),
    differs=(
        "It replaces `kafka.bootstrap.servers`: the address is a place in a store, because there is no broker. The path"
        " of a folder cannot contain a comma, which separates addresses."
    ),
)
STORAGE_OPTIONS = Option(
    name="storage_options",
    kinds=EVERYWHERE,
    value=JSON_OPTIONS,
    unset="those in PYSPARK_LOG_STORAGE_OPTIONS",
    meaning=(
        "Credentials and settings of object stores, with s3fs's names: `key`, `secret`, `token`, `profile`,"
        " `endpoint_url` and others. Options under a URL are for the stores below it. See"
        " [object stores](../guides/object-stores.md)."
    ),
    secret=True,
)
ASYNC_PROGRESS = Option(
    name="asyncProgressTrackingEnabled",
    kinds=EVERYWHERE,
    value=boolean("Spark would store offsets only after the rows are written, which breaks exactly-once"),
    default="false",
    meaning="Spark's asynchronous progress tracking, which is not supported.",
    differs="Refused: offsets become durable late, so a restart could write rows again.",
)

TABLE: tuple[Option[Any], ...] = (PATH, *source_table.OPTIONS, *sink_table.OPTIONS, STORAGE_OPTIONS, ASYNC_PROGRESS)
