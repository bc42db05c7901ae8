"""The rules of groups, said once more from the design and from Kafka's protocol: what an event and an answer may do.

Nothing here is taken from the rules under test: each is a few lines over the state before an event, or a command, and
the state after it. They are held of every event that is decided, and of every answer that might be (`group_what_if`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from pyspark_log_coordinator.group import machine
from pyspark_log_coordinator.group.joining import (
    JoinGroup,
    JoinRequest,
    JoinTogether,
    MemberJoined,
    StaticMemberReplaced,
)
from pyspark_log_coordinator.group.leaving import ExpireMember
from pyspark_log_coordinator.group.lifecycle import DeleteGroup, GroupDeleted
from pyspark_log_coordinator.group.offsets import (
    OffsetCommit,
    OffsetDelete,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsReset,
    ResetOffsets,
)
from pyspark_log_coordinator.group.rebalance import (
    CompleteJoin,
    ExpireSync,
    GenerationStarted,
    LeaderPassedOver,
    MembersRemoved,
    RebalanceExtended,
    RebalanceStarted,
)
from pyspark_log_coordinator.group.state import NO_GENERATION, Group, GroupState, MemberDetails
from pyspark_log_coordinator.group.sync import SyncGroup, WorkAssigned
from pyspark_log_storage.errors import FencedInstance, LogError
from tests.simulator.invariants import require

_EMPTY = {GroupState.EMPTY, GroupState.DEAD}
_WAITING = {GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE}


def followed(group: Group, events: Iterable[Any]) -> Group:
    """Return the group after the events, each of which is held against the rules."""
    for event in events:
        after = machine.evolve(group, event)
        _hold_event(event, group, after)
        group = after
    return group


def hold_state(group: Group) -> None:
    """Hold what is true of a group between two entries."""
    what = f"group {group.group_id} in {group.state.value}, generation {group.generation}"
    require((group.state in _EMPTY) == (not group.members), f"{what}, has the members {list(group.members)}")
    require((group.state in _WAITING) == (group.barrier is not None), f"{what}, waits for {group.barrier}")
    instances = [each.details.instance_id for each in group.members.values() if each.details.instance_id]
    require(len(instances) == len(set(instances)), f"{what}: two members are {instances}")
    if group.state in {GroupState.COMPLETING_REBALANCE, GroupState.STABLE}:
        require(group.leader in group.members, f"{what}: its leader {group.leader!r} is no member")
        common = _common(each.details for each in group.members.values())
        require(group.protocol in common, f"{what}: {group.protocol!r} is not among {common}")
    for of_topic in group.offsets.values():
        for at in of_topic.values():
            require(at.rewind <= group.rewinds, f"{what}: rewind {at.rewind} is committed, of {group.rewinds}")


def _hold_event(event: Any, before: Group, after: Group) -> None:
    what = f"{event} after generation {before.generation} of {list(before.members)}"
    match event:
        case RebalanceStarted():
            everybody = [name for name, each in after.members.items() if each.joined]
            require(after.state is GroupState.PREPARING_REBALANCE and not everybody, f"{what}: {everybody} have joined")
            require(after.barriers == before.barriers + 1, f"{what}: the barrier is not new")
        case MembersRemoved():
            require(after.members.keys() == before.members.keys() - set(event.member_ids), what)
        case LeaderPassedOver():
            require(before.leader == event.member_id and not after.leader, f"{what}: {after.leader} leads")
            others = [name for name in before.members if name != event.member_id]
            require(list(after.members) == [*others, event.member_id], f"{what}: the order is {list(after.members)}")
        case GenerationStarted():
            require(before.state is GroupState.PREPARING_REBALANCE, f"{what}, in {before.state}")
            require(after.generation == before.generation + 1, f"{what} begins generation {after.generation}")
            late = [name for name, each in before.members.items() if not each.joined and not each.details.instance_id]
            require(not late, f"{what}: {late} have not joined")
            if before.members:
                require(before.members[event.leader].joined, f"{what}: its leader has not joined")
                is_kept = before.leader in before.members and before.members[before.leader].joined
                require(not is_kept or event.leader == before.leader, f"{what}: {before.leader} led and has joined")
                require(event.wait_ms == _longest(before), f"{what}: it waits {event.wait_ms} ms")
        case MemberJoined():
            _hold_joined(event, before, after)
        case StaticMemberReplaced():
            old, new = before.members[event.former], after.members[event.member.member_id]
            require(event.former not in after.members or event.former == event.member.member_id, what)
            require(new.assignment == old.assignment, f"{what}: it has another assignment")
            leads = event.member.member_id if before.leader == event.former else before.leader
            require(after.leader == leads, f"{what}: {after.leader} leads, not {leads}")
            require(new.acted == after.actions == before.actions + 1, f"{what}: it has not acted")
        case WorkAssigned():
            given = {name: each.assignment for name, each in after.members.items()}
            due = {name: event.assignments.get(name, b"") for name in before.members}
            require(before.state is GroupState.COMPLETING_REBALANCE, f"{what}, in {before.state}")
            require(given == due and after.state is GroupState.STABLE, f"{what}: {given} is assigned")
        case OffsetsCommitted() | OffsetsReset():
            _hold_offsets(event, before, after)
        case OffsetsDeleted() | GroupDeleted():
            require(not before.members, f"{what}: it has members")
            require(isinstance(event, OffsetsDeleted) or not after.offsets, f"{what}: offsets are left")


def _hold_joined(event: MemberJoined, before: Group, after: Group) -> None:
    """Hold that a member that is new takes part in the next generation, and that joining is an act."""
    name = event.member.member_id
    old, new = before.members.get(name), after.members[name]
    require(new.joined and new.details == event.member, f"{event} leads to {new}")
    first = before.generation + 1 if old is None else old.first_generation
    require(new.first_generation == first, f"{name} takes part from generation {new.first_generation} on, not {first}")
    require(new.acted == after.actions == before.actions + 1, f"{event}: it has not acted")


def _hold_offsets(event: OffsetsCommitted | OffsetsReset, before: Group, after: Group) -> None:
    """Hold that offsets are those of the event, each with the number of the newest rewind of its partition."""
    is_rewind = isinstance(event, OffsetsReset)
    require(
        after.rewinds == before.rewinds + is_rewind, f"{event}: it is rewind {after.rewinds} after {before.rewinds}"
    )
    for topic_id, of_topic in event.offsets.items():
        for p, each in of_topic.items():
            old, new = before.committed(topic_id, p), after.committed(topic_id, p)
            number = after.rewinds if is_rewind else old.rewind if old is not None else 0
            is_so = new is not None and (new.offset, new.leader_epoch, new.metadata) == (
                each.offset,
                each.leader_epoch,
                each.metadata,
            )
            require(
                is_so and new is not None and new.rewind == number, f"{event}: {new} is committed, of rewind {number}"
            )
    if isinstance(event, OffsetsCommitted) and event.member_id:
        require(after.members[event.member_id].acted == after.actions > before.actions, f"{event}: it has not acted")


def hold_answer(group: Group, command: Any, events: list[Any], after: Group, now: int) -> None:
    """Hold the events that a command was answered with at `now` (ms), and the state after them."""
    what = f"{command} in {group.state.value}, generation {group.generation}, leads to {events}"
    match command:
        case OffsetCommit():
            require(_may_commit(group, command), what)
            for topic_id, of_topic in command.offsets.items():
                for p, each in of_topic.items():
                    at = after.committed(topic_id, p)
                    is_there = at is not None and (at.offset, at.leader_epoch, at.metadata) == (
                        each.offset,
                        each.leader_epoch,
                        each.metadata,
                    )
                    require(is_there, f"{what}: {at} is committed")
        case OffsetDelete() | DeleteGroup():
            require(not group.members, what)
        case ResetOffsets():
            require(command.running or not group.members, what)
        case SyncGroup():
            require(_may_act(group, command.member_id, command.instance_id, command.generation), what)
            assigns = group.state is GroupState.COMPLETING_REBALANCE and group.leader == command.member_id
            require(bool(events) == assigns, what)
        case ExpireMember():
            known = group.members.get(command.member_id)
            is_due = known is not None and known.acted == command.acted
            require((command.member_id in group.members.keys() - after.members.keys()) == is_due, what)
        case CompleteJoin() | ExpireSync():
            _hold_end_of_wait(group, command, events, what)
        case JoinGroup():
            _hold_join(group, command, events, after, what)
        case JoinTogether():
            _hold_taken_along(group, command, events)
    state = group
    for event, then in itertools.zip_longest(events, events[1:]):
        if isinstance(event, RebalanceStarted) and state.members:
            joining = [then.member] if isinstance(then, MemberJoined | StaticMemberReplaced) else []
            longest = max([_longest(state), *(each.rebalance_timeout_ms for each in joining)])
            require(event.wait_ms == longest, f"{what}: it waits for {event.wait_ms} ms, not {longest}")
        if isinstance(event, RebalanceExtended) and (until := state.barrier and state.barrier.extendable_until_ms):
            require(event.wait_ms <= max(0, until - now), f"{what}: at {now} it waits beyond {until}")
        state = machine.evolve(state, event)


def hold_refusal(group: Group, command: Any, error: LogError) -> None:
    """Hold that a command was refused rightly."""
    what = f"{command} in {group.state.value}, generation {group.generation}, is refused: {error!r}"
    if isinstance(command, OffsetCommit):
        require(not _may_commit(group, command), what)
    if isinstance(command, SyncGroup):
        is_right = _may_act(group, command.member_id, command.instance_id, command.generation)
        require(not is_right or group.state is GroupState.PREPARING_REBALANCE, what)
    if isinstance(command, OffsetCommit | SyncGroup):
        holder = group.instance(command.instance_id)
        is_fenced = holder is not None and holder.details.member_id != command.member_id
        is_simple = isinstance(command, OffsetCommit) and not command.member_id
        require(is_simple or isinstance(error, FencedInstance) == is_fenced or group.state is GroupState.DEAD, what)


def _hold_join(group: Group, command: JoinGroup, events: list[Any], after: Group, what: str) -> None:
    """Hold that who joins is a member, and that a rebalance begins if, and only if, there is something new."""
    member, low, high = command.member, group.config.min_session_timeout_ms, group.config.max_session_timeout_ms
    require(low <= member.session_timeout_ms <= high, f"{what}, and sessions are from {low} to {high} ms")
    if group.members:
        common = _common(each.details for each in group.members.values())
        require(common & {each.name for each in member.protocols}, f"{what}, and {common} are common")
    require(member.member_id in after.members, f"{what}: it is no member")
    known, former = group.members.get(member.member_id), group.instance(member.instance_id)
    has_begun = after.generation > group.generation or after.state is GroupState.PREPARING_REBALANCE
    if known is not None:
        is_news = known.details.protocols != member.protocols
        if group.state is GroupState.STABLE:
            is_news = is_news or group.leader == member.member_id
        elif group.state is GroupState.PREPARING_REBALANCE:
            is_news = is_news or not known.joined
        require(bool(events) == is_news, f"{what}: {'something' if is_news else 'nothing'} is new")
        require(not is_news or has_begun, f"{what}: no rebalance begins")
    elif former is not None:
        wants = [[(one.name, one.metadata) for one in each.protocols] for each in (former.details, member)]
        is_quiet = group.state is GroupState.STABLE and wants[0] == wants[1]
        require(has_begun != is_quiet, f"{what}: {former.details.member_id} is replaced")
    else:
        require(has_begun, f"{what}: no rebalance begins")
        is_first = group.state is GroupState.EMPTY or (group.barrier and group.barrier.extendable_until_ms is not None)
        waits = after.state is GroupState.PREPARING_REBALANCE and after.barrier is not None
        at_once = not group.config.initial_rebalance_delay_ms or (not waits and _waited_for(events) == 0)
        require(not is_first or waits or at_once, f"{what}: others are not waited for")


def _waited_for(events: list[Any]) -> int:
    """Return how long the last wait is that the events begin, in ms."""
    return next(
        (each.wait_ms for each in reversed(events) if isinstance(each, RebalanceStarted | RebalanceExtended)), 0
    )


def _hold_taken_along(group: Group, command: JoinTogether, events: list[Any]) -> None:
    """Hold that others are taken along that asked in this generation, have not acted since, and are not new here."""
    own = command.own.member.member_id
    joined = {each.member.member_id for each in events if isinstance(each, MemberJoined | StaticMemberReplaced)} - {own}
    for name in joined:
        asked = [each for each in command.others if each.join.member.member_id == name and _is_current(group, each)]
        require(asked, f"{name} is taken along in generation {group.generation}, and asked {command.others}")


def _is_current(group: Group, request: JoinRequest) -> bool:
    known = group.members.get(request.join.member.member_id)
    has_acted = request.acted != (known.acted if known is not None else 0)
    return request.generation == group.generation and not has_acted and not request.join.is_new_static_member


def _hold_end_of_wait(group: Group, command: CompleteJoin | ExpireSync, events: list[Any], what: str) -> None:
    """Hold that a wait ends that is the one of now, and what becomes of those who were waited for."""
    is_join = isinstance(command, CompleteJoin)
    state = GroupState.PREPARING_REBALANCE if is_join else GroupState.COMPLETING_REBALANCE
    is_due = group.barrier is not None and group.barrier.number == command.barrier and group.state is state
    require(bool(events) == is_due, f"{what}, and waits for {group.barrier}")
    removed = {name for each in events if isinstance(each, MembersRemoved) for name in each.member_ids}
    if is_due and is_join:
        late = {name for name, each in group.members.items() if not each.joined and not each.details.instance_id}
        require(removed == late, f"{what}: {late} are late")
    elif is_due:
        is_static = bool(group.members[group.leader].details.instance_id)
        passed = {each.member_id for each in events if isinstance(each, LeaderPassedOver)}
        which = passed if is_static else removed
        require(which >= {group.leader}, f"{what}: the leader {group.leader} has not assigned anything")
        require(not is_static or group.leader not in removed, f"{what}: {group.leader} is static, and is removed")


def _may_act(group: Group, member_id: str, instance_id: str, generation: int) -> bool:
    """Return whether this is a member, by its own ids, of the present generation."""
    member = group.members.get(member_id)
    if member is None or group.state is GroupState.DEAD:
        return False
    is_itself = instance_id in {"", member.details.instance_id}
    return is_itself and generation == group.generation and member.first_generation <= generation


def _may_commit(group: Group, command: OffsetCommit) -> bool:
    """Return whether a commit is right: of a member with work, or of nobody in an empty group, after all rewinds."""
    if group.state is GroupState.DEAD:
        return False
    if command.member_id or command.generation != NO_GENERATION:
        if not _may_act(group, command.member_id, command.instance_id, command.generation):
            return False
        if group.state is GroupState.COMPLETING_REBALANCE:
            return False
    elif group.members:
        return False
    for topic_id, of_topic in command.offsets.items():
        for p, each in of_topic.items():
            known = group.committed(topic_id, p)
            if known is not None and known.rewind > command.rewinds:
                return False
            if len(each.metadata.encode()) > group.config.offset_metadata_max_bytes:
                return False
    return True


def _longest(group: Group) -> int:
    return max((each.details.rebalance_timeout_ms for each in group.members.values()), default=0)


def _common(members: Iterable[MemberDetails]) -> set[str]:
    """Return the protocols that all support."""
    return set.intersection(*({each.name for each in details.protocols} for details in members))
