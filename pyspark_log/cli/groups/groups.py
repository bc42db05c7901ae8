"""`pyspark-log groups`: list groups, change their settings, and delete them or their offsets."""

from __future__ import annotations

from typing import Annotated

import typer

from pyspark_log.cli import arguments, output
from pyspark_log.cli.groups import describe_group
from pyspark_log.cli.output import counted
from pyspark_log.opening import open_log
from pyspark_log_storage.errors import UnknownGroup

NO_GROUPS = "no groups yet; a streaming query or a Consumer creates one with option group.id"

_CONFIG_EXAMPLE = "group.initial.rebalance.delay.ms=0"

app = typer.Typer(help="Administer groups and their offsets.", no_args_is_help=True)


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


@app.command(
    epilog=f"\b\nExamples:\n  pyspark-log groups alter etl --config {_CONFIG_EXAMPLE}\n"
    "  pyspark-log groups alter etl --delete-config group.initial.rebalance.delay.ms"
)
def alter(
    group: arguments.GroupId,
    path: arguments.Path,
    config: arguments.GroupConfigs = None,
    delete_config: arguments.DeleteConfigs = None,
    json: arguments.Json = False,
) -> None:
    """Change the settings of a group.

    Changes apply to the next join or commit. Either all of them are made or none. A group that does not exist yet is
    created, empty, so that its settings are there before its members.
    """
    changes = arguments.changes(config, delete_config, _CONFIG_EXAMPLE)

    from pyspark_log_coordinator.group import config as group_config

    changes |= group_config.defaults(delete_config or ())
    log = open_log(path)
    try:
        before = log.group(group).state.config
    except UnknownGroup:
        before = group_config.GroupConfig()
    group_config.alter(before, changes)  # a group is not created if a setting is refused
    handle = log.group(group, create=True)
    old = group_config.show(handle.state.config)
    new = group_config.show(handle.alter_config(changes))
    changed = {key: value for key, value in new.items() if value != old[key]}
    lines = [f"group {group}: {key}={value} (was {old[key]})" for key, value in changed.items()]
    output.show(
        {"group": group, "changed": changed},
        *(lines or [f"group {group} already has these settings; nothing was changed"]),
        json=json,
    )


@app.command("delete-offsets", epilog="\b\nExample:\n  pyspark-log groups delete-offsets etl --topic flights")
def delete_offsets(
    group: arguments.GroupId,
    path: arguments.Path,
    topic: Annotated[str, typer.Option(metavar="TOPIC", help="Topic whose committed offsets are deleted.")],
    json: arguments.Json = False,
) -> None:
    """Delete a group's committed offsets of a topic. The group must not have members."""
    log = open_log(path)
    deleted = log.group(group).delete_offsets(log.topic(topic).topic_id)
    output.show(
        {"group": group, "topic": topic, "deleted": deleted},
        f"deleted {counted(deleted, 'committed offset')} of group {group} for topic {topic}",
        json=json,
    )


@app.command(epilog="\b\nExample:\n  pyspark-log groups delete etl --yes")
def delete(
    group: arguments.GroupId, path: arguments.Path, yes: arguments.Yes = False, json: arguments.Json = False
) -> None:
    """Delete a group with its committed offsets. The group must not have members."""
    handle = open_log(path).group(group)
    question = f"delete group {group} and its committed offsets? This cannot be undone."
    arguments.confirm(question, otherwise="nothing was deleted", yes=yes)
    handle.delete()
    output.show({"group": group, "deleted": True}, f"deleted group {group}", json=json)
