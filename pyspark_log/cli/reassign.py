"""`pyspark-log topics reassign`: move the replicas of a topic to other nodes, or have more or fewer of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyspark_log.cli import arguments

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_log_coordinator.cluster.placement import Placement
    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.sync.reassigner import PartitionMove, ReassignmentProgress

EXAMPLES = """\b
Examples:
  pyspark-log topics reassign flights --to-nodes 3,4,5 --dry-run
  pyspark-log topics reassign flights --to-nodes 3,4,5 --throttle 50000000
  pyspark-log topics reassign flights --replication-factor 2
  pyspark-log topics reassign flights --replica-assignment 0:1,1:2
  pyspark-log topics reassign flights --cancel
"""

Throttle = Annotated[int | None, typer.Option(min=1, metavar="BYTES", help="Copy no more than so many bytes a second.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would move; do nothing.")]


def reassign(  # noqa: PLR0913, PLR0917 -- the options of a command
    name: arguments.Topic,
    path: arguments.Path,
    replica_assignment: Annotated[
        str | None,
        typer.Option(metavar="NODES", help="The nodes by hand, such as 0:1,1:2: of partition 0, of partition 1."),
    ] = None,
    to_nodes: Annotated[
        str | None, typer.Option(metavar="NODE,NODE", help="All partitions on these nodes, evenly, and on no other.")
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="On how many nodes each partition shall be.")
    ] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Go back to the nodes as they were.")] = False,
    throttle: Throttle = None,
    dry_run: DryRun = False,
    json: arguments.Json = False,
) -> None:
    """Move partitions to other nodes.

    They may be written and read meanwhile. As few replicas move as need to. The old ones stay until all that are new
    are in sync. This copies, and ends when that is done; where it was stopped,
    the same again, or the command without nodes, goes on.
    """
    chosen = [replica_assignment is not None, to_nodes is not None or replication_factor is not None, cancel]
    if sum(chosen) > 1:
        arguments.refuse("--replica-assignment, --to-nodes or --replication-factor, --cancel", "give one of these")

    from pyspark_log.client.opening import open_log

    log = open_log(path)
    handle = log.topic(name)
    wanted = _wanted(log, handle, replica_assignment, to_nodes, replication_factor, cancel=cancel)
    if dry_run:
        show_plan([(handle, wanted)], json=json)
        return
    from pyspark_log_coordinator.sync import reassigner

    found = reassigner.begin(handle, wanted)
    is_under_way = bool(found or reassigner.reassigning_partitions(handle.refresh()))
    done = carry_out(log, handle, throttle)
    if json:
        from pyspark_log.cli.output import print_json

        print_json(document(handle.name, found) | _result(done))
    else:
        _tell(handle, found, done, is_under_way=is_under_way, cancelled=cancel)
    tell_failures(name, done)


def _wanted(
    log: Log,
    handle: TopicHandle,
    replica_assignment: str | None,
    to_nodes: str | None,
    replication_factor: int | None,
    *,
    cancel: bool,
) -> Placement:
    from pyspark_log_coordinator.sync import reassigner

    state = handle.journal.state
    if replica_assignment is not None:
        return tuple(tuple(each) for each in arguments.assignment(replica_assignment))
    if to_nodes is not None:
        nodes = [node.strip() for node in to_nodes.split(",")]
        if not all(nodes) or len(set(nodes)) != len(nodes):
            arguments.refuse("--to-nodes", f"{to_nodes!r} is not NODE,NODE, such as 3,4,5, each node once")
        return reassigner.placement_on(log, state, nodes, replication_factor)
    if replication_factor is not None:
        return reassigner.placement_with_factor(log, state, replication_factor)
    return reassigner.original_placement(state) if cancel else reassigner.target_placement(state)


def carry_out(log: Log, handle: TopicHandle, throttle: int | None) -> ReassignmentProgress:
    """Copy until the topic's reassignments have ended, with a bar where a person looks."""
    from pyspark_log.cli.progress import bar
    from pyspark_log_coordinator.sync import reassigner
    from pyspark_log_coordinator.sync.throttle import Throttle

    wait = bool if throttle is None else Throttle(log.environment, throttle)
    with bar(f"reassign {handle.name}", reassigner.bytes_behind(handle)) as progress:

        def moved(count: int) -> None:
            progress(count)
            wait(count)

        return reassigner.run(handle, moved)


def document(topic: str, found: Iterable[PartitionMove]) -> dict[str, Any]:
    """Return what machines are told of moves."""
    return {
        "topic": topic,
        "partitions": [
            {
                "partition": each.partition,
                "before": each.before,
                "after": each.after,
                "adding": each.adding,
                "removing": each.removing,
            }
            for each in found
        ],
    }


def _result(done: ReassignmentProgress) -> dict[str, Any]:
    return {
        "objects": done.objects,
        "bytes": done.bytes,
        "unfinished": done.unfinished,
        "failures": done.failures,
    }


def show_plan(wanted: Iterable[tuple[TopicHandle, Placement]], *, json: bool) -> None:
    """Print what would move, and about how many bytes that would copy."""
    from pyspark_log.cli import output
    from pyspark_log_coordinator.sync import reassigner

    rows: list[tuple[Any, ...]] = []
    for handle, assignment in wanted:
        state = handle.journal.state
        found = reassigner.moves(state, assignment)
        if json:
            output.print_json(document(handle.name, found) | {"bytes": reassigner.bytes_to_copy(state, found)})
        for each in found:
            before, after = ", ".join(each.before), ", ".join(each.after)
            rows.append((handle.name, each.partition, before, after, reassigner.bytes_to_copy(state, [each])))
    if json:
        return
    if not rows:
        typer.echo("nothing would move")
        return
    totals = ("total", "", "", "", sum(row[-1] for row in rows))
    columns = ("topic", "partition", "nodes", "would be", "bytes to copy")
    output.print_table(columns, rows, totals if len(rows) > 1 else None)


def tell_failures(topic: str, done: ReassignmentProgress) -> None:
    """Say what is in the way of reassignments that have not ended, and end the program with the exit code 1."""
    if not done.unfinished:
        return
    for failure in done.failures:
        typer.echo(f"pyspark-log: topic {topic!r}: {failure}", err=True)
    numbers = ", ".join(map(str, done.unfinished))
    typer.echo(
        f"pyspark-log: topic {topic!r}: the reassignment of partition(s) {numbers} has not ended; mend what is in the "
        f"way and go on with: pyspark-log topics reassign {topic}",
        err=True,
    )
    raise typer.Exit(1)


def _tell(
    handle: TopicHandle,
    found: tuple[PartitionMove, ...],
    done: ReassignmentProgress,
    *,
    is_under_way: bool,
    cancelled: bool,
) -> None:
    if not is_under_way:
        why = "no reassignment is under way" if cancelled else "has its replicas where they should be"
        typer.echo(f"topic {handle.name}: {why}; nothing was changed" if cancelled else f"topic {handle.name} {why}")
        return
    for each in found:
        typer.echo(
            f"topic {handle.name}, partition {each.partition}: {', '.join(each.before)} -> {', '.join(each.after)}"
        )
    if done.objects:
        files = "1 file" if done.objects == 1 else f"{done.objects:,} files"
        typer.echo(f"copied {files}, {done.bytes:,} bytes")
    if not done.unfinished:
        what = "cancelled" if cancelled else "done"
        typer.echo(f"the reassignment of topic {handle.name} is {what}")
