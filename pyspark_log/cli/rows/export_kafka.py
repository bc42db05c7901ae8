"""`pyspark-log export kafka`: copy a topic to Kafka, and its groups' committed offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from pyspark_log.cli import arguments, output
from pyspark_log.cli.output import counted, row_bar
from pyspark_log.cli.rows import kafka_arguments, row_positions
from pyspark_log.opening import open_log
from pyspark_log_coordinator.model import settings as settings_of_clients
from pyspark_log_storage.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_log.kafka.client import Kafka, KafkaTopic
    from pyspark_log.kafka.export_plan import PartitionExport
    from pyspark_log.kafka.groups import CarriedOffset, OwnOffset
    from pyspark_log_coordinator.log.log import TopicHandle

ROOM_BYTES = 16 * 1024
"""How much larger a row may be in Kafka: with the header of its offset, and those of its batch."""


@arguments.examples(
    "pyspark-log export kafka --bootstrap-server broker:9092 --topic flights",
    "pyspark-log export kafka --bootstrap-server broker:9092 --topic flights \\\n  --to-topic flights-copy --execute",
)
def export_kafka(  # noqa: PLR0913 -- the options of a command
    *,
    bootstrap_server: kafka_arguments.BootstrapServer,
    topic: kafka_arguments.Topic,
    path: arguments.Path,
    to_topic: kafka_arguments.ToTopic = None,
    start: kafka_arguments.Start = "earliest",
    group: kafka_arguments.Group = None,
    all_groups: kafka_arguments.AllGroups = False,
    command_config: kafka_arguments.CommandConfig = None,
    timeout_ms: kafka_arguments.TimeoutMs = 60_000,
    execute: kafka_arguments.Execute = False,
    json: arguments.Json = False,
) -> None:
    """Copy the rows of a topic to a Kafka topic, each once.

    Keys, headers, timestamps and partitions are kept. Kafka assigns offsets itself, so each row has the header
    pyspark-log.offset. Run the command again to export what has been written since, or to continue after a failure.
    """
    kafka_arguments.check(start, group, all_groups=all_groups)

    from pyspark_log.kafka import groups

    log = open_log(path)
    handle = log.topic(topic)
    committed = groups.committed_here(log, handle, None if all_groups else group or [])
    handle.refresh()  # groups come before the ends of partitions
    kafka = kafka_arguments.connection(bootstrap_server, command_config, timeout_ms)
    name = to_topic or topic
    partitions = range(len(handle.partitions))
    starts = list(row_positions.offsets_at(row_positions.FROM, start, handle, partitions).values())
    found = kafka.topic(name)
    if not execute:
        _show_plan(topic, name, found, _plan(kafka, found, handle, starts), committed, json=json)
        return
    if found is None:
        found = _created(kafka, name, handle)

    from pyspark_log.kafka.row_export import RowExport

    compression = handle.config.compression_type
    whole = RowExport(log, handle, kafka, found, compression)  # from here on no earlier export writes any more
    plans = _plan(kafka, found, handle, starts)
    with row_bar(f"export {topic}", sum(each.rows for each in plans)) as advance:
        whole.run(plans, advance)
    carried = groups.carry_to_kafka(kafka, found, committed)
    _show_exported(topic, name, plans, carried, json=json)


def _created(kafka: Kafka, name: str, handle: TopicHandle) -> KafkaTopic:
    """Create a topic in Kafka with the retention that it has here. Raises `LogError`."""
    state = handle.state
    settings = {
        "retention.ms": state.config.retention_ms,
        "retention.bytes": state.config.retention_bytes,
        "max.message.bytes": min(state.config.max_message_bytes + ROOM_BYTES, settings_of_clients.INT_MAX),
    }
    return kafka.create_topic(name, len(state.partitions), {key: str(value) for key, value in settings.items()})


def _plan(kafka: Kafka, topic: KafkaTopic | None, handle: TopicHandle, starts: Sequence[int]) -> list[PartitionExport]:
    """Return what is to be exported, after a look at what is in Kafka. Raises `InvalidInput`, `LogError`."""
    from pyspark_log.kafka import export_plan
    from pyspark_log.kafka.client import PartitionOffsets

    state = handle.state
    count = len(state.partitions)
    ranges = [PartitionOffsets(0, 0)] * count
    last: list[int | None] = [None] * count
    if topic is not None:
        if topic.partitions < count:
            raise InvalidInput(
                f"topic {handle.name!r} has {count} partitions, and topic {topic.name!r} in Kafka has "
                f"{topic.partitions}; add some with: kafka-topics --alter --topic {topic.name} --partitions {count}"
            )
        with kafka.reading() as consumer:
            ranges = kafka.offsets(consumer, topic.name, count)
            rows = export_plan.ExportedRows(kafka, consumer, topic, ranges)
            last = [rows.last(number) for number in range(count)]
    return export_plan.plan(state, starts, ranges, last)


def _show_plan(
    topic: str,
    name: str,
    found: KafkaTopic | None,
    plans: Sequence[PartitionExport],
    committed: Sequence[OwnOffset],
    *,
    json: bool,
) -> None:
    import msgspec

    if json:
        partitions = [{**msgspec.structs.asdict(each), "rows": each.rows} for each in plans]
        groups = [{"group": each.group, "partition": each.partition, "offset": each.offset} for each in committed]
        shown = {"topic": topic, "to_topic": name, "exported": False, "partitions": partitions, "groups": groups}
        output.print_json(shown)
        return
    rows = [(each.partition, each.next, each.end, each.rows) for each in plans]
    output.print_table(("partition", "from", "to", "rows"), rows)
    if committed:
        typer.echo()
        columns = ("group", "partition", "committed here")
        output.print_table(columns, [(each.group, str(each.partition), each.offset) for each in committed])
    if found is None:
        typer.echo(f"topic {name} would be created in Kafka with {counted(len(plans), 'partition')}")
    typer.echo("nothing was changed; add --execute to export")


def _show_exported(
    topic: str, name: str, plans: Sequence[PartitionExport], carried: Sequence[CarriedOffset], *, json: bool
) -> None:
    import msgspec

    if json:
        partitions = [{"partition": each.partition, "rows": each.rows, "next": each.end} for each in plans]
        groups = [msgspec.structs.asdict(each) for each in carried]
        shown = {"topic": topic, "to_topic": name, "exported": True, "partitions": partitions, "groups": groups}
        output.print_json(shown)
        return
    typer.echo(f"exported {counted(sum(each.rows for each in plans), 'row')} to topic {name} in Kafka")
    output.print_table(("partition", "rows", "next offset"), [(each.partition, each.rows, each.end) for each in plans])
    if carried:
        typer.echo()
        columns = ("group", "partition", "committed here", "committed in Kafka")
        output.print_table(columns, [(each.group, str(each.partition), each.offset, each.kafka) for each in carried])
