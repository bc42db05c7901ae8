"""`pyspark-log node run`: the background work of nodes, which a Kafka broker does for itself.

Each job has a thread and a log of its own, so that a long one delays no other. Its rounds have a pause between them.
While its rounds find nothing to do, the pause doubles, if a store of the cluster is an object store, where each look is
a request.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from pyspark_log.cli import arguments, output
from pyspark_log.cli.nodes import maintain
from pyspark_log.cli.nodes.nodes import print_voting_advice
from pyspark_log.cli.output import bar
from pyspark_log.opening import open_log, own_log
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.maintenance.follower import Follower, FollowerRound, clean_up_node
from pyspark_log_coordinator.maintenance.topic_roll import roll_led_by
from pyspark_log_coordinator.model import settings
from pyspark_log_coordinator.sync.controller import Controller, ControllerSettings
from pyspark_log_coordinator.sync.faults import scrub as scrub_node
from pyspark_log_coordinator.sync.replica_file import Throttle
from pyspark_log_storage.errors import LogError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.segments.roll_plan import RollJob

    Job = Callable[[Log, list[str]], bool]
    """A round of a job: open the log, add to a list what failed, return whether there was something to do."""

SCRUB_BYTES_PER_SECOND = 1024 * 1024
"""How fast nodes are scrubbed: the default of HDFS's block scanner."""


class Pause(NamedTuple):
    """The first and the longest pause between two rounds, in seconds."""

    first: float
    longest: float

    def after(self, pause: float, *, is_busy: bool, is_remote: bool) -> float:
        """Return the next pause, after one of `pause` seconds and a round."""
        return self.first if is_busy or not is_remote else min(2 * pause, max(self.first, self.longest))


FOLLOW = Pause(0.5, 10)
"""The longest one is a third of replica.lag.time.max.ms."""
WATCH = Pause(1, 1)
"""The controller knows itself when it has something to do."""
MAINTAIN, MAINTAIN_TOPIC = Pause(10, 60), Pause(10, 600)
"""Of looks for topics, and of rounds for each topic and for the cluster."""
MAINTAIN_NODE = Pause(60, 600)
SCRUB = Pause(60, 600)


@arguments.examples(
    "pyspark-log node run",
    "pyspark-log node run 1",
    "pyspark-log node run 1 --once --throttle 50000000",
)
def run(  # noqa: PLR0913, PLR0917 -- the options of a command
    path: arguments.Path,
    node_id: Annotated[str | None, typer.Argument(metavar="NODE", help="Id of the node (default: all nodes).")] = None,
    once: Annotated[bool, typer.Option("--once", help="Exit when the nodes have caught up.")] = False,
    throttle: arguments.Throttle = None,
    interval: Annotated[
        float,
        typer.Option(
            min=0.05,
            metavar="SECONDS",
            help="Time between checks for new data; in an object store up to 10 s while there is none.",
        ),
    ] = FOLLOW.first,
    scrub: Annotated[
        int,
        typer.Option("--scrub", min=0, metavar="BYTES", help="Bytes to scrub per second; 0 disables scrubbing."),
    ] = SCRUB_BYTES_PER_SECOND,
    session_timeout_ms: Annotated[
        int,
        typer.Option(
            "--broker-session-timeout-ms", min=1, metavar="MS", help=settings.BROKER_SESSION_TIMEOUT_MS.meaning
        ),
    ] = settings.BROKER_SESSION_TIMEOUT_MS.default,
    rebalance: Annotated[
        bool,
        typer.Option(
            "--auto-leader-rebalance-enable/--no-auto-leader-rebalance-enable",
            help=settings.AUTO_LEADER_REBALANCE_ENABLE.meaning,
        ),
    ] = settings.AUTO_LEADER_REBALANCE_ENABLE.default,
    rebalance_seconds: Annotated[
        float,
        typer.Option(
            "--leader-imbalance-check-interval-seconds",
            min=0.1,
            metavar="SECONDS",
            help=settings.LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS.meaning,
        ),
    ] = settings.LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS.default,
    rebalance_percentage: Annotated[
        float,
        typer.Option(
            "--leader-imbalance-per-broker-percentage",
            min=0,
            max=100,
            metavar="PERCENT",
            help=settings.LEADER_IMBALANCE_PER_BROKER_PERCENTAGE.meaning,
        ),
    ] = settings.LEADER_IMBALANCE_PER_BROKER_PERCENTAGE.default,
    json: arguments.Json = False,
) -> None:
    """Keep nodes in sync, check their data, and maintain topics.

    Copies to nodes that are new or were unreachable what they lack, and deletes files on them that no entry names.

    Without --once the command runs until it is interrupted. It then also watches all topics, as Kafka's controller
    does: it elects new leaders for unreachable nodes, removes lagging replicas from the ISR, and moves leadership back
    to preferred leaders. It scrubs the nodes: it replaces damaged or missing files with copies from other nodes. And it
    maintains: without NODE everything, as pyspark-log maintain does; with NODE it publishes the node's Delta tables,
    and writes Parquet files and compacts in the partitions that the node leads. Any number of processes can run at
    once.
    """
    log = open_log(path)
    if node_id is not None:
        log.node(node_id)
    print_voting_advice(log)
    nodes = Nodes(node_id, throttle, scrub, json=json)
    if once:
        failures: list[str] = []
        nodes.catch_up(log, failures)
        for failure in failures:
            output.print_error(failure)
        raise typer.Exit(1 if failures else 0)
    watcher = Watcher(ControllerSettings(session_timeout_ms, rebalance, rebalance_seconds, rebalance_percentage))
    start(path, watcher.watch, WATCH)
    if scrub:
        start(path, nodes.scrub, SCRUB)
    if node_id is None:
        start(path, Maintainer(json=json).maintain, MAINTAIN)
    else:
        start(path, functools.partial(maintain_node, node_id), MAINTAIN_NODE)
    repeat(path, nodes.follow, FOLLOW._replace(first=interval))


