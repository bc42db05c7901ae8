"""`pyspark-log import kafka`: copy a topic from Kafka, with its offsets, and its groups' committed offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pyspark_log.cli import arguments, output
from pyspark_log.cli.output import counted, row_bar
from pyspark_log.cli.rows import kafka_arguments, row_positions
from pyspark_log.opening import open_log
from pyspark_log_storage.errors import InvalidInput, UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_log.kafka.client import Kafka, KafkaTopic, PartitionOffsets
    from pyspark_log.kafka.groups import CarriedOffset, KafkaOffset
    from pyspark_log.kafka.import_plan import PartitionImport
    from pyspark_log.kafka.row_import import Imported
    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.topic_config import TopicConfig

KEEP, MAP = "keep", "map"
_COPIED = ("retention.ms", "retention.bytes", "max.message.bytes")
"""The settings of a topic in Kafka that a new topic here gets too."""


@arguments.examples(
    "pyspark-log import kafka --bootstrap-server broker:9092 --topic flights",
    "pyspark-log import kafka --bootstrap-server broker:9092 --topic flights \\\n  --all-groups --execute",
    "pyspark-log import kafka --bootstrap-server broker:9093 --topic flights \\\n"
    "  --command-config client.properties --from @2026-01-31T00:00:00Z --execute",
)
def import_kafka(  # noqa: PLR0913 -- the options of a command
    *,
    bootstrap_server: kafka_arguments.BootstrapServer,
    topic: kafka_arguments.Topic,
    path: arguments.Path,
    to_topic: kafka_arguments.ToTopic = None,
    start: kafka_arguments.Start = "earliest",
    offsets: Annotated[
        str,
        typer.Option(
            metavar="keep|map",
            help="keep: each row keeps its offset, and a gap in Kafka's offsets ends the import. map: rows after a gap "
            "get the next offsets, and have Kafka's offset in their header kafka.offset.",
        ),
    ] = KEEP,
    group: kafka_arguments.Group = None,
    all_groups: kafka_arguments.AllGroups = False,
    config: arguments.Configs = None,
    command_config: kafka_arguments.CommandConfig = None,
    timeout_ms: kafka_arguments.TimeoutMs = 60_000,
    execute: kafka_arguments.Execute = False,
    json: arguments.Json = False,
) -> None:
    """Copy the rows of a Kafka topic to a topic here, each once.

    Keys, headers, timestamps, partitions and offsets are kept. A new topic gets Kafka's number of partitions and
    retention. Run the command again to import what has been written since, or to continue after a failure.
    """
    kafka_arguments.check(start, group, all_groups=all_groups)
    if offsets not in {KEEP, MAP}:
        arguments.refuse("--offsets", f"{offsets!r} is not {KEEP} or {MAP}")

    from pyspark_log.kafka import groups
    from pyspark_log_storage.names import check_topic

    settings = arguments.settings(config, "retention.ms=-1")
    name = to_topic or topic
    check_topic(name)
    kafka = kafka_arguments.connection(bootstrap_server, command_config, timeout_ms)
    found = kafka.topic(topic)
    if found is None:
        raise InvalidInput(f"Kafka at {bootstrap_server} has no topic {topic!r}; check the name")
    # Groups come before the ends of partitions, so that nobody has committed more than is imported.
    committed = groups.committed(kafka, found, None if all_groups else group or [])
    ranges, starts = _ranges(kafka, found, start)
    keeps = offsets == KEEP
    log, handle = _opened(path, name)
    plans = _plan(found, ranges, starts, name, handle, keeps=keeps)
    if not execute:
        _show_plan(found, name, handle, plans, committed, json=json)
        return
    if handle is None:
        handle = log.create_topic(name, found.partitions, _config(found, settings))
    elif settings:
        raise InvalidInput(f"topic {name!r} exists; change its settings with: pyspark-log topics alter {name} --config")
    _begin(handle, plans)
    imported = _import(log, handle, kafka, found, plans, keeps=keeps)
    carried = groups.carry(log, handle, committed)
    _show_imported(found, name, imported, carried, json=json)


def _ranges(kafka: Kafka, topic: KafkaTopic, start: str) -> tuple[list[PartitionOffsets], list[int]]:
    """Return where each partition begins and ends in Kafka, and where it is to be read from."""
    with kafka.reading() as consumer:
        ranges = kafka.offsets(consumer, topic.name, topic.partitions)
        ends = [each.end for each in ranges]
        ms = row_positions.ms_of(start)
        if ms is not None:
            return ranges, kafka.offsets_at(consumer, topic.name, ms, ends)
        return ranges, ends if start == "latest" else [each.begin for each in ranges]


def _opened(path: str, name: str) -> tuple[Log, TopicHandle | None]:
    """Return the log and the topic, which is None if it does not exist. Raises `NoCluster`.

    A repeated import must not begin a new log where a disk is not mounted, and the first one looks the same.
    """
    log = open_log(path)
    try:
        return log, log.topic(name)
    except UnknownTopic:
        return log, None


def _plan(
    topic: KafkaTopic,
    ranges: Sequence[PartitionOffsets],
    starts: Sequence[int],
    name: str,
    handle: TopicHandle | None,
    *,
    keeps: bool,
) -> list[PartitionImport]:
    from pyspark_log.kafka import import_plan

    state = None if handle is None else handle.state
    return import_plan.plan(topic, ranges, starts, name, state, keeps_offsets=keeps)


def _config(topic: KafkaTopic, settings: Mapping[str, str]) -> TopicConfig:
    from pyspark_log_coordinator.model import topic_config

    copied = {name: topic.config[name] for name in _COPIED if name in topic.config}
    if topic.config.get("cleanup.policy") == "compact":
        copied |= {"retention.ms": "-1", "retention.bytes": "-1"}  # Kafka keeps the last row of each key forever
    return topic_config.parse(copied | dict(settings))


def _begin(handle: TopicHandle, plans: Sequence[PartitionImport]) -> None:
    """Let the partitions that have never had a row begin at their offsets in Kafka."""
    partitions = handle.partitions
    new = {each.partition: each.offset for each in plans if partitions[each.partition].log_end == 0}
    handle.set_first_offsets(new)


def _import(
    log: Log, handle: TopicHandle, kafka: Kafka, topic: KafkaTopic, plans: Sequence[PartitionImport], *, keeps: bool
) -> list[Imported]:
    from pyspark_log.cli.rows.batches import parse_produce
    from pyspark_log.kafka.row_import import RowImport

    whole = RowImport(log, handle, kafka, topic, parse_produce({}), keeps_offsets=keeps)
    with row_bar(f"import {topic.name}", sum(each.rows_max for each in plans)) as advance:
        return whole.run(plans, advance)


def _show_plan(
    topic: KafkaTopic,
    name: str,
    handle: TopicHandle | None,
    plans: Sequence[PartitionImport],
    committed: Sequence[KafkaOffset],
    *,
    json: bool,
) -> None:
    import msgspec

    if json:
        partitions = [{**msgspec.structs.asdict(each), "rows_max": each.rows_max} for each in plans]
        groups = [{"group": each.group, "partition": each.partition, "kafka": each.offset} for each in committed]
        shown = {"topic": topic.name, "to_topic": name, "imported": False, "partitions": partitions, "groups": groups}
        output.print_json(shown)
        return
    rows = [(each.partition, each.next, each.end, each.rows_max, each.offset) for each in plans]
    output.print_table(("partition", "from", "to", "rows at most", "first offset here"), rows)
    if committed:
        typer.echo()
        columns = ("group", "partition", "committed in Kafka")
        output.print_table(columns, [(each.group, str(each.partition), each.offset) for each in committed])
    if handle is None:
        typer.echo(f"topic {name} would be created with {counted(topic.partitions, 'partition')}")
    if "compact" in topic.config.get("cleanup.policy", ""):
        typer.echo("Kafka compacts the topic; here all rows are kept until they expire")
    typer.echo("nothing was changed; add --execute to import")


def _show_imported(
    topic: KafkaTopic, name: str, imported: Sequence[Imported], carried: Sequence[CarriedOffset], *, json: bool
) -> None:
    import msgspec

    if json:
        partitions = [msgspec.structs.asdict(each) for each in imported]
        groups = [msgspec.structs.asdict(each) for each in carried]
        shown = {"topic": topic.name, "to_topic": name, "imported": True, "partitions": partitions, "groups": groups}
        output.print_json(shown)
        return
    typer.echo(f"imported {counted(sum(each.rows for each in imported), 'row')} to topic {name}")
    rows = [(each.partition, each.rows, each.offset, each.next) for each in imported]
    output.print_table(("partition", "rows", "first offset here", "next in Kafka"), rows)
    if carried:
        typer.echo()
        columns = ("group", "partition", "committed in Kafka", "committed here")
        output.print_table(columns, [(each.group, str(each.partition), each.kafka, each.offset) for each in carried])
