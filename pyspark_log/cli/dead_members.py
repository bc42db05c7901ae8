"""What commands that need a group without members do first: they remove members that are dead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log.cli import output
from pyspark_log.cli.output import counted

if TYPE_CHECKING:
    from pyspark_log_coordinator.log.log import Log


def expire_dead_members(log: Log, group: str, *, queries: bool) -> None:
    """Remove the members of a group if all are dead, also those that are `queries` if that is set.

    It waits for a sign of life for as long as their sessions last, and says so on stderr. Raises `LogError`.
    """
    from pyspark_log.reading.groups import expire_dead

    def say(count: int, seconds: float) -> None:
        output.print_error(
            f"group {group!r} has {counted(count, 'member')}, and none has shown life yet; waiting for that up to "
            f"{seconds:,.0f} s, then they are removed"
        )

    expire_dead(log, group, say, queries=queries)
