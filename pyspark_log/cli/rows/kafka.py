"""`pyspark-log import kafka` and `export kafka`: copy a topic from or to Kafka, with its groups' committed offsets.

Arguments that both commands have bear the names that Kafka's tools have for them.
"""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from pyspark_log.cli import arguments, output
from pyspark_log.cli.dead_members import expire_dead_members
from pyspark_log.cli.output import Column, counted, row_bar
from pyspark_log.cli.rows import row_positions
from pyspark_log.cli.rows.batches import parse_produce
from pyspark_log.kafka import export_plan, groups, import_plan, properties, row_export
from pyspark_log.kafka.client import Kafka, KafkaTopic, PartitionOffsets
from pyspark_log.kafka.row_export import RowExport
from pyspark_log.kafka.row_import import RowImport
from pyspark_log.opening import open_log
from pyspark_log.writing.destination import is_typed
from pyspark_log_coordinator.model import settings as settings_of_clients
from pyspark_log_coordinator.model import topic_config
from pyspark_log_storage.errors import InvalidInput, UnknownTopic
from pyspark_log_storage.names import check_group, check_topic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_log.kafka.export_plan import PartitionExport
    from pyspark_log.kafka.groups import CarriedOffset, KafkaOffset, OwnOffset
    from pyspark_log.kafka.import_plan import PartitionImport
    from pyspark_log.kafka.row_import import Imported
    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.topic_config import TopicConfig

KEEP, MAP = "keep", "map"
_COPIED = (
    "cleanup.policy",
    "delete.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "retention.bytes",
    "retention.ms",
)
"""The settings of a topic in Kafka that a new topic here gets too."""
TIMEOUT_MS_MAX = 900_000
"""Kafka's limit for transactions (transaction.max.timeout.ms), which time out with the command."""
ROOM_BYTES = 16 * 1024
"""How much larger a row may be in Kafka: with the header of its offset, and those of its batch."""

BootstrapServer = Annotated[
    str, typer.Option(metavar="HOST:PORT", help="Address of the Kafka cluster; several are separated by commas.")
]
CopiedTopic = Annotated[str, typer.Option(metavar="TOPIC", help="Topic to copy.")]
ToTopic = Annotated[
    str | None, typer.Option(metavar="TOPIC", help="Topic to copy to (default: the same name).", show_default=False)
]
Start = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="WHERE",
        help="Where to begin with partitions that were not copied before: earliest, latest, or @TIME for the first row "
        "at or after a time: milliseconds since 1970, or a time such as 2026-01-31T12:00:00Z.",
    ),
]
Execute = Annotated[bool, typer.Option("--execute", help="Copy; without it, only show what would be done.")]
CommandConfig = Annotated[
    pathlib.Path | None,
    typer.Option(
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="Properties file with settings of Kafka's clients, such as security.protocol and sasl.jaas.config.",
        show_default=False,
    ),
]
TimeoutMs = Annotated[
    int,
    typer.Option(
        min=1000, max=TIMEOUT_MS_MAX, metavar="MS", help="How long to wait for an answer from Kafka, in milliseconds."
    ),
]
Group = Annotated[
    list[str] | None,
    typer.Option(metavar="GROUP", help="Group whose committed offsets are carried over; can be repeated."),
]
AllGroups = Annotated[bool, typer.Option("--all-groups", help="Carry over the committed offsets of all groups.")]


@arguments.examples(
    "pyspark-log import kafka --bootstrap-server broker:9092 --topic flights",
    "pyspark-log import kafka --bootstrap-server broker:9092 --topic flights \\\n  --all-groups --execute",
    "pyspark-log import kafka --bootstrap-server broker:9093 --topic flights \\\n"
    "  --command-config client.properties --from @2026-01-31T00:00:00Z --execute",
)
def import_kafka(  # noqa: PLR0913 -- the options of a command
    *,
    bootstrap_server: BootstrapServer,
    topic: CopiedTopic,
    path: arguments.Path,
    to_topic: ToTopic = None,
    start: Start = "earliest",
    offsets: Annotated[
        str,
        typer.Option(
            metavar="keep|map",
            help="keep: each row keeps its offset, and a gap in Kafka's offsets ends the import. map: rows after a gap "
            "get the next offsets, and have Kafka's offset in their header kafka.offset.",
        ),
    ] = KEEP,
    group: Group = None,
    all_groups: AllGroups = False,
    config: arguments.Configs = None,
    command_config: CommandConfig = None,
    timeout_ms: TimeoutMs = 60_000,
    execute: Execute = False,
    json: arguments.Json = False,
) -> None:
    """Copy the rows of a Kafka topic to a topic here, each once.

    Keys, headers, timestamps, partitions and offsets are kept. A new topic gets Kafka's number of partitions and
    retention. Run the command again to import what has been written since, or to continue after a failure.
    """
    _check(start, group, all_groups=all_groups)
    if offsets not in {KEEP, MAP}:
        arguments.refuse("--offsets", f"{offsets!r} is not {KEEP} or {MAP}")

    settings = arguments.settings(config, "retention.ms=-1")
    name = to_topic or topic
    check_topic(name)
    kafka = _connection(bootstrap_server, command_config, timeout_ms)
    found = kafka.topic(topic)
    if found is None:
        raise InvalidInput(f"Kafka at {bootstrap_server} has no topic {topic!r}; check the name")
    # Groups come before the ends of partitions, so that nobody has committed more than is imported.
    committed = groups.committed(kafka, found, None if all_groups else group or [])
    ranges, starts = _ranges(kafka, found, start)
    keeps = offsets == KEEP
    for each in committed:
        check_group(each.group)  # before rows are imported
    log, handle = _opened(path, name)
    if handle is not None and is_typed(handle):
        raise InvalidInput(
            f"topic {name!r} is typed, and Kafka has records of key and value; import into another topic with "
            "--to-topic, or write its columns from Spark"
        )
    state = None if handle is None else handle.state
    plans = import_plan.plan(found, ranges, starts, name, state, keeps_offsets=keeps)
    if not execute:
        _show_import_plan(found, name, handle, plans, committed, json=json)
        return
    if handle is None:
        handle = log.create_topic(name, found.partitions, _config(found, settings))
    elif handle.config.alter(settings) != handle.config:
        raise InvalidInput(f"topic {name!r} exists; change its settings with: pyspark-log topics alter {name} --config")
    _begin(handle, plans)
    imported = _import(log, handle, kafka, found, plans, keeps=keeps)
    for carried_group in dict.fromkeys(each.group for each in committed):
        expire_dead_members(log, carried_group, queries=False)
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


