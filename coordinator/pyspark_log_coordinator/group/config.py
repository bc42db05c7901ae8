"""The configuration of a group, under the names and with the defaults of Kafka's brokers.

There is no broker here, so each group stores its own. What a member chooses for itself (`session.timeout.ms`,
`max.poll.interval.ms`) comes with its JoinGroup.
"""

from __future__ import annotations

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


class GroupConfig(StoredConfig, frozen=True):
    """The settings of a group."""

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
