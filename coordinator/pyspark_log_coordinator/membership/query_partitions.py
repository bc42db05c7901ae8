"""The partitions that a Spark query shares with the other queries of its group: the participant of type `spark`.

The query reads what it owns. A micro-batch that has begun needs its partitions until it has ended, so an assignment
takes nothing away at once: what is not in it is *leaving*, and is given up between two micro-batches. Until then the
query joins rebalances as the owner, also while a micro-batch runs. What is added is owned at once, and is read from the
next micro-batch on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_coordinator.assignors import consumer
from pyspark_log_coordinator.assignors.subscription import (
    KEEPING_QUERY,
    NO_GENERATION,
    QUERY,
    Subscription,
    TopicPartition,
    by_topic,
    decode_assignment,
    encode_subscription,
    flat,
)
from pyspark_log_coordinator.group.state import Protocol
from pyspark_log_coordinator.membership.shared_partitions import COOPERATIVE, PartitionSharing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark_log_coordinator.group.state import Group, MemberId
    from pyspark_log_coordinator.membership.shared_partitions import Topics


class QueryPartitions(PartitionSharing):
    """The partitions of one query."""

    protocol_type = consumer.QUERY_PROTOCOL_TYPE

    def __init__(self, topics: Topics, *, keeps: bool, is_member: Callable[[], bool]) -> None:
        """`keeps`: the query gives no partition to others. `is_member` says whether it has not been removed."""
        super().__init__(topics)
        self._user_data = KEEPING_QUERY if keeps else QUERY
        self._is_member = is_member
        self.owned: frozenset[TopicPartition] = frozenset()
        """What the query may read and commit."""
        self.leaving: frozenset[TopicPartition] = frozenset()
        """What of that the newest assignment does not have."""
        self._told: frozenset[TopicPartition] = frozenset()
        """What it owned as it joined."""
        self.generation = NO_GENERATION
        """The generation for which it owns them."""

    def restore(self, partitions: Iterable[tuple[str, int]], generation: int) -> None:
        """Own what the query's former process owned in a generation. The query has not been removed since."""
        self.owned = frozenset(TopicPartition(*each) for each in partitions)
        self.generation = generation

    def give_up(self) -> None:
        """Give up what is leaving. It was committed; the member has to rejoin."""
        self.owned, self.leaving = self.owned - self.leaving, frozenset()

    def protocols(self, generation: int) -> tuple[Protocol, ...]:
        self._wanted = tuple(sorted(self._topics.topics()))
        self._told = self.owned
        owned = by_topic(list(self.owned))
        told = Subscription(self._wanted, owned, self.generation if owned else NO_GENERATION, self._user_data)
        return (Protocol(COOPERATIVE, *encode_subscription(told)),)

    def prepare(self) -> None:
        """Give up nothing: a micro-batch may need it."""

    def take(self, group: Group, member_id: MemberId) -> bool:
        assigned, others = set[TopicPartition](), set[TopicPartition]()
        for name, member in group.members.items():
            found = flat(decode_assignment(member.assignment, name).partitions)
            (assigned if name == member_id else others).update(found)
        # A process that restarts may claim what its predecessor had given up.
        self.owned = (self.owned - others) | assigned
        self.leaving = self.owned - assigned
        self.generation = group.generation
        return not self._told <= self.owned

    def wants_rebalance(self, group: Group, member_id: MemberId, now: float) -> bool:
        return not self._told <= self.owned or super().wants_rebalance(group, member_id, now)

    def rewound(self, group: Group, since: int) -> None:
        """Do nothing: the next micro-batch follows the rewind."""

    def lose(self) -> None:
        # Nobody gets what a query owns while it is a member, even if it has missed a rebalance.
        if not self._is_member():
            self.owned = self.leaving = frozenset()
            self.generation = NO_GENERATION
            self._shared = None
