"""Walks find each rule that is taken out of the product, and nothing while all are in it."""

from collections import Counter
from unittest import mock

import msgspec
import pytest

from pyspark_log_coordinator.group import offsets, rebalance
from pyspark_log_coordinator.membership import liveness, next_step
from pyspark_log_coordinator.model import producers
from pyspark_log_coordinator.replication import (
    damage,
    election,
    high_watermark,
    isr_shrink,
    node_changes,
    replicas,
    suspicion,
    truncation,
)
from pyspark_log_coordinator.replication.reassignment import AlterReplicas, PartitionReassignment
from pyspark_log_coordinator.replication.suspicion import ObservedSuspicion
from pyspark_log_coordinator.segments import first_offsets, orphans, retention, swap
from pyspark_log_coordinator.segments.orphans import ConfirmDeletions, DeletionsConfirmed
from pyspark_log_coordinator.segments.swap import SegmentsSwapped
from pyspark_log_coordinator.topic.machine import MaintainSegments
from tests.simulator import answers
from tests.simulator.group_what_if import GroupWhatIf
from tests.simulator.invariants import Violation
from tests.simulator.what_if import WhatIf
from tests.support.coordinator import groups
from tests.support.coordinator.topics import after, commit, decide, file, incarnation, started
from tests.support.coordinator.topics import swap as segment

WALKS = 400
NOW = 1_700_000_000_000
OF_TOPICS = {
    "the HW is the LEO of the fastest": (
        high_watermark,
        "advance",
        lambda ends, isr, *_: max(ends[each] for each in isr),
    ),
    "who lags joins the ISR": (replicas, "may_join_isr", lambda partition, node: node in partition.replicas),
    "a suspicion that was cancelled counts": (suspicion, "stands", lambda topic, each: each.node in topic.suspects),
    "a later suspicion keeps the age": (
        suspicion,
        "observe",
        lambda standing, topic, now: {
            node: standing.get(node, ObservedSuspicion(number, now)) for node, number in topic.suspects.items()
        },
    ),
    "nobody is awaited": (election, "awaited", lambda *_: ()),
    "a fenced node may lead": (
        election,
        "_able",
        lambda _, partition, live: [each for each in partition.replicas if each in live],
    ),
    "a segment is swapped in that a member lacks": (swap, "_all_hold", lambda *_: True),
    "a copy is given up that a promise needs": (damage, "_changes", lambda *_: []),
    "who is fenced leads on": (node_changes, "_elections", lambda *_: []),
    "who has caught up leaves": (isr_shrink, "_is_level", lambda partition, node: node == partition.leader),
    "who lagged under another leader leaves": (isr_shrink, "_still_behind", lambda _, seen: set(seen.nodes)),
    "a former run writes again": (producers, "is_replay", lambda *_: False),
    "a file is too old": (orphans, "check_born", lambda *_: None),
    "nothing expires": (retention, "_retained_from", lambda partition, *_: partition.log_start),
    "a copy is cut at the shorter end": (
        truncation,
        "divergence",
        lambda _, end, __, lineage_end: min(end, lineage_end),
    ),
    "offsets begin anew": (first_offsets, "decide", lambda _, each: [first_offsets.FirstOffsetsSet(each.offsets)]),
}
OF_GROUPS = {
    "a former generation acts": (offsets, "check_generation", lambda *_: None),
    "a rewind is ignored": (offsets, "_check_rewinds", lambda *_: None),
    "a group with members is deleted": (offsets, "_check_empty", lambda *_: None),
    "a protocol of some is chosen": (rebalance, "supported_by_all", lambda protocols: set().union(*protocols)),
    "nobody is waited for": (rebalance, "_timeout", lambda *_: 0),
    "nobody is expired": (liveness.Liveness, "hear", lambda *_: []),
    "a missed join goes unnoticed": (next_step, "has_missed_a_join", lambda *_: False),
}


def topic():
    """Return a topic on three nodes, with segments and chunks."""
    state = started(2, "ABC", min_insync=2, retention_ms=1000)
    for _ in range(3):
        state = after(state, commit(None, file({0: 4, 1: 2}, on="ABC")))
    state = after(state, MaintainSegments((segment(0, 4, on="ABC"),)))
    return msgspec.structs.replace(state, orphan_floor=1)


TOPIC = topic()
GROUP = groups.stable(groups.join("A"), groups.join("B", instance="place"))


def walk_topics():
    for number in range(1, WALKS):
        WhatIf(0, Counter()).walk(TOPIC, number, NOW)


def walk_groups():
    for number in range(1, WALKS):
        GroupWhatIf(0, Counter()).walk(GROUP, number, NOW)


@pytest.mark.parametrize("walk", [walk_topics, walk_groups])
def test_walks_find_nothing_where_all_rules_hold(walk):
    walk()


@pytest.mark.parametrize("fault", OF_TOPICS.values(), ids=OF_TOPICS)
def test_a_walk_finds_a_rule_that_is_missing_of_topics(fault):
    with mock.patch.object(*fault), pytest.raises((Violation, ValueError)):
        walk_topics()


@pytest.mark.parametrize("fault", OF_GROUPS.values(), ids=OF_GROUPS)
def test_a_walk_finds_a_rule_that_is_missing_of_groups(fault):
    with mock.patch.object(*fault), pytest.raises(Violation):
        walk_groups()


def test_deletions_may_be_confirmed_by_the_entry_that_swaps_in_what_has_become_due():
    state = started(1, "AB")
    for _ in range(4):
        state = after(state, commit(None, file({0: 4}, on="AB")))
    state = after(state, MaintainSegments((segment(0, 4, on="AB"),)))
    state = after(state, MaintainSegments((segment(4, 8, on="A"),)))
    there = {node: incarnation(node) for node in "AB"}
    state = after(state, AlterReplicas((PartitionReassignment(0, ("A",)),), there))
    command = ConfirmDeletions(state.pending_deletions[0].key)
    confirmed, swapped = events = decide(state, command)
    assert isinstance(confirmed, DeletionsConfirmed)
    assert isinstance(swapped, SegmentsSwapped)
    answers.hold(state, command, events, after(state, command), 0)
    with pytest.raises(Violation):
        answers.hold(state, command, events, answers.followed(state, [swapped]), 0)
    with pytest.raises(Violation):
        answers.hold(state, command, events, answers.followed(state, [confirmed]), 0)
