"""`pyspark-log topics`: create, list, alter, delete."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated

import typer

from pyspark_log.cli import arguments
from pyspark_log.cli.words import counted

if TYPE_CHECKING:
    from pyspark_log_coordinator.cluster.cluster_state import TopicRecord
    from pyspark_log_coordinator.log.log import Log

app = typer.Typer(
    help="Create, list, describe, alter, move and delete topics.",
    no_args_is_help=True,
)


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
    settings = arguments.settings(config or [], "compression.type=zstd")
    replicas = None
    if replica_assignment is not None:
        if partitions is not None or replication_factor is not None:
            arguments.refuse("--replica-assignment", "it says by itself how many partitions and replicas there are")
        replicas = arguments.assignment(replica_assignment)

    from pyspark_log.client.opening import open_log
    from pyspark_log_coordinator.model import topic_config
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
    size = counted(len(there), "partition") + (f" of {factor} replicas" if factor > 1 else "")
    if created:
        typer.echo(f"created topic {name} with {size}")
    else:
        typer.echo(f"topic {name} exists already, with {size}; nothing was changed")


@app.command("list", epilog="\b\nExample:\n  pyspark-log topics list --path /data/log")
def list_(path: arguments.Path, json: arguments.Json = False) -> None:
    """List the topics."""
    from pyspark_log.cli import output
    from pyspark_log.client.opening import open_log

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


@app.command(
    epilog="\b\nExamples:\n  pyspark-log topics alter flights --config retention.ms=86400000\n"
    "  pyspark-log topics alter flights --delete-config retention.ms"
)
def alter(
    name: arguments.Topic,
    path: arguments.Path,
    config: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting, under Kafka's name; may be given often.")
    ] = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="A setting that gets its default back; may be given often."),
    ] = None,
    json: arguments.Json = False,
) -> None:
    """Change settings of a topic.

    They hold from the next row or maintenance on. All of them are changed, or none.
    """
    if not config and not delete_config:
        arguments.refuse("--config, --delete-config", "nothing is to be changed; give one of these")
    settings = arguments.settings(config or [], "compression.type=zstd")
    both = settings.keys() & set(delete_config or ())
    if both:
        arguments.refuse("--delete-config", f"{min(both)} is set too; say one of the two")

    from pyspark_log.client.opening import open_log
    from pyspark_log_coordinator.model import topic_config
    from pyspark_log_coordinator.topic.machine import AlterConfig

    settings |= topic_config.defaults(delete_config or ())
    handle = open_log(path).topic(name)
    before = handle.journal.state.config
    after = handle.submit(AlterConfig(settings)).state.config
    old, new = topic_config.words(before), topic_config.words(after)
    changed = [key for key in new if new[key] != old[key]]
    if json:
        from pyspark_log.cli.output import print_json

        shown = topic_config.show(after)
        print_json({"topic": name, "changed": {key: shown[key] for key in changed}})
    elif changed:
        for key in changed:
            typer.echo(f"topic {name}: {key} is {new[key]} now, and was {old[key]}")
    else:
        typer.echo(f"topic {name} has these settings already; nothing was changed")


@app.command(epilog="\b\nExample:\n  pyspark-log topics delete flights --yes")
def delete(
    name: arguments.Topic,
    path: arguments.Path,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="A topic that is not there is no error.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: arguments.Json = False,
) -> None:
    """Delete a topic with all its rows.

    A topic made later under the name shares nothing with it.
    """
    from pyspark_log.client.opening import open_log
    from pyspark_log_storage.errors import UnknownTopic

    log = open_log(path)
    rows, partitions = 0, 0
    try:
        state = log.topic(name).journal.state
    except UnknownTopic:
        if name not in log.topics():
            if not if_exists:
                raise
            _tell_deleted(name, None, rows, partitions, json=json)
            return
        # A deletion that was cut short ended the topic's journal and left its name, which goes now.
    else:
        partitions, rows = len(state.partitions), sum(each.log_end - each.log_start for each in state.partitions)
    what = f"{counted(rows, 'row')} in {counted(partitions, 'partition')}"
    if not yes and not arguments.agreed(f"delete topic {name} with {what}, for good?"):
        typer.echo("pyspark-log: nothing was deleted", err=True)
        raise typer.Exit(1)
    log.delete_topic(name)
    _tell_deleted(name, what, rows, partitions, json=json)


def _tell_deleted(name: str, what: str | None, rows: int, partitions: int, *, json: bool) -> None:
    """Say what was deleted, None for a topic that is not there."""
    if json:
        from pyspark_log.cli.output import print_json

        print_json({"topic": name, "deleted": what is not None, "partitions": partitions, "rows": rows})
    elif what is None:
        typer.echo(f"there is no topic {name}; nothing was deleted")
    else:
        typer.echo(f"deleted topic {name} with {what}")


def _time(ms: int) -> str:
    """Return a time by the clock of whoever wrote it, which may have been wrong: Python has no year 10000."""
    try:
        return datetime.fromtimestamp(ms / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{ms:,} ms since 1970"
