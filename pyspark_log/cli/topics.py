"""`pyspark-log topics`: create, list, describe, alter, delete."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyspark_log.cli import arguments

if TYPE_CHECKING:
    from pyspark_log_coordinator.cluster import TopicRecord
    from pyspark_log_coordinator.log import Log, TopicHandle
    from pyspark_log_coordinator.partition import Partition

app = typer.Typer(help="Create, list, describe, alter and delete topics.", no_args_is_help=True)


@app.command(
    epilog="\b\nExamples:\n  pyspark-log topics create flights --partitions 8 --replication-factor 3\n"
    "  pyspark-log topics create flights --replica-assignment 0:1,1:2\n"
    "  pyspark-log topics create flights --if-not-exists \\\n    --config compression.type=zstd"
)
def create(  # noqa: PLR0913, PLR0917 -- the options of a command
    name: arguments.Topic,
    path: arguments.Path,
    partitions: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many partitions it has; 1 if nothing is said.")
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="On how many nodes each partition is; 3, or all if there are fewer."),
    ] = None,
    replica_assignment: Annotated[
        str | None,
        typer.Option(metavar="NODES", help="The nodes by hand, such as 0:1,1:2: of partition 0, of partition 1."),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A setting of the topic, under Kafka's name; may be given often."),
    ] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="A topic that is there is no error.")] = False,
    json: arguments.Json = False,
) -> None:
    """Create a topic.

    Where the address has no cluster yet, it begins one.
    """
    settings = _settings(config or [])
    replicas = None
    if replica_assignment is not None:
        if partitions is not None or replication_factor is not None:
            arguments.refuse("--replica-assignment", "it says by itself how many partitions and replicas there are")
        replicas = arguments.assignment(replica_assignment)

    from pyspark_log.opening import open_log
    from pyspark_log_coordinator import topic_config
    from pyspark_log_storage.errors import TopicExists
    from pyspark_log_storage.names import check_topic

    check_topic(name)
    wanted = topic_config.parse(settings)
    log = open_log(path, create=True)
    try:
        count = len(replicas) if replicas is not None else partitions or 1
        handle = log.create_topic(name, count, wanted, replication_factor=replication_factor, replicas=replicas)
        created = True
    except TopicExists:
        if not if_not_exists:
            raise
        handle, created = log.topic(name), False
    there = handle.journal.state.partitions
    factor = max(len(each.replicas) for each in there)
    if json:
        from pyspark_log.cli.output import print_json

        facts = {"partitions": len(there), "replication_factor": factor, "created": created}
        print_json({"topic": name, "id": handle.topic_id} | facts)
        return
    size = _counted(len(there), "partition") + (f" of {factor} replicas" if factor > 1 else "")
    if created:
        typer.echo(f"created topic {name} with {size}")
    else:
        typer.echo(f"topic {name} exists already, with {size}; nothing was changed")


@app.command("list", epilog="\b\nExample:\n  pyspark-log topics list --path /data/log")
def list_(path: arguments.Path, json: arguments.Json = False) -> None:
    """List the topics."""
    from pyspark_log.cli import output
    from pyspark_log.opening import open_log

    log = open_log(path)
    records = sorted(log.topics().items())
    counts = {name: _partition_count(log, record) for name, record in records}
    if json:
        output.print_json(
            *(
                {
                    "topic": name,
                    "id": record.topic_id,
                    "partitions": counts[name],
                    "created_ms": record.created_ms,
                }
                for name, record in records
            )
        )
    elif not records:
        typer.echo("there are no topics yet; make one with: pyspark-log topics create NAME")
    else:
        rows = [(name, counts[name], _time(record.created_ms), record.topic_id) for name, record in records]
        output.print_table(("topic", "partitions", "created (UTC)", "id"), rows)


def _partition_count(log: Log, record: TopicRecord) -> int:
    """Return how many partitions a topic has now; of one whose deletion was cut short, how many it began with."""
    from pyspark_log_storage.errors import UnknownTopic

    try:
        return len(log.topic(record.name).journal.state.partitions)
    except UnknownTopic:
        return len(record.assignments)


@app.command(epilog="\b\nExample:\n  pyspark-log topics describe flights")
def describe(name: arguments.Topic, path: arguments.Path, json: arguments.Json = False) -> None:
    """Show a topic's settings and partitions.

    LEO is the offset of the next row that is written, HW that of the next row
    that readers will see.
    """
    from pyspark_log.cli import output
    from pyspark_log.opening import open_log
    from pyspark_log_coordinator import topic_config

    handle = open_log(path).topic(name)
    config = topic_config.show(handle.journal.state.config)
    partitions = [_partition(number, each) for number, each in enumerate(handle.journal.state.partitions)]
    if json:
        entry = handle.journal.number
        output.print_json(
            {"topic": name, "id": handle.topic_id, "journal_entry": entry, "config": config, "partitions": partitions}
        )
        return
    _print_description(handle, config, partitions)


@app.command(epilog="\b\nExample:\n  pyspark-log topics alter flights --config retention.ms=86400000")
def alter(
    name: arguments.Topic,
    path: arguments.Path,
    config: Annotated[
        list[str], typer.Option(metavar="KEY=VALUE", help="A setting, under Kafka's name; may be given often.")
    ],
    json: arguments.Json = False,
) -> None:
    """Change settings of a topic, from the next row or maintenance on.

    All of them are changed, or none.
    """
    settings = _settings(config)

    from pyspark_log.opening import open_log
    from pyspark_log_coordinator import topic_config
    from pyspark_log_coordinator.topic import AlterConfig

    handle = open_log(path).topic(name)
    before = topic_config.show(handle.journal.state.config)
    after = topic_config.show(handle.submit(AlterConfig(settings)).state.config)
    changed = {key: value for key, value in after.items() if value != before[key]}
    if json:
        from pyspark_log.cli.output import print_json

        print_json({"topic": name, "changed": changed})
    elif changed:
        for key, value in changed.items():
            typer.echo(f"topic {name}: {key} is {value} now, and was {before[key]}")
    else:
        typer.echo(f"topic {name} has these settings already; nothing was changed")


@app.command(epilog="\b\nExample:\n  pyspark-log topics delete flights --yes")
def delete(
    name: arguments.Topic,
    path: arguments.Path,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: arguments.Json = False,
) -> None:
    """Delete a topic with all its rows.

    A topic made later under the name shares nothing with it.
    """
    from pyspark_log.opening import open_log
    from pyspark_log_storage.errors import UnknownTopic

    log = open_log(path)
    rows, partitions = 0, 0
    try:
        state = log.topic(name).journal.state
    except UnknownTopic:
        if name not in log.topics():
            raise
        # A deletion that was cut short ended the topic's journal and left its name, which goes now.
    else:
        partitions, rows = len(state.partitions), sum(each.log_end - each.log_start for each in state.partitions)
    what = f"{_counted(rows, 'row')} in {_counted(partitions, 'partition')}"
    if not yes and not arguments.agreed(f"delete topic {name} with {what}, for good?"):
        typer.echo("pyspark-log: nothing was deleted", err=True)
        raise typer.Exit(1)
    log.delete_topic(name)
    if json:
        from pyspark_log.cli.output import print_json

        print_json({"topic": name, "deleted": True, "partitions": partitions, "rows": rows})
    else:
        typer.echo(f"deleted topic {name} with {what}")


def _settings(pairs: list[str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key.strip() and equals):
            arguments.refuse("--config", f"{pair!r} is not KEY=VALUE, such as compression.type=zstd")
        settings[key.strip()] = value.strip()
    return settings


def _partition(number: int, partition: Partition) -> dict[str, Any]:
    return {
        "partition": number,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replicas": partition.replicas,
        "isr": partition.isr,
        "adding": partition.adding,
        "removing": partition.removing,
        "log_start": partition.log_start,
        "log_end": partition.log_end,
        "high_watermark": partition.high_watermark,
        "rows": partition.high_watermark - partition.log_start,
        "log_end_offsets": partition.log_end_offsets,
    }


def _print_description(handle: TopicHandle, config: dict[str, Any], partitions: list[dict[str, Any]]) -> None:
    from pyspark_log.cli import output

    typer.echo(f"topic          {handle.name}")
    typer.echo(f"id             {handle.topic_id}")
    typer.echo(f"journal entry  {handle.journal.number:,}")
    typer.echo(f"config         {', '.join(f'{key}={value}' for key, value in config.items())}\n")
    rows: list[tuple[Any, ...]] = [
        (
            each["partition"],
            each["leader"] if each["leader"] is not None else "none",
            each["leader_epoch"],
            ", ".join(each["replicas"]),
            ", ".join(each["isr"]),
            each["log_start"],
            each["log_end"],
            each["high_watermark"],
            each["rows"],
        )
        for each in partitions
    ]
    columns: tuple[str, ...] = ("partition", "leader", "epoch", "replicas", "ISR", "log start", "LEO", "HW", "rows")
    totals: tuple[Any, ...] = ("total", *[""] * 7, sum(each["rows"] for each in partitions))
    if any(len(each["replicas"]) > 1 for each in partitions):
        columns = (*columns, "LEO of each")
        totals = (*totals, "")
        rows = [(*row, _offsets(each["log_end_offsets"])) for row, each in zip(rows, partitions, strict=True)]
    output.print_table(columns, rows, totals if len(rows) > 1 else None)


def _offsets(by_node: dict[str, int]) -> str:
    return ", ".join(f"{node}={offset:,}" for node, offset in by_node.items())


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
