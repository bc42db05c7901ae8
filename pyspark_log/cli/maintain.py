"""`pyspark-log maintain`: roll, merge, expire and clean up by hand, from cron, or as a service."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from pyspark_log.cli import arguments

if TYPE_CHECKING:
    from pyspark_log_coordinator.log import Log, TopicHandle

EXAMPLES = """\b
Examples:
  pyspark-log maintain
  pyspark-log maintain flights --dry-run
  pyspark-log maintain --watch --interval 30
"""


def maintain(
    path: arguments.Path,
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC]...", help="Which; all if none is named.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done, and the orphans; do nothing.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Go on until interrupted.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="How often, with --watch.")] = 10.0,
    json: arguments.Json = False,
) -> None:
    """Keep topics cheap: roll chunks into segments, merge small ones, drop what has expired, remove orphans.

    Writers do this in passing. By hand it is thorough: segments grow to segment.bytes. Any number may run at once.
    """
    from pyspark_log.cli import output
    from pyspark_log.opening import open_log

    log = open_log(path)
    while True:
        done = [_one(log, log.topic(name), dry_run=dry_run) for name in topics or sorted(log.topics())]
        if json:
            output.print_json(*done)
        elif not watch or any(each["segments"] or each["removed"] for each in done):
            columns = ("topic", "segments", "bytes", "removed", "orphans")
            output.print_table(columns, [tuple(each[column] for column in columns) for each in done])
        if not watch or dry_run:
            return
        time.sleep(interval)


def _one(log: Log, handle: TopicHandle, *, dry_run: bool) -> dict[str, str | int]:
    from pyspark_log.cli.progress import bar
    from pyspark_log_coordinator import maintenance, upkeep

    state = handle.refresh()
    due = maintenance.plan(state, handle.now_ms(), state.config.segment_bytes)
    planned = {"segments": len(due), "bytes": sum(job.bytes for job in due)}
    orphans = upkeep.orphans(log.store, handle)
    if not dry_run:
        with bar(f"maintain {handle.name}", sum(job.bytes for job in due)) as progress:
            planned = upkeep.maintain(log.store, handle, log.environment.nonce, progress)
    removed = 0 if dry_run else upkeep.housekeep(log.store, handle)
    return {"topic": handle.name, **planned, "removed": removed, "orphans": len(orphans)}
