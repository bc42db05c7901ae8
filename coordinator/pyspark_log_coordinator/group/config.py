"""The configuration of a group and of its members, under the names and with the defaults of Kafka.

There is no broker here, so each group stores the configuration that a broker would have for it. What a member chooses
for itself (`session.timeout.ms`, `max.poll.interval.ms`) comes with its JoinGroup.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import msgspec

from pyspark_log_coordinator.model.settings import INT_MAX, Meaning, StoredConfig
from pyspark_log_storage.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

SESSION_TIMEOUT_MS = 45_000
"""A member expires when nothing was heard of it for this long."""
MAX_POLL_INTERVAL_MS = 300_000
"""A member has this long to rejoin. Kafka sends it as the member's rebalance time-out."""
HEARTBEAT_INTERVAL_MS, HEARTBEAT_INTERVAL_MS_REMOTE = 3_000, 15_000
NEWS_SECONDS_REMOTE = 60.0

NAME_CHARACTERS = 100
"""How much of a client id or instance id is in a member id."""
_ILLEGAL = re.compile(r"[^0-9A-Za-z._-]")


class GroupConfig(StoredConfig, frozen=True):
    OWNER = "group"

    initial_rebalance_delay_ms: Annotated[
        int,
        Meaning(
            "How long the first rebalance of an empty group waits for more members, in ms; each that joins extends "
            "the wait.",
            0,
            INT_MAX,
        ),
    ] = msgspec.field(default=3_000, name="group.initial.rebalance.delay.ms")
    min_session_timeout_ms: Annotated[
        int, Meaning("Smallest `session.timeout.ms` with which a member may join, in ms.", 1, INT_MAX)
    ] = msgspec.field(default=6_000, name="group.min.session.timeout.ms")
    max_session_timeout_ms: Annotated[
        int, Meaning("Largest `session.timeout.ms` with which a member may join, in ms.", 1, INT_MAX)
    ] = msgspec.field(default=1_800_000, name="group.max.session.timeout.ms")
    offset_metadata_max_bytes: Annotated[
        int, Meaning("Maximum size in bytes of the text that a member commits beside an offset.", 0, INT_MAX)
    ] = 4_096

    def alter(self, settings: Mapping[str, str]) -> Self:
        """Return this with `settings` changed. The smallest time-out may not exceed the largest."""
        changed = super().alter(settings)
        if changed.min_session_timeout_ms > changed.max_session_timeout_ms:
            raise InvalidOption(
                "group.min.session.timeout.ms",
                f"group.min.session.timeout.ms={changed.min_session_timeout_ms} exceeds "
                f"group.max.session.timeout.ms={changed.max_session_timeout_ms}; change one of them",
            )
        return changed


class MemberSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a member; defaults are Kafka's. Times in ms."""

    instance_id: str = ""
    """`group.instance.id`."""
    session_timeout_ms: int = SESSION_TIMEOUT_MS
    heartbeat_interval_ms: int | None = None
    """None: the default, which depends on the store."""
    max_poll_interval_ms: int = MAX_POLL_INTERVAL_MS
    news_seconds: float = 0.0
    """The shortest time between two questions of a working member whether the work has to be assigned anew."""
    client_id: str = "consumer"
    """The first part of its member ids."""
    host: str = ""

    def interval_ms(self, *, is_remote: bool) -> int:
        """Return how often the member sends a heartbeat. `is_remote`: each is a request to an object store."""
        if self.heartbeat_interval_ms is not None:
            return self.heartbeat_interval_ms
        if not is_remote:
            return HEARTBEAT_INTERVAL_MS
        return max(HEARTBEAT_INTERVAL_MS, min(HEARTBEAT_INTERVAL_MS_REMOTE, self.session_timeout_ms // 3))

    def new_member_id(self, nonce: str) -> str:
        """Return a member id that begins with the name of the member."""
        name = _ILLEGAL.sub("-", self.instance_id or self.client_id)
        return f"{name[:NAME_CHARACTERS]}-{nonce}"
