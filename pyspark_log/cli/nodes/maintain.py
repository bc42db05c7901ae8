"""`pyspark-log maintain`: roll, merge, expire and clean up topics, once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from pyspark_log.cli import arguments
from pyspark_log.cli.command import Result, command
from pyspark_log.cli.output import bar
from pyspark_log.documents.topics import future
from pyspark_log_coordinator.maintenance import cluster_cleanup, topic_cleanup, topic_roll
from pyspark_log_coordinator.sync import catch_up, replica_file
from pyspark_log_storage.errors import LogError, UnknownTopic
from pyspark_log_storage.layout import TOPICS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_log.cli.output import Document
    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.maintenance.topic_cleanup import ExpiredRows
    from pyspark_log_coordinator.segments.roll_plan import RollJob

_DONE = ("copied", "segments", "deleted", "expired", "deleted_topics", "temporary_files")
"""The fields of a document that say what was done."""


@command(
    "pyspark-log maintain",
    "pyspark-log maintain flights --dry-run",
    "pyspark-log maintain flights --now",
)
def maintain(
    log: Log,
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
) -> Result:
    """Roll, merge, expire and clean up topics.

    Lets lagging nodes catch up, rolls chunks into segments, merges small segments up to segment.bytes, and deletes
    expired rows and orphaned files. With segment.format=parquet it writes rows that are older than parquet.max.lag.ms
    to Parquet files, and publishes them in the topic's Delta table. With cleanup.policy=compact it removes rows that
    newer rows of their keys supersede. Without TOPIC, it also deletes the files of deleted topics and killed writers.

    Writers do a little of this with each batch; run this command for topics without writers, and for larger segments,
    or pyspark-log node run, which repeats it. Errors do not stop the rest of the work, and the exit code is then 1.
    """
    for name in topics or ():
        log.check_topic(name)  # raises if the name is wrong, before anything is done
    if not dry_run:
        log.journals.check_stores()
    found = [maintain_topic(log, name, dry_run=dry_run, at_once=now) for name in topics or sorted(log.topics())]
    done = [each for each in found if each is not None]
    if not topics:
        done.append(maintain_cluster(log, dry_run=dry_run, at_once=now))
    errors = sorted({failure for each in done for failure in each["failures"]})
    if not dry_run and (doubt := log.clock.doubt):
        errors.append(f"nothing expired or was deleted because of its age: {doubt}")
    return Result(done, errors, [_shown(each) for each in done if each["topic"] or has_done_something(each)])


def _shown(document: Document) -> Document:
    """Return what people see: failures are errors, and not in a table."""
    topic = document["topic"] or "the cluster"
    return {name: value for name, value in document.items() if name != "failures"} | {"topic": topic}


def has_done_something(document: Document) -> bool:
    """Return whether a document says that something was done: copied, rolled, expired or deleted."""
    return any(document.get(each) for each in _DONE)


def maintain_topic(
    log: Log, name: str, *, copies: bool = True, dry_run: bool = False, at_once: bool = False
) -> dict[str, Any] | None:
    """Do everything that is due in a topic, and return what was done, or would be in a dry run.

    With `copies` it begins with copying to nodes what they lack. None if it has been deleted since its name was listed;
    a deletion that was interrupted is finished.
    """
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
        _maintain_topic(log, document, copies=copies, dry_run=dry_run, at_once=at_once)
    except UnknownTopic:
        if not dry_run:
            log.finish_deletion(name)
        return None
    except LogError as error:
        document["failures"].append(f"topic {name!r}: {error.message}")
    return document


def _maintain_topic(log: Log, document: dict[str, Any], *, copies: bool, dry_run: bool, at_once: bool) -> None:
    """Record what is done in the document. Raise `LogError` if nothing can be done."""
    handle = log.topic(document["topic"])
    document["future"] = [
        {"partition": number, "future": found}
        for number in range(len(handle.partitions))
        if (found := future(handle, number))
    ]
    due = topic_roll.jobs_due(handle, at_once=at_once)
    size = sum(job.bytes for job in due)
    document["orphans"] = sum(len(each) for each in topic_cleanup.all_orphans(handle).values())
    if copies and len(log.nodes) > 1:
        document["copied"] = _catch_up(handle, document["failures"], dry_run=dry_run)
    if dry_run:
        expired = topic_cleanup.due_to_expire(handle)
        document.update(segments=len(due), bytes=size, expired=_expired(expired))
        return

    def failed(job: RollJob, error: LogError) -> None:
        document["failures"].append(not_rolled(handle, job, error))

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


def not_rolled(handle: TopicHandle, job: RollJob, error: LogError) -> str:
    """Return in a sentence which rows were not rolled, and why."""
    rows = f"rows {job.base_offset} to {job.end_offset - 1} were not {job.verb}"
    return f"topic {handle.name!r}, partition {job.partition}: {rows}: {error.message}"


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
            files += len(replica_file.missing(handle.state, node))
            continue
        try:
            copied = catch_up.catch_up(handle, node)
        except LogError as error:
            failures.append(f"topic {handle.name!r}, node {node!r} could not catch up: {error.message}")
        else:
            files += copied.objects
            failures += [f"topic {handle.name!r}, node {node!r}: {each.message}" for each in copied.failures]
    return files


def maintain_cluster(log: Log, *, dry_run: bool = False, at_once: bool = False) -> dict[str, Any]:
    """Do everything that is due in the cluster and its groups, and return what was done, as `maintain_topic` does."""
    document: dict[str, Any] = {
        "topic": None,
        "deleted_topics": [],
        "temporary_files": [],
        "trimmed": 0,
        "failures": [],
    }

    def failed(where: str, error: LogError) -> None:
        what = f"the deleted topic in {where}" if where.startswith(TOPICS) else where  # a store
        document["failures"].append(f"{what} was not cleaned up: {error.message}")

    try:
        done = cluster_cleanup.clean_up_cluster(log, dry_run=dry_run, thorough=at_once, failed=failed)
        document.update(msgspec.to_builtins(done))
        if not dry_run:
            trimmed = cluster_cleanup.clean_up_groups(log, lambda name, error: failed(f"group {name!r}", error))
            document["trimmed"] += trimmed
    except LogError as error:
        failed("the cluster", error)
    return document
