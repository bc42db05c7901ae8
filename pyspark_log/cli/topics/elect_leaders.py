"""`pyspark-log topics elect-leaders`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyspark_log.cli import arguments
from pyspark_log.cli.command import Result, command
from pyspark_log.documents.text import counted
from pyspark_log.documents.topics import handles_of
from pyspark_log_coordinator.model.settings import BROKER_SESSION_TIMEOUT_MS
from pyspark_log_coordinator.sync import operator_elections

if TYPE_CHECKING:
    from pyspark_log_coordinator.log.log import Log, TopicHandle


@command(
    "pyspark-log topics elect-leaders",
    "pyspark-log topics elect-leaders flights --unclean",
)
def elect_leaders(
    log: Log,
    name: Annotated[str | None, typer.Argument(metavar="TOPIC", help="Name of a topic (default: all).")] = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean", help="Elect an out-of-sync replica for leaderless partitions; rows it lacks are lost."
        ),
    ] = False,
    timeout_ms: Annotated[
        int,
        typer.Option("--broker-session-timeout-ms", min=0, metavar="MS", help=BROKER_SESSION_TIMEOUT_MS.meaning),
    ] = BROKER_SESSION_TIMEOUT_MS.default,
    yes: arguments.Yes = False,
) -> Result:
    """Elect the preferred leaders of partitions.

    The preferred leader is the first replica of a partition. It is elected if it is in sync.

    With --unclean, elect a leader for each partition that has lost all in-sync replicas: the remaining replica with the
    most rows, even if its disk was restored from a backup.

    The exit code is 1 if a leader could not be elected.
    """
    handles = handles_of(log, None if name is None else [name])
    if unclean:
        partitions = [one for handle in handles for one in _unclean(handle, timeout_ms, yes=yes)]
        what, empty = "a leader", "no partition is without a leader"
    else:
        partitions = [one for handle in handles for one in _preferred(handle)]
        what, empty = "the preferred leader", "all partitions have their preferred leaders"
    missing = sum(each["not_elected"] is not None for each in partitions)
    errors = [f"{counted(missing, 'partition')} still without {what}"] if missing else []
    return Result(partitions, errors, empty=empty)


def _preferred(handle: TopicHandle) -> list[dict[str, Any]]:
    """Return a document for each partition whose leader was not the preferred one."""
    before = handle.refresh().partitions
    after, reachable = operator_elections.elect_preferred(handle)
    partitions = []
    for number, (old, new) in enumerate(zip(before, after.partitions, strict=False)):
        preferred = new.replicas[0]
        if old.leader == preferred and new.leader == preferred:
            continue
        why = None
        if new.leader == preferred:
            pass
        elif preferred in after.fenced:
            why = "it is fenced"
        elif preferred not in reachable:
            why = "it is unreachable"
        else:
            why = "no replica in the ISR is available" if new.leader is None else "it is not in sync"
        partitions.append(_document(handle, number, new.leader, preferred, why))
    return partitions


def _unclean(handle: TopicHandle, timeout_ms: int, *, yes: bool) -> list[dict[str, Any]]:
    """Return a document for each partition that had no leader."""
    unreachable = operator_elections.find_unreachable(handle, timeout_ms)
    state = handle.state
    command = operator_elections.election_of(handle, unreachable)
    if not command.partitions:
        return []
    expected = operator_elections.would_lose(state, command)
    for number, rows in expected.items():
        where = f"topic {handle.name}, partition {number}"
        typer.echo(f"{where}: {_rows(rows)} would be lost", err=True)
    total = counted(sum(map(len, expected.values())), "row")
    arguments.confirm(
        f"elect out-of-sync leaders for topic {handle.name} and lose {total}?",
        otherwise="no leader was elected",
        yes=yes or not expected,
    )
    leaders, lost = operator_elections.elect_unclean(handle, command)
    partitions = []
    for number in command.partitions:
        leader = leaders.get(number)
        why = None if leader is not None else operator_elections.why_leaderless(handle, command, number)
        partitions.append(
            _document(handle, number, leader, state.partitions[number].replicas[0], why, lost.get(number, range(0)))
        )
    return partitions


def _document(
    handle: TopicHandle, number: int, leader: str | None, preferred: str, why: str | None, lost: range = range(0)
) -> dict[str, Any]:
    return {
        "topic": handle.name,
        "partition": number,
        "leader": leader,
        "rows_lost": len(lost),
        "first_lost_offset": lost.start if lost else None,
        "preferred": preferred,
        "not_elected": why,
    }


def _rows(offsets: range) -> str:
    return f"{counted(len(offsets), 'row')} (offsets {offsets.start} to {offsets.stop - 1})"
