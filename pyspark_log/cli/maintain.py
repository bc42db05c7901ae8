"""`pyspark-log maintain`: roll, merge, expire and clean up by hand, from cron, or as a service."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyspark_log.cli import arguments, watching
from pyspark_log.cli.words import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.maintenance.topic_cleanup import ExpiredRows

EXAMPLES = """\b
Examples:
  pyspark-log maintain
  pyspark-log maintain flights --dry-run
  pyspark-log maintain --watch --interval 30
"""


def maintain(  # noqa: PLR0913, PLR0917 -- the options of a command
    path: arguments.Path,
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC", help="Which; all and the cluster if none is named.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done, and the orphans; do nothing.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Go on until interrupted.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="How often, with --watch.")] = 10.0,
    session_timeout_ms: watching.SessionTimeout = 9_000,
    rebalance: watching.Rebalance = True,
    rebalance_seconds: watching.RebalanceSeconds = 300.0,
    rebalance_percentage: watching.RebalancePercentage = 10.0,
    json: arguments.Json = False,
) -> None:
    """Keep topics cheap: roll, merge, expire, remove orphans.

    Chunks are rolled into segments, small ones are merged, what has expired is dropped. Of several nodes, those that
    are there and lag behind are brought up to date first.

    Writers do this in passing. By hand it is thorough: segments grow up to segment.bytes. Where no topic is named, what
    deleted topics and killed writers left is removed too. Any number may run at once. What cannot be done is told at
    the end, and all else is done; the exit code is 1 then.

    With --watch it also watches all topics: nodes that stay away are put out of the ISRs, others lead in their place,
    and preferred leaders get the lead back.
    """
    from pyspark_log.cli import output
    from pyspark_log.client.opening import open_log
    from pyspark_log_coordinator.cluster.cluster_state import topic_of
    from pyspark_log_coordinator.sync.controller import ControllerSettings

    log = open_log(path)
    for name in topics or ():
        topic_of(log.cluster.state, name)  # one that is misspelt is told before anything is done
    told: set[str] = set()
    if watch and not dry_run:
        watching.start(
            path,
            ControllerSettings(
                session_timeout_ms=session_timeout_ms,
                auto_leader_rebalance_enable=rebalance,
                leader_imbalance_check_interval_seconds=rebalance_seconds,
                leader_imbalance_per_broker_percentage=rebalance_percentage,
            ),
        )
    while True:
        if len(log.cluster.state.nodes) > 1:
            log.open(create=False)  # which nodes are missing now
        done = _round(log, topics, dry_run=dry_run)
        if json:
            output.print_json(*done)
        elif not watch or any(_has_done_something(each) for each in done):
            _print(done, dry_run=dry_run)
        failures = {failure for each in done for failure in each["failures"]}
        for failure in sorted(failures - told):
            typer.echo(f"pyspark-log: {failure}", err=True)
        if not watch or dry_run:
            if failures:
                raise typer.Exit(1)
            return
        told = failures
        time.sleep(interval)


def _round(log: Log, topics: list[str] | None, *, dry_run: bool) -> list[dict[str, Any]]:
    """Do all that is due once; return a document for each topic and, where none is named, one for the cluster."""
    from pyspark_log_storage.errors import LogError, UnknownTopic

    cluster: dict[str, Any] = {"topic": None, "deleted_topics": [], "temporary_files": [], "trimmed": 0, "failures": []}
    done = []
    try:
        for name in topics or sorted(log.topics()):
            document: dict[str, Any] = {
                "topic": name,
                "segments": 0,
                "bytes": 0,
                "removed": 0,
                "orphans": 0,
                "expired": [],
                "waiting": 0,
                "failures": [],
            }
            try:
                _topic(log, document, dry_run=dry_run)
            except UnknownTopic as error:
                if not topics:
                    # Deleted meanwhile; or its deletion was cut short before its name went.
                    if not dry_run:
                        log.finish_deletion(name)
                    continue
                document["failures"].append(error.message)
            except LogError as error:
                document["failures"].append(f"topic {name!r}: {error.message}")
            done.append(document)
        if not topics:
            _cluster(log, cluster, dry_run=dry_run)
    except LogError as error:
        cluster["failures"].append(f"the cluster was not tidied up: {error.message}")
    return done if topics else [*done, cluster]


def _topic(log: Log, document: dict[str, Any], *, dry_run: bool) -> None:
    """Do what is due in one topic, and note it in the document. Raises what ends all of that."""
    from pyspark_log.cli.progress import bar
    from pyspark_log_coordinator.maintenance import topic_cleanup, topic_roll
    from pyspark_log_coordinator.segments import retention, roll_plan
    from pyspark_log_coordinator.segments.roll_plan import RollJob
    from pyspark_log_storage.errors import LogError

    handle = log.topic(document["topic"])
    state = handle.journal.state
    due = roll_plan.plan(state, handle.now_ms(), state.config.segment_bytes)
    size = sum(job.bytes for job in due)
    document["orphans"] = sum(len(each) for each in topic_cleanup.all_orphans(handle).values())
    if len(log.cluster.state.nodes) > 1:
        document["copied"] = _catch_up(log, handle, document["failures"], dry_run=dry_run)
    if dry_run:
        expired = topic_cleanup.expired_by(state, retention.decide_retention(state, handle.now_ms()))
        document.update(segments=len(due), bytes=size, expired=_expired(expired))
        return

    def failed(job: RollJob, error: LogError) -> None:
        what = f"rows {job.base_offset} to {job.end_offset - 1} were not {'rolled' if job.chunks else 'merged'}"
        document["failures"].append(f"topic {handle.name!r}, partition {job.partition}: {what}: {error.message}")

    with bar(f"maintain {handle.name}", size) as progress:
        document.update(topic_roll.roll_and_merge(handle, progress, failed))

    def not_cleaned(node: str, error: LogError) -> None:
        document["failures"].append(f"topic {handle.name!r}, node {node!r} was not cleaned up: {error.message}")

    done = topic_cleanup.clean_up_topic(handle, failed=not_cleaned)
    document.update(removed=done.deleted, expired=_expired(done.expired), waiting=done.scheduled)


def _expired(found: Sequence[ExpiredRows]) -> list[dict[str, int]]:
    return [
        {"partition": each.partition, "from": each.log_start_before, "log_start": each.log_start, "rows": each.rows}
        for each in found
    ]


def _catch_up(log: Log, handle: TopicHandle, failures: list[str], *, dry_run: bool) -> int:
    """Copy to each node that is there what it lacks of a topic; return how many files that were, or would be."""
    from pyspark_log_coordinator.cluster.nodes import live
    from pyspark_log_coordinator.sync import catch_up, replica_file
    from pyspark_log_storage.errors import LogError

    count = 0
    for node in live(log.cluster.state.nodes):
        if node in log.missing_nodes or not any(node in each.replicas for each in handle.journal.state.partitions):
            continue
        if dry_run:
            count += len(replica_file.missing(handle, node))
            continue
        try:
            copied = catch_up.catch_up(handle, node)
        except LogError as error:
            failures.append(f"topic {handle.name!r}, node {node!r} was not brought up to date: {error.message}")
        else:
            count += copied.objects
            failures += [f"topic {handle.name!r}, node {node!r}: {each.message}" for each in copied.failures]
    return count


def _cluster(log: Log, document: dict[str, Any], *, dry_run: bool) -> None:
    """Do what is due in the cluster, and note it in the document. Raises what ends all of that."""
    import msgspec

    from pyspark_log_coordinator.maintenance import cluster_cleanup
    from pyspark_log_storage.errors import LogError
    from pyspark_log_storage.layout import TOPICS

    def failed(where: str, error: LogError) -> None:
        is_topic = where.startswith(TOPICS)  # else a store that fails
        what = f"what a deleted topic left in {where} stays" if is_topic else f"{where} was not tidied up"
        document["failures"].append(f"{what}: {error.message}")

    document.update(msgspec.to_builtins(cluster_cleanup.clean_up_cluster(log, dry_run=dry_run, failed=failed)))


def _has_done_something(document: dict[str, Any]) -> bool:
    return any(
        document.get(each) for each in ("copied", "segments", "removed", "expired", "deleted_topics", "temporary_files")
    )


def _print(done: list[dict[str, Any]], *, dry_run: bool) -> None:
    from pyspark_log.cli import output

    topics = [each for each in done if each["topic"] is not None]
    copied = ["copied"] if any("copied" in each for each in topics) else []
    columns = ("topic", *copied, "segments", "bytes", "removed", "orphans")
    output.print_table(columns, [tuple(each.get(column, 0) for column in columns) for each in topics])
    moved = "would move" if dry_run else "moved"
    for each in topics:
        for one in each["expired"]:
            typer.echo(
                f"topic {each['topic']}, partition {one['partition']}: {counted(one['rows'], 'row')} expired, the log "
                f"start {moved} from {one['from']} to {one['log_start']}"
            )
        if each["waiting"]:
            files = counted(each["waiting"], "file")
            typer.echo(f"topic {each['topic']}: {files} not needed any more, to be removed after file.delete.delay.ms")
    verb = "would remove" if dry_run else "removed"
    for cluster in (each for each in done if each["topic"] is None):
        for gone in cluster["deleted_topics"]:
            size = f"{counted(gone['objects'], 'object')} with {gone['bytes']:,} bytes"
            typer.echo(f"{verb} {size} of the deleted topic {gone['topic']} ({gone['topic_id']})")
        if cluster["temporary_files"]:
            typer.echo(f"{verb} {counted(len(cluster['temporary_files']), 'file')} left half-written")
