"""`pyspark-log topics elect-leaders`: give the lead back, or let a partition go on without what is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyspark_log.cli import arguments
from pyspark_log.cli.words import counted

if TYPE_CHECKING:
    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.replication.row_loss import RowsLost

EXAMPLES = """\b
Examples:
  pyspark-log topics elect-leaders
  pyspark-log topics elect-leaders flights --unclean
"""


def elect_leaders(
    path: arguments.Path,
    name: Annotated[str | None, typer.Argument(metavar="TOPIC", help="Which topic; all if none is named.")] = None,
    unclean: Annotated[
        bool, typer.Option("--unclean", help="Where nobody leads: a replica that lacks rows. These are lost.")
    ] = False,
    timeout_ms: Annotated[
        int,
        typer.Option("--broker-session-timeout-ms", min=0, metavar="MS", help="How long a node may be away."),
    ] = 9000,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: arguments.Json = False,
) -> None:
    """Let preferred leaders lead again.

    Those do that have every row. With --unclean, partitions whose in-sync replicas are all gone get a leader
    from those that are left: the one that really has most rows, be it from a disk that was set back. What only
    the lost ones had is given up.
    """
    from pyspark_log.cli import output
    from pyspark_log.client.opening import open_log

    log = open_log(path)
    handles = [log.topic(each) for each in ([name] if name is not None else sorted(log.topics()))]
    if unclean:
        documents = [one for handle in handles for one in _unclean(handle, timeout_ms, yes=yes)]
    else:
        documents = [one for handle in handles for one in _preferred(handle)]
    if json:
        output.print_json(*documents)
        return
    for each in documents:
        _tell(each, unclean=unclean)
    if not documents:
        typer.echo("no partition is without a leader" if unclean else "all partitions have their preferred leaders")


def _preferred(handle: TopicHandle) -> list[dict[str, Any]]:
    """Return a document for each partition that its preferred leader did not lead."""
    from pyspark_log_coordinator.replication.election import ElectPreferred
    from pyspark_log_coordinator.sync.replica_probe import live

    before = handle.refresh().partitions
    able = live(handle)
    after = handle.submit(ElectPreferred(able)).state
    there = {holder.node for holder in able}
    found = []
    for number, (old, new) in enumerate(zip(before, after.partitions, strict=False)):
        preferred = new.replicas[0]
        if old.leader == preferred and new.leader == preferred:
            continue
        why = None
        if new.leader != preferred:
            why = "nobody leads: a clean election comes first" if new.leader is None else "it lacks rows"
            why = "it is away" if preferred not in there else why
            why = "it is fenced" if preferred in after.fenced else why
        found.append(_document(handle, number, new.leader) | {"preferred": preferred, "not_elected": why})
    return found


def _unclean(handle: TopicHandle, timeout_ms: int, *, yes: bool) -> list[dict[str, Any]]:
    """Return a document for each partition that nobody led."""
    from pyspark_log_coordinator.replication.election import LeaderElected
    from pyspark_log_coordinator.sync import unclean_election

    gone = unclean_election.find_gone(handle, timeout_ms)
    state = handle.journal.state
    headless = unclean_election.partitions(state)
    if not headless:
        return []
    command = unclean_election.giving_up(handle, gone)
    lost = unclean_election.would_lose(state, command)
    for number, rows in lost.items():
        count = counted(rows.end - rows.start, "row")
        offsets = f"offsets {rows.start} to {rows.end - 1}"
        typer.echo(f"topic {handle.name}, partition {number}: {count} would be lost, {offsets}", err=True)
    total = counted(sum(rows.end - rows.start for rows in lost.values()), "row")
    question = f"elect leaders of topic {handle.name} that lack {total}?"
    if lost and not yes and not arguments.agreed(question):
        typer.echo("pyspark-log: nobody was elected", err=True)
        raise typer.Exit(1)
    events = handle.submit(command).events
    leaders = {each.partition: each.leader for each in events if isinstance(each, LeaderElected)}
    told = unclean_election.lost(events)
    found = []
    for number in headless:
        why = None if leaders.get(number) is not None else unclean_election.why_leaderless(handle, command, number)
        preferred = {"preferred": state.partitions[number].replicas[0], "not_elected": why}
        found.append(_document(handle, number, leaders.get(number), told.get(number)) | preferred)
    return found


def _document(handle: TopicHandle, number: int, leader: str | None, lost: RowsLost | None = None) -> dict[str, Any]:
    first, end = (None, 0) if lost is None else (lost.start, lost.end)
    return {
        "topic": handle.name,
        "partition": number,
        "leader": leader,
        "rows_lost": end - (first or 0),
        "first_lost_offset": first,
    }


def _tell(each: dict[str, Any], *, unclean: bool) -> None:
    where = f"topic {each['topic']}, partition {each['partition']}:"
    if each["not_elected"] is None:
        lost = ""
        if each["rows_lost"]:
            first = each["first_lost_offset"]
            offsets = f"offsets {first} to {first + each['rows_lost'] - 1}"
            lost = f"; {counted(each['rows_lost'], 'row')} lost, {offsets}"
        typer.echo(f"{where} node {each['leader']} leads now{lost}")
        return
    if unclean:
        typer.echo(f"{where} nobody leads: {each['not_elected']}")
        return
    leads = "nobody leads" if each["leader"] is None else f"node {each['leader']} leads"
    typer.echo(f"{where} {leads}; its preferred leader {each['preferred']} was not elected: {each['not_elected']}")
