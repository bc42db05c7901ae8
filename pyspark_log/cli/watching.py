"""Watching nodes and leaders beside what a command does: in a thread, so that long copying does not keep it from it."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pyspark_log_coordinator.sync.controller import ControllerSettings

LOOK_SECONDS = 1.0
"""How often the nodes are asked whether they are there."""

SessionTimeout = Annotated[
    int,
    typer.Option(
        "--broker-session-timeout-ms", min=1, metavar="MS", help="How long a node may be away until another leads."
    ),
]
Rebalance = Annotated[
    bool,
    typer.Option(
        "--auto-leader-rebalance-enable/--no-auto-leader-rebalance-enable",
        help="Give the lead back to preferred leaders that are back.",
    ),
]
RebalanceSeconds = Annotated[
    float,
    typer.Option(
        "--leader-imbalance-check-interval-seconds", min=0.1, metavar="SECONDS", help="How often that is looked at."
    ),
]
RebalancePercentage = Annotated[
    float,
    typer.Option(
        "--leader-imbalance-per-broker-percentage",
        min=0,
        max=100,
        metavar="PERCENT",
        help="Of a node's partitions so many may be led by others.",
    ),
]


def start(path: str, settings: ControllerSettings) -> None:
    """Watch the cluster at `path`, which is one, until the process ends."""
    threading.Thread(target=_watch, args=(path, settings), name="watch nodes and leaders", daemon=True).start()


def _watch(path: str, settings: ControllerSettings) -> None:
    from pyspark_log.client.opening import own_log
    from pyspark_log_coordinator.sync.controller import Controller
    from pyspark_log_storage.errors import LogError

    log = own_log(path)
    watcher = None
    told: set[str] = set()
    while True:
        failures: dict[str, str] = {}

        def failed(topic: str, error: LogError, failures: dict[str, str] = failures) -> None:
            failures[topic] = f"topic {topic!r} was not watched: {error.message}"

        try:
            log.open(create=False)
            watcher = watcher or Controller(log, settings)
            for led in watcher.watch(failed):
                typer.echo(f"topic {led.topic}, partition {led.partition}: node {led.leader} leads again", err=True)
        except LogError as error:
            failures[""] = f"the cluster was not watched: {error.message}"
        for failure in failures.values():
            if failure not in told:
                typer.echo(f"pyspark-log: {failure}", err=True)
        told = set(failures.values())
        time.sleep(LOOK_SECONDS)
