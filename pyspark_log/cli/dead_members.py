"""What commands that need a group without members do first: they remove members that are dead."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from pyspark_log.cli import output
from pyspark_log.cli.output import counted
from pyspark_log_storage.errors import UnknownGroup

if TYPE_CHECKING:
    from pyspark_log_coordinator.log.log import Log


def expire_dead_members(log: Log, group: str) -> None:
    """Remove the members of a group if all are dead.

    It waits for a sign of life for as long as their sessions last, and says so on stderr. Raises `LogError`.
    """
    from pyspark_log_coordinator.membership.last_members import expire_last

    def say(count: int, seconds: float) -> None:
        output.print_error(
            f"group {group!r} has {counted(count, 'member')}, and none has shown life yet; waiting for that up to "
            f"{seconds:,.0f} s, then they are removed"
        )

    with contextlib.suppress(UnknownGroup):
        expire_last(log.group(group), log.environment, say)
