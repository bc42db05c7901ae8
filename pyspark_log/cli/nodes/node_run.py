"""`pyspark-log node run`: the background work of a node, which a Kafka broker does for itself."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from typing import TYPE_CHECKING, Annotated

import typer

from pyspark_log.cli import arguments, output
from pyspark_log.cli.nodes import watching
from pyspark_log.cli.nodes.nodes import print_voting_advice
from pyspark_log.cli.output import bar, counted
from pyspark_log.opening import open_log, own_log
from pyspark_log_coordinator.maintenance.topic_roll import roll_led_by
from pyspark_log_coordinator.model import settings
from pyspark_log_coordinator.sync.controller import ControllerSettings
from pyspark_log_coordinator.sync.follower import Follower, FollowerRound, clean_up_node
from pyspark_log_coordinator.sync.replica_file import Throttle
from pyspark_log_coordinator.sync.scrubber import scrub
from pyspark_log_storage.errors import LogError, LogMoved, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.segments.roll_plan import RollJob

CLEAN_SECONDS, CLEAN_SECONDS_REMOTE = 60.0, 600.0
"""How often files that no entry names are deleted, the node's Delta tables published, and its partitions rolled; longer
in an object store."""
INTERVAL_SECONDS = 0.5
QUIET_SHARE, LONGEST_PAUSE = 8, 10.0
"""In an object store, a pause between two checks is this part of the time since data was copied last, and at most so
many seconds: a third of replica.lag.time.max.ms."""

SCRUB_BYTES_PER_SECOND = 1024 * 1024
"""How fast a node is scrubbed: the default of HDFS's block scanner."""
SCRUB_PAUSE_SECONDS = 60.0
"""Between the end of one pass of the scrubber and the start of the next."""


@arguments.examples(
    "pyspark-log node run 1",
    "pyspark-log node run 1 --once --throttle 50000000",
)
def run(  # noqa: PLR0913, PLR0917 -- the options of a command
    node_id: arguments.NodeId,
    path: arguments.Path,
    once: Annotated[bool, typer.Option("--once", help="Exit when the node has caught up.")] = False,
    throttle: arguments.Throttle = None,
    interval: Annotated[
        float | None,
        typer.Option(
            min=0.05,
            metavar="SECONDS",
            help="Time between checks for new data (default: 0.5; in an object store up to 10).",
        ),
    ] = None,
    scrub: Annotated[
        int,
        typer.Option("--scrub", min=0, metavar="BYTES", help="Bytes to scrub per second; 0 disables scrubbing."),
    ] = SCRUB_BYTES_PER_SECOND,
    session_timeout_ms: watching.SessionTimeout = settings.BROKER_SESSION_TIMEOUT_MS.default,
    rebalance: watching.Rebalance = settings.AUTO_LEADER_REBALANCE_ENABLE.default,
    rebalance_seconds: watching.RebalanceSeconds = settings.LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS.default,
    rebalance_percentage: watching.RebalancePercentage = settings.LEADER_IMBALANCE_PER_BROKER_PERCENTAGE.default,
    json: arguments.Json = False,
) -> None:
    """Keep a node in sync and check its data.

    Copies the data that the node lacks from other replicas. Writers normally write to all nodes themselves; run this
    for a node that is new or was unreachable.

    Without --once, the command runs until it is interrupted. It then also watches all topics, as Kafka's controller
    does: it elects new leaders for unreachable nodes, removes lagging replicas from the ISR, and moves leadership back
    to preferred leaders. And it continuously scrubs the node at a low rate: it replaces damaged or missing files with
    copies from other nodes.

    Every minute, or at the end with --once, it deletes files on the node that no entry names any more, and publishes
    the node's Delta tables. Without --once it also rolls and merges, as maintain does, the partitions that the node
    leads, of topics with segment.format=parquet.

    It can be stopped at any time, and any number of processes can run at once.
    """
    log = open_log(path)
    follower = Follower(log, node_id)
    print_voting_advice(log)
    if not once:
        watching.start(path, ControllerSettings(session_timeout_ms, rebalance, rebalance_seconds, rebalance_percentage))
        threading.Thread(target=_roll, args=(path, node_id), name=f"roll node {node_id}", daemon=True).start()
        if scrub:
            _start_scrubbing(path, node_id, scrub)
    wait: Callable[[int], object] = (lambda _: None) if throttle is None else Throttle(log.environment, throttle)
    errors = output.RepeatedErrors()
    cleaned = copied = time.monotonic()
    clean_seconds = CLEAN_SECONDS_REMOTE if log.is_remote else CLEAN_SECONDS
    while True:
        try:
            log.store_checks.check()
            done = _round(follower, node_id, wait)
            if once or time.monotonic() - cleaned > clean_seconds:
                clean_up_node(log, node_id)
                cleaned = time.monotonic()
        except (LogMoved, StoreError) as error:
            if once:
                raise
            # By the next round the disk may be mounted again, and the log is opened where its journals are.
            done = FollowerRound(0, 0, (error.message,))
        if done.objects or once:
            _show(node_id, done, json=json)
        errors.print(done.failures)
        if once:
            raise typer.Exit(1 if done.failures else 0)
        if done.objects:
            copied = time.monotonic()
        else:
            time.sleep(_pause(log, time.monotonic() - copied) if interval is None else interval)
        with contextlib.suppress(StoreError):
            log.open(create=False)


