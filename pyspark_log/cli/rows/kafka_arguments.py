"""Arguments that `import kafka` and `export kafka` share, by the names that Kafka's tools have for them."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Annotated

import typer

from pyspark_log.cli import arguments
from pyspark_log.cli.rows import row_positions

if TYPE_CHECKING:
    from pyspark_log.kafka.client import Kafka

BootstrapServer = Annotated[
    str, typer.Option(metavar="HOST:PORT", help="Address of the Kafka cluster; several are separated by commas.")
]
Topic = Annotated[str, typer.Option(metavar="TOPIC", help="Topic to copy.")]
ToTopic = Annotated[
    str | None, typer.Option(metavar="TOPIC", help="Topic to copy to (default: the same name).", show_default=False)
]
Start = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="WHERE",
        help="Where to begin with partitions that were not copied before: earliest, latest, or @TIME for the first row "
        "at or after a time: milliseconds since 1970, or a time such as 2026-01-31T12:00:00Z.",
    ),
]
Execute = Annotated[bool, typer.Option("--execute", help="Copy; without it, only show what would be done.")]
CommandConfig = Annotated[
    pathlib.Path | None,
    typer.Option(
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="Properties file with settings of Kafka's clients, such as security.protocol and sasl.jaas.config.",
        show_default=False,
    ),
]
TimeoutMs = Annotated[
    int, typer.Option(min=1000, metavar="MS", help="How long to wait for an answer from Kafka, in milliseconds.")
]
Group = Annotated[
    list[str] | None,
    typer.Option(metavar="GROUP", help="Group whose committed offsets are carried over; can be repeated."),
]
AllGroups = Annotated[bool, typer.Option("--all-groups", help="Carry over the committed offsets of all groups.")]


def check(start: str, group: list[str] | None, *, all_groups: bool) -> None:
    """End the program if arguments are invalid, or contradict each other."""
    if start not in row_positions.WORDS[row_positions.FROM] and not start.startswith("@"):
        arguments.refuse(row_positions.FROM, f"{start!r} is not earliest, latest or @TIME")
    row_positions.check(row_positions.FROM, start)
    if group and all_groups:
        arguments.refuse("--all-groups", "cannot be combined with --group")


def connection(bootstrap_server: str, command_config: pathlib.Path | None, timeout_ms: int) -> Kafka:
    """Return the connection to a Kafka cluster. Raises `LogError`, `InvalidOption`."""
    from pyspark_log.kafka import properties
    from pyspark_log.kafka.client import Kafka

    settings = {} if command_config is None else properties.read(command_config)
    return Kafka(bootstrap_server, settings, timeout_ms / 1000)
