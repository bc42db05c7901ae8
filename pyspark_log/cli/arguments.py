"""Arguments that several commands have, and the checks of their values."""

from __future__ import annotations

import re
import sys
import textwrap
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn, TypeVar

import typer

from pyspark_log.cli import output

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Command = TypeVar("Command", bound="Callable[..., None]")

EPILOGS: dict[object, str] = {}
"""What stands at the end of a command's help, by its function."""


Path = Annotated[
    str,
    typer.Option(
        "--path",
        "-p",
        envvar="PYSPARK_LOG_PATH",
        metavar="ADDRESS",
        help="Address of the cluster, such as /data/log, or of one or several journal nodes, separated by commas.",
    ),
]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
Topics = Annotated[list[str] | None, typer.Argument(metavar="TOPIC", help="Names of topics (default: all).")]
NodeId = Annotated[str, typer.Argument(metavar="NODE", help="Id of the node.")]
GroupId = Annotated[str, typer.Argument(metavar="GROUP", help="The group's group.id.")]
ReplicaAssignment = Annotated[
    str | None,
    typer.Option(
        metavar="NODES",
        help="Nodes of each partition, preferred leader first: 0:1,1:2 places partition 0 on nodes 0 and 1, and "
        "partition 1 on nodes 1 and 2.",
    ),
]
Configs = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="KEY=VALUE", help="Setting of the topic, with Kafka's name; can be repeated."),
]
GroupConfigs = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="KEY=VALUE", help="Setting of the group, with Kafka's name; can be repeated."),
]
DeleteConfigs = Annotated[
    list[str] | None,
    typer.Option("--delete-config", metavar="KEY", help="Setting to reset to its default; can be repeated."),
]
Throttle = Annotated[
    int | None, typer.Option(min=1, metavar="BYTES", help="Maximum bytes to copy per second (default: unlimited).")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, without changing anything.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one document per line.")]


def examples(*lines: str, more: str = "") -> Callable[[Command], Command]:
    """Show examples at the end of a command's help, and `more` below them. Its lines stay as they are."""
    word = "Example" if len(lines) == 1 else "Examples"

    def add(command: Command) -> Command:
        text = "\n".join(["\b", f"{word}:", *(textwrap.indent(line, "  ") for line in lines)])
        EPILOGS[command] = f"{text}\n\n\b\n{more}" if more else text
        return command

    return add


Format = Literal["text", "json"]
"""The format of rows as lines."""
KeySeparator = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT", help="Separator between the key and the value of a text line. In most shells, $'\\t' is a tab."
    ),
]


def check_key_separator(separator: str | None, form: Format) -> None:
    """End the program if the separator cannot be used."""
    if separator == "":
        refuse("--key-separator", "it is empty; expected at least one character")
    if separator is not None and form == "json":
        refuse("--key-separator", "it applies to text lines only; in JSON lines the key is a field")


def settings(pairs: list[str] | None, example: str) -> dict[str, str]:
    """Return the settings of --config. End the program if one is invalid."""
    values: dict[str, str] = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not (key.strip() and equals):
            refuse("--config", f"{pair!r} is not KEY=VALUE, such as {example}")
        values[key.strip()] = value.strip()
    return values


def changes(config: list[str] | None, delete_config: list[str] | None, example: str) -> dict[str, str]:
    """Return the settings of --config, in a command that also has --delete-config. End the program if they clash."""
    if not config and not delete_config:
        refuse("--config, --delete-config", "nothing to change; give at least one of these")
    given = settings(config, example)
    both = given.keys() & set(delete_config or ())
    if both:
        refuse("--delete-config", f"{min(both)} is also given with --config; remove one of them")
    return given


def replica_assignment(text: str | None) -> tuple[tuple[str, ...], ...] | None:
    """Return the nodes of each partition from Kafka's notation, or None for None. End the program if it is invalid."""
    if text is None:
        return None
    replicas = tuple(tuple(node.strip() for node in nodes.split(":")) for nodes in text.split(","))
    if not all(node for nodes in replicas for node in nodes):
        refuse("--replica-assignment", f"{text!r} is not NODE:NODE,NODE:NODE, such as 0:1,1:2 for two partitions")
    return replicas


def host_and_port(text: str) -> tuple[str, int]:
    """Return the host, which may be empty, and the port of --listen. End the program if it is no address."""
    host, colon, port = text.rpartition(":")
    is_host = re.fullmatch(r"[\w.-]*|\[[0-9a-fA-F:.]+\]", host) is not None
    if not (colon and is_host and port.isdecimal() and int(port) < 2**16):
        refuse("--listen", f"{text!r} is not HOST:PORT, such as 127.0.0.1:8080")
    return host.strip("[]"), int(port)


def confirm(question: str, *, otherwise: str, yes: bool) -> None:
    """Ask on stderr unless `yes` is set. Unless the answer is yes, print `otherwise` and end the program."""
    if yes:
        return
    typer.echo(f"{question} [y/N] ", nl=False, err=True)
    answer = sys.stdin.readline()
    if not sys.stdin.isatty():
        typer.echo(err=True)  # on a terminal, Enter has ended the line
    if answer.strip().lower() not in {"y", "yes"}:
        output.print_error(otherwise)
        raise typer.Exit(1)


def refuse_given(values: Mapping[str, object], why: str) -> None:
    """End the program if one of these arguments is given."""
    for name, value in values.items():
        if value is not None and value is not False:
            refuse(name, why)


def refuse(name: str, why: str) -> NoReturn:
    """End the program, because the value of argument `name` is invalid."""
    raise typer.BadParameter(why, param_hint=name)
