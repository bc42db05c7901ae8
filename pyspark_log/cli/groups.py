"""`pyspark-log groups`: list groups, and delete them or their offsets."""

from __future__ import annotations

from typing import Annotated

import typer

from pyspark_log.cli import arguments, describe_group, output
from pyspark_log.cli.output import counted
from pyspark_log.client.opening import open_log

NO_GROUPS = "no groups yet; a streaming query or a Consumer creates one with option group.id"

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


app.command("describe", epilog=describe_group.EXAMPLES)(describe_group.describe)


@app.command("delete-offsets", epilog="\b\nExample:\n  pyspark-log groups delete-offsets etl --topic flights")
def delete_offsets(
    group: arguments.GroupId,
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
def delete(
    group: arguments.GroupId, path: arguments.Path, yes: arguments.Yes = False, json: arguments.Json = False
) -> None:
    """Delete a group with its committed offsets. The group must not have members."""
    from pyspark_log_coordinator.group.lifecycle import DeleteGroup

    handle = open_log(path).group(group)
    question = f"delete group {group} and its committed offsets? This cannot be undone."
    arguments.confirm(question, otherwise="nothing was deleted", yes=yes)
    handle.submit(DeleteGroup())
    output.show({"group": group, "deleted": True}, f"deleted group {group}", json=json)
