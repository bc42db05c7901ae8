"""`pyspark-log cluster`: create one on several journal nodes, describe one, move its journals, rebuild one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyspark_log.cli import arguments, rebuild
from pyspark_log.cli.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_coordinator.log.log import Log

app = typer.Typer(
    help="Create, describe and rebuild a cluster, move its journals.",
    no_args_is_help=True,
)
app.command(epilog=rebuild.EXAMPLES)(rebuild.rebuild)


@app.command(epilog="\b\nExample:\n  pyspark-log cluster create --journal-nodes /disk1/log,/disk2/log,/disk3/log")
def create(
    nodes: Annotated[
        str,
        typer.Option(
            "--journal-nodes",
            metavar="ADDRESS,ADDRESS,ADDRESS",
            help="Three places that fail independently, or five, or more. They get the ids 0, 1, 2 and so on.",
            show_default=False,
        ),
    ],
    json: arguments.Json = False,
) -> None:
    """Begin a cluster on several journal nodes.

    Its journals survive the loss of a minority of them. Each store is tried, and must be empty. The journal nodes are
    the cluster's first nodes; move-journals puts others in their place later. A cluster on one store needs no command:
    the first topic begins it.
    """
    from pyspark_log_coordinator.environment import real_environment
    from pyspark_log_coordinator.log import bootstrap
    from pyspark_log_coordinator.log.log import Log
    from pyspark_log_storage.store import absolute_url, open_store

    stores = [open_store(absolute_url(each)) for each in nodes.split(",")]
    environment = real_environment()
    bootstrap.mark(stores, environment)
    log = Log(stores, environment)
    log.open(create=True)
    assert log.journals.nodes is not None
    if json:
        from pyspark_log.cli.output import print_json

        print_json({"cluster": log.journals.nodes.cluster, "journal_nodes": list(log.journals.nodes.urls)})
    else:
        typer.echo(f"created cluster {log.journals.nodes.cluster} on {len(stores)} journal nodes")
        typer.echo(f"its address: {','.join(log.journals.nodes.urls)}")


@app.command(epilog="\b\nExample:\n  pyspark-log cluster describe")
def describe(path: arguments.Path, json: arguments.Json = False) -> None:
    """Show the journal nodes, and whether all take part."""
    from pyspark_log.cli import output
    from pyspark_log.client.opening import open_log

    log = open_log(path)
    nodes = _journal_nodes(log)
    state = log.cluster.state
    if json:
        facts = {"entry": log.cluster.number, "nodes": len(state.nodes), "topics": len(state.topics)}
        moving = [each.url for each in state.journals.previous]
        output.print_json({"cluster": state.cluster_id, **facts, "journal_nodes": nodes, "journals_move_from": moving})
        return
    typer.echo(f"cluster        {state.cluster_id}")
    typer.echo(f"journal entry  {log.cluster.number:,}")
    typer.echo(f"nodes          {len(state.nodes):,}")
    typer.echo(f"topics         {len(state.topics):,}\n")
    output.print_table(
        ("journal node", "address", "incarnation", "state"),
        [(each["node"], each["url"], each["incarnation"], each["missing"] or "takes part") for each in nodes],
    )
    if state.journals.are_moving:
        ids = ",".join(each.node for each in state.journals.nodes)
        urls = ", ".join(each.url for each in state.journals.previous)
        typer.echo(f"\nthe journals are on their way from {urls}; finish that with move-journals --to {ids}")


@app.command("move-journals", epilog="\b\nExample:\n  pyspark-log cluster move-journals --to 0,1,3")
def move_journals(
    path: arguments.Path,
    to: Annotated[
        str,
        typer.Option(
            metavar="NODE,NODE,NODE",
            help="The ids of the nodes that shall hold the journals: three or more, those too that stay.",
            show_default=False,
        ),
    ],
    json: arguments.Json = False,
) -> None:
    """Move the journals to other nodes of the cluster.

    Spark may write and read meanwhile. So a journal node that is lost for good, or was renewed, is replaced: a
    majority of those until now must be there. The same command again finishes
    what was cut short. Older versions of a topic than the move cannot be read
    any more (versionAsOf).
    """
    from pyspark_log.client.opening import open_log
    from pyspark_log_coordinator.maintenance import journal_migration

    log = open_log(path)
    ids = tuple(each.strip() for each in to.split(","))
    done = journal_migration.migrate(log, ids, _telling(json=json))
    for folder, error in done.damaged.items():
        typer.echo(f"pyspark-log: {folder}, of a deleted topic, stays where it is: {error.message}", err=True)
    if json:
        from pyspark_log.cli.output import print_json

        facts = {"generation": done.nodes.generation, "journal_nodes": list(done.nodes.urls)}
        print_json({"cluster": done.nodes.cluster, **facts, "moved": done.changed, "topics": done.topics})
    elif done.changed:
        typer.echo(
            f"moved the journals of the cluster and of {counted(done.topics, 'topic')} to {len(ids)} journal nodes"
        )
        typer.echo(f"its address: {','.join(done.nodes.urls)}")
    else:
        typer.echo("the journals are there already; nothing was changed")


def _telling(*, json: bool) -> Callable[[str], object]:
    """Return what is told the topic whose journal moves next: a person is, at a terminal."""
    import sys

    if json or not sys.stderr.isatty():
        return bool
    return lambda topic: typer.echo(f"moving the journal of {topic}", err=True)


def _journal_nodes(log: Log) -> list[dict[str, Any]]:
    if log.journals.nodes is None:
        (only,) = (each for each in log.cluster.state.nodes.values() if log.node_store(each.node_id) is log.store)
        return [{"node": only.node_id, "url": log.store.url, "incarnation": only.incarnation, "missing": None}]
    missing = {name: error.message for name, error in log.journals.missing_nodes().items()}
    return [
        {"node": each.node, "url": each.url, "incarnation": each.incarnation, "missing": missing.get(each.node)}
        for each in log.journals.nodes.nodes
    ]
