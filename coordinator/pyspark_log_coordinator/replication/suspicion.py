"""Suspicion: the rules by which a node counts as unreachable, without comparing the clocks of two processes.

Writes are heartbeats. A process that fails to reach a node records a suspicion. Any later entry that names the node as
a holder cancels it, and so does a process that reaches the node again (`CancelSuspicion`). Only a failure detector that
has itself seen the same suspicion stand for a full period, on its own monotonic clock, may elect another leader or take
the node out of ISRs. A false suspicion never costs rows that were acknowledged with acks=all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.model.partition import NodeId
from pyspark_log_coordinator.model.topic_state import Topic, TopicCommand
from pyspark_log_storage.stored_fields import Count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Suspect(TopicCommand, frozen=True):
    """Record that a node, in this incarnation, could not be reached."""

    node: NodeId
    incarnation: str


class CancelSuspicion(TopicCommand, frozen=True):
    """Record that a node, in this incarnation, answers again and has its newest files.

    `number` is the suspicion that the caller knew before it reached the node: a later one stays.
    """

    node: NodeId
    incarnation: str
    number: int


class NodeSuspected(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """A process failed to reach the node. The numbers tell two suspicions of one node apart."""

    node: NodeId
    number: Count


class SuspicionCancelled(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The node was reached again, so the suspicion with this number no longer counts."""

    node: NodeId
    number: Count


Suspicions = dict[NodeId, Count]
"""The numbers of suspicions, by node. If one is cancelled and the node is suspected again, that is another one."""
Command = Suspect | CancelSuspicion
Event = NodeSuspected | SuspicionCancelled


def decide(topic: Topic, command: Command) -> list[Event]:
    """Return the suspicion or its cancellation, none if it is recorded or the node has another incarnation by now."""
    node = command.node
    if topic.incarnations.get(node) != command.incarnation:
        return []
    match command:
        case Suspect():
            return [] if node in topic.suspects else [NodeSuspected(node, topic.suspicions + 1)]
        case CancelSuspicion():
            return [SuspicionCancelled(node, command.number)] if topic.suspects.get(node) == command.number else []


def evolve(topic: Topic, event: Event) -> Topic:
    """Return the topic with the node under suspicion, or no longer."""
    if isinstance(event, SuspicionCancelled):
        return without_suspicions(topic, (event.node,))
    suspects = {**topic.suspects, event.node: event.number}
    return msgspec.structs.replace(topic, suspects=suspects, suspicions=event.number)


def standing(topic: Topic, suspicions: Suspicions) -> set[NodeId]:
    """Return the nodes of suspicions that were neither cancelled nor replaced by later ones."""
    return {node for node, number in suspicions.items() if topic.suspects.get(node) == number}


def without_suspicions(topic: Topic, seen: Iterable[NodeId]) -> Topic:
    """Return the topic without the suspicions of nodes that an entry has shown to be alive."""
    if not topic.suspects:
        return topic
    alive = frozenset(seen)
    left = {node: number for node, number in topic.suspects.items() if node not in alive}
    return topic if len(left) == len(topic.suspects) else msgspec.structs.replace(topic, suspects=left)


def observe(known: Mapping[tuple[NodeId, int], int], topic: Topic, now: int) -> dict[tuple[NodeId, int], int]:
    """Return since when a failure detector has seen each suspicion, after a look at `now` (ms, its monotonic clock)."""
    return {each: known.get(each, now) for each in topic.suspects.items()}


def confirmed(known: Mapping[tuple[NodeId, int], int], now: int, period_ms: int) -> Suspicions:
    """Return the suspicions that have stood for a full period at `now` (ms)."""
    return dict(each for each, since_ms in known.items() if now - since_ms >= period_ms)
