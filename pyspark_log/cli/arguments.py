"""The arguments that several commands have, and how a value that is typed wrong is told."""

from __future__ import annotations

import enum
import sys
from typing import TYPE_CHECKING, Annotated, NoReturn, TypeVar

import typer

if TYPE_CHECKING:
    from pyspark_log.options.option import Option

T = TypeVar("T")

Path = Annotated[
    str,
    typer.Option(
        "--path",
        "-p",
        envvar="PYSPARK_LOG_PATH",
        metavar="ADDRESS",
        help="The cluster's address, for example /data/log; of journal nodes any, with commas between them.",
    ),
]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.", show_default=False)]
Topics = Annotated[list[str] | None, typer.Argument(metavar="TOPIC", help="Which topics; all if none is named.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines, one document or one a line.")]


class Format(str, enum.Enum):
    """How rows are written as lines."""

    TEXT = "text"
    JSON = "json"


KeySeparator = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="Text lines are key, this separator, value. A tab is $'\\t' in most shells.",
        show_default=False,
    ),
]


def check_key_separator(separator: str | None, form: Format) -> None:
    """End the program where the separator makes no sense."""
    if separator == "":
        refuse("--key-separator", "it is empty; give at least one character")
    if separator is not None and form is Format.JSON:
        refuse("--key-separator", "it is for text lines; in JSON lines the key has a field of its own")


def read_as(option: Option[T], text: str, name: str) -> T:
    """Return what `text` means for an option of the sink; ends the program where it means nothing."""
    try:
        return option.value.read(text.strip())
    except ValueError as error:
        refuse(name, f"{text!r}: {error}. It takes {option.value.takes}")


def settings(pairs: list[str], example: str) -> dict[str, str]:
    """Return what the pairs of --config set; ends the program if one is no pair."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key.strip() and equals):
            refuse("--config", f"{pair!r} is not KEY=VALUE, such as {example}")
        found[key.strip()] = value.strip()
    return found


def assignment(text: str) -> list[list[str]]:
    """Return the nodes of each partition, from Kafka's way to write them; ends the program where it is none."""
    replicas = [[node.strip() for node in nodes.split(":")] for nodes in text.split(",")]
    if not all(node for nodes in replicas for node in nodes):
        refuse(
            "--replica-assignment", f"{text!r} is not NODE:NODE,NODE:NODE, such as 0:1,1:2 for two partitions of two"
        )
    return replicas


def agreed(question: str) -> bool:
    """Ask on stderr, for stdout is for what the command says; only a yes is one."""
    typer.echo(f"{question} [y/N] ", nl=False, err=True)
    answer = sys.stdin.readline()
    if not sys.stdin.isatty():
        typer.echo(err=True)  # where a person answers, Enter ends the line
    return answer.strip().lower() in {"y", "yes"}


def refuse(name: str, why: str) -> NoReturn:
    """End the program: the argument `name` was typed wrong."""
    raise typer.BadParameter(why, param_hint=name)
