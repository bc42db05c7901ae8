"""`pyspark-log nodes`: add, list, describe, alter, fence, unfence, renew, remove."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyspark_log.cli import arguments

if TYPE_CHECKING:
    from pyspark_log_coordinator.cluster.nodes import Node
    from pyspark_log_coordinator.log.log import Log
    from pyspark_log_coordinator.topic.machine import Topic

app = typer.Typer(
    help="Add, list, describe, fence, renew and remove nodes.",
    no_args_is_help=True,
)

NodeId = Annotated[str, typer.Argument(metavar="NODE", help="The node's id.", show_default=False)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@app.command(
    epilog="\b\nExamples:\n  pyspark-log nodes add /mnt/disk1/log\n  pyspark-log nodes add /mnt/disk2/log --rack b"
)
def add(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="Where the node's store is.", show_default=False)],
    path: arguments.Path,
    node_id: Annotated[
        str | None,
        typer.Option("--id", metavar="NODE", help="Its id; the lowest number that is free if none is given."),
    ] = None,
    rack: Annotated[
        str, typer.Option(metavar="NAME", help="Where it stands: replicas are spread over the racks.")
    ] = "",
    json: arguments.Json = False,
) -> None:
    """Let a store join as a node.

    It is tried first, and refused where it would lose rows. Every process of
    the cluster must reach it under this address.
    """
    from pyspark_log.client.opening import open_log
    from pyspark_log_coordinator.log import node_admin
    from pyspark_log_storage.names import check_node, check_rack
    from pyspark_log_storage.store import absolute_url

    if node_id is not None:
        check_node(node_id)
    check_rack(rack)
    log = open_log(path)
    node, new = node_admin.join(log, absolute_url(address), node_id, rack)
    if json:
        from pyspark_log.cli.output import print_json

        print_json(_document(log, node) | {"added": new})
    elif new:
        typer.echo(f"added node {node.node_id} at {node.url}; new topics may get replicas on it")
    else:
        typer.echo(f"{_address(log, node)} is node {node.node_id} already; nothing was changed")


@app.command("list", epilog="\b\nExample:\n  pyspark-log nodes list --path /data/log")
def list_(path: arguments.Path, json: arguments.Json = False) -> None:
    """List the nodes, and which of them are missing now."""
    from pyspark_log.cli import output
    from pyspark_log.client.opening import open_log
    from pyspark_log_coordinator.model.node_order import by_number

    log = open_log(path)
    nodes = log.cluster.state.nodes
    documents = [_document(log, nodes[name]) for name in sorted(nodes, key=by_number)]
    if json:
        output.print_json(*documents)
        return
    rows = [(each["node"], each["address"], each["rack"] or "none", each["state"]) for each in documents]
    output.print_table(("node", "address", "rack", "state"), rows)
    _tell_missing(documents)


@app.command(epilog="\b\nExample:\n  pyspark-log nodes describe 1")
def describe(node_id: NodeId, path: arguments.Path, json: arguments.Json = False) -> None:
    """Show a node, and the replicas that it has of each topic.

    Rows behind are those that the leaders have and the node has not.
    """
    from pyspark_log.cli import output
    from pyspark_log.client.opening import open_log
    from pyspark_log_coordinator.cluster.nodes import node_of

    log = open_log(path)
    document = _document(log, node_of(log.cluster.state.nodes, node_id))
    document["topics"] = _replicas(log, node_id)
    if json:
        output.print_json(document)
        return
    for field in ("node", "address", "rack", "state", "incarnation"):
        typer.echo(f"{field:<13}{document[field] or 'none'}")
    if document["topics"]:
        typer.echo()
        columns = ("topic", "replicas", "leads", "in_sync", "behind")
        rows = [tuple(each[column] for column in columns) for each in document["topics"]]
        output.print_table(("topic", "replicas", "leads", "in sync", "rows behind"), rows)
    _tell_missing([document])


@app.command(epilog="\b\nExamples:\n  pyspark-log nodes alter 0 --rack a\n  pyspark-log nodes alter 0 --rack ''")
def alter(
    node_id: NodeId,
    path: arguments.Path,
    rack: Annotated[
        str, typer.Option(metavar="NAME", help="Where the node stands now; '' for nowhere.", show_default=False)
    ],
    json: arguments.Json = False,
) -> None:
    """Change the rack of a node.

    It counts from the next replica that is placed, and the next read. Replicas
    that are there stay where they are; topics reassign moves them.
    """
    from pyspark_log.client.opening import open_log
    from pyspark_log_coordinator.cluster.nodes import node_of
    from pyspark_log_coordinator.log import node_admin

    log = open_log(path)
    before = node_of(log.cluster.state.nodes, node_id).rack
    changed = node_admin.set_rack(log, node_id, rack)
    if json:
        from pyspark_log.cli.output import print_json

        print_json(_document(log, log.cluster.state.nodes[node_id]) | {"changed": changed})
        return
    now = f"is in rack {rack}" if rack else "is in no rack"
    if changed:
        typer.echo(f"node {node_id} {now} now, and was in {f'rack {before}' if before else 'none'}")
    else:
        typer.echo(f"node {node_id} {now} already; nothing was changed")


@app.command(epilog="\b\nExample:\n  pyspark-log nodes fence 1")
def fence(node_id: NodeId, path: arguments.Path, json: arguments.Json = False) -> None:
    """Take a node out of use, until it is unfenced.

    Nothing new is put on it, and nothing waits for it. For a disk that is to be repaired, or a node that is to be
    removed.
    """
    _set_fenced(path, node_id, fenced=True, json=json)


@app.command(epilog="\b\nExample:\n  pyspark-log nodes unfence 1")
def unfence(node_id: NodeId, path: arguments.Path, json: arguments.Json = False) -> None:
    """Use a fenced node again."""
    _set_fenced(path, node_id, fenced=False, json=json)


@app.command(epilog="\b\nExamples:\n  pyspark-log nodes renew 1\n  pyspark-log nodes renew 1 --address /mnt/new/log")
def renew(
    node_id: NodeId,
    path: arguments.Path,
    address: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Where the node's store is now; as before if not given.")
    ] = None,
    yes: Yes = False,
    json: arguments.Json = False,
) -> None:
    """Let a node begin again on an empty disk, or move it.

    For a node whose disk was wiped or replaced, or is at another address now. An empty store holds nothing of what the
    node held: that is copied from the other replicas. A store that was only moved keeps what it holds.
    """
    from pyspark_log.client.opening import open_log
    from pyspark_log_coordinator.cluster.nodes import node_of
    from pyspark_log_coordinator.log import node_admin
    from pyspark_log_storage.node import read_marker
    from pyspark_log_storage.store import absolute_url

    log = open_log(path)
    before = node_of(log.cluster.state.nodes, node_id)
    url = before.url if address is None else absolute_url(address)
    empty = read_marker(log.store_at(url)) is None
    if empty and not yes:
        typer.echo(
            f"{log.store_at(url).url} has no marker: the disk was wiped or is new, or it is not mounted", err=True
        )
        if not arguments.agreed(f"begin again with an empty node {node_id} there?"):
            typer.echo("pyspark-log: nothing was changed", err=True)
            raise typer.Exit(1)
    node, renewed = node_admin.renew(log, node_id, url)
    if json:
        from pyspark_log.cli.output import print_json

        print_json(_document(log, node) | {"renewed": renewed})
    elif not renewed:
        typer.echo(f"node {node_id} is whole; nothing was changed")
    elif node.incarnation == before.incarnation:
        typer.echo(f"node {node_id} is at {_address(log, node)} now, with all that it holds")
    else:
        typer.echo(
            f"node {node_id} begins again, empty, at {_address(log, node)}; fill it with: "
            f"pyspark-log node run {node_id}"
        )


@app.command(epilog="\b\nExample:\n  pyspark-log nodes remove 1 --yes")
def remove(node_id: NodeId, path: arguments.Path, yes: Yes = False, json: arguments.Json = False) -> None:
    """Take a fenced node without replicas away for good.

    Its id is never used again. What is on its disk stays there.
    """
    from pyspark_log.client.opening import open_log
    from pyspark_log_coordinator.cluster.nodes import node_of
    from pyspark_log_coordinator.log import node_admin

    log = open_log(path)
    node_of(log.cluster.state.nodes, node_id)
    node_admin.check_removable(log, node_id)  # a question about what is refused anyway would be in vain
    if not yes and not arguments.agreed(f"remove node {node_id}, for good?"):
        typer.echo("pyspark-log: nothing was removed", err=True)
        raise typer.Exit(1)
    removed = node_admin.remove(log, node_id)
    if json:
        from pyspark_log.cli.output import print_json

        print_json({"node": node_id, "removed": removed})
    else:
        typer.echo(f"removed node {node_id}")


def _set_fenced(path: str, node_id: str, *, fenced: bool, json: bool) -> None:
    from pyspark_log.client.opening import open_log
    from pyspark_log_coordinator.log import node_admin

    log = open_log(path)
    changed = node_admin.set_fenced(log, node_id, fenced=fenced)
    if json:
        from pyspark_log.cli.output import print_json

        print_json({"node": node_id, "fenced": fenced, "changed": changed})
        return
    now = "fenced" if fenced else "in use"
    typer.echo(f"node {node_id} is {now} now" if changed else f"node {node_id} is {now} already; nothing was changed")


def _document(log: Log, node: Node) -> dict[str, Any]:
    missing = log.missing_nodes.get(node.node_id)
    return {
        "node": node.node_id,
        "address": _address(log, node),
        "rack": node.rack or None,
        "state": "fenced" if node.fenced else "live" if missing is None else "missing",
        "missing": None if missing is None else missing.message,
        "incarnation": node.incarnation,
    }


def _address(log: Log, node: Node) -> str:
    return log.store_at(node.url).url


def _tell_missing(documents: list[dict[str, Any]]) -> None:
    for each in documents:
        if each["missing"] is not None:
            typer.echo(f"pyspark-log: {each['missing']}", err=True)


def _replicas(log: Log, node_id: str) -> list[dict[str, Any]]:
    """Return what the node has of each topic that has replicas on it."""
    from pyspark_log_storage.errors import UnknownTopic

    found = []
    for name in sorted(log.topics()):
        try:
            state = log.topic(name).journal.state
        except UnknownTopic:
            continue  # deleted meanwhile
        if any(node_id in each.replicas for each in state.partitions):
            found.append({"topic": name} | _counts(state, node_id))
    return found


def _counts(state: Topic, node_id: str) -> dict[str, int]:
    mine = [each for each in state.partitions if node_id in each.replicas]
    return {
        "replicas": len(mine),
        "leads": sum(each.leader == node_id for each in mine),
        "in_sync": sum(node_id in each.isr for each in mine),
        "behind": sum(each.log_end - each.log_end_offsets.get(node_id, each.log_start) for each in mine),
    }
