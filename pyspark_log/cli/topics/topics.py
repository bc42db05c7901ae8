"""`pyspark-log topics`: create, list, describe, alter, delete, add partitions; `offsets` and `delete-records`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pyspark_log.cli import arguments
from pyspark_log.cli.command import Result, command
from pyspark_log.documents import topics as documents
from pyspark_log.documents.text import counted
from pyspark_log.opening import open_log
from pyspark_log_coordinator.log.partition_health import Trouble
from pyspark_log_coordinator.maintenance import descriptions
from pyspark_log_coordinator.model import settings
from pyspark_log_coordinator.model.topic_config import TopicConfig, parse
from pyspark_log_storage.errors import InvalidRecord, TopicExists, UnknownTopic
from pyspark_log_storage.names import check_topic

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_log.cli.output import Document, Documents
    from pyspark_log_coordinator.log.log import Log, TopicHandle

NO_TOPICS = "no topics yet; create one with: pyspark-log topics create NAME"
_CONFIG_EXAMPLE = "compression.type=zstd"
EARLIEST_TIME = -2
LATEST_TIME = -1
TIME_MS_MAX = 2**63 // 1000 - 1
"""The latest timestamp of a row, which is stored in microseconds."""


@command(
    "pyspark-log topics create flights --partitions 8 --replication-factor 3",
    "pyspark-log topics create flights --replica-assignment 0:1,1:2",
    "pyspark-log topics create flights --schema 'id BIGINT NOT NULL, carrier STRING'",
    f"pyspark-log topics create flights --if-not-exists \\\n  --config {_CONFIG_EXAMPLE}",
)
def create(  # noqa: PLR0913, PLR0917 -- the options of a command
    name: arguments.Topic,
    path: arguments.Path,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help=f"Number of partitions (default: {settings.NUM_PARTITIONS.default})."),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help=f"Number of replicas of each partition (default: {settings.DEFAULT_REPLICATION_FACTOR.default}, or "
            "the number of nodes if that is smaller).",
        ),
    ] = None,
    replica_assignment: arguments.ReplicaAssignment = None,
    config: arguments.Configs = None,
    schema: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMNS",
            help="Columns of a typed topic: Spark's DDL, such as 'id BIGINT NOT NULL, name STRING', or the text of "
            "df.schema.json() (default: the topic holds records, key and value).",
        ),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Do nothing if the topic already exists.")
    ] = False,
) -> Document:
    """Create a topic.

    If there is no cluster at the address, create it too.
    """
    given = arguments.settings(config, _CONFIG_EXAMPLE)
    replicas = arguments.replica_assignment(replica_assignment)
    if replicas is not None and (partitions is not None or replication_factor is not None):
        arguments.refuse("--replica-assignment", "cannot be combined with --partitions or --replication-factor")

    check_topic(name)
    wanted = parse(given)
    columns = _columns(schema)
    log = open_log(path, create=True)
    try:
        number = len(replicas) if replicas is not None else partitions or settings.NUM_PARTITIONS.default
        handle = log.create_topic(
            name, number, wanted, replication_factor=replication_factor, replicas=replicas, columns=columns
        )
        created = True
    except TopicExists:
        if not if_not_exists:
            raise
        handle, created = log.topic(name), False
    found = handle.partitions
    factor = max(len(each.replicas) for each in found)
    facts = {"partitions": len(found), "replication_factor": factor, "created": created}
    return {"topic": name, "id": handle.topic_id} | facts


def _columns(schema: str | None) -> pa.Schema | None:
    """Return the columns of a new topic. End the program if the text names none, or some that cannot be stored."""
    if schema is None:
        return None
    from pyspark_log_storage.columns import column_ddl

    try:
        return column_ddl.parse(schema)
    except InvalidRecord as error:
        arguments.refuse("--schema", str(error))


@command("pyspark-log topics list --path /data/log", empty=NO_TOPICS)
def list_(log: Log) -> Documents:
    """List the topics."""
    return documents.topics(log)


@command(
    "pyspark-log topics describe",
    "pyspark-log topics describe flights --all-configs",
    "pyspark-log topics describe --under-replicated-partitions",
)
def describe(  # noqa: PLR0913, PLR0917 -- the options of a command
    log: Log,
    topics: arguments.Topics = None,
    all_configs: Annotated[bool, typer.Option("--all-configs", help="Also show settings with default values.")] = False,
    under_replicated: Annotated[
        bool,
        typer.Option("--under-replicated-partitions", help="Show only partitions with out-of-sync replicas."),
    ] = False,
    unavailable: Annotated[
        bool, typer.Option("--unavailable-partitions", help="Show only partitions without a leader.")
    ] = False,
    under_min_isr: Annotated[
        bool,
        typer.Option(
            "--under-min-isr-partitions", help="Show only partitions with fewer than min.insync.replicas in sync."
        ),
    ] = False,
    at_min_isr: Annotated[
        bool,
        typer.Option("--at-min-isr-partitions", help="Show only partitions with exactly min.insync.replicas in sync."),
    ] = False,
) -> Result:
    """Show the settings and partitions of topics.

    The log end is the offset of the next row to be written; the high watermark is that of the next row that readers
    will see. Other engines find the rows before the table end in the topic's Delta table, if it has one.
    """
    wanted = {
        Trouble.UNDER_REPLICATED: under_replicated,
        Trouble.UNAVAILABLE: unavailable,
        Trouble.UNDER_MIN_ISR: under_min_isr,
        Trouble.AT_MIN_ISR: at_min_isr,
    }
    kinds = [kind for kind, is_wanted in wanted.items() if is_wanted]
    if len(kinds) > 1:
        arguments.refuse("--under-replicated-partitions, ..., --at-min-isr-partitions", "give only one of these")

    found = [(each, documents.topic(each)) for each in documents.handles_of(log, topics)]
    if kinds:
        described = []
        for handle, document in found:
            partitions = [document["partitions"][number] for number in documents.in_trouble(handle, kinds[0])]
            described += [document | {"partitions": partitions}] if partitions else []
        rows = [{"topic": each["topic"]} | one for each in described for one in each["partitions"]]
        return Result(described, text=rows, empty=f"no partition is {kinds[0].value}")
    shown = []
    for handle, document in found:
        config = [each for each in documents.settings(handle.config) if all_configs or each["value"] != each["default"]]
        shown.append(document | {"config": {each["name"]: each["value"] for each in config} or "all default"})
    return Result([document for _, document in found], text=shown, empty=NO_TOPICS, records=True)


@command(
    "pyspark-log topics alter flights --config retention.ms=86400000",
    "pyspark-log topics alter flights --delete-config retention.ms",
)
def alter(
    log: Log,
    name: arguments.Topic,
    config: arguments.Configs = None,
    delete_config: arguments.DeleteConfigs = None,
) -> Document:
    """Change the settings of a topic.

    Changes apply to the next write or maintenance. Either all of them are made or none.
    """
    changes = arguments.changes(config, delete_config, _CONFIG_EXAMPLE)

    changes |= TopicConfig.defaults(delete_config or ())
    handle = log.topic(name)
    before = handle.config
    after = handle.alter_config(changes)
    old, new = before.show(), after.show()
    return {"topic": name, "changed": {key: new[key] for key in new if new[key] != old[key]}}


@command("pyspark-log topics delete flights --yes")
def delete(
    log: Log,
    name: arguments.Topic,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do nothing if the topic does not exist.")] = False,
    yes: arguments.Yes = False,
) -> Document:
    """Delete a topic and all its rows.

    A topic created later with the same name shares nothing with it.
    """
    rows, partitions = 0, 0
    try:
        state = log.topic(name).state
    except UnknownTopic:
        if name not in log.topics():
            if not if_exists:
                raise
            return {"topic": name, "deleted": False, "partitions": 0, "rows": 0}
        # An interrupted deletion has ended the topic's journal but not removed its name.
    else:
        partitions = len(state.partitions)
        rows = sum(each.rows_between(each.log_start, each.log_end) for each in state.partitions)
    size = f"{counted(rows, 'row')} in {counted(partitions, 'partition')}"
    topic_id = log.known_topics[name].topic_id
    arguments.confirm(
        f"delete topic {name} with {size}? This cannot be undone.", otherwise="nothing was deleted", yes=yes
    )
    now = log.topics().get(name)
    if now is not None and now.topic_id != topic_id:  # the question may have waited for hours
        raise UnknownTopic(name, f"topic {name!r} was deleted and created again meanwhile; nothing was deleted")
    log.delete_topic(name)
    return {"topic": name, "deleted": True, "partitions": partitions, "rows": rows}


@command(
    "pyspark-log topics add-partitions flights --partitions 8",
    "pyspark-log topics add-partitions flights --partitions 4 --replica-assignment 0:1,1:2",
)
def add_partitions(
    log: Log,
    name: arguments.Topic,
    partitions: Annotated[int, typer.Option(min=1, metavar="N", help="Total number of partitions after the change.")],
    replica_assignment: Annotated[
        str | None,
        typer.Option(metavar="NODES", help="Nodes of the new partitions only, such as 0:1,1:2 for two partitions."),
    ] = None,
) -> Document:
    """Add partitions to a topic.

    Partitions cannot be removed. As in Kafka, most keys map to other partitions afterwards: new rows of a key are not
    in the same partition as its old rows, and not in order with them.
    """
    wanted = arguments.replica_assignment(replica_assignment)

    from pyspark_log_coordinator.sync import reassigner

    handle = log.topic(name)
    first, added = reassigner.add_partitions(handle, partitions, wanted)
    descriptions.write_on_nodes(handle)  # if all journals are lost, nothing else tells how many there are
    new = [{"partition": number, "replicas": nodes} for number, nodes in enumerate(added, first)]
    return {"topic": name, "partitions": partitions, "added": new}


@command(
    "pyspark-log delete-records flights --partition 0 --before 1000",
    "pyspark-log delete-records flights --partition 0 --before -1 --yes",
)
def delete_records(
    log: Log,
    topic: arguments.Topic,
    partition: Annotated[int, typer.Option(min=0, metavar="N", help="Partition to delete rows from.")],
    before: Annotated[
        int, typer.Option(min=-1, metavar="OFFSET", help="Delete the rows before this offset; -1 deletes all rows.")
    ],
    yes: arguments.Yes = False,
) -> Document:
    """Delete the oldest rows of a partition.

    A query that still needs these rows fails, or skips them if failOnDataLoss is false.
    """
    handle = log.topic(topic)
    found = handle.partition(partition)
    which = "all rows" if before < 0 else f"the rows before offset {before}"
    question = f"delete {which} of topic {topic}, partition {partition}? This cannot be undone."
    arguments.confirm(question, otherwise="nothing was deleted", yes=yes)
    start = handle.delete_records(partition, before)
    rows = found.rows_between(found.log_start, start)
    return {"topic": topic, "partition": partition, "log_start": start, "rows": rows}


@command(
    "pyspark-log offsets flights",
    "pyspark-log offsets flights --time 1700000000000 --json",
)
def offsets(
    log: Log,
    topic: arguments.Topic,
    time: Annotated[
        int | None,
        typer.Option(
            min=EARLIEST_TIME,
            max=TIME_MS_MAX,
            metavar="MS",
            help="Show the offset of the first row of each partition at or after this time, in milliseconds since "
            "1970; -1 means latest, -2 earliest.",
        ),
    ] = None,
) -> Documents:
    """Show the earliest and latest offsets of a topic.

    The latest offset is that of the next row that readers will see.
    """
    handle = log.topic(topic)
    if time is not None:
        return [
            {"topic": topic, "partition": number, "offset": _offset_at(handle, number, time)}
            for number in range(len(handle.partitions))
        ]
    return [
        {
            "topic": topic,
            "partition": number,
            "earliest": each.log_start,
            "latest": each.high_watermark,
            "rows": each.rows_between(each.log_start, each.high_watermark),
        }
        for number, each in enumerate(handle.partitions)
    ]


def _offset_at(handle: TopicHandle, number: int, time: int) -> int | None:
    """Return the offset of the first row at or after a time in ms, or at one of the two special times."""
    partition = handle.partitions[number]
    if time == EARLIEST_TIME:
        return partition.log_start
    if time == LATEST_TIME:
        return partition.high_watermark
    from pyspark_log.reading.positions import offset_for_time

    return offset_for_time(handle, number, time)
