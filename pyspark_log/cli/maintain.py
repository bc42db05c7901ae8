"""`pyspark-log maintain`: roll, merge, expire and clean up by hand, from cron, or as a service."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyspark_log.cli import arguments

if TYPE_CHECKING:
    from pyspark_log_coordinator.log import Log

EXAMPLES = """\b
Examples:
  pyspark-log maintain
  pyspark-log maintain flights --dry-run
  pyspark-log maintain --watch --interval 30
"""


def maintain(
    path: arguments.Path,
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC]...", help="Which; all and the cluster if none is named.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done, and the orphans; do nothing.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Go on until interrupted.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="How often, with --watch.")] = 10.0,
    json: arguments.Json = False,
) -> None:
    """Keep topics cheap: roll chunks into segments, merge small ones, drop what has expired, remove orphans.

    Writers do this in passing. By hand it is thorough: segments grow to segment.bytes. Where no topic is named, what
    deleted topics and killed writers left is removed too. Any number may run at once. What cannot be done is told at
    the end, and all else is done; the exit code is 1 then.
    """
    from pyspark_log.cli import output
    from pyspark_log.opening import open_log
    from pyspark_log_coordinator.cluster import topic_of

    log = open_log(path)
    for name in topics or ():
        topic_of(log.cluster.state, name)  # one that is misspelt is told before anything is done
    told: set[str] = set()
    while True:
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
    from pyspark_log_coordinator import maintenance, upkeep
    from pyspark_log_coordinator.maintenance import Job
    from pyspark_log_storage.errors import LogError

    handle = log.topic(document["topic"])
    state = handle.journal.state
    due = maintenance.plan(state, handle.now_ms(), state.config.segment_bytes)
    size = sum(job.bytes for job in due)
    document["orphans"] = len(upkeep.orphans(log.store, handle))
    if dry_run:
        document.update(segments=len(due), bytes=size)
        return

    def failed(job: Job, error: LogError) -> None:
        what = f"rows {job.base_offset} to {job.end_offset - 1} were not {'rolled' if job.chunks else 'merged'}"
        document["failures"].append(f"topic {handle.name!r}, partition {job.partition}: {what}: {error.message}")

    with bar(f"maintain {handle.name}", size) as progress:
        document.update(upkeep.maintain(log.store, handle, log.environment.nonce, progress, failed))
    document["removed"] = upkeep.housekeep(log.store, handle)


def _cluster(log: Log, document: dict[str, Any], *, dry_run: bool) -> None:
    """Do what is due in the cluster, and note it in the document. Raises what ends all of that."""
    import msgspec

    from pyspark_log_coordinator import cluster_upkeep
    from pyspark_log_storage.errors import LogError

    def failed(folder: str, error: LogError) -> None:
        document["failures"].append(f"what a deleted topic left in {folder} stays: {error.message}")

    document.update(msgspec.to_builtins(cluster_upkeep.tidy(log, dry_run=dry_run, failed=failed)))


def _has_done_something(document: dict[str, Any]) -> bool:
    return any(document.get(each) for each in ("segments", "removed", "deleted_topics", "temporary_files"))


def _print(done: list[dict[str, Any]], *, dry_run: bool) -> None:
    from pyspark_log.cli import output

    columns = ("topic", "segments", "bytes", "removed", "orphans")
    topics = [each for each in done if each["topic"] is not None]
    output.print_table(columns, [tuple(each[column] for column in columns) for each in topics])
    verb = "would remove" if dry_run else "removed"
    for cluster in (each for each in done if each["topic"] is None):
        for gone in cluster["deleted_topics"]:
            size = f"{_counted(gone['objects'], 'object')} with {gone['bytes']:,} bytes"
            typer.echo(f"{verb} {size} of the deleted topic {gone['topic']} ({gone['topic_id']})")
        if cluster["temporary_files"]:
            typer.echo(f"{verb} {_counted(len(cluster['temporary_files']), 'file')} that killed writers left")


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
