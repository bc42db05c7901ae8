"""Groups: their state, who is in them, and how far they are behind in each partition with committed offsets."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from pyspark_log_coordinator.assignors.consumer import PROTOCOL_TYPE
from pyspark_log_coordinator.assignors.subscription import decode_assignment
from pyspark_log_storage.errors import CorruptObject

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark_log.reading.groups import PartitionLag
    from pyspark_log_coordinator.group.state import Group
    from pyspark_log_coordinator.log.log import Log
    from pyspark_log_coordinator.model.partition import Partition


def groups(log: Log) -> list[dict[str, Any]]:
    """Return the groups in short, by name, without those that were deleted. Reads the journal of each."""
    states = [log.group_handle(record).refresh() for _, record in sorted(log.groups().items())]
    return [summary(each) for each in states if each.deleted_ms is None]


def summary(state: Group) -> dict[str, Any]:
    """Return a group in short."""
    return {
        "group": state.group_id,
        "state": state.state.value,
        "members": len(state.members),
        "type": state.protocol_type or "none",
    }


def group(
    state: Group, journal: str, lags: Sequence[PartitionLag], behind_ms: Callable[[PartitionLag], int | None]
) -> dict[str, Any]:
    """Return a group whose journal is at the address `journal`; `behind_ms` says how old its oldest unread row is."""
    assigned = {name: _assigned(state, name, each.assignment) for name, each in state.members.items()}
    owners = {
        (topic, number): name
        for name, partitions in assigned.items()
        for topic, numbers in (partitions or {}).items()
        for number in numbers
    }
    partitions = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "committed": each.committed,
            "committed_ms": each.committed_ms,
            "earliest": each.log_start,
            "latest": each.latest,
            "lag": each.lag,
            "beyond": each.beyond,
            "behind_ms": behind_ms(each),
            "member": owners.get((each.topic, each.partition)),
        }
        for each in lags
    ]
    members = [
        {
            "member": name,
            "instance": each.details.instance_id,
            "client": each.details.client_id,
            "host": each.details.host,
            "assigned": assigned[name],
            "lag": sum(part["lag"] for part in partitions if part["member"] == name),
        }
        for name, each in state.members.items()
    ]
    return {
        "group": state.group_id,
        "state": state.state.value,
        "generation": state.generation,
        "type": state.protocol_type,
        "protocol": state.protocol,
        "leader": state.leader if state.members else "",
        "member_count": len(members),
        "rewinds": state.rewinds,
        "journal": journal,
        "config": state.config.show(),
        "members": members,
        "partitions": partitions,
    }


def unstarted(state: Group, topics: Mapping[str, tuple[str, Sequence[Partition]]]) -> dict[str, dict[int, int]]:
    """Return the rows of partitions without a committed offset, of topics of which a group has committed others.

    `topics` are by id. A group that begins with the first row has all of these rows before it.
    """
    found: dict[str, dict[int, int]] = {}
    for topic_id, offsets in state.offsets.items():
        name, partitions = topics.get(topic_id, ("", ()))
        if len(offsets) < len(partitions):
            rest = {number: each for number, each in enumerate(partitions) if number not in offsets}
            found[name] = {n: each.rows_between(each.log_start, each.high_watermark) for n, each in rest.items()}
    return found


def _assigned(state: Group, member_id: str, assignment: bytes) -> Any:
    """Return a member's partitions by topic, or None if its assignor writes something else."""
    if state.protocol_type != PROTOCOL_TYPE:
        return None
    with contextlib.suppress(CorruptObject):
        return decode_assignment(assignment, member_id).partitions
    return None
