"""`pyspark-log groups`: list groups, describe one with its members and its lag, change settings, delete."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from pyspark_log.cli import arguments, output
from pyspark_log.cli.command import command
from pyspark_log.documents import groups as documents
from pyspark_log.documents.text import counted
from pyspark_log.opening import open_log
from pyspark_log_coordinator.group.config import GroupConfig
from pyspark_log_storage.errors import UnknownGroup

if TYPE_CHECKING:
    from pyspark_log.cli.output import Document, Documents
    from pyspark_log.reading.groups import PartitionLag
    from pyspark_log_coordinator.log.log import Log

NO_GROUPS = "no groups yet; a streaming query or a Consumer creates one with option group.id"

_CONFIG_EXAMPLE = "group.initial.rebalance.delay.ms=0"
WATCH_SECONDS = 1.0
"""How old what --watch shows may be."""
CLEAR = "\x1b[2J\x1b[H"
"""Clears a terminal."""


@command("pyspark-log groups list", empty=NO_GROUPS)
def list_groups(log: Log) -> Documents:
    """List the groups."""
    return documents.groups(log)


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

    The lag is the number of rows that the group has not committed; behind is the age of the oldest of them. Beyond is
    how far a committed offset is above the end of its partition: the log has lost rows since, by a restore or an
    unclean election. Then choose where the group continues: pyspark-log groups reset-offsets.
    """
    from pyspark_log.reading.groups import lags, oldest_unread_ms

    log = open_log(path)
    omitted = {"partitions"} if state or members else set()
    omitted |= {"members"} if state and not members else set()
    omitted |= set() if json or state else {"journal", "config"}

    def behind_ms(each: PartitionLag) -> int | None:
        oldest = oldest_unread_ms(log, each)
        return None if oldest is None else max(0, log.environment.now_ms() - oldest)

    while True:
        handle = log.group(group)
        document = documents.group(handle.state, handle.address, lags(log, handle.state), behind_ms)
        if watch and sys.stdout.isatty():
            typer.echo(CLEAR, nl=False)
        output.show({key: each for key, each in document.items() if key not in omitted}, json=json)
        if not watch:
            return
        time.sleep(WATCH_SECONDS)


@command(
    "pyspark-log groups alter etl --config group.initial.rebalance.delay.ms=0",
    "pyspark-log groups alter etl --delete-config group.initial.rebalance.delay.ms",
)
def alter(
    log: Log,
    group: arguments.GroupId,
    config: arguments.GroupConfigs = None,
    delete_config: arguments.DeleteConfigs = None,
) -> Document:
    """Change the settings of a group.

    Changes apply to the next join or commit. Either all of them are made or none. A group that does not exist yet is
    created, empty, so that its settings are there before its members.
    """
    changes = arguments.changes(config, delete_config, _CONFIG_EXAMPLE)

    changes |= GroupConfig.defaults(delete_config or ())
    try:
        handle = log.group(group)
    except UnknownGroup:
        GroupConfig().alter(changes)  # it is not created if a setting is refused
        handle = log.group(group, create=True)
    old = handle.state.config.show()
    new = handle.alter_config(changes).show()
    changed = {key: value for key, value in new.items() if value != old[key]}
    return {"group": group, "changed": changed}


@command("pyspark-log groups delete-offsets etl --topic flights")
def delete_offsets(
    log: Log,
    group: arguments.GroupId,
    topic: Annotated[str, typer.Option(metavar="TOPIC", help="Topic whose committed offsets are deleted.")],
) -> Document:
    """Delete a group's committed offsets of a topic. The group must not have members."""
    handle, topic_id = log.group(group), log.topic(topic).topic_id
    expire_dead_members(log, group)
    deleted = handle.delete_offsets(topic_id)
    return {"group": group, "topic": topic, "deleted": deleted}


@command("pyspark-log groups delete etl --yes")
def delete(log: Log, group: arguments.GroupId, yes: arguments.Yes = False) -> Document:
    """Delete a group with its committed offsets. The group must not have members."""
    handle = log.group(group)
    question = f"delete group {group} and its committed offsets? This cannot be undone."
    arguments.confirm(question, otherwise="nothing was deleted", yes=yes)
    expire_dead_members(log, group)
    handle.delete()
    return {"group": group, "deleted": True}


def expire_dead_members(log: Log, group: str) -> None:
    """Remove the members of a group if all are dead.

    It waits for a sign of life for as long as their sessions last, and says so on stderr. Raises `LogError`.
    """
    from pyspark_log_coordinator.membership.last_members import expire_last

    def say(count: int, seconds: float) -> None:
        output.print_error(
            f"group {group!r} has {counted(count, 'member')}, and none has shown life yet; waiting for that up to "
            f"{seconds:,.0f} s, then they are removed"
        )

    with contextlib.suppress(UnknownGroup):
        expire_last(log.group(group), log.environment, say)
