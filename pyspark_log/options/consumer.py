"""The options of a Python `Consumer`, parsed once at the edge."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pyspark_log.options import consumer_table as table
from pyspark_log.options.client_config import gather
from pyspark_log.options.option import Kind


class ConsumerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed options. Sizes in bytes, times in seconds."""

    reset: str
    """earliest, latest, or none."""
    max_poll_records: int
    partition_fetch_bytes: int
    fetch_bytes: int
    longest_pause: float
    rack: str


def parse_consumer(config: Mapping[str, object] | None, keywords: Mapping[str, object]) -> ConsumerOptions:
    """Return the options. Raise `InvalidOption`."""
    given = gather(config, keywords, table.OPTIONS, Kind.CONSUMER)
    return ConsumerOptions(
        reset=given.get(table.AUTO_OFFSET_RESET),
        max_poll_records=given.get(table.MAX_POLL_RECORDS),
        partition_fetch_bytes=given.get(table.MAX_PARTITION_FETCH_BYTES),
        fetch_bytes=given.get(table.FETCH_MAX_BYTES),
        longest_pause=given.get(table.FETCH_MAX_WAIT_MS) / 1000,
        rack=given.find(table.CLIENT_RACK) or "",
    )