def _config(topic: KafkaTopic, settings: Mapping[str, str]) -> TopicConfig:
    copied = {name: topic.config[name] for name in _COPIED if topic.config.get(name)}
    return topic_config.parse(copied | dict(settings))


def _begin(handle: TopicHandle, plans: Sequence[PartitionImport]) -> None:
    """Let the partitions that have never had a row begin at their offsets in Kafka."""
    partitions = handle.partitions
    new = {each.partition: each.offset for each in plans if partitions[each.partition].log_end == 0}
    handle.set_first_offsets(new)


def _import(
    log: Log, handle: TopicHandle, kafka: Kafka, topic: KafkaTopic, plans: Sequence[PartitionImport], *, keeps: bool
) -> list[Imported]:
    whole = RowImport(log, handle, kafka, topic, parse_produce({}), keeps_offsets=keeps)
    with row_bar(f"import {topic.name}", sum(each.rows_max for each in plans)) as advance:
        return whole.run(plans, advance)


def _show_import_plan(
    topic: KafkaTopic,
    name: str,
    handle: TopicHandle | None,
    plans: Sequence[PartitionImport],
    committed: Sequence[KafkaOffset],
    *,
    json: bool,
) -> None:
    said = []
    if handle is None:
        said.append(f"topic {name} would be created with {counted(topic.partitions, 'partition')}")
    _show(
        {
            "topic": topic.name,
            "to_topic": name,
            "imported": False,
            "partitions": [{**msgspec.structs.asdict(each), "rows_max": each.rows_max} for each in plans],
            "groups": [{"group": each.group, "partition": each.partition, "kafka": each.offset} for each in committed],
        },
        (
            "partition",
            Column("next", "from"),
            Column("end", "to"),
            Column("rows_max", "rows at most"),
            Column("offset", "first offset here"),
        ),
        (Column("kafka", "committed in Kafka"),),
        last=[*said, "nothing was changed; add --execute to import"],
        json=json,
    )


def _show_imported(
    topic: KafkaTopic, name: str, imported: Sequence[Imported], carried: Sequence[CarriedOffset], *, json: bool
) -> None:
    _show(
        {
            "topic": topic.name,
            "to_topic": name,
            "imported": True,
            "partitions": [msgspec.structs.asdict(each) for each in imported],
            "groups": [msgspec.structs.asdict(each) for each in carried],
        },
        ("partition", "rows", Column("offset", "first offset here"), Column("next", "next in Kafka")),
        (Column("kafka", "committed in Kafka"), Column("offset", "committed here")),
        first=[f"imported {counted(sum(each.rows for each in imported), 'row')} to topic {name}"],
        json=json,
    )


