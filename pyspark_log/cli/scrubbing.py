"""Scrubbing a node beside what a command does: in a thread, so that slow reading does not keep it from following."""

from __future__ import annotations

import threading
import time
from typing import Annotated

import typer

BYTES_PER_SECOND = 1024 * 1024
"""As HDFS's block scanner."""
PAUSE_SECONDS = 60.0
"""From the end of one pass to the begin of the next."""

Scrub = Annotated[
    int,
    typer.Option(
        "--scrub", min=0, metavar="BYTES", help="Read so many bytes a second of what the node holds; 0 for none."
    ),
]


def start(path: str, node_id: str, bytes_per_second: int) -> None:
    """Read what a node holds, again and again, until the process ends."""
    arguments = (path, node_id, bytes_per_second)
    threading.Thread(target=_scrub, args=arguments, name=f"scrub node {node_id}", daemon=True).start()


def _scrub(path: str, node_id: str, bytes_per_second: int) -> None:
    from pyspark_log.client.opening import own_log
    from pyspark_log_coordinator.sync.scrubber import scrub
    from pyspark_log_coordinator.sync.throttle import Throttle
    from pyspark_log_storage.errors import LogError

    log = own_log(path)
    wait = Throttle(log.environment, bytes_per_second)
    told: set[str] = set()
    while True:
        failures: set[str] = set()
        try:
            log.open(create=False)
            done = scrub(log, node_id, wait)
            for key in done.repaired:
                typer.echo(f"node {node_id}: {key} was damaged or gone; it was copied again", err=True)
            failures.update(done.failures)
        except LogError as error:
            failures.add(f"node {node_id} was not scrubbed: {error.message}")
        for failure in sorted(failures - told):
            typer.echo(f"pyspark-log: {failure}", err=True)
        told = failures
        time.sleep(PAUSE_SECONDS)
