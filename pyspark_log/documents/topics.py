"""Topics and their partitions: settings, columns, leaders, replicas, offsets, problems and writers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_log_coordinator.log.partition_health import troubles
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_storage.errors import UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pyarrow as pa

    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.log.partition_health import Trouble
    from pyspark_log_coordinator.model.partition import NodeId, Partition
    from pyspark_log_coordinator.model.topic_state import Topic


def topics(log: Log) -> list[dict[str, Any]]:
    """Return all topics in short, by name. Reads the journal of each for the number of its partitions."""
    summaries = []
    for name, record in sorted(log.topics().items()):
        try:
            partitions = len(log.topic(name).partitions)
        except UnknownTopic:  # its deletion was interrupted
            partitions = len(record.assignments)
        facts = {"partitions": partitions, "created_ms": record.created_ms}
        summaries.append({"topic": name, "id": record.topic_id, **facts})
    return summaries


def handles_of(log: Log, names: Sequence[str] | None) -> list[TopicHandle]:
    """Return the handles of these topics, or of all. Raises `UnknownTopic` for one that was named."""
    handles = []
    for name in names or sorted(log.topics()):
        try:
            handles.append(log.topic(name))
        except UnknownTopic:
            if names:
                raise
            # otherwise it was deleted after the names were listed, or its deletion was interrupted
    return handles


def topic(handle: TopicHandle) -> dict[str, Any]:
    """Return a topic as of the newest entry that its handle knows. Reads nothing."""
    broken = handle.log.broken_nodes
    return {
        "topic": handle.name,
        "id": handle.topic_id,
        "journal_entry": handle.version,
        "config": handle.config.show(),
        **columns(handle.schemas),
        "partitions": [
            partition(number, each, broken) | {"table_end": handle.table_end(number), "future": future(handle, number)}
            for number, each in enumerate(handle.partitions)
        ],
    }


def partition(number: int, state: Partition, broken: Collection[NodeId]) -> dict[str, Any]:
    """Return a partition; `broken` are the nodes that do not answer now (`Log.broken_nodes`)."""
    return {
        "partition": number,
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "replicas": state.replicas,
        "isr": state.isr,
        "offline": [each for each in state.replicas if each in broken],
        "adding": state.adding,
        "removing": state.removing,
        "log_start": state.log_start,
        "log_end": state.log_end,
        "high_watermark": state.high_watermark,
        "rows": state.rows_between(state.log_start, state.high_watermark),
        "log_end_offsets": state.log_end_offsets,
    }


def columns(schemas: Sequence[pa.Schema]) -> dict[str, Any]:
    """Return the newest columns of a typed topic, and how many schemas it has had; nothing for a topic of records."""
    from pyspark_log_storage.columns import column_types, schema  # Arrow, which most documents do without

    if not schema.is_typed(schemas[-1]):
        return {}
    return {"schema": column_types.ddl(schema.columns_of(schemas[-1])), "schemas": len(schemas)}


def future(handle: TopicHandle, number: int) -> list[dict[str, int]]:
    """Return the ranges of a partition that have rows with timestamps in the future."""
    return [{"from": each.base_offset, "to": each.end_offset - 1} for each in handle.of_the_future(number)]


def in_trouble(handle: TopicHandle, kind: Trouble) -> list[int]:
    """Return the numbers of the partitions that are in trouble of a kind."""
    state, broken = handle.state, handle.log.broken_nodes
    return [number for number, each in enumerate(state.partitions) if kind in troubles(each, state.config, broken)]


def settings(config: TopicConfig) -> list[dict[str, str]]:
    """Return the settings of a topic as a user would set them, those that are not default first."""
    values, defaults = config.words(), TopicConfig().words()
    every = [
        {
            "name": each.name,
            "value": values[each.name] or "none",
            "default": defaults[each.name] or "none",
            "meaning": each.meaning.text,
        }
        for each in config.settings()
    ]
    return sorted(every, key=lambda each: each["value"] == each["default"])


def queries(name: str, state: Topic) -> list[dict[str, Any]]:
    """Return who has written to a topic; producers that have a `born` are processes without a name of their own."""
    return [
        {
            "query": producer.query_name or query,
            "topic": name,
            "batch": producer.batch_id,
            "rows": producer.rows,
            "rows_lost": producer.rows_lost,
        }
        for query, producer in state.producers.items()
        if producer.born is None
    ]
