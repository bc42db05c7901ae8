"""What a group's journal did, in the words of Groups.tla."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark_log_coordinator.assignors.subscription import decode_assignment
from pyspark_log_coordinator.group.joining import MemberJoined, StaticMemberReplaced
from pyspark_log_coordinator.group.machine import GroupConfigAltered, GroupDeleted, GroupStarted
from pyspark_log_coordinator.group.offsets import OffsetsCommitted, OffsetsDeleted, OffsetsReset
from pyspark_log_coordinator.group.rebalance import (
    GenerationStarted,
    LeaderPassedOver,
    MembersRemoved,
    RebalanceExtended,
    RebalanceStarted,
    WorkAssigned,
)
from pyspark_log_coordinator.group.state import Group
from pyspark_log_coordinator.journal.history import Step
from pyspark_log_coordinator.journal.state_machine import JournalEnded
from tests.specification.tlc import Records

Action = dict[str, Any]


def trace(steps: Iterable[Step], *, may_go_back: bool = False) -> dict[str, Any]:
    """Return a group's state after the first step, and what later entries do to it.

    `may_go_back`: whether a commit may name an offset below the committed one without a rewind.
    """
    first, *others = steps
    entries = [
        {"number": each.number, "actions": actions, "seen": _seen(each.state)}
        for each in others
        if (actions := _actions(each.events, may_go_back=may_go_back))
    ]
    return {"begin": _state(first.state), "entries": entries}


def _state(group: Group) -> dict[str, Any]:
    members = [
        {
            "id": name,
            "instance": each.details.instance_id,
            "first": each.first_generation,
            "joined": each.joined,
            "owns": _owned(each.assignment, name),
        }
        for name, each in group.members.items()
    ]
    return {**_seen(group), "members": members}


def _actions(events: Sequence[Any], *, may_go_back: bool) -> list[Action]:
    actions: list[Action] = []
    for event in events:
        match event:
            case GroupStarted() | RebalanceStarted() | GroupDeleted():
                actions.append({"kind": _OF_ALL[type(event)]})
            case MemberJoined():
                actions.append({"kind": "join", **_member(event)})
            case StaticMemberReplaced():
                actions.append({"kind": "replace", "former": event.former, **_member(event)})
            case MembersRemoved():
                told = {"ids": frozenset(event.member_ids), "reason": event.reason}
                actions.append({"kind": "remove", **told, "syncs": isinstance(events[0], RebalanceStarted)})
            case LeaderPassedOver():
                syncs = isinstance(events[0], RebalanceStarted)
                actions.append({"kind": "pass over", "id": event.member_id, "syncs": syncs})
            case GenerationStarted():
                actions.append({"kind": "begin", "leader": event.leader})
            case WorkAssigned():
                shares = [{"id": name, "owns": _owned(data, name)} for name, data in event.assignments.items()]
                actions.append({"kind": "assign", "shares": Records(shares)})
            case OffsetsCommitted():
                told = {"id": event.member_id, "may_go_back": may_go_back}
                actions.append({"kind": "commit", **told, "offsets": _offsets(event.offsets)})
            case OffsetsReset():
                actions.append({"kind": "reset", "offsets": _offsets(event.offsets)})
            case OffsetsDeleted():
                named = [_name(topic, p) for topic, numbers in event.partitions.items() for p in numbers]
                actions.append({"kind": "forget", "partitions": frozenset(named)})
            case _:
                known = RebalanceExtended | GroupConfigAltered | JournalEnded
                assert isinstance(event, known), f"the specification knows no {type(event).__name__}"
    return actions


_OF_ALL = {GroupStarted: "start", RebalanceStarted: "rebalance", GroupDeleted: "delete"}


def _seen(state: Group) -> dict[str, Any]:
    members = [
        {"id": name, "joined": each.joined, "owns": _owned(each.assignment, name)}
        for name, each in state.members.items()
    ]
    offsets = [
        {"partition": _name(topic, p), "offset": each.offset, "rewind": each.rewind}
        for topic, of_topic in state.offsets.items()
        for p, each in of_topic.items()
    ]
    numbers = {"generation": state.generation, "rewinds": state.rewinds}
    sets = {"members": Records(members), "offsets": Records(offsets)}
    return {"phase": state.state.value, "leader": state.leader, **numbers, **sets}


def _member(event: MemberJoined | StaticMemberReplaced) -> dict[str, str]:
    return {"id": event.member.member_id, "instance": event.member.instance_id}


def _owned(assignment: bytes, member_id: str) -> frozenset[str]:
    partitions = decode_assignment(assignment, member_id).partitions
    return frozenset(_name(topic, p) for topic, numbers in partitions.items() for p in numbers)


def _offsets(offsets: Mapping[str, Mapping[int, Any]]) -> Records:
    flat = [(_name(topic, p), each.offset) for topic, of_topic in offsets.items() for p, each in of_topic.items()]
    return Records({"partition": name, "offset": offset} for name, offset in flat)


def _name(topic: str, partition: int) -> str:
    return f"{topic}/{partition}"