def start(path: str, job: Job, pause: Pause) -> None:
    """Repeat a job in a thread until the process ends."""
    threading.Thread(target=repeat, args=(path, job, pause), daemon=True).start()


def repeat(path: str, job: Job, pause: Pause) -> None:
    """Repeat a job until the process ends. What fails is tried again; it is printed unless it failed just before."""
    log, printed, seconds = own_log(path), set[str](), pause.first
    while True:
        failures: list[str] = []
        is_busy = False
        try:
            is_busy = job(log, failures)
        except LogError as error:
            failures.append(error.message)  # by the next round the disk may be mounted again
        for message in dict.fromkeys(failures):
            if message not in printed:
                output.print_error(message)
        printed = set(failures)
        seconds = pause.after(seconds, is_busy=is_busy, is_remote=log.is_remote)
        time.sleep(seconds)


class Nodes:
    """Jobs for one node, or for all that are in service."""

    def __init__(self, node_id: str | None, throttle: int | None, scrub: int, *, json: bool) -> None:
        """Copy at most `throttle` bytes in a second (None: any number), and scrub at most `scrub`."""
        self._node_id = node_id
        self._copied: Callable[[int], object] = Throttle(real_environment(), throttle) if throttle else lambda _: None
        self._scrubbed: Callable[[int], object] = Throttle(real_environment(), scrub) if scrub else lambda _: None
        self._json = json
        self._followers: dict[str, Follower] = {}

    def catch_up(self, log: Log, failures: list[str]) -> None:
        """Copy what the nodes lack, once, and clean them up."""

        def catch_up(node_id: str) -> bool:
            self._show(node_id, self._copy(log, node_id, failures))
            return clean_up_node(log, node_id) > 0

        self._for_each(log, failures, catch_up)

    def follow(self, log: Log, failures: list[str]) -> bool:
        """Copy what the nodes lack now."""
        log.open(create=False)
        log.journals.check_stores()

        def follow(node_id: str) -> bool:
            done = self._copy(log, node_id, failures)
            if done.objects:
                self._show(node_id, done)
            return done.objects > 0

        return len(log.nodes) > 1 and self._for_each(log, failures, follow)

    def scrub(self, log: Log, failures: list[str]) -> bool:
        """Read every file of the nodes once, and replace those that are damaged or missing."""
        log.open(create=False)

        def scrub(node_id: str) -> bool:
            done = scrub_node(log, node_id, self._scrubbed)
            for key in done.repaired:
                typer.echo(f"node {node_id}: {key} was damaged or missing; it is repaired", err=True)
            failures.extend(sorted(done.failures))
            return bool(done.repaired)

        return self._for_each(log, failures, scrub)

    def _for_each(self, log: Log, failures: list[str], act: Callable[[str], bool]) -> bool:
        """Act for each node, also after one has failed. Return whether there was something to do."""
        is_busy = False
        for node_id in sorted(log.live_nodes) if self._node_id is None else [self._node_id]:
            try:
                is_busy |= act(node_id)
            except LogError as error:
                failures.append(error.message)
        return is_busy

    def _copy(self, log: Log, node_id: str, failures: list[str]) -> FollowerRound:
        """Copy what a node lacks, with a progress bar on a terminal."""
        if node_id not in self._followers:
            self._followers[node_id] = Follower(log, node_id)
        follower = self._followers[node_id]
        with bar(f"node {node_id}", follower.behind() if sys.stderr.isatty() else 0, self._copied) as advance:
            done = follower.round(advance)
        failures += done.failures
        return done

    def _show(self, node_id: str, done: FollowerRound) -> None:
        document = {"node": node_id, "objects": done.objects, "bytes": done.bytes, "failures": done.failures}
        output.show(document, json=self._json)


