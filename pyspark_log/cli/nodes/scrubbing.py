"""Scrubbing a node in a background thread."""

from __future__ import annotations

import threading
import time
from typing import Annotated

import typer

from pyspark_log.cli import output
from pyspark_log.opening import own_log
from pyspark_log_storage.errors import LogError

BYTES_PER_SECOND = 1024 * 1024
"""The default of HDFS's block scanner."""
PAUSE_SECONDS = 60.0
"""Between the end of one pass and the start of the next."""

Scrub = Annotated[
    int,
    typer.Option("--scrub", min=0, metavar="BYTES", help="Bytes to scrub per second; 0 disables scrubbing."),
]


def start(path: str, node_id: str, bytes_per_second: int) -> None:
    """Scrub a node until the process ends."""
    arguments = (path, node_id, bytes_per_second)
    threading.Thread(target=_scrub, args=arguments, name=f"scrub node {node_id}", daemon=True).start()


def _scrub(path: str, node_id: str, bytes_per_second: int) -> None:
    from pyspark_log_coordinator.sync.scrubber import scrub
    from pyspark_log_coordinator.sync.throttle import Throttle

    log = own_log(path)
    wait = Throttle(log.environment, bytes_per_second)
    errors = output.RepeatedErrors()
    while True:
        failures: list[str] = []
        try:
            log.open(create=False)
            done = scrub(log, node_id, wait)
            for key in done.repaired:
                typer.echo(f"node {node_id}: {key} was damaged or missing; copied it from another node", err=True)
            failures += sorted(done.failures)
        except LogError as error:
            failures.append(f"node {node_id} was not scrubbed: {error.message}")
        errors.print(failures)
        time.sleep(PAUSE_SECONDS)
