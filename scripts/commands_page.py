"""Writes docs/reference/cli.md from the commands: their help, their options and their examples.

What a section has below `<!-- notes -->`, and what is before the first section, is written by hand and stays.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pyspark_log.cli import arguments
from pyspark_log.cli.main import app

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "cli.md"
NOTES = "<!-- notes -->\n"
EVERYWHERE = {each.__metadata__[0].help for each in (arguments.Path, arguments.Json, arguments.DryRun, arguments.Yes)}
"""What options say that many commands have, and that are described before the first section."""


def commands(group: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every command with its words."""
    for word in group.commands:
        command, words = group.get_command(None, word), f"{name} {word}".strip()
        yield from commands(command, words) if hasattr(command, "commands") else [(words, command)]


def section(name: str, command: Any, notes: str) -> str:
    """Return what the page has about a command."""
    context = typer.Context(command, info_name=name)
    examples, *more = command.epilog.partition(":\n")[2].split("\n\n\b\n")
    paragraphs = [" ".join(each.split()) for each in command.help.split("\n\n")]
    options = [each for each in command.params if each.help not in EVERYWHERE and each.param_type_name == "option"]
    records = [each.get_help_record(context) for each in options]
    items = [f"- `{names}`: {' '.join(text.split())}" for names, text in records]
    parts = [
        f"## `{name}`",
        f"```\n{textwrap.dedent(examples).strip()}\n```",
        *(textwrap.fill(each, 140, break_long_words=False, break_on_hyphens=False) for each in paragraphs),
        *(["\n".join(items)] if items else []),
        *(f"```\n{each.strip()}\n```" for each in more),
        *([f"{NOTES}\n{notes.strip()}"] if notes.strip() else []),
    ]
    return "\n\n".join(parts) + "\n"


def page(old: str) -> str:
    """Return the page, with what is written by hand in the old one."""
    start, *sections = re.split(r"^(?=## )", old, flags=re.MULTILINE)
    notes = {each.partition("\n")[0]: each.partition(NOTES)[2] for each in sections}
    found = commands(typer.main.get_command(app))
    made = (section(name, each, notes.get(f"## `{name}`", "")) for name, each in found)
    return "\n".join([f"{start.rstrip()}\n", *made])


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
