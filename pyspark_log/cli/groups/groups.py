"""`pyspark-log groups`: list groups, describe one with its members and its lag, change settings, delete."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyspark_log.cli import arguments, output
from pyspark_log.cli.dead_members import expire_dead_members
from pyspark_log.cli.output import Column, counted
from pyspark_log.opening import open_log
from pyspark_log_coordinator.assignors.consumer import PROTOCOL_TYPE, QUERY_PROTOCOL_TYPE
from pyspark_log_coordinator.assignors.subscription import decode_assignment
from pyspark_log_coordinator.group.config import GroupConfig
from pyspark_log_storage.errors import CorruptObject, UnknownGroup

if TYPE_CHECKING:
    from pyspark_log.reading.groups import PartitionLag
    from pyspark_log_coordinator.group.state import Group
    from pyspark_log_coordinator.log.log import Log

NO_GROUPS = "no groups yet; a streaming query or a Consumer creates one with option group.id"

_CONFIG_EXAMPLE = "group.initial.rebalance.delay.ms=0"
WATCH_SECONDS = 1.0
"""How old what --watch shows may be."""
CLEAR = "\x1b[2J\x1b[H"
"""Clears a terminal."""
Document = dict[str, Any]


@arguments.examples("pyspark-log groups list")
def list_groups(path: arguments.Path, json: arguments.Json = False) -> None:
    """List the groups."""
    log = open_log(path)
    states = [(name, log.group_handle(record).begin()) for name, record in sorted(log.groups().items())]
    found = [
        {
            "group": name,
            "state": state.state.value,
            "members": len(state.members),
            "type": state.protocol_type or "none",
        }
        for name, state in states
        if state.deleted_ms is None
    ]
    output.show_table(("group", "state", "members", "type"), found, NO_GROUPS, json=json)


@arguments.examples(
    "pyspark-log groups describe etl",
    "pyspark-log groups describe etl --members --watch",
)
def describe(
    *,
    group: arguments.GroupId,
    path: arguments.Path,
    state: Annotated[
        bool, typer.Option("--state", help="Print only the state of the group, and its settings.")
    ] = False,
    members: Annotated[bool, typer.Option("--members", help="Print only the members, each with its lag.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Print it again every second, until Ctrl-C.")] = False,
    json: arguments.Json = False,
) -> None:
    """Show the state of a group, its members, and its lag.

    The lag is the number of rows that the group has not committed; behind is the age of the oldest of them.
    """
    log = open_log(path)
    while True:
        found = _look(log, group)
        if watch and sys.stdout.isatty():
            typer.echo(CLEAR, nl=False)
        if json:
            output.print_json(
                {key: each for key, each in found.items() if _is_wanted(key, state=state, members=members)}
            )
        else:
            _print(found, everything=not (state or members), members=members or not state)
        if not watch:
            return
        time.sleep(WATCH_SECONDS)


@arguments.examples(
    "pyspark-log groups alter etl --config group.initial.rebalance.delay.ms=0",
    "pyspark-log groups alter etl --delete-config group.initial.rebalance.delay.ms",
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

    changes |= GroupConfig.defaults(delete_config or ())
    log = open_log(path)
    try:
        before = log.group(group).state.config
    except UnknownGroup:
        before = GroupConfig()
    before.alter(changes)  # a group is not created if a setting is refused
    handle = log.group(group, create=True)
    old = handle.state.config.show()
    new = handle.alter_config(changes).show()
    changed = {key: value for key, value in new.items() if value != old[key]}
    lines = [f"group {group}: {key}={value} (was {old[key]})" for key, value in changed.items()]
    output.show(
        {"group": group, "changed": changed},
        *(lines or [f"group {group} already has these settings; nothing was changed"]),
        json=json,
    )


@arguments.examples("pyspark-log groups delete-offsets etl --topic flights")
def delete_offsets(
    group: arguments.GroupId,
    path: arguments.Path,
    topic: Annotated[str, typer.Option(metavar="TOPIC", help="Topic whose committed offsets are deleted.")],
    json: arguments.Json = False,
) -> None:
    """Delete a group's committed offsets of a topic. The group must not have members."""
    log = open_log(path)
    handle, topic_id = log.group(group), log.topic(topic).topic_id
    expire_dead_members(log, group, queries=True)
    deleted = handle.delete_offsets(topic_id)
    output.show(
        {"group": group, "topic": topic, "deleted": deleted},
        f"deleted {counted(deleted, 'committed offset')} of group {group} for topic {topic}",
        json=json,
    )