@arguments.examples(
    "pyspark-log export kafka --bootstrap-server broker:9092 --topic flights",
    "pyspark-log export kafka --bootstrap-server broker:9092 --topic flights \\\n  --to-topic flights-copy --execute",
)
def export_kafka(  # noqa: PLR0913 -- the options of a command
    *,
    bootstrap_server: BootstrapServer,
    topic: CopiedTopic,
    path: arguments.Path,
    to_topic: ToTopic = None,
    start: Start = "earliest",
    group: Group = None,
    all_groups: AllGroups = False,
    command_config: CommandConfig = None,
    timeout_ms: TimeoutMs = 60_000,
    execute: Execute = False,
    json: arguments.Json = False,
) -> None:
    """Copy the rows of a topic to a Kafka topic, each once.

    Keys, headers, timestamps and partitions are kept. Kafka assigns offsets itself, so each row has the header
    pyspark-log.offset. Run the command again to export what has been written since, or to continue after a failure.
    """
    _check(start, group, all_groups=all_groups)

    log = open_log(path)
    handle = log.topic(topic)
    row_export.check(handle)
    committed = groups.committed_here(log, handle, None if all_groups else group or [])
    handle.refresh()  # groups come before the ends of partitions
    kafka = _connection(bootstrap_server, command_config, timeout_ms)
    name = to_topic or topic
    partitions = range(len(handle.partitions))
    starts = list(row_positions.offsets_at(row_positions.FROM, start, handle, partitions).values())
    found = kafka.topic(name)
    if not execute:
        _show_export_plan(topic, name, found, _planned_export(kafka, found, handle, starts), committed, json=json)
        return
    if found is None:
        found = _created_in_kafka(kafka, name, handle)

    compression = handle.config.compression_type
    whole = RowExport(log, handle, kafka, found, compression)  # from here on no earlier export writes any more
    plans = _planned_export(kafka, found, handle, starts)
    with row_bar(f"export {topic}", sum(each.rows for each in plans)) as advance:
        whole.run(plans, advance)
    carried = groups.carry_to_kafka(kafka, found, committed)
    _show_exported(topic, name, plans, carried, json=json)


def _created_in_kafka(kafka: Kafka, name: str, handle: TopicHandle) -> KafkaTopic:
    """Create a topic in Kafka with the retention that it has here. Raises `LogError`."""
    state = handle.state
    settings = {
        "cleanup.policy": state.config.cleanup_policy,
        "retention.ms": state.config.retention_ms,
        "retention.bytes": state.config.retention_bytes,
        "max.message.bytes": min(state.config.max_message_bytes + ROOM_BYTES, settings_of_clients.INT_MAX),
    }
    return kafka.create_topic(name, len(state.partitions), {key: str(value) for key, value in settings.items()})


def _planned_export(
    kafka: Kafka, topic: KafkaTopic | None, handle: TopicHandle, starts: Sequence[int]
) -> list[PartitionExport]:
    """Return what is to be exported, after a look at what is in Kafka. Raises `InvalidInput`, `LogError`."""
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
            last = [rows.last(handle, number) for number in range(count)]
    return export_plan.plan(state, starts, ranges, last)


def _show_export_plan(
    topic: str,
    name: str,
    found: KafkaTopic | None,
    plans: Sequence[PartitionExport],
    committed: Sequence[OwnOffset],
    *,
    json: bool,
) -> None:
    said = []
    if found is None:
        said.append(f"topic {name} would be created in Kafka with {counted(len(plans), 'partition')}")
    _show(
        {
            "topic": topic,
            "to_topic": name,
            "exported": False,
            "partitions": [{**msgspec.structs.asdict(each), "rows": each.rows} for each in plans],
            "groups": [{"group": each.group, "partition": each.partition, "offset": each.offset} for each in committed],
        },
        ("partition", Column("next", "from"), Column("end", "to"), "rows"),
        (Column("offset", "committed here"),),
        last=[*said, "nothing was changed; add --execute to export"],
        json=json,
    )


def _show_exported(
    topic: str, name: str, plans: Sequence[PartitionExport], carried: Sequence[CarriedOffset], *, json: bool
) -> None:
    _show(
        {
            "topic": topic,
            "to_topic": name,
            "exported": True,
            "partitions": [{"partition": each.partition, "rows": each.rows, "next": each.end} for each in plans],
            "groups": [msgspec.structs.asdict(each) for each in carried],
        },
        ("partition", "rows", Column("next", "next offset")),
        (Column("offset", "committed here"), Column("kafka", "committed in Kafka")),
        first=[f"exported {counted(sum(each.rows for each in plans), 'row')} to topic {name} in Kafka"],
        json=json,
    )


def _show(
    document: dict[str, Any],
    columns: Sequence[Column | str],
    group_columns: Sequence[Column],
    *,
    first: Sequence[str] = (),
    last: Sequence[str] = (),
    json: bool,
) -> None:
    """Print a copy as JSON, or its partitions and groups as tables, between sentences."""
    if json:
        output.print_json(document)
        return
    for sentence in first:
        typer.echo(sentence)
    output.print_table(columns, document["partitions"])
    if document["groups"]:
        typer.echo()
        output.print_table(("group", Column("partition", show=str), *group_columns), document["groups"])
    for sentence in last:
        typer.echo(sentence)


def _check(start: str, group: list[str] | None, *, all_groups: bool) -> None:
    """End the program if arguments are invalid, or contradict each other."""
    if start not in row_positions.WORDS[row_positions.FROM] and not start.startswith("@"):
        arguments.refuse(row_positions.FROM, f"{start!r} is not earliest, latest or @TIME")
    row_positions.check(row_positions.FROM, start)
    if group and all_groups:
        arguments.refuse("--all-groups", "cannot be combined with --group")


def _connection(bootstrap_server: str, command_config: pathlib.Path | None, timeout_ms: int) -> Kafka:
    """Return the connection to a Kafka cluster. Raises `LogError`, `InvalidOption`."""
    settings = {} if command_config is None else properties.read(command_config)
    return Kafka(bootstrap_server, settings, timeout_ms / 1000)
