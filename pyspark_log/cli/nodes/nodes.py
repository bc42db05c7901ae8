"""`pyspark-log nodes`: add, list, describe, alter, fence, unfence, renew, drain, remove."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyspark_log.cli import arguments, output
from pyspark_log.cli.output import Column, counted
from pyspark_log.opening import open_log
from pyspark_log_coordinator.log import node_admin
from pyspark_log_coordinator.model.partition import by_number
from pyspark_log_coordinator.sync.replica_file import is_set_back
from pyspark_log_storage.errors import UnknownTopic
from pyspark_log_storage.names import check_node, check_rack
from pyspark_log_storage.objects.node import read_marker
from pyspark_log_storage.stores.addresses import absolute_url

if TYPE_CHECKING:
    from pyspark_log_coordinator.cluster.nodes import Node
    from pyspark_log_coordinator.log.log import Log
    from pyspark_log_coordinator.model.topic_state import Topic

VOTES, DOES_NOT_VOTE = "votes", "does not vote"


@arguments.examples(
    "pyspark-log nodes add /mnt/disk1/log",
    "pyspark-log nodes add /mnt/disk2/log --rack b",
)
def add(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="Address of the node's store.", show_default=False)],
    path: arguments.Path,
    node_id: Annotated[
        str | None,
        typer.Option("--id", metavar="NODE", help="Id of the node (default: the lowest free number)."),
    ] = None,
    rack: Annotated[
        str, typer.Option(metavar="NAME", help="Rack of the node (default: none). Replicas are spread over racks.")
    ] = "",
    json: arguments.Json = False,
) -> None:
    """Add a store to the cluster as a node.

    The store is tested first, and refused if it could lose rows. Every process of the cluster must be able to reach it
    at this address.
    """
    if node_id is not None:
        check_node(node_id)
    check_rack(rack)
    log = open_log(path)
    node, new = node_admin.join(log, absolute_url(address), node_id, rack)
    output.show(
        _document(log, node) | {"added": new},
        f"added node {node.node_id} at {node.url}"
        if new
        else f"{_address(log, node)} is already node {node.node_id}; nothing was changed",
        json=json,
    )


@arguments.examples("pyspark-log nodes list --path /data/log")
def list_(path: arguments.Path, json: arguments.Json = False) -> None:
    """List the nodes and their state.

    With several journal nodes, it also says which of them vote in the journals.
    """
    log = open_log(path)
    nodes = log.nodes
    voters = _voting_states(log)
    documents = [_document(log, nodes[name]) | {"journals": voters.get(name)} for name in sorted(nodes, key=by_number)]
    output.show_table(("node", "address", "rack", "state", *(["journals"] if voters else [])), documents, json=json)
    if json:
        return
    _print_missing(documents)
    print_voting_advice(log)


@arguments.examples("pyspark-log nodes describe 1")
def describe(node_id: arguments.NodeId, path: arguments.Path, json: arguments.Json = False) -> None:
    """Show a node and its replicas of each topic.

    "Rows behind" is the number of rows that the leaders have and the node lacks.
    """
    log = open_log(path)
    document = _document(log, log.node(node_id))
    document["topics"] = _replicas(log, node_id)
    if json:
        output.print_json(document)
        return
    for field in ("node", "address", "rack", "state", "incarnation"):
        typer.echo(f"{field:<13}{document[field] or 'none'}")
    if document["topics"]:
        typer.echo()
        columns = ("topic", "replicas", "leads", Column("in_sync", "in sync"), Column("behind", "rows behind"))
        output.print_table(columns, document["topics"])
    _print_missing([document])


@arguments.examples(
    "pyspark-log nodes alter 0 --rack a",
    "pyspark-log nodes alter 0 --rack ''",
)
def alter(
    node_id: arguments.NodeId,
    path: arguments.Path,
    rack: Annotated[str, typer.Option(metavar="NAME", help="New rack of the node; '' for none.", show_default=False)],
    json: arguments.Json = False,
) -> None:
    """Change the rack of a node.

    The new rack applies to new replicas and to reads. Existing replicas stay where they are; use topics reassign to
    move them.
    """
    log = open_log(path)
    before = log.node(node_id).rack
    changed = node_admin.set_rack(log, node_id, rack)
    output.show(
        _document(log, log.nodes[node_id]) | {"changed": changed},
        f"node {node_id}: rack={rack or 'none'} (was {before or 'none'})"
        if changed
        else f"node {node_id} already has rack={rack or 'none'}; nothing was changed",
        json=json,
    )


@arguments.examples("pyspark-log nodes fence 1")
def fence(node_id: arguments.NodeId, path: arguments.Path, json: arguments.Json = False) -> None:
    """Take a node out of service.

    It gets no new data, leads no partition, and no write waits for it. Fence a node before repairing its disk.
    """
    _set_fenced(path, node_id, fenced=True, json=json)


@arguments.examples("pyspark-log nodes unfence 1")
def unfence(node_id: arguments.NodeId, path: arguments.Path, json: arguments.Json = False) -> None:
    """Return a fenced node to service."""
    _set_fenced(path, node_id, fenced=False, json=json)


@arguments.examples(
    "pyspark-log nodes renew 1",
    "pyspark-log nodes renew 1 --address /mnt/new/log",
)
def renew(
    node_id: arguments.NodeId,
    path: arguments.Path,
    address: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="New address of the node's store (default: unchanged).")
    ] = None,
    yes: arguments.Yes = False,
    json: arguments.Json = False,
) -> None:
    """Give a node an empty disk or a new address.

    Use it if the node's disk was wiped, replaced, moved, or restored from an old backup. On an empty disk, and on one
    that lacks files of the node, the node starts with a new incarnation. pyspark-log node run then finds what is left
    on the disk, and copies the rest from other replicas. A store that was only moved keeps its data.
    """
    log = open_log(path)
    before = log.node(node_id)
    url = before.url if address is None else absolute_url(address)
    marker = read_marker(log.store_at(url))
    is_here = marker is not None and url == before.url and marker.incarnation == before.incarnation
    was_set_back = is_here and is_set_back(log, node_id)
    if (marker is None or was_set_back) and not yes:
        why = "has no node marker: the disk is empty, or it is not mounted"
        if was_set_back:
            why = "lacks files that the node holds: the disk was set back or emptied, or a restore is not finished"
        typer.echo(f"{log.store_at(url).url} {why}", err=True)
        what = f"start node {node_id} there {'anew' if was_set_back else 'without data'}?"
        arguments.confirm(what, otherwise="nothing was changed", yes=False)
    node, renewed = node_admin.renew(log, node_id, url, is_set_back=was_set_back)
    if not renewed:
        said = f"node {node_id} is intact; nothing was changed"
    elif node.incarnation == before.incarnation:
        said = f"node {node_id} is now at {_address(log, node)}, with its data"
    elif was_set_back:
        said = f"node {node_id} begins anew; count and copy its files with: pyspark-log node run {node_id}"
    else:
        said = f"node {node_id} is now empty at {_address(log, node)}; fill it with: pyspark-log node run {node_id}"
    output.show(_document(log, node) | {"renewed": renewed}, said, json=json)
    print_voting_advice(log)


@arguments.examples(
    "pyspark-log nodes drain 1 --dry-run",
    "pyspark-log nodes drain 1 --throttle 50000000",
)
def drain(
    node_id: arguments.NodeId,
    path: arguments.Path,
    throttle: arguments.Throttle = None,
    dry_run: arguments.DryRun = False,
    json: arguments.Json = False,
) -> None:
    """Move all replicas off a node and fence it.

    Afterwards the node can be removed. It stays in service until its replicas are in sync on other nodes. If its disk
    is lost, they are copied from other replicas. If the command is interrupted, run it again to continue.
    """
    from pyspark_log.cli.topics import reassign
    from pyspark_log_coordinator.sync import reassigner

    log = open_log(path)
    log.node(node_id)
    wanted = reassigner.topics_to_drain(log, node_id)  # raises if it is impossible, before anything moves
    if dry_run:
        reassign.show_plan(wanted, json=json)
        return
    moved: dict[str, dict[str, Any]] = {}
    while True:
        for handle, _ in wanted:
            try:
                handle.refresh()  # it may have changed since, and more than once: the others take their time
                moves = reassigner.begin(handle, reassigner.placement_without(handle, node_id))
                done = reassign.carry_out(handle, throttle)
            except UnknownTopic:
                continue  # deleted meanwhile
            counts = moved.setdefault(handle.name, {"topic": handle.name, "partitions": 0, "objects": 0, "bytes": 0})
            counts["partitions"] += len(moves)
            counts["objects"] += done.objects
            counts["bytes"] += done.bytes
            reassign.check_complete(handle.name, done)
        # Until the node is fenced, a new topic may have placed replicas on it.
        is_fenced = log.refreshed_node(node_id).fenced
        wanted = reassigner.topics_to_drain(log, node_id)
        if is_fenced and not wanted:
            break
        if not is_fenced:
            node_admin.set_fenced(log, node_id, fenced=True)
            wanted = reassigner.topics_to_drain(log, node_id)
    if node_admin.has_journals(log, node_id):
        advice = "it holds journals and cannot be removed"
    else:
        advice = f"remove it with: pyspark-log nodes remove {node_id}"
    copied = [
        f"moved {counted(each['partitions'], 'replica')} of topic {each['topic']}: copied "
        f"{counted(each['objects'], 'file')}, {each['bytes']:,} bytes"
        for each in moved.values()
    ]
    output.show(
        {"node": node_id, "fenced": True, "topics": list(moved.values())},
        *copied,
        f"node {node_id} has no replicas and is fenced; {advice}",
        json=json,
    )


@arguments.examples("pyspark-log nodes remove 1 --yes")
def remove(
    node_id: arguments.NodeId, path: arguments.Path, yes: arguments.Yes = False, json: arguments.Json = False
) -> None:
    """Remove a fenced node without replicas.

    Its id is never used again. The files on its disk are not deleted.
    """
    log = open_log(path)
    log.node(node_id)
    node_admin.check_removable(log, node_id)  # before asking
    arguments.confirm(f"remove node {node_id}? This cannot be undone.", otherwise="nothing was removed", yes=yes)
    removed = node_admin.remove(log, node_id)
    output.show({"node": node_id, "removed": removed}, f"removed node {node_id}", json=json)


def _set_fenced(path: str, node_id: str, *, fenced: bool, json: bool) -> None:
    log = open_log(path)
    changed = node_admin.set_fenced(log, node_id, fenced=fenced)
    state = "fenced" if fenced else "in service"
    output.show(
        {"node": node_id, "fenced": fenced, "changed": changed},
        f"node {node_id} is now {state}" if changed else f"node {node_id} is already {state}; nothing was changed",
        json=json,
    )


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


def _print_missing(documents: list[dict[str, Any]]) -> None:
    for each in documents:
        if each["missing"] is not None:
            output.print_error(each["missing"])


def _replicas(log: Log, node_id: str) -> list[dict[str, Any]]:
    """Return the counts of each topic with replicas on the node."""
    found = []
    for name in sorted(log.topics()):
        try:
            state = log.topic(name).state
        except UnknownTopic:
            continue  # deleted after the names were listed
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


def _voting_states(log: Log) -> dict[str, str]:
    """Return whether each journal node votes now, by node id; empty if the journals are on the root alone."""
    missing = log.journals.missing_nodes()
    return {node: DOES_NOT_VOTE if node in missing else VOTES for node in log.journals.node_ids}


def print_voting_advice(log: Log) -> None:
    """Print on stderr what to do if journal nodes do not vote because their stores were replaced. Reads nothing."""
    replaced = log.journals.replaced_nodes()
    if not replaced or log.journals.nodes is None:
        return
    ids = ",".join(each.node for each in log.journals.nodes.nodes)
    nodes = f"node {replaced[0]} does" if len(replaced) == 1 else f"nodes {', '.join(replaced)} do"
    output.print_error(
        f"{nodes} not vote in the journals, because the disk was replaced; migrate the journals with: pyspark-log "
        f"cluster migrate-journals --to {ids}"
    )