@arguments.examples("pyspark-log groups delete etl --yes")
def delete(
    group: arguments.GroupId, path: arguments.Path, yes: arguments.Yes = False, json: arguments.Json = False
) -> None:
    """Delete a group with its committed offsets. The group must not have members."""
    log = open_log(path)
    handle = log.group(group)
    question = f"delete group {group} and its committed offsets? This cannot be undone."
    arguments.confirm(question, otherwise="nothing was deleted", yes=yes)
    expire_dead_members(log, group, queries=True)
    handle.delete()
    output.show({"group": group, "deleted": True}, f"deleted group {group}", json=json)


def _is_wanted(key: str, *, state: bool, members: bool) -> bool:
    """Return whether a part of the document is wanted: the members, the partitions, or the rest."""
    if key == "partitions":
        return not (state or members)
    return key != "members" or members or not state


def _look(log: Log, group_id: str) -> Document:
    from pyspark_log.reading.groups import lags

    handle = log.group(group_id)
    group = handle.state
    assigned = {name: _assigned(group, name, each.assignment) for name, each in group.members.items()}
    owners = {
        (topic, number): name
        for name, partitions in assigned.items()
        for topic, numbers in (partitions or {}).items()
        for number in numbers
    }
    partitions = [
        {**_document(log, each), "member": owners.get((each.topic, each.partition))} for each in lags(log, group)
    ]
    members = [
        {
            "member": name,
            "instance": each.details.instance_id,
            "client": each.details.client_id,
            "host": each.details.host,
            "assigned": assigned[name],
            "lag": sum(part["lag"] for part in partitions if part["member"] == name),
        }
        for name, each in group.members.items()
    ]
    return {
        "group": group.group_id,
        "state": group.state.value,
        "generation": group.generation,
        "type": group.protocol_type,
        "protocol": group.protocol,
        "leader": group.leader if group.members else "",
        "member_count": len(members),
        "rewinds": group.rewinds,
        "journal": handle.address,
        "config": group.config.show(),
        "members": members,
        "partitions": partitions,
    }


def _print(found: Document, *, everything: bool, members: bool) -> None:
    rewound = f", {counted(found['rewinds'], 'rewind')}" if found["rewinds"] else ""
    typer.echo(
        f"group {found['group']}: {found['state']}, generation {found['generation']}, "
        f"{counted(found['member_count'], 'member')}{rewound}"
    )
    if not members:
        typer.echo(f"protocol {found['protocol'] or 'none'}, leader {found['leader'] or 'none'}")
        typer.echo(f"journal {found['journal']}")
        for name, value in found["config"].items():
            typer.echo(f"config {name}={value}")
        return
    if found["members"]:
        output.print_table(("member", "instance", "client", "host", "assigned", "lag"), found["members"])
    if everything:
        columns: list[Column | str] = [
            "topic",
            Column("partition", show=str),
            "committed",
            "earliest",
            "latest",
            Column("lag", total=True),
            Column("behind_ms", "behind", lambda ms: "" if ms is None else f"{ms / 1000:,.1f} s"),
        ]
        if found["members"]:
            columns.append(Column("member", show=lambda name: name or ""))
        output.show_table(columns, found["partitions"], "no committed offsets", json=False)
        for each in found["partitions"]:
            if each["beyond"]:
                typer.echo(
                    f"topic {each['topic']}, partition {each['partition']}: the committed offset {each['committed']} "
                    f"is above the end {each['latest']}: the log has lost rows since, by a restore or an unclean "
                    "election. Choose where the group goes on: pyspark-log groups reset-offsets"
                )


def _assigned(state: Group, member_id: str, assignment: bytes) -> Any:
    """Return a member's partitions by topic, or None if its assignor writes something else."""
    if state.protocol_type not in {PROTOCOL_TYPE, QUERY_PROTOCOL_TYPE}:
        return None
    with contextlib.suppress(CorruptObject):
        return decode_assignment(assignment, member_id).partitions
    return None


def _document(log: Log, each: PartitionLag) -> dict[str, Any]:
    from pyspark_log.reading.groups import oldest_unread_ms

    oldest = oldest_unread_ms(log, each)
    return {
        "topic": each.topic,
        "partition": each.partition,
        "committed": each.committed,
        "committed_ms": each.committed_ms,
        "earliest": each.log_start,
        "latest": each.latest,
        "lag": each.lag,
        "beyond": each.beyond,
        "behind_ms": None if oldest is None else max(0, log.environment.now_ms() - oldest),
    }
