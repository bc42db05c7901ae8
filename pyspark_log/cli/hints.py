"""Plain words for usage errors, and hints for the options of Kafka's tools that have other names here."""

from __future__ import annotations

from typing import Any

from pyspark_log_coordinator.model.topic_config import REPLICA_LAG_TIME_MAX_MS

ORDER = "put options after the command, as in: pyspark-log topics list --path /data/log"

KAFKAS = {
    "--bootstrap-server": "use --path for the address of the cluster",
    "--from-beginning": "this is the default; use --from to start elsewhere",
    "--group": "name the group without an option, as in: pyspark-log groups describe GROUP",
    "--offset": "use --from",
    "--property": "use --format and --key-separator",
    "--replica-lag-time-max-ms": (
        "it is a setting of the topic: pyspark-log topics alter TOPIC --config "
        f"replica.lag.time.max.ms={REPLICA_LAG_TIME_MAX_MS}"
    ),
    "--topic": "name the topic without an option, as in: pyspark-log consume TOPIC",
}
ALTER_PARTITIONS = "use: pyspark-log topics add-partitions TOPIC --partitions N"
COMMANDS = dict.fromkeys(("group", "consumer-groups"), "use: pyspark-log groups")


def add(error: Exception) -> None:
    """Add a hint to an error about an unknown option, and say in plain words why a value is invalid."""
    unknown: Any = error
    cause: Any = error.__cause__
    if hasattr(cause, "errors"):
        unknown.message = _why_invalid(cause.errors()[0]) or unknown.message.removeprefix("Value error, ")
    if not hasattr(unknown, "possibilities"):
        return
    command = unknown.ctx.command if unknown.ctx is not None else None
    if hasattr(command, "commands"):
        hint: str | None = ORDER
    elif (unknown.option_name, getattr(command, "name", None)) == ("--partitions", "alter"):
        hint = ALTER_PARTITIONS
    else:
        hint = KAFKAS.get(unknown.option_name)
    if hint is not None:
        unknown.message += f"; {hint}"
        unknown.possibilities = None


def _why_invalid(found: dict[str, Any]) -> str:
    """Return why a number is invalid, or nothing. pydantic, which typer checks values with, says it for developers."""
    value, limits = found["input"], found.get("ctx", {})
    if found["type"] in {"int_parsing", "int_from_float"}:
        return f"{value!r} is not a whole number"
    if found["type"] == "float_parsing":
        return f"{value!r} is not a number"
    if "ge" in limits:
        return f"{value} is less than {limits['ge']}"
    if "le" in limits:
        return f"{value} is greater than {limits['le']}"
    return ""
