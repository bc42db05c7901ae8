"""The commands of `pyspark-log`: where the function of each is, and groups that import it when it is called.

So the program starts quickly, and modules of commands import what they need at their top.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup

from pyspark_log.cli.arguments import EPILOGS

STYLE: dict[str, Any] = {"add_completion": False, "rich_markup_mode": None}


class Lazy(NamedTuple):
    """A command that is not imported yet."""

    place: str
    """`module:function` in this package."""
    help: str
    """What lists show: the first sentence of the function's docstring."""


class LazyGroup(TyperGroup):
    """A group that imports a command when it is called, and lists its commands without importing them."""

    commands: Any  # Lazy commands and groups; typer asks for them by get_command

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = self.commands.get(cmd_name)
        return _imported(cmd_name, found.place) if isinstance(found, Lazy) else found

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in self.commands.items()])


@functools.cache
def _imported(name: str, place: str) -> Any:
    module, function = place.split(":")
    command = getattr(importlib.import_module(f"{__package__}.{module}"), function)
    alone = typer.Typer(**STYLE)
    alone.command(name, epilog=EPILOGS[command])(command)
    return typer.main.get_command(alone)


def _group(name: str, summary: str, commands: Any) -> LazyGroup:
    return LazyGroup(name=name, help=summary, commands=commands, no_args_is_help=True, rich_markup_mode=None)


_CLUSTER = {
    "create": Lazy("nodes.cluster:create", "Create a cluster, on one store or several journal nodes."),
    "describe": Lazy("nodes.cluster:describe", "Show the cluster and the state of its journal nodes."),
    "adopt": Lazy("nodes.cluster:adopt", "Use a log at the address to which its folders were moved."),
    "migrate-journals": Lazy("nodes.cluster:migrate_journals", "Migrate the journals to other nodes of the cluster."),
    "rebuild": Lazy("repair.rebuild:rebuild", "Rebuild a cluster whose journals are all lost."),
    "check-store": Lazy("nodes.cluster:check_store", "Check whether a store can hold a log."),
}
_NODES = {
    "add": Lazy("nodes.nodes:add", "Add a store to the cluster as a node."),
    "list": Lazy("nodes.nodes:list_", "List the nodes and their state."),
    "describe": Lazy("nodes.nodes:describe", "Show a node and its replicas of each topic."),
    "alter": Lazy("nodes.nodes:alter", "Change the rack of a node."),
    "fence": Lazy("nodes.nodes:fence", "Take a node out of service."),
    "unfence": Lazy("nodes.nodes:unfence", "Return a fenced node to service."),
    "drain": Lazy("nodes.nodes:drain", "Move all replicas off a node and fence it."),
    "renew": Lazy("nodes.nodes:renew", "Give a node an empty disk or a new address."),
    "remove": Lazy("nodes.nodes:remove", "Remove a fenced node without replicas."),
}
_TOPICS = {
    "create": Lazy("topics.topics:create", "Create a topic."),
    "list": Lazy("topics.topics:list_", "List the topics."),
    "describe": Lazy("topics.topics:describe", "Show the settings and partitions of topics."),
    "alter": Lazy("topics.topics:alter", "Change the settings of a topic."),
    "add-partitions": Lazy("topics.topics:add_partitions", "Add partitions to a topic."),
    "reassign": Lazy("topics.reassign:reassign", "Move the partitions of a topic to other nodes."),
    "elect-leaders": Lazy("topics.elect_leaders:elect_leaders", "Elect the preferred leaders of partitions."),
    "delete": Lazy("topics.topics:delete", "Delete a topic and all its rows."),
}
_GROUPS = {
    "list": Lazy("groups.groups:list_groups", "List the groups."),
    "describe": Lazy("groups.groups:describe", "Show the state of a group, its members, and its lag."),
    "alter": Lazy("groups.groups:alter", "Change the settings of a group."),
    "reset-offsets": Lazy("groups.group_offsets:reset_offsets", "Set the offsets at which a group continues."),
    "export": Lazy("groups.group_offsets:export", "Print the committed offsets of groups as CSV."),
    "import": Lazy("groups.group_offsets:import_", "Reset the offsets of groups to those of a file."),
    "delete-offsets": Lazy("groups.groups:delete_offsets", "Delete a group's committed offsets of a topic."),
    "delete": Lazy("groups.groups:delete", "Delete a group with its committed offsets."),
}
COMMANDS: Mapping[str, Any] = {
    "cluster": _group("cluster", "Create, describe, adopt and rebuild clusters.", _CLUSTER),
    "nodes": _group("nodes", "Add, list, alter, fence, renew, drain and remove nodes.", _NODES),
    "topics": _group("topics", "Create, list, describe, alter, reassign and delete topics.", _TOPICS),
    "produce": Lazy("rows.produce:produce", "Write lines to a topic."),
    "consume": Lazy("rows.consume:consume", "Print the rows of a topic."),
    "offsets": Lazy("topics.topics:offsets", "Show the earliest and latest offsets of a topic."),
    "groups": _group("groups", "Administer groups and their offsets.", _GROUPS),
    "delete-records": Lazy("topics.topics:delete_records", "Delete the oldest rows of a partition."),
    "ui": Lazy("ui:ui", "Show the log in a browser: topics, rows, groups, history."),
    "metrics": Lazy("nodes.metrics:metrics", "Print the metrics of the cluster for Prometheus."),
    "maintain": Lazy("nodes.maintain:maintain", "Roll, merge, expire and clean up topics."),
    "node": _group(
        "node",
        "Run the background work of nodes.",
        {"run": Lazy("nodes.node_run:run", "Keep nodes in sync, check their data, and maintain topics.")},
    ),
    "verify": Lazy("repair.verify:verify", "Check everything that is stored and report problems."),
    "recover": Lazy("repair.recover:recover", "Check the files of one node and rebuild lost indexes."),
    "backup": Lazy("repair.backup:backup", "Back up the log, while it is used."),
    "restore": Lazy("repair.backup:restore", "Restore a backup to an empty folder or bucket."),
    "dump": Lazy("repair.dump:dump", "Print the contents of stored files as JSON lines."),
}
"""All commands, in the order in which one meets them."""
