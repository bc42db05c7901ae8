"""Hints: what is added where a command was typed wrong and it is clear what was meant.

Who comes from Kafka types the options of its tools. Their names that are other ones here are in `KAFKAS`.
"""

from __future__ import annotations

from typing import Any

NO_GROUPS = "there are no consumer groups in this version; a query's progress is in its checkpoint"
BEHIND = "options stand behind the command, as in: pyspark-log topics list --path /data/log"

KAFKAS = {
    "--bootstrap-server": "the cluster's address is --path",
    "--from-beginning": "consume begins there, unless --from says otherwise",
    "--group": NO_GROUPS,
    "--offset": "it is called --from",
    "--property": "options of their own say how rows are printed and read; --help lists them",
    "--replica-lag-time-max-ms": (
        "it is a configuration of the topic, as in: "
        "pyspark-log topics alter TOPIC --config replica.lag.time.max.ms=30000"
    ),
    "--topic": "a topic is named without an option, as in: pyspark-log consume TOPIC",
}
ALTER_PARTITIONS = "more partitions are given by: pyspark-log topics add-partitions TOPIC --partitions N"
COMMANDS = dict.fromkeys(("group", "groups", "consumer-groups"), NO_GROUPS)


def add(error: Exception) -> None:
    """Add a hint to what typer says about an option that does not exist. Leaves every other error as it is."""
    unknown: Any = error
    if not hasattr(unknown, "possibilities"):
        return
    command = unknown.ctx.command if unknown.ctx is not None else None
    if hasattr(command, "commands"):
        hint: str | None = BEHIND
    elif (unknown.option_name, getattr(command, "name", None)) == ("--partitions", "alter"):
        hint = ALTER_PARTITIONS
    else:
        hint = KAFKAS.get(unknown.option_name)
    if hint is not None:
        unknown.message += f"; {hint}"
        unknown.possibilities = None
