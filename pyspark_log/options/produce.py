"""The options that `pyspark-log produce` takes with --config: how long a write is retried, as for the Spark sink."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pyspark_log.options import table
from pyspark_log.options.given import gather
from pyspark_log.options.option import Kind
from pyspark_log_storage.errors import InvalidOption

TAKEN = (table.RETRIES, table.RETRY_BACKOFF_MS, table.DELIVERY_TIMEOUT_MS)
FLAGS = {
    table.ACKS.name: "--acks",
    table.COMPRESSION_TYPE.name: "--compression",
    table.PATH.name: "--path",
    table.WRITE_TOPIC.name: "TOPIC",
    table.AUTO_CREATE_TOPICS.name: "--create",
}
"""Options of the sink for which `produce` has an argument of its own."""


class ProduceOptions(msgspec.Struct, frozen=True):
    """How long a write is retried."""

    retries: int
    retry_backoff_ms: int
    delivery_timeout_ms: int


def parse_produce(settings: Mapping[str, str]) -> ProduceOptions:
    """Return the options in `settings`. Raises `InvalidOption`, also for options that have no effect here."""
    given = gather(settings, Kind.SINK_BATCH)
    names = [option.name for option in TAKEN]
    others = [(name, f"use {FLAGS[name]} instead" if name in FLAGS else None) for name in given.texts]
    others += [(each.name, each.why) for each in given.ignored]
    for name, why in others:
        if name not in names:
            raise InvalidOption(
                name, f"produce does not take --config {name}: {why or 'leave it out'}. It takes {', '.join(names)}"
            )
    return ProduceOptions(
        given.get(table.RETRIES), given.get(table.RETRY_BACKOFF_MS), given.get(table.DELIVERY_TIMEOUT_MS)
    )
