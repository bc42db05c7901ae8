"""What a group shares: the part of a member that depends on the protocol type.

`shared_partitions` is the participant of consumers. A program may have one of its own, for any work that processes
share or for the election of a leader: the group stores the metadata of its members, and the assignments, as bytes.

Source: the hooks of Kafka's `AbstractCoordinator` (metadata, onJoinPrepare, onLeaderElected, onJoinComplete,
rejoinNeededOrPending, onLeavePrepare).
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from typing import Protocol as Interface

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_log_coordinator.group.state import Group, JoinedMember, MemberId, Protocol


class Participant(Interface):
    """The work of a member. All methods are called by the thread that calls `GroupMember.poll`."""

    protocol_type: str
    """Members of a group have the same."""

    def protocols(self, generation: int) -> tuple[Protocol, ...]:
        """Return what the member says as it joins, the preferred protocol first.

        `generation` is the one whose assignment it has taken last, -1 if none.
        """

    def prepare(self) -> None:
        """Give up, before the member joins, what another member may get. It can still be committed."""

    def assign(self, group: Group, members: tuple[JoinedMember, ...]) -> Mapping[MemberId, bytes]:
        """Return the assignments of the generation, as its leader."""

    def take(self, group: Group, member_id: MemberId) -> bool:
        """Take the member's assignment, and return whether it has to rejoin, because it has given something up."""

    def rewound(self, group: Group, since: int) -> None:
        """Go on where the rewinds after number `since` say: offsets of the group were reset."""

    def wants_rebalance(self, group: Group, member_id: MemberId, now: float) -> bool:
        """Return whether the work has to be assigned anew. Called while it works; `now` is in monotonic seconds."""

    def lose(self) -> None:
        """Drop everything: the member was removed, and others may have its work. Nothing can be committed."""