class Watcher:
    """The job of Kafka's controller: it watches nodes and leaders of all topics."""

    def __init__(self, settings: ControllerSettings) -> None:
        self._settings = settings
        self._controller: Controller | None = None

    def watch(self, log: Log, failures: list[str]) -> bool:
        """Do what is due."""
        if log.is_remote and self._controller is not None and not self._controller.is_due:
            return False  # to open it again may cost requests
        log.open(create=False)
        self._controller = self._controller or Controller(log, self._settings)

        def failed(topic: str, error: LogError) -> None:
            failures.append(f"topic {topic!r} was not watched: {error.message}")

        for topic, elected in self._controller.round(failed):
            now = "it has no leader" if elected.leader is None else f"node {elected.leader} is now the leader"
            typer.echo(f"topic {topic}, partition {elected.partition}: {now}", err=True)
        return False


class Maintainer:
    """The job that maintains all topics and the cluster, each after a pause of its own."""

    def __init__(self, *, json: bool) -> None:
        self._json = json
        self._pauses: dict[str | None, tuple[float, float]] = {}
        """The last pause of each topic, and its end by the monotonic clock. The name of the cluster is None."""

    def maintain(self, log: Log, failures: list[str]) -> bool:
        """Do what is due in the topics and in the cluster whose pauses have ended."""
        log.open(create=False)
        log.journals.check_stores()
        names = [*sorted(log.topics(polls=True)), None]
        self._pauses = {name: each for name, each in self._pauses.items() if name in names}
        is_busy = False
        for name in names:
            pause, end = self._pauses.get(name, (MAINTAIN_TOPIC.first, 0))
            if log.environment.monotonic() < end:
                continue
            # Another job copies, within its limit.
            done = maintain.maintain_cluster(log) if name is None else maintain.maintain_topic(log, name, copies=False)
            has_done = done is not None and maintain.has_done_something(done)
            if done is not None and has_done:
                output.show(done, json=self._json)
            failed = [] if done is None else done["failures"]
            failures += failed
            is_busy |= has_done
            pause = MAINTAIN_TOPIC.after(pause, is_busy=has_done or bool(failed), is_remote=log.is_remote)
            self._pauses[name] = pause, log.environment.monotonic() + pause
        if doubt := log.clock.doubt:
            failures.append(f"nothing expired or was deleted because of its age: {doubt}")
        return is_busy


def maintain_node(node_id: str, log: Log, failures: list[str]) -> bool:
    """Delete files on a node that no entry names, publish its tables, and roll and merge what it leads."""
    log.open(create=False)

    def damaged(topic: str, error: LogError) -> None:
        failures.append(f"topic {topic!r} was not rolled: {error.message}")

    def failed(handle: TopicHandle, job: RollJob, error: LogError) -> None:
        failures.append(maintain.not_rolled(handle, job, error))

    roll_led_by(log, node_id, failed, damaged)
    return clean_up_node(log, node_id) > 0
