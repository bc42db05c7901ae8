"""The options of the Python `Consumer`."""

from __future__ import annotations

from typing import Any

import msgspec

from pyspark_log.options import source_table
from pyspark_log.options.option import CONSUMER, Option
from pyspark_log.options.value import choice, integer
from pyspark_log_coordinator.model.settings import INT_MAX

AUTO_OFFSET_RESET = Option(
    name="auto.offset.reset",
    kinds=CONSUMER,
    value=choice(
        {
            "earliest": "earliest",
            "smallest": "earliest",
            "beginning": "earliest",
            "latest": "latest",
            "largest": "latest",
            "end": "latest",
            "none": "none",
            "error": "none",
        }
    ),
    default="latest",
    meaning=(
        "Where to read a partition that is assigned without an offset, or whose offset is not in the log any more."
        " none: raise `DataLoss`, or `InvalidInput` if no offset was given."
    ),
    prefixed=("auto.offset.reset",),
)
MAX_POLL_RECORDS = Option(
    name="max.poll.records",
    kinds=CONSUMER,
    value=integer(1, INT_MAX),
    default="500",
    meaning="Maximum number of rows that `poll` returns.",
    prefixed=("max.poll.records",),
)
MAX_PARTITION_FETCH_BYTES = Option(
    name="max.partition.fetch.bytes",
    kinds=CONSUMER,
    value=integer(1, INT_MAX),
    default=str(1024 * 1024),
    meaning="Size up to which small chunks of a partition are read together, in bytes. A larger chunk is read whole.",
    differs="It counts rows in memory. A chunk has about 8 MiB at most, unless its rows are larger.",
    prefixed=("max.partition.fetch.bytes",),
)
FETCH_MAX_BYTES = Option(
    name="fetch.max.bytes",
    kinds=CONSUMER,
    value=integer(1, INT_MAX),
    default=str(50 * 1024 * 1024),
    meaning="Size of the rows, in bytes, with which `poll_batches` returns and reads no further batch.",
    prefixed=("fetch.max.bytes",),
)
FETCH_MAX_WAIT_MS = Option(
    name="fetch.max.wait.ms",
    kinds=CONSUMER,
    value=integer(1, INT_MAX),
    default="100",
    meaning=(
        "Longest pause between two looks for new rows, in milliseconds. The first pauses are 1 ms; a pause is an eighth"
        " of the time since the last new rows."
    ),
    differs="There is no broker that answers when rows arrive: this bounds how late a row is seen after a quiet time.",
    prefixed=("fetch.max.wait.ms", "fetch.wait.max.ms"),
)
CLIENT_RACK = msgspec.structs.replace(
    source_table.CLIENT_RACK,
    kinds=CONSUMER,
    meaning="Rack of this machine. The consumer prefers to read from a node in this rack.",
)

OPTIONS: tuple[Option[Any], ...] = tuple(each for each in tuple(globals().values()) if isinstance(each, Option))
"""In the order of docs/options.md."""
