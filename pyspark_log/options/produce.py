"""The options of `pyspark-log produce --config`: how long to retry a write, as for the Spark sink."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_log.options import sink_table, table
from pyspark_log.options.given import UnknownOption, gather
from pyspark_log.options.option import Kind
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_storage.errors import InvalidOption

TAKEN = (sink_table.RETRIES, sink_table.RETRY_BACKOFF_MS, sink_table.DELIVERY_TIMEOUT_MS)
FLAGS = {
    sink_table.ACKS.name: "--acks",
    sink_table.COMPRESSION_TYPE.name: "--compression",
    table.PATH.name: "--path",
    sink_table.WRITE_TOPIC.name: "TOPIC",
    sink_table.AUTO_CREATE_TOPICS.name: "--create",
}
"""Options of the sink that are arguments of `produce`."""


def parse_produce(settings: Mapping[str, str]) -> RetryPolicy:
    """Return the options in `settings`. Raise `InvalidOption`, also for options that have no effect here."""
    names = [option.name for option in TAKEN]
    try:
        given = gather(settings, Kind.SINK_BATCH)
    except UnknownOption as error:
        nearest = error.guess if error.guess in names else FLAGS.get(error.guess or "")
        hint = f"did you mean {nearest}?" if nearest is not None else f"expected one of {', '.join(names)}"
        raise InvalidOption(error.option, f"unknown --config {error.option}; {hint}") from None
    others = [(name, f"use {FLAGS[name]} instead" if name in FLAGS else None) for name in given.texts]
    others += [(each.name, each.why) for each in given.ignored]
    for name, why in others:
        if name not in names:
            raise InvalidOption(
                name,
                f"produce does not support --config {name}: {why or 'remove it'}; expected one of {', '.join(names)}",
            )
    return RetryPolicy(*(given.get(option) for option in TAKEN))
