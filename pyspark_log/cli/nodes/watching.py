"""Watching the nodes and leaders of all topics in a background thread, as Kafka's controller does."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Annotated

import typer

from pyspark_log.cli import output
from pyspark_log.opening import own_log
from pyspark_log_coordinator.model import settings
from pyspark_log_coordinator.sync.controller import Controller
from pyspark_log_storage.errors import LogError

if TYPE_CHECKING:
    from pyspark_log_coordinator.sync.controller import ControllerSettings

LOOK_SECONDS = 1.0
"""How often the controller is asked to check what is due."""

SessionTimeout = Annotated[
    int,
    typer.Option("--broker-session-timeout-ms", min=1, metavar="MS", help=settings.BROKER_SESSION_TIMEOUT_MS.meaning),
]
Rebalance = Annotated[
    bool,
    typer.Option(
        "--auto-leader-rebalance-enable/--no-auto-leader-rebalance-enable",
        help=settings.AUTO_LEADER_REBALANCE_ENABLE.meaning,
    ),
]
RebalanceSeconds = Annotated[
    float,
    typer.Option(
        "--leader-imbalance-check-interval-seconds",
        min=0.1,
        metavar="SECONDS",
        help=settings.LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS.meaning,
    ),
]
RebalancePercentage = Annotated[
    float,
    typer.Option(
        "--leader-imbalance-per-broker-percentage",
        min=0,
        max=100,
        metavar="PERCENT",
        help=settings.LEADER_IMBALANCE_PER_BROKER_PERCENTAGE.meaning,
    ),
]


def start(path: str, settings: ControllerSettings) -> None:
    """Watch the cluster at `path` until the process ends."""
    threading.Thread(target=_watch, args=(path, settings), name="watch nodes and leaders", daemon=True).start()


def _watch(path: str, settings: ControllerSettings) -> None:
    log = own_log(path)
    controller = None
    errors = output.RepeatedErrors()
    while True:
        failures: dict[str, str] = {}

        def failed(topic: str, error: LogError, failures: dict[str, str] = failures) -> None:
            failures[topic] = f"topic {topic!r} was not watched: {error.message}"

        try:
            if log.is_remote and controller is not None and not controller.is_due:
                time.sleep(LOOK_SECONDS)  # to open it again may cost requests
                continue
            log.open(create=False)
            controller = controller or Controller(log, settings)
            for moved in controller.round(failed):
                now = "it has no leader" if moved.leader is None else f"node {moved.leader} is now the leader"
                typer.echo(f"topic {moved.topic}, partition {moved.partition}: {now}", err=True)
        except LogError as error:
            failures[""] = f"the cluster was not watched: {error.message}"
        errors.print(failures.values())
        time.sleep(LOOK_SECONDS)
