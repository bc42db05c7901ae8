"""The integrity of a group: checks of stored entries and snapshots that have the right types but impossible values.

Group ids and member ids become paths, and a state that no rule leads to may stop every member forever. The checks
raise `ValueError` or `InvalidName`, which replay turns into an error that names the entry or the snapshot. An entry
that consists of commits needs no check: the types of its fields and `evolve` are enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_log_coordinator.group import rebalance
from pyspark_log_coordinator.group.lifecycle import GroupStarted
from pyspark_log_coordinator.group.offsets import OffsetsCommitted
from pyspark_log_coordinator.group.state import GroupState
from pyspark_log_coordinator.journal.state_machine import JournalBegun, JournalEnded, check_ordinals
from pyspark_log_storage.names import check_group
from pyspark_log_storage.names import check_member as check_name

if TYPE_CHECKING:
    from pyspark_log_coordinator.group.state import Group, Member

_NUMBERS = ("generation", "barriers", "actions", "rewinds", "journal_generation")
_MEMBERLESS = (GroupState.EMPTY, GroupState.DEAD)
_LED = (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
_WAITING = (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)


def check_entry(before: Group, events: list[Any], after: Group, number: int) -> None:
    """Raise if an entry, with these events, cannot lead from one state to the other. Only what is new is checked."""
    begins = any(isinstance(each, GroupStarted) for each in events)
    if (
        before.started
        and before.state is not GroupState.DEAD
        and all(type(each) is OffsetsCommitted for each in events)
    ):
        return
    if before.started and before.group_id != after.group_id:
        raise ValueError(f"the group becomes {after.group_id!r}")
    if before.state is GroupState.DEAD and not (begins or all(isinstance(each, JournalEnded) for each in events)):
        raise ValueError("the group is deleted")
    for what in _NUMBERS:
        if getattr(after, what) < getattr(before, what):
            raise ValueError(f"{what} goes back from {getattr(before, what)} to {getattr(after, what)}")
    if any(isinstance(each, JournalBegun) for each in events):
        check_snapshot(after, number)
    _check(before, after)


def check_snapshot(state: Group, number: int) -> None:
    """Raise if a state is impossible."""
    del number
    _check(None, state)
    for topic_id, partitions in state.offsets.items():
        for number, each in partitions.items():
            if each.rewind > state.rewinds:
                raise ValueError(f"partition {number} of {topic_id} was rewound by {each.rewind} of {state.rewinds}")


def _check(before: Group | None, group: Group) -> None:
    if not group.started:
        raise ValueError("the group has not been started")
    check_ordinals(group, _NUMBERS)
    if before is None or before.group_id != group.group_id:
        check_group(group.group_id)
    if before is None or group.config is not before.config:
        group.config.check()
    if (group.state is GroupState.DEAD) != (group.deleted_ms is not None):
        raise ValueError(f"the group is {group.state.value} and was deleted at {group.deleted_ms}")
    if bool(group.members) == (group.state in _MEMBERLESS):
        raise ValueError(f"the group is {group.state.value} with {len(group.members)} members")
    if (group.barrier is not None) != (group.state in _WAITING):
        raise ValueError(f"the group is {group.state.value}, and waits for barrier {group.barrier}")
    if group.barrier is not None and group.barrier.number != group.barriers:
        raise ValueError(f"it waits for barrier {group.barrier.number} of {group.barriers}")
    _check_members(before, group)
    if group.state in _LED:
        if group.leader not in group.members:
            raise ValueError(f"the leader {group.leader!r} is not a member")
        if group.protocol not in _common(group):
            raise ValueError(f"the protocol {group.protocol!r} is not supported by all members")


def _check_members(before: Group | None, group: Group) -> None:
    instances = [each.details.instance_id for each in group.members.values() if each.details.instance_id]
    if len(set(instances)) < len(instances):
        raise ValueError("two members have one group.instance.id")
    for name, member in group.members.items():
        if member.acted > group.actions:
            raise ValueError(f"member {name!r} has done action {member.acted} of {group.actions}")
        if member.first_generation > group.generation + (group.state is GroupState.PREPARING_REBALANCE):
            raise ValueError(f"member {name!r} is in no generation, and none is being prepared")
        known = before.members.get(name) if before is not None else None
        if known is None or known.details is not member.details:
            _check_details(name, member)
    if group.members and not (group.protocol_type and _common(group)):
        raise ValueError("the members have no protocol in common")


def _check_details(name: str, member: Member) -> None:
    details = member.details
    if details.member_id != name:
        raise ValueError(f"member {details.member_id!r} is stored as {name!r}")
    check_name(name)
    if details.instance_id:
        check_name(details.instance_id)


def _common(group: Group) -> set[str]:
    return rebalance.supported_by_all(rebalance.names_of(each.details) for each in group.members.values())
