"""The settings that a member chooses for itself."""

from __future__ import annotations

import re

import msgspec

from pyspark_log_coordinator.group.config import MAX_POLL_INTERVAL_MS, SESSION_TIMEOUT_MS

HEARTBEAT_INTERVAL_MS, HEARTBEAT_INTERVAL_MS_REMOTE = 3_000, 15_000
NEWS_SECONDS_REMOTE = 60.0

NAME_CHARACTERS = 100
"""How much of a client id or instance id is in a member id."""
_ILLEGAL = re.compile(r"[^0-9A-Za-z._-]")


def heartbeat_interval_ms(given: int | None, session_timeout_ms: int, *, is_remote: bool) -> int:
    """Return `heartbeat.interval.ms`; `given` is None if it was not set. `is_remote`: each heartbeat is a request."""
    if given is not None:
        return given
    if not is_remote:
        return HEARTBEAT_INTERVAL_MS
    return max(HEARTBEAT_INTERVAL_MS, min(HEARTBEAT_INTERVAL_MS_REMOTE, session_timeout_ms // 3))


class MemberSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a member; defaults are Kafka's. Times in ms."""

    instance_id: str = ""
    """`group.instance.id`."""
    session_timeout_ms: int = SESSION_TIMEOUT_MS
    max_poll_interval_ms: int = MAX_POLL_INTERVAL_MS
    news_seconds: float = 0.0
    """The shortest time between two questions of a working member whether the work has to be assigned anew."""
    client_id: str = "consumer"
    """The first part of its member ids."""
    host: str = ""

    def new_member_id(self, nonce: str) -> str:
        """Return a member id that begins with the name of the member."""
        name = _ILLEGAL.sub("-", self.instance_id or self.client_id)
        return f"{name[:NAME_CHARACTERS]}-{nonce}"
