"""`pyspark-log node run`: follow for one node, as a broker of Kafka does for itself."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from pyspark_log.cli import arguments, scrubbing, watching

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_coordinator.sync.follower import Follower, FollowerRound

CLEAN_SECONDS = 60.0
"""How often files that nothing names are looked for."""

app = typer.Typer(help="Do the work of a node.", no_args_is_help=True)


@app.callback()
def _node() -> None:
    """Do the work of a node."""


@app.command(epilog="\b\nExamples:\n  pyspark-log node run 1\n  pyspark-log node run 1 --once --throttle 50000000")
def run(  # noqa: PLR0913, PLR0917 -- the options of a command
    node_id: Annotated[str, typer.Argument(metavar="NODE", help="The node's id.", show_default=False)],
    path: arguments.Path,
    once: Annotated[bool, typer.Option("--once", help="End when the node has caught up.")] = False,
    throttle: Annotated[
        int | None, typer.Option(min=1, metavar="BYTES", help="Copy no more than so many bytes a second.")
    ] = None,
    interval: Annotated[
        float, typer.Option(min=0.05, metavar="SECONDS", help="How often the journals are looked at.")
    ] = 0.5,
    scrub: scrubbing.Scrub = scrubbing.BYTES_PER_SECOND,
    session_timeout_ms: watching.SessionTimeout = 9_000,
    rebalance: watching.Rebalance = True,
    rebalance_seconds: watching.RebalanceSeconds = 300.0,
    rebalance_percentage: watching.RebalancePercentage = 10.0,
    json: arguments.Json = False,
) -> None:
    """Copy what a node lacks from others, and keep up.

    Writers copy what they can by themselves; this is for a node that was away,
    or is new. It can be stopped and started at any time: files that are there
    are not copied again. Any number may run at once.

    It also watches all topics: nodes that stay away are put out of the ISRs,
    others lead in their place, and preferred leaders get the lead back.

    And it reads what the node holds, slowly and again and again: what is
    damaged or gone there is copied again from a node that has it whole.
    """
    from pyspark_log.client.opening import open_log
    from pyspark_log_coordinator.sync.controller import ControllerSettings
    from pyspark_log_coordinator.sync.follower import Follower, FollowerRound, delete_unnamed_files
    from pyspark_log_coordinator.sync.throttle import Throttle
    from pyspark_log_storage.errors import StoreError

    log = open_log(path)
    follower = Follower(log, node_id)
    if not once:
        watching.start(
            path,
            ControllerSettings(
                session_timeout_ms=session_timeout_ms,
                auto_leader_rebalance_enable=rebalance,
                leader_imbalance_check_interval_seconds=rebalance_seconds,
                leader_imbalance_per_broker_percentage=rebalance_percentage,
            ),
        )
        if scrub:
            scrubbing.start(path, node_id, scrub)
    wait: Callable[[int], object] = bool if throttle is None else Throttle(log.environment, throttle)
    told: set[str] = set()
    cleaned = time.monotonic()
    while True:
        try:
            done = _round(follower, node_id, wait)
            if time.monotonic() - cleaned > CLEAN_SECONDS:
                delete_unnamed_files(log, node_id)
                cleaned = time.monotonic()
        except StoreError as error:
            if once:
                raise
            # A disk that is not mounted, or a journal that does not answer, may be there again.
            done = FollowerRound(0, 0, (error.message,))
        _print(node_id, done, once=once, json=json)
        for failure in done.failures:
            if failure not in told:
                typer.echo(f"pyspark-log: {failure}", err=True)
        told = set(done.failures)
        if once:
            raise typer.Exit(1 if done.failures else 0)
        if done.objects == 0:
            time.sleep(interval)
        with contextlib.suppress(StoreError):
            log.open(create=False)


def _round(follower: Follower, node_id: str, wait: Callable[[int], object]) -> FollowerRound:
    """Copy what the node lacks, with a bar where a person looks."""
    from pyspark_log.cli.progress import bar

    total = follower.behind() if sys.stderr.isatty() else 0
    if total == 0:
        return follower.round(wait)
    with bar(f"node {node_id}", total) as progress:

        def moved(count: int) -> None:
            progress(count)
            wait(count)

        return follower.round(moved)


def _print(node_id: str, done: FollowerRound, *, once: bool, json: bool) -> None:
    """Say what a round did, where it did anything or was the only one."""
    if not (done.objects or once):
        return
    if json:
        from pyspark_log.cli.output import print_json

        print_json({"node": node_id, "objects": done.objects, "bytes": done.bytes, "failures": done.failures})
    elif done.objects:
        files = "1 file" if done.objects == 1 else f"{done.objects:,} files"
        typer.echo(f"node {node_id}: copied {files}, {done.bytes:,} bytes")
    elif not done.failures:
        typer.echo(f"node {node_id} has all that it should have; nothing was copied")
