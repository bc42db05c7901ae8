"""`pyspark-log nodes`: add, list, describe, alter, fence, unfence, renew, drain, remove."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyspark_log.cli import arguments, output
from pyspark_log.cli.command import Result, command
from pyspark_log.documents import cluster as documents
from pyspark_log.documents.text import named
from pyspark_log_coordinator.log import node_admin
from pyspark_log_storage.errors import UnknownTopic
from pyspark_log_storage.names import check_node, check_rack
from pyspark_log_storage.stores.addresses import absolute_url

if TYPE_CHECKING:
    from pyspark_log.cli.output import Document, Documents
    from pyspark_log_coordinator.log.log import Log


@command(
    "pyspark-log nodes add /mnt/disk1/log",
    "pyspark-log nodes add /mnt/disk2/log --rack b",
)
def add(
    log: Log,
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="Address of the node's store.")],
    node_id: Annotated[
        str | None,
        typer.Option("--id", metavar="NODE", help="Id of the node (default: the lowest free number)."),
    ] = None,
    rack: Annotated[
        str, typer.Option(metavar="NAME", help="Rack of the node (default: none). Replicas are spread over racks.")
    ] = "",
) -> Document:
    """Add a store to the cluster as a node.

    The store is tested first, and refused if it could lose rows. Every process of the cluster must be able to reach it
    at this address.
    """
    if node_id is not None:
        check_node(node_id)
    check_rack(rack)
    node, new = node_admin.join(log, absolute_url(address), node_id, rack)
    return documents.node(log, node) | {"added": new}


@command("pyspark-log nodes list --path /data/log")
def list_(log: Log, json: arguments.Json = False) -> Documents:
    """List the nodes and their state.

    With several journal nodes, it also says which of them vote in the journals.
    """
    if not json:
        print_voting_advice(log)
    return documents.nodes(log)


@command("pyspark-log nodes describe 1")
def describe(log: Log, node_id: arguments.NodeId) -> Document:
    """Show a node and its replicas of each topic.

    "Behind" is the number of rows that the leaders have and the node lacks.
    """
    node = documents.node(log, log.node(node_id))
    return node | {"topics": documents.topics_on(log, node_id)}


@command(
    "pyspark-log nodes alter 0 --rack a",
    "pyspark-log nodes alter 0 --rack ''",
)
def alter(
    log: Log,
    node_id: arguments.NodeId,
    rack: Annotated[str, typer.Option(metavar="NAME", help="New rack of the node; '' for none.")],
) -> Document:
    """Change the rack of a node.

    The new rack applies to new replicas and to reads. Existing replicas stay where they are; use topics reassign to
    move them.
    """
    log.node(node_id)
    changed = node_admin.set_rack(log, node_id, rack)
    return documents.node(log, log.nodes[node_id]) | {"changed": changed}


@command("pyspark-log nodes fence 1")
def fence(log: Log, node_id: arguments.NodeId) -> Document:
    """Take a node out of service.

    It gets no new data, leads no partition, and no write waits for it. Fence a node before repairing its disk.
    """
    return _set_fenced(log, node_id, fenced=True)


@command("pyspark-log nodes unfence 1")
def unfence(log: Log, node_id: arguments.NodeId) -> Document:
    """Return a fenced node to service."""
    return _set_fenced(log, node_id, fenced=False)


@command(
    "pyspark-log nodes renew 1",
    "pyspark-log nodes renew 1 --address /mnt/new/log",
)
def renew(
    log: Log,
    node_id: arguments.NodeId,
    address: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="New address of the node's store (default: unchanged).")
    ] = None,
    yes: arguments.Yes = False,
) -> Document:
    """Give a node an empty disk or a new address.

    Use it if the node's disk was wiped, replaced, moved, or restored from an old backup. On an empty disk, and on one
    that lacks files of the node, the node starts with a new incarnation. What is left on the disk is counted at once,
    and pyspark-log node run copies the rest from other replicas. A store that was only moved keeps its data.
    """
    from pyspark_log_coordinator.sync.catch_up import renew_set_back  # imports pyarrow
    from pyspark_log_coordinator.sync.replica_file import is_set_back

    before = log.node(node_id)
    url = before.url if address is None else absolute_url(address)
    marker = node_admin.renewable_marker(log.store_at(url), node_id)
    is_here = marker is not None and url == before.url and marker.incarnation == before.incarnation
    was_set_back = is_here and is_set_back(log, node_id)
    if marker is None or was_set_back:
        why, how = "has no node marker: the disk is empty, or it is not mounted", "without data"
        if was_set_back:
            why = "lacks files that the node holds: the disk was set back or emptied, or a restore is not finished"
            how = "anew"
        question = f"{log.store_at(url).url} {why}\nstart node {node_id} there {how}?"
        arguments.confirm(question, otherwise="nothing was changed", yes=yes)
    node, renewed = renew_set_back(log, node_id) if was_set_back else node_admin.renew(log, node_id, url)
    log.probe_nodes()
    print_voting_advice(log)
    return documents.node(log, node) | {"renewed": renewed}


@command(
    "pyspark-log nodes drain 1 --dry-run",
    "pyspark-log nodes drain 1 --throttle 50000000",
)
def drain(
    log: Log,
    node_id: arguments.NodeId,
    throttle: arguments.Throttle = None,
    dry_run: arguments.DryRun = False,
) -> Result:
    """Move all replicas off a node and fence it.

    Afterwards the node can be removed. It stays in service until its replicas are in sync on other nodes. If its disk
    is lost, they are copied from other replicas. If the command is interrupted, run it again to continue.
    """
    from pyspark_log.cli.topics import reassign
    from pyspark_log_coordinator.sync import reassigner

    log.node(node_id)
    wanted = reassigner.topics_to_drain(log, node_id)  # raises if it is impossible, before anything moves
    if dry_run:
        return Result(reassign.plan(wanted), empty="nothing would be moved", records=True)
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
            if errors := reassign.why_incomplete(handle.name, done):
                return Result({"node": node_id, "fenced": False, "topics": list(moved.values())}, errors)
        # Until the node is fenced, a new topic may have placed replicas on it.
        if not log.node(node_id).fenced:
            node_admin.set_fenced(log, node_id, fenced=True)
        wanted = reassigner.topics_to_drain(log, node_id)
        if not wanted:
            return Result({"node": node_id, "fenced": True, "topics": list(moved.values())})


@command("pyspark-log nodes remove 1 --yes")
def remove(log: Log, node_id: arguments.NodeId, yes: arguments.Yes = False) -> Document:
    """Remove a fenced node without replicas.

    Its id is never used again. The files on its disk are not deleted.
    """
    log.node(node_id)
    node_admin.check_removable(log, node_id)  # before asking
    arguments.confirm(f"remove node {node_id}? This cannot be undone.", otherwise="nothing was removed", yes=yes)
    removed = node_admin.remove(log, node_id)
    return {"node": node_id, "removed": removed}


def _set_fenced(log: Log, node_id: str, *, fenced: bool) -> Document:
    changed = node_admin.set_fenced(log, node_id, fenced=fenced)
    return {"node": node_id, "fenced": fenced, "changed": changed}


def print_voting_advice(log: Log) -> None:
    """Print on stderr what to do if journal nodes do not vote because their stores were replaced. Reads nothing."""
    replaced = log.journals.replaced_nodes()
    if not replaced or log.journals.nodes is None:
        return
    ids = ",".join(each.node for each in log.journals.nodes.nodes)
    verb = "does" if len(replaced) == 1 else "do"
    output.print_error(
        f"{named('node', replaced)} {verb} not vote in the journals, because the disk was replaced; migrate the "
        f"journals with: pyspark-log cluster migrate-journals --to {ids}"
    )