def _pause(log: Log, quiet: float) -> float:
    """Return how many seconds to wait before the next check, `quiet` seconds after data was copied."""
    if not log.is_remote:
        return INTERVAL_SECONDS
    return min(max(quiet / QUIET_SHARE, INTERVAL_SECONDS), LONGEST_PAUSE)


def _roll(path: str, node_id: str) -> None:
    """Roll and merge what the node leads, every minute until the process ends."""
    log, errors = own_log(path), output.RepeatedErrors()
    while True:
        failures: list[str] = []

        def failed(handle: TopicHandle, job: RollJob, error: LogError, found: list[str] = failures) -> None:
            rows = f"rows {job.base_offset} to {job.end_offset - 1} were not {job.verb}"
            found.append(f"topic {handle.name!r}, partition {job.partition}: {rows}: {error.message}")

        def damaged(topic: str, error: LogError, found: list[str] = failures) -> None:
            found.append(f"topic {topic!r} was not rolled: {error.message}")

        try:
            log.open(create=False)
            roll_led_by(log, node_id, failed, damaged)
        except LogError as error:
            failures.append(f"the partitions that node {node_id} leads were not rolled: {error.message}")
        errors.print(failures)
        time.sleep(CLEAN_SECONDS_REMOTE if log.is_remote else CLEAN_SECONDS)


def _start_scrubbing(path: str, node_id: str, bytes_per_second: int) -> None:
    """Scrub a node, in a thread, until the process ends."""
    arguments = (path, node_id, bytes_per_second)
    threading.Thread(target=_scrub, args=arguments, name=f"scrub node {node_id}", daemon=True).start()


def _scrub(path: str, node_id: str, bytes_per_second: int) -> None:
    log = own_log(path)
    wait = Throttle(log.environment, bytes_per_second)
    errors = output.RepeatedErrors()
    while True:
        failures: list[str] = []
        try:
            log.open(create=False)
            done = scrub(log, node_id, wait)
            for key in done.repaired:
                typer.echo(f"node {node_id}: {key} was damaged or missing; it is repaired", err=True)
            failures += sorted(done.failures)
        except LogError as error:
            failures.append(f"node {node_id} was not scrubbed: {error.message}")
        errors.print(failures)
        time.sleep(SCRUB_PAUSE_SECONDS)


def _round(follower: Follower, node_id: str, wait: Callable[[int], object]) -> FollowerRound:
    """Copy the data that the node lacks, with a progress bar on a terminal."""
    total = follower.behind() if sys.stderr.isatty() else 0
    if total == 0:
        return follower.round(wait)
    with bar(f"node {node_id}", total, wait) as advance:
        return follower.round(advance)


def _show(node_id: str, done: FollowerRound, *, json: bool) -> None:
    """Print what a round copied."""
    if done.objects:
        said = [f"node {node_id}: copied {counted(done.objects, 'file')}, {done.bytes:,} bytes"]
    else:
        said = [] if done.failures else [f"node {node_id} is up to date; nothing was copied"]
    document = {"node": node_id, "objects": done.objects, "bytes": done.bytes, "failures": done.failures}
    output.show(document, *said, json=json)
