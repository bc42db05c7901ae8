"""`pyspark-log maintain`: roll, merge, expire and clean up topics, from cron or as a service."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from pyspark_log.cli import arguments, output
from pyspark_log.cli.nodes import watching
from pyspark_log.cli.output import bar, counted
from pyspark_log.documents.topics import future
from pyspark_log.opening import open_log
from pyspark_log_coordinator.maintenance import cluster_cleanup, topic_cleanup, topic_roll
from pyspark_log_coordinator.maintenance.topic_cleanup import is_clean
from pyspark_log_coordinator.model import settings
from pyspark_log_coordinator.sync import catch_up, replica_file
from pyspark_log_coordinator.sync.controller import ControllerSettings
from pyspark_log_storage.errors import LogError, StoreError, UnknownTopic
from pyspark_log_storage.layout import TOPICS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.maintenance.topic_cleanup import ExpiredRows
    from pyspark_log_coordinator.segments.roll_plan import RollJob

LOOK_SECONDS_MAX = 60.0
"""The longest pause between two looks at a settled topic."""
CLUSTER_SECONDS, CLUSTER_SECONDS_MAX = 60.0, 600.0
"""The first and the longest pause between two rounds for the cluster: deleted topics, killed writers, groups."""
ROUND_SECONDS_MAX = 3600.0
"""How often a settled topic has a round."""


@arguments.examples(
    "pyspark-log maintain",
    "pyspark-log maintain flights --dry-run",
    "pyspark-log maintain flights --now",
    "pyspark-log maintain --watch --interval 30",
)
def maintain(  # noqa: PLR0913, PLR0917 -- the options of a command
    path: arguments.Path,
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC", help="Names of topics (default: all, and the cluster).")
    ] = None,
    dry_run: arguments.DryRun = False,
    now: Annotated[
        bool,
        typer.Option(
            "--now",
            help="Write all rows to Parquet, whatever their age, if segment.format is parquet, and compact them, "
            "whatever min.cleanable.dirty.ratio is, if cleanup.policy has compact. Look through the folders of all "
            "deleted topics.",
        ),
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat until interrupted, and watch all topics.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Time between rounds of --watch.")] = 10.0,
    session_timeout_ms: watching.SessionTimeout = settings.BROKER_SESSION_TIMEOUT_MS.default,
    rebalance: watching.Rebalance = settings.AUTO_LEADER_REBALANCE_ENABLE.default,
    rebalance_seconds: watching.RebalanceSeconds = settings.LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS.default,
    rebalance_percentage: watching.RebalancePercentage = settings.LEADER_IMBALANCE_PER_BROKER_PERCENTAGE.default,
    json: arguments.Json = False,
) -> None:
    """Roll, merge, expire and clean up topics.

    Lets lagging nodes catch up, rolls chunks into segments, merges small segments up to segment.bytes, and deletes
    expired rows and orphaned files. With segment.format=parquet it writes rows that are older than parquet.max.lag.ms
    to Parquet files, and publishes them in the topic's Delta table. With cleanup.policy=compact it removes rows that
    newer rows of their keys supersede. Without TOPIC, it also deletes the files of deleted topics and killed writers.

    Writers do a little of this with each batch; run this command for topics without writers, and for larger segments.
    Errors do not stop the rest of the work. They are printed at the end, and the exit code is then 1.

    With --watch, the command also watches all topics, as node run does: it elects new leaders for unreachable nodes,
    removes lagging replicas from the ISR, and moves leadership back to preferred leaders. Any number of processes can
    run at once.
    """
    if now and watch:
        arguments.refuse("--now, --watch", "give only one of these; with --watch, the topics' settings decide")
    log = open_log(path)
    for name in topics or ():
        log.check_topic(name)  # raises if the name is wrong, before anything is done
    errors = output.RepeatedErrors()
    pace = WatchPace(log, interval) if watch and log.is_remote else None
    if watch and not dry_run:
        watching.start(path, ControllerSettings(session_timeout_ms, rebalance, rebalance_seconds, rebalance_percentage))
    while True:
        if len(log.nodes) > 1:
            try:
                log.open(create=False)  # finds missing nodes
            except StoreError:
                if not watch:
                    raise
                # The round reports it, and by the next one the journals may be reachable.
        if not dry_run:
            log.store_checks.check()
        done = _round(log, topics, pace, dry_run=dry_run, at_once=now)
        if json:
            output.print_json(*done)
        elif not watch or any(_has_done_something(each) for each in done):
            _print(done, dry_run=dry_run)
        failures = sorted({failure for each in done for failure in each["failures"]})
        if not dry_run and (doubt := log.clock.doubt):
            failures.append(f"nothing expired or was deleted because of its age: {doubt}")
        errors.print(failures)
        if not watch or dry_run:
            if failures:
                raise typer.Exit(1)
            return
        time.sleep(interval)


def _round(
    log: Log, topics: list[str] | None, pace: WatchPace | None, *, dry_run: bool, at_once: bool
) -> list[dict[str, Any]]:
    """Do everything that is due; return a document for each topic and, if no topic is named, one for the cluster.

    With a `pace`, topics in which nothing has changed are left out.
    """
    cluster: dict[str, Any] = {"topic": None, "deleted_topics": [], "temporary_files": [], "trimmed": 0, "failures": []}
    done = []
    try:
        for name in topics or sorted(log.topics(polls=pace is not None)):
            if pace is not None and not pace.topic_is_due(name):
                continue
            document: dict[str, Any] = {
                "topic": name,
                "segments": 0,
                "bytes": 0,
                "deleted": 0,
                "orphans": 0,
                "expired": [],
                "scheduled": 0,
                "future": [],
                "failures": [],
            }
            try:
                _topic(log, document, dry_run=dry_run, at_once=at_once)
            except UnknownTopic as error:
                if not topics:
                    # It was deleted after the names were listed, or its deletion was interrupted.
                    if not dry_run:
                        log.finish_deletion(name)
                    continue
                document["failures"].append(error.message)
            except LogError as error:
                document["failures"].append(f"topic {name!r}: {error.message}")
            if pace is not None and not document["failures"]:
                pace.note(name)
            done.append(document)
        if not topics and (pace is None or pace.cluster_is_due()):
            done.append(cluster)
            _cluster(log, cluster, dry_run=dry_run, at_once=at_once)
            if pace is not None and (_has_done_something(cluster) or cluster["failures"]):
                pace.cluster_is_busy()
    except LogError as error:
        cluster["failures"].append(f"the cluster was not cleaned up: {error.message}")
        done = [*(each for each in done if each is not cluster), cluster]
    return done


def _topic(log: Log, document: dict[str, Any], *, dry_run: bool, at_once: bool) -> None:
    """Do everything that is due in a topic, and record it in the document. Raise `LogError` if nothing can be done."""
    handle = log.topic(document["topic"])
    document["future"] = [
        {"partition": number, "future": found}
        for number in range(len(handle.partitions))
        if (found := future(handle, number))
    ]
    due = topic_roll.jobs_due(handle, at_once=at_once)
    size = sum(job.bytes for job in due)
    document["orphans"] = sum(len(each) for each in topic_cleanup.all_orphans(handle).values())
    if len(log.nodes) > 1:
        document["copied"] = _catch_up(handle, document["failures"], dry_run=dry_run)
    if dry_run:
        expired = topic_cleanup.due_to_expire(handle)
        document.update(segments=len(due), bytes=size, expired=_expired(expired))
        return

    def failed(job: RollJob, error: LogError) -> None:
        what = f"rows {job.base_offset} to {job.end_offset - 1} were not {job.verb}"
        document["failures"].append(f"topic {handle.name!r}, partition {job.partition}: {what}: {error.message}")

    def delete() -> None:  # meanwhile, so that a long run needs little room
        document["deleted"] += len(topic_cleanup.delete_pending(handle, handle.now_ms()))

    document["deleted"], expired = log.with_reserves(lambda: topic_cleanup.expire(handle))
    with bar(f"maintain {handle.name}", size) as progress:
        document.update(topic_roll.roll_and_merge(handle, progress, failed, delete, at_once=at_once))

    def not_cleaned(node: str, error: LogError) -> None:
        document["failures"].append(f"topic {handle.name!r}, node {node!r} was not cleaned up: {error.message}")

    done = topic_cleanup.clean_up_topic(handle, failed=not_cleaned)
    document["deleted"] += done.deleted
    document.update(expired=_expired((*expired, *done.expired)), scheduled=done.scheduled)


def _expired(found: Sequence[ExpiredRows]) -> list[dict[str, int]]:
    return [
        {"partition": each.partition, "from": each.log_start_before, "log_start": each.log_start, "rows": each.rows}
        for each in found
    ]


def _catch_up(handle: TopicHandle, failures: list[str], *, dry_run: bool) -> int:
    """Let the reachable nodes catch up with a topic; return the number of files copied, or to be copied."""
    files, log = 0, handle.log
    for node in log.live_nodes:
        if node in log.missing_nodes or not any(node in each.replicas for each in handle.partitions):
            continue
        if dry_run:
            files += len(replica_file.missing(handle, node))
            continue
        try:
            copied = catch_up.catch_up(handle, node)
        except LogError as error:
            failures.append(f"topic {handle.name!r}, node {node!r} could not catch up: {error.message}")
        else:
            files += copied.objects
            failures += [f"topic {handle.name!r}, node {node!r}: {each.message}" for each in copied.failures]
    return files


def _cluster(log: Log, document: dict[str, Any], *, dry_run: bool, at_once: bool) -> None:
    """Do everything that is due in the cluster, and record it in the document. Raise `LogError` as `_topic` does."""

    def failed(where: str, error: LogError) -> None:
        what = f"the deleted topic in {where}" if where.startswith(TOPICS) else where  # a store
        document["failures"].append(f"{what} was not cleaned up: {error.message}")

    done = cluster_cleanup.clean_up_cluster(log, dry_run=dry_run, thorough=at_once, failed=failed)
    document.update(msgspec.to_builtins(done))
    if not dry_run:
        trimmed = cluster_cleanup.clean_up_groups(log, lambda name, error: failed(f"group {name!r}", error))
        document["trimmed"] += trimmed


def _has_done_something(document: dict[str, Any]) -> bool:
    return any(
        document.get(each) for each in ("copied", "segments", "deleted", "expired", "deleted_topics", "temporary_files")
    )


def _print(done: list[dict[str, Any]], *, dry_run: bool) -> None:
    topics = [each for each in done if each["topic"] is not None]
    copied = ["copied"] if any("copied" in each for each in topics) else []
    columns = ("topic", *copied, "segments", "bytes", "deleted", "orphans")
    output.print_table(columns, [{"copied": 0, **each} for each in topics])
    moved = "would move" if dry_run else "moved"
    for each in topics:
        for one in each["expired"]:
            typer.echo(
                f"topic {each['topic']}, partition {one['partition']}: {counted(one['rows'], 'row')} expired; log "
                f"start {moved} from {one['from']} to {one['log_start']}"
            )
        for one in each["future"]:
            for found in one["future"]:
                typer.echo(
                    f"topic {each['topic']}, partition {one['partition']}: a row of offsets {found['from']} to "
                    f"{found['to']} has a timestamp in the future; they expire retention.ms after they were written"
                )
        if each["scheduled"]:
            files = counted(each["scheduled"], "file")
            typer.echo(f"topic {each['topic']}: {files} to be deleted after file.delete.delay.ms")
    verb = "would delete" if dry_run else "deleted"
    for cluster in (each for each in done if each["topic"] is None):
        for gone in cluster["deleted_topics"]:
            size = f"{counted(gone['objects'], 'file')} ({gone['bytes']:,} bytes)"
            typer.echo(f"{verb} {size} of the deleted topic {gone['topic']} ({gone['topic_id']})")
        if cluster["temporary_files"]:
            typer.echo(f"{verb} {counted(len(cluster['temporary_files']), 'file')} left by interrupted writes")


class _Settled(msgspec.Struct):
    handle: TopicHandle
    number: int
    missing: frozenset[str]
    """The nodes that could not be reached."""
    pause: float
    look_at: float
    round_at: float


class WatchPace:
    """The pace of maintain --watch in an object store, where each look is a request.

    A topic is settled after a round that found nothing to do. Until its journal has a new entry it needs no round,
    unless time brings something: rows that expire, chunks to roll, files to delete. The known state tells that without
    a request. So a settled topic costs one look at its journal, and the pauses between these looks grow. A round for
    all files follows every hour, for what no entry tells: files that a slow writer adds below the orphan floor.

    Times are in seconds of the process's monotonic clock.
    """

    def __init__(self, log: Log, interval: float) -> None:
        """`interval` is the time between two rounds."""
        self._log = log
        self._interval = interval
        self._settled: dict[str, _Settled] = {}
        self._begun: dict[str, tuple[TopicHandle, int]] = {}
        """The topics whose rounds have begun, and their newest entries at that time."""
        self._cluster = 0
        """The newest entry of the cluster's journal at the last round for the cluster."""
        self._cluster_seconds = max(CLUSTER_SECONDS, interval)
        self._cluster_pause, self._cluster_at = self._cluster_seconds, -float("inf")

    def topic_is_due(self, name: str) -> bool:
        """Return whether a topic needs a round, which then begins. A topic that cannot be looked at needs one."""
        try:
            settled = self._settled.get(name)
            if settled is not None and not self._has_changed(name, settled):
                return False
            self._settled.pop(name, None)
            handle = self._log.topic(name, polls=True)
        except LogError:
            self._settled.pop(name, None)
            return True
        self._begun[name] = handle, handle.version
        return True

    def note(self, name: str) -> None:
        """Note that the round of a topic has ended, without a failure."""
        handle, number = self._begun.pop(name, (None, 0))
        if handle is not None and handle.version == number:
            now = self._log.environment.monotonic()
            self._settled[name] = _Settled(
                handle,
                number,
                frozenset(self._log.missing_nodes),
                self._interval,
                now + self._interval,
                now + max(ROUND_SECONDS_MAX, self._interval),
            )

    def cluster_is_due(self) -> bool:
        """Return whether the cluster needs a round, which then begins."""
        now, number = self._log.environment.monotonic(), self._log.cluster.number
        if number != self._cluster:
            self._cluster, self._cluster_pause = number, self._cluster_seconds
        elif now < self._cluster_at:
            return False
        self._cluster_at = now + self._cluster_pause
        self._cluster_pause = min(2 * self._cluster_pause, max(CLUSTER_SECONDS_MAX, self._interval))
        return True

    def cluster_is_busy(self) -> None:
        """Note that the round for the cluster has done something or failed, so that the next one is soon."""
        self._cluster_pause = self._cluster_seconds
        self._cluster_at = self._log.environment.monotonic() + self._cluster_seconds

    def _has_changed(self, name: str, settled: _Settled) -> bool:
        """Return whether a settled topic needs a round. Raises `LogError`."""
        now = self._log.environment.monotonic()
        if now >= settled.round_at or settled.missing != self._log.missing_nodes.keys():
            return True
        if now >= settled.look_at:
            handle = self._log.topic(name, polls=True)
            if handle is not settled.handle or handle.version != settled.number:
                return True
            settled.pause = min(2 * settled.pause, max(LOOK_SECONDS_MAX, self._interval))
            settled.look_at = now + settled.pause
        return self._has_work(settled.handle)

    def _has_work(self, handle: TopicHandle) -> bool:
        """Return whether there is something to do, by what is known."""
        if not is_clean(handle, handle.now_ms()) or topic_roll.jobs_due(handle):
            return True
        nodes = self._log.live_nodes
        return len(nodes) > 1 and any(
            replica_file.missing(handle, each) for each in nodes if each not in self._log.missing_nodes
        )
