"""`pyspark-log nodes drain`: move everything off a node, so that it can be removed."""

from __future__ import annotations

from typing import Any

import typer

from pyspark_log.cli import arguments, nodes, reassign
from pyspark_log.cli.words import counted

EXAMPLES = """\b
Examples:
  pyspark-log nodes drain 1 --dry-run
  pyspark-log nodes drain 1 --throttle 50000000
"""


def drain(
    node_id: nodes.NodeId,
    path: arguments.Path,
    throttle: reassign.Throttle = None,
    dry_run: reassign.DryRun = False,
    json: arguments.Json = False,
) -> None:
    """Move all replicas off a node, and fence it.

    Then it can be removed. It stays in use until its replicas are in sync elsewhere. A node whose disk
    is lost is drained too, from the other replicas. Where it was stopped, the
    same again goes on.
    """
    from pyspark_log.client.opening import open_log
    from pyspark_log_coordinator.cluster.nodes import node_of
    from pyspark_log_coordinator.log import node_admin
    from pyspark_log_coordinator.sync import reassigner

    log = open_log(path)
    node_of(log.cluster.state.nodes, node_id)
    wanted = reassigner.topics_to_drain(log, node_id)  # what cannot be is told before anything moves
    if dry_run:
        reassign.show_plan(wanted, json=json)
        return
    moved: dict[str, dict[str, Any]] = {}
    while True:
        for handle, assignment in wanted:
            found = reassigner.begin(handle, assignment)
            done = reassign.carry_out(log, handle, throttle)
            counts = moved.setdefault(handle.name, {"topic": handle.name, "partitions": 0, "objects": 0, "bytes": 0})
            counts["partitions"] += len(found)
            counts["objects"] += done.objects
            counts["bytes"] += done.bytes
            reassign.tell_failures(handle.name, done)
        # A topic may have been created on it meanwhile, as long as it is not fenced.
        is_fenced = log.cluster.refresh().nodes[node_id].fenced
        wanted = reassigner.topics_to_drain(log, node_id)
        if is_fenced and not wanted:
            break
        if not is_fenced:
            node_admin.set_fenced(log, node_id, fenced=True)
            wanted = reassigner.topics_to_drain(log, node_id)
    if json:
        from pyspark_log.cli.output import print_json

        print_json({"node": node_id, "fenced": True, "topics": list(moved.values())})
        return
    for each in moved.values():
        typer.echo(
            f"moved {counted(each['partitions'], 'replica')} of topic {each['topic']}: copied "
            f"{counted(each['objects'], 'file')}, {each['bytes']:,} bytes"
        )
    said = f"node {node_id} has no replicas any more, and is fenced"
    if node_admin.has_journals(log, node_id):
        typer.echo(f"{said}; the journals are on it, so it stays")
    else:
        typer.echo(f"{said}; take it away with: pyspark-log nodes remove {node_id}")
