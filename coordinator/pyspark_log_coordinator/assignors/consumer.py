"""The leader of a group of consumers: it runs the assignor that the members voted for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.assignors import basic, sticky
from pyspark_log_coordinator.assignors.subscription import (
    KEEPING_QUERY,
    QUERY,
    Assignment,
    Subscriber,
    Subscription,
    by_topic,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    flat,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_log_coordinator.group.state import JoinedMember

PROTOCOL_TYPE = "consumer"
QUERY_PROTOCOL_TYPE = "spark"
"""That of Spark queries, which follow rewinds while they run. They share no group with Python consumers."""

ASSIGNORS = {
    "range": basic.assign_range,
    "roundrobin": basic.assign_roundrobin,
    "sticky": sticky.assign_sticky,
    "cooperative-sticky": sticky.assign_cooperative_sticky,
}
"""By the names that `partition.assignment.strategy` takes."""


def assign(
    protocol: str, generation: int, members: Sequence[JoinedMember], partitions: Mapping[str, int]
) -> dict[str, bytes]:
    """Return the assignments of a generation. `partitions` says how many each topic has."""
    shares = ASSIGNORS[protocol](partitions, [_subscriber(each, generation) for each in members])
    return {name: encode_assignment(Assignment(by_topic(share))) for name, share in shares.items()}


def _subscriber(member: JoinedMember, generation: int) -> Subscriber:
    """Return the member for an assignor.

    One that is away owns what it was assigned last, whatever it said before. A query that is away also owns what it
    said, and keeps all of that: it can give up nothing.
    """
    subscription: Subscription = decode_subscription(member.metadata, member.state, member.member_id)
    if member.away is not None:
        owned = decode_assignment(member.away, member.member_id).partitions
        if subscription.user_data in {QUERY, KEEPING_QUERY}:
            owned = by_topic(list({*flat(owned), *flat(subscription.owned)}))
            subscription = msgspec.structs.replace(subscription, user_data=KEEPING_QUERY)
        subscription = msgspec.structs.replace(subscription, owned=owned, generation=generation - 1)
    return Subscriber(member.member_id, subscription, member.instance_id)
