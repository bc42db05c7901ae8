"""Rows through `pyspark-log produce` and `consume`."""

import json

from tests.support.command_line import CommandLine


def consumed(cli: CommandLine, *arguments: object) -> list[dict]:
    return cli.documents("consume", "t", *arguments)


def produced(cli: CommandLine, *lines: dict | str) -> None:
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    cli.run("produce", "t", "--format", "json", stdin=text)
