"""`pyspark-log topics reassign`: move the replicas of a topic to other nodes, or change their number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyspark_log.cli import arguments
from pyspark_log.cli.command import Result, command
from pyspark_log.cli.output import bar
from pyspark_log.documents.text import named
from pyspark_log_coordinator.sync import reassigner
from pyspark_log_coordinator.sync.replica_file import Throttle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark_log_coordinator.cluster.placement import Placement
    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.sync.reassigner import PartitionMove, ReassignmentProgress


@command(
    "pyspark-log topics reassign flights --to-nodes 3,4,5 --dry-run",
    "pyspark-log topics reassign flights --to-nodes 3,4,5 --throttle 50000000",
    "pyspark-log topics reassign flights --replication-factor 2",
    "pyspark-log topics reassign flights --replica-assignment 0:1,1:2",
    "pyspark-log topics reassign flights --cancel",
)
def reassign(  # noqa: PLR0913, PLR0917 -- the options of a command
    log: Log,
    name: arguments.Topic,
    replica_assignment: arguments.ReplicaAssignment = None,
    to_nodes: Annotated[
        str | None, typer.Option(metavar="NODE,NODE", help="Spread all partitions evenly over exactly these nodes.")
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Number of replicas of each partition.")
    ] = None,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Cancel the current reassignment and return to the previous nodes.")
    ] = False,
    throttle: arguments.Throttle = None,
    dry_run: arguments.DryRun = False,
) -> Result:
    """Move the partitions of a topic to other nodes.

    Writers and readers continue meanwhile. As few replicas as possible are moved, and old replicas are removed only
    when all new ones are in sync. The command copies the data and ends when the reassignment is complete. To continue
    an interrupted reassignment, run the command again, with the same options or none.
    """
    chosen = [replica_assignment is not None, to_nodes is not None or replication_factor is not None, cancel]
    if sum(chosen) > 1:
        arguments.refuse("--replica-assignment, --to-nodes or --replication-factor, --cancel", "give only one of these")

    handle = log.topic(name)
    wanted = _wanted(handle, replica_assignment, to_nodes, replication_factor, cancel=cancel)
    if dry_run:
        reassigner.check(handle, wanted)
        return Result(plan([(handle, wanted)]), records=True)
    moves = reassigner.begin(handle, wanted)
    done = carry_out(handle, throttle)
    copied = {"objects": done.objects, "bytes": done.bytes, "unfinished": done.unfinished, "failures": done.failures}
    return Result(document(name, moves) | copied, why_incomplete(name, done))


def _wanted(
    handle: TopicHandle,
    replica_assignment: str | None,
    to_nodes: str | None,
    replication_factor: int | None,
    *,
    cancel: bool,
) -> Placement:
    state = handle.state
    assignment = arguments.replica_assignment(replica_assignment)
    if assignment is not None:
        return assignment
    if to_nodes is not None:
        nodes = [node.strip() for node in to_nodes.split(",")]
        if not all(nodes) or len(set(nodes)) != len(nodes):
            arguments.refuse("--to-nodes", f"{to_nodes!r} is not a list of different nodes, such as 3,4,5")
        return reassigner.placement_on(handle, nodes, replication_factor)
    if replication_factor is not None:
        return reassigner.placement_with_factor(handle, replication_factor)
    return reassigner.original_placement(state) if cancel else reassigner.target_placement(state)


def carry_out(handle: TopicHandle, throttle: int | None) -> ReassignmentProgress:
    """Copy until the topic's reassignments are complete, with a progress bar on a terminal."""
    wait: Callable[[int], object] = (lambda _: None) if throttle is None else Throttle(handle.log.environment, throttle)
    with bar(f"reassign {handle.name}", reassigner.bytes_to_copy(handle.state, ()), wait) as advance:
        return reassigner.run(handle, advance)


def document(topic: str, moves: Iterable[PartitionMove]) -> dict[str, Any]:
    """Return moves as JSON."""
    fields = ("partition", "before", "after", "adding", "removing")
    return {"topic": topic, "partitions": [{field: getattr(each, field) for field in fields} for each in moves]}


def plan(wanted: Iterable[tuple[TopicHandle, Placement]]) -> list[dict[str, Any]]:
    """Return which partitions would move, and about how many bytes would be copied."""
    found = [(handle, reassigner.moves(handle.state, assignment)) for handle, assignment in wanted]
    return [
        document(each.name, moves) | {"bytes": reassigner.bytes_to_copy(each.state, moves)} for each, moves in found
    ]


def why_incomplete(topic: str, done: ReassignmentProgress) -> list[str]:
    """Return why a reassignment is incomplete, or nothing if it is complete."""
    if not done.unfinished:
        return []
    what = f"topic {topic!r}: the reassignment of {named('partition', done.unfinished)} is incomplete"
    next_step = f"fix the errors above and continue with: pyspark-log topics reassign {topic}"
    return [*(f"topic {topic!r}: {failure}" for failure in done.failures), f"{what}; {next_step}"]
