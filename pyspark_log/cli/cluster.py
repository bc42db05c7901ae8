"""`pyspark-log cluster`: create, describe and rebuild a cluster, and migrate its journals."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyspark_log.cli import arguments, output, rebuild
from pyspark_log.cli.output import counted
from pyspark_log.client.opening import open_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_coordinator.log.log import Log

app = typer.Typer(help="Create, describe and rebuild clusters; migrate journals.", no_args_is_help=True)
app.command(epilog=rebuild.EXAMPLES)(rebuild.rebuild)


@app.command(epilog="\b\nExample:\n  pyspark-log cluster create --journal-nodes /disk1/log,/disk2/log,/disk3/log")
def create(
    nodes: Annotated[
        str,
        typer.Option(
            "--journal-nodes",
            metavar="ADDRESS,ADDRESS,ADDRESS",
            help="Addresses of three or more stores that fail independently. They become nodes 0, 1, 2 and so on.",
            show_default=False,
        ),
    ],
    json: arguments.Json = False,
) -> None:
    """Create a cluster with its journals on several nodes.

    The journals survive the loss of a minority of these nodes, and can later be migrated to others. Each store is
    tested and must be empty. A cluster on one store needs no command: the first topic creates it.
    """
    from pyspark_log_coordinator.environment import real_environment
    from pyspark_log_coordinator.log import bootstrap
    from pyspark_log_coordinator.log.log import Log
    from pyspark_log_storage.addresses import absolute_url, open_store

    stores = [open_store(absolute_url(each)) for each in nodes.split(",")]
    environment = real_environment()
    bootstrap.mark(stores, environment)
    log = Log(stores, environment)
    log.locate()
    created = not log.cluster.refresh().cluster_id
    log.open(create=True)
    found = log.journals.nodes
    assert found is not None
    where = f"on {len(stores)} journal nodes"
    output.show(
        {"cluster": found.cluster, "journal_nodes": list(found.urls), "created": created},
        f"created cluster {found.cluster} {where}"
        if created
        else f"cluster {found.cluster} already exists {where}; nothing was changed",
        f"address: {','.join(found.urls)}",
        json=json,
    )


@app.command(epilog="\b\nExample:\n  pyspark-log cluster describe")
def describe(path: arguments.Path, json: arguments.Json = False) -> None:
    """Show the cluster and the state of its journal nodes."""
    log = open_log(path)
    nodes = _journal_nodes(log)
    state = log.cluster.state
    previous = [each.url for each in state.journals.previous]
    if json:
        facts = {"entry": log.cluster.number, "nodes": len(state.nodes), "topics": len(state.topics)}
        journals = {"journal_nodes": nodes, "journals_migrate_from": previous}
        output.print_json({"cluster": state.cluster_id, **facts, **journals})
        return
    typer.echo(f"cluster        {state.cluster_id}")
    typer.echo(f"journal entry  {log.cluster.number:,}")
    typer.echo(f"nodes          {len(state.nodes):,}")
    typer.echo(f"topics         {len(state.topics):,}\n")
    output.print_table(
        ("journal node", "address", "incarnation", "state"),
        [(each["node"], each["url"], each["incarnation"], each["missing"] or "live") for each in nodes],
    )
    if state.journals.are_moving:
        ids = ",".join(each.node for each in state.journals.nodes)
        typer.echo(
            f"\nthe journals are being migrated from {', '.join(previous)}; finish with: pyspark-log cluster "
            f"migrate-journals --to {ids}"
        )


@app.command("migrate-journals", epilog="\b\nExample:\n  pyspark-log cluster migrate-journals --to 0,1,3")
def migrate_journals(
    path: arguments.Path,
    to: Annotated[
        str,
        typer.Option(
            metavar="NODE,NODE,NODE",
            help="Ids of the nodes that will hold the journals: three or more, including those that stay.",
            show_default=False,
        ),
    ],
    json: arguments.Json = False,
) -> None:
    """Migrate the journals to other nodes of the cluster.

    Use it to replace a journal node that is lost or was renewed. Writers and readers continue meanwhile. A majority of
    the current journal nodes must be reachable. If the command is interrupted, run it again to continue. Afterwards,
    versions of a topic from before the migration can no longer be read (versionAsOf).
    """
    from pyspark_log_coordinator.maintenance import journal_migration

    log = open_log(path)
    ids = tuple(each.strip() for each in to.split(","))
    done = journal_migration.migrate(log, ids, _progress(json=json))
    for folder, error in done.damaged.items():
        output.print_error(f"{folder}, of a deleted topic, was not migrated: {error.message}")
    facts = {"generation": done.nodes.generation, "journal_nodes": list(done.nodes.urls)}
    lines = [
        f"migrated the journals of the cluster and of {counted(done.topics, 'topic')} to {len(ids)} journal nodes",
        f"address: {','.join(done.nodes.urls)}",
    ]
    output.show(
        {"cluster": done.nodes.cluster, **facts, "migrated": done.changed, "topics": done.topics},
        *(lines if done.changed else ["the journals are already on these nodes; nothing was changed"]),
        json=json,
    )


def _progress(*, json: bool) -> Callable[[str], object]:
    """Return a function that is called with the topic whose journal is migrated next, and prints it on a terminal."""
    if json or not sys.stderr.isatty():
        return bool
    return lambda topic: typer.echo(f"migrating the journal of {topic}", err=True)


def _journal_nodes(log: Log) -> list[dict[str, Any]]:
    if log.journals.nodes is None:
        (only,) = (each for each in log.cluster.state.nodes.values() if log.node_store(each.node_id) is log.store)
        return [{"node": only.node_id, "url": log.store.url, "incarnation": only.incarnation, "missing": None}]
    missing = {name: error.message for name, error in log.journals.missing_nodes().items()}
    return [
        {"node": each.node, "url": each.url, "incarnation": each.incarnation, "missing": missing.get(each.node)}
        for each in log.journals.nodes.nodes
    ]
