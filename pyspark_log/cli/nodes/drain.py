"""`pyspark-log nodes drain`: move all replicas off a node, so that it can be removed."""

from __future__ import annotations

from typing import Any

from pyspark_log.cli import arguments, output
from pyspark_log.cli.output import counted
from pyspark_log.cli.topics import reassign
from pyspark_log.opening import open_log

EXAMPLES = """\b
Examples:
  pyspark-log nodes drain 1 --dry-run
  pyspark-log nodes drain 1 --throttle 50000000
"""


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
    from pyspark_log_coordinator.log import node_admin
    from pyspark_log_coordinator.sync import reassigner

    log = open_log(path)
    log.node(node_id)
    wanted = reassigner.topics_to_drain(log, node_id)  # raises if it is impossible, before anything moves
    if dry_run:
        reassign.show_plan(wanted, json=json)
        return
    moved: dict[str, dict[str, Any]] = {}
    while True:
        for handle, assignment in wanted:
            moves = reassigner.begin(handle, assignment)
            done = reassign.carry_out(handle, throttle)
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
