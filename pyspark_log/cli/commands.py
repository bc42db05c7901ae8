"""The commands of `pyspark-log`: where the function of each is, and groups that import it when it is called.

So the program starts quickly, and modules of commands import what they need at their top. Lists of commands show the
first sentence of each function's docstring, read from the source of its module.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from collections.abc import Iterator, Mapping
from typing import Any

import typer
from typer.core import TyperGroup

from pyspark_log.cli.arguments import EPILOGS

STYLE: dict[str, Any] = {"add_completion": False, "rich_markup_mode": None}


class LazyCommands(Mapping[str, Any]):
    """Commands by name, in the order in which help lists them. A command is imported when it is asked for."""

    def __init__(self, table: Mapping[str, str | Group]) -> None:
        """Begin with groups, and with places of functions: `module:function` in this package."""
        self._table = table

    def __getitem__(self, name: str) -> Any:
        found = self._table[name]
        return found if isinstance(found, Group) else _command(name, found)

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)

    def summary(self, name: str) -> str:
        """Return one sentence about a command, without importing it."""
        found = self._table[name]
        if isinstance(found, Group):
            return found.help or ""
        module, function = found.split(":")
        source = (pkgutil.get_data(__package__, f"{module.replace('.', '/')}.py") or b"").decode()
        line = re.search(rf'^def {function}\(.*?^    """(.*?\.)(?: |"""|$)', source, re.MULTILINE | re.DOTALL)
        assert line is not None, found
        return line[1]


class Group(TyperGroup):
    """A group of commands that are imported when they are called."""

    commands: Any  # LazyCommands: typer only reads them

    def list_commands(self, ctx: Any) -> list[str]:
        return [*self.commands]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.commands.summary(name)) for name in self.commands])


@functools.cache
def _command(name: str, place: str) -> Any:
    module, function = place.split(":")
    command = getattr(importlib.import_module(f"{__package__}.{module}"), function)
    alone = typer.Typer(**STYLE)
    alone.command(name, epilog=EPILOGS[command])(command)
    return typer.main.get_command(alone)


def _group(name: str, summary: str, table: Mapping[str, str | Group]) -> Group:
    commands: Any = LazyCommands(table)
    return Group(name=name, help=summary, commands=commands, no_args_is_help=True, rich_markup_mode=None)


COMMANDS = LazyCommands(
    {
        "cluster": _group(
            "cluster",
            "Create, describe, adopt and rebuild clusters.",
            {
                "create": "nodes.cluster:create",
                "describe": "nodes.cluster:describe",
                "adopt": "nodes.cluster:adopt",
                "migrate-journals": "nodes.cluster:migrate_journals",
                "rebuild": "repair.rebuild:rebuild",
                "check-store": "nodes.cluster:check_store",
            },
        ),
        "nodes": _group(
            "nodes",
            "Add, list, alter, fence, renew, drain and remove nodes.",
            {
                "add": "nodes.nodes:add",
                "list": "nodes.nodes:list_",
                "describe": "nodes.nodes:describe",
                "alter": "nodes.nodes:alter",
                "fence": "nodes.nodes:fence",
                "unfence": "nodes.nodes:unfence",
                "drain": "nodes.nodes:drain",
                "renew": "nodes.nodes:renew",
                "remove": "nodes.nodes:remove",
            },
        ),
        "topics": _group(
            "topics",
            "Create, list, describe, alter, reassign and delete topics.",
            {
                "create": "topics.topics:create",
                "list": "topics.topics:list_",
                "describe": "topics.describe:describe",
                "alter": "topics.topics:alter",
                "add-partitions": "topics.topics:add_partitions",
                "reassign": "topics.reassign:reassign",
                "elect-leaders": "topics.elect_leaders:elect_leaders",
                "delete": "topics.topics:delete",
            },
        ),
        "produce": "rows.produce:produce",
        "consume": "rows.consume:consume",
        "offsets": "topics.topics:offsets",
        "groups": _group(
            "groups",
            "Administer groups and their offsets.",
            {
                "list": "groups.groups:list_groups",
                "describe": "groups.groups:describe",
                "alter": "groups.groups:alter",
                "reset-offsets": "groups.group_offsets:reset_offsets",
                "export": "groups.group_offsets:export",
                "import": "groups.group_offsets:import_",
                "delete-offsets": "groups.groups:delete_offsets",
                "delete": "groups.groups:delete",
            },
        ),
        "delete-records": "topics.topics:delete_records",
        "ui": "ui:ui",
        "metrics": "nodes.metrics:metrics",
        "maintain": "nodes.maintain:maintain",
        "node": _group("node", "Run the background work of a node.", {"run": "nodes.node_run:run"}),
        "verify": "repair.verify:verify",
        "recover": "repair.recover:recover",
        "backup": "repair.backup:backup",
        "restore": "repair.backup:restore",
        "dump": "repair.dump:dump",
    }
)
"""All commands, in the order in which one meets them."""
