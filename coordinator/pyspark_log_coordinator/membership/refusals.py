"""Why a commit of a member was refused, in words for its program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_storage.errors import RebalanceInProgress

if TYPE_CHECKING:
    from pyspark_log_storage.errors import IllegalGeneration


def in_a_rebalance(error: IllegalGeneration) -> RebalanceInProgress:
    """Return the error for a member that has joined a newer generation, and keeps most of what it has."""
    return RebalanceInProgress(
        error.group,
        error.member,
        f"group {error.group!r} is rebalancing, and member {error.member!r} has joined it, so it cannot commit for "
        f"generation {error.generation} any more; poll, which ends that, then commit what the member still has",
    )


def silent(seconds: float, session_timeout_ms: int) -> str:
    """Return why a member that sent no heartbeat for so long was removed; empty if that was not too long."""
    if seconds * 1000 < session_timeout_ms:
        return ""
    return f"this process gave no sign of life for {seconds:.1f} s, and session.timeout.ms={session_timeout_ms}"


def not_polled(seconds: float, max_poll_interval_ms: int) -> str:
    """Return why a member left by itself."""
    return (
        f"poll was not called for {seconds:.1f} s, longer than max.poll.interval.ms={max_poll_interval_ms}, so it left "
        "the group; raise that, or lower max.poll.records"
    )
