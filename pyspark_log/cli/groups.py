"""`pyspark-log groups`: list and describe groups, and delete them or their offsets."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyspark_log.cli import arguments, output
from pyspark_log.cli.output import counted
from pyspark_log.client.opening import open_log
from pyspark_log_storage.errors import CorruptObject

if TYPE_CHECKING:
    from pyspark_log.client.groups import PartitionLag
    from pyspark_log_coordinator.group.state import Group
    from pyspark_log_coordinator.log.log import Log

NO_GROUPS = "no groups yet; a streaming query creates one with option group.id"
GroupId = Annotated[str, typer.Argument(metavar="GROUP", help="The group's group.id.", show_default=False)]

app = typer.Typer(help="List and describe groups; reset offsets.", no_args_is_help=True)


@app.command("list", epilog="\b\nExample:\n  pyspark-log groups list")
def list_groups(path: arguments.Path, json: arguments.Json = False) -> None:
    """List the groups."""
    log = open_log(path)
    states = [(name, log.group_handle(record).begin()) for name, record in sorted(log.groups().items())]
    rows = [
        (name, state.state.value, len(state.members), state.protocol_type or "none")
        for name, state in states
        if state.deleted_ms is None
    ]
    names = ("group", "state", "members", "type")
    if json:
        output.print_json(*(dict(zip(names, row, strict=True)) for row in rows))
    elif rows:
        output.print_table(names, rows)
    else:
        typer.echo(NO_GROUPS)


@app.command(epilog="\b\nExample:\n  pyspark-log groups describe etl")
def describe(
    group: GroupId,
    path: arguments.Path,
    json: arguments.Json = False,
) -> None:
    """Show the state of a group, its members, and how far it is behind.

    The lag is the number of rows that the group has not committed; behind is the age of the oldest of them.
    """
    from pyspark_log.client.groups import lags

    log = open_log(path)
    state = log.group(group).journal.state
    partitions = [_document(log, each) for each in lags(log, state)]
    if json:
        output.print_json({**_facts(state), "members": _members(state), "partitions": partitions})
        return
    rewound = f", {counted(state.rewinds, 'rewind')}" if state.rewinds else ""
    typer.echo(
        f"group {group}: {state.state.value}, generation {state.generation}, "
        f"{counted(len(state.members), 'member')}{rewound}"
    )
    if state.members:
        names = ("member", "instance", "client", "host", "assigned")
        output.print_table(names, [[each[name] for name in names] for each in _members(state)])
    if not partitions:
        typer.echo("no committed offsets")
        return
    rows = [
        (
            each["topic"],
            str(each["partition"]),
            each["committed"],
            each["earliest"],
            each["latest"],
            each["lag"],
            "" if each["behind_ms"] is None else f"{each['behind_ms'] / 1000:,.1f} s",
        )
        for each in partitions
    ]
    totals = ("total", "", "", "", "", sum(each["lag"] for each in partitions), "") if len(rows) > 1 else None
    output.print_table(("topic", "partition", "committed", "earliest", "latest", "lag", "behind"), rows, totals)


@app.command("delete-offsets", epilog="\b\nExample:\n  pyspark-log groups delete-offsets etl --topic flights")
def delete_offsets(
    group: GroupId,
    path: arguments.Path,
    topic: Annotated[str, typer.Option(metavar="TOPIC", help="Topic whose committed offsets are deleted.")],
    json: arguments.Json = False,
) -> None:
    """Delete a group's committed offsets of a topic. The group must not have members."""
    from pyspark_log_coordinator.group.offsets import OffsetDelete

    log = open_log(path)
    handle = log.group(group)
    topic_id = log.topic(topic).topic_id
    before = handle.journal.state.offsets.get(topic_id, {})
    handle.submit(OffsetDelete({topic_id: tuple(before)}))
    output.show(
        {"group": group, "topic": topic, "deleted": len(before)},
        f"deleted {counted(len(before), 'committed offset')} of group {group} for topic {topic}",
        json=json,
    )


@app.command(epilog="\b\nExample:\n  pyspark-log groups delete etl --yes")
def delete(group: GroupId, path: arguments.Path, yes: arguments.Yes = False, json: arguments.Json = False) -> None:
    """Delete a group with its committed offsets. The group must not have members."""
    from pyspark_log_coordinator.group.lifecycle import DeleteGroup

    handle = open_log(path).group(group)
    question = f"delete group {group} and its committed offsets? This cannot be undone."
    arguments.confirm(question, otherwise="nothing was deleted", yes=yes)
    handle.submit(DeleteGroup())
    output.show({"group": group, "deleted": True}, f"deleted group {group}", json=json)


def _facts(state: Group) -> dict[str, Any]:
    return {
        "group": state.group_id,
        "state": state.state.value,
        "generation": state.generation,
        "type": state.protocol_type,
        "protocol": state.protocol,
        "rewinds": state.rewinds,
    }


def _members(state: Group) -> list[dict[str, Any]]:
    return [
        {
            "member": name,
            "instance": each.details.instance_id,
            "client": each.details.client_id,
            "host": each.details.host,
            "assigned": _assigned(state, name, each.assignment),
        }
        for name, each in state.members.items()
    ]


def _assigned(state: Group, member_id: str, assignment: bytes) -> Any:
    """Return a member's partitions by topic, or None if its assignor writes something else."""
    from pyspark_log_coordinator.assignors.subscription import decode_assignment

    if state.protocol_type != "consumer":
        return None
    with contextlib.suppress(CorruptObject):
        return decode_assignment(assignment, member_id).partitions
    return None


def _document(log: Log, each: PartitionLag) -> dict[str, Any]:
    from pyspark_log.client.groups import oldest_unread_ms

    oldest = oldest_unread_ms(log, each)
    return {
        "topic": each.topic,
        "partition": each.partition,
        "committed": each.committed,
        "committed_ms": each.committed_ms,
        "earliest": each.log_start,
        "latest": each.latest,
        "lag": each.lag,
        "behind_ms": None if oldest is None else max(0, log.environment.now_ms() - oldest),
    }
