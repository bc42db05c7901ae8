"""The ISR: how a failure detector measures lag, and how members that lag leave."""

import msgspec
import pytest

from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.replication.file_holders import HoldFiles
from pyspark_log_coordinator.replication.isr_shrink import (
    IsrShrunk,
    Lagging,
    ShrinkIsr,
    lagging,
    next_due_ms,
    observe_all,
)
from pyspark_log_coordinator.topic.machine import AlterConfig
from tests.support.coordinator.topics import after, commit, decide, file, incarnation, started

ABC = ("A", "B", "C")
LAG_MAX = 100


def at_ends(leader_epoch=0, **ends):
    """Return a topic of one partition whose replicas have these LEOs; the first leads."""
    state = started(replicas=tuple(ends), replica_lag_time_max_ms=LAG_MAX)
    one = msgspec.structs.replace(
        state.partitions[0], log_end=max(ends.values()), log_end_offsets=ends, leader_epoch=leader_epoch
    )
    return msgspec.structs.replace(state, partitions=(one,))


def looks(*sights):
    """Return what is known of B, and the members that lag, after looks at these times at A and B with these LEOs."""
    lags = {}
    for now, leader, follower in sights:
        state = at_ends(A=leader, B=follower)
        lags = observe_all(lags, state, now)
    return [each.nodes for each in lagging(lags, state, now).values()]


@pytest.mark.parametrize(
    ("sights", "due"),
    [
        # At the first look every follower counts as caught up; a stuck one is out when its time is over.
        ([(0, 10, 0)], LAG_MAX + 1),
        # A slow one that never gets there is out, too.
        ([(0, 10, 0), (60, 20, 5)], LAG_MAX + 1),
        # One that is always one fetch behind is in sync for as long as it fetches.
        ([(0, 10, 0), (60, 20, 10), (120, 30, 20), (180, 40, 30), (240, 50, 40)], 241 + LAG_MAX),
        # It fetched at 60 and 120. What it has at 120 the leader had at 60, and was first seen to have more at 120.
        ([(0, 10, 0), (60, 20, 5), (120, 30, 20)], 121 + LAG_MAX),
        # It fetched between 20 and 40, and what it got was seen at 90: at 40 the leader was first seen to have more.
        ([(0, 10, 10), (20, 20, 10), (40, 30, 10), (80, 40, 10), (90, 50, 25)], 41 + LAG_MAX),
        # It has everything, however long nothing comes; its time begins when it is first seen behind, and goes on.
        ([(0, 10, 10), (9_999, 10, 10)], None),
        ([(0, 10, 10), (90, 20, 10)], 91 + LAG_MAX),
        ([(0, 10, 10), (90, 20, 10), (120, 30, 10)], 91 + LAG_MAX),
        # One that has lost rows gets its time again.
        ([(0, 10, 10), (90, 10, 5)], 91 + LAG_MAX),
    ],
)
def test_a_follower_is_out_of_sync_if_it_has_not_caught_up_within_its_time(sights, due):
    now, leader, follower = sights[-1]
    assert looks(*sights) == []
    assert due_after(*sights) == (None if due is None else due - now)
    if due is not None:
        assert looks(*sights, (due - 1, leader, follower)) == []
        assert looks(*sights, (due, leader, follower)) == [("B",)]
        assert due_after(*sights, (due, leader, follower)) is None, "it is out of sync already"


def due_after(*sights):
    """Return when to look again after these looks: not at all for a follower that is out of sync, or has everything."""
    lags = {}
    for now, leader, follower in sights:
        state = at_ends(A=leader, B=follower)
        lags = observe_all(lags, state, now)
    return next_due_ms(lags, state, now)


def test_what_was_seen_does_not_count_for_a_slower_topic_a_follower_that_caught_up_or_under_another_leader():
    state = at_ends(A=10, B=0)
    lags, late = observe_all({}, state, 0), LAG_MAX + 1
    assert lagging(lags, state, late) != {}
    slower = msgspec.structs.replace(state, config=TopicConfig(replica_lag_time_max_ms=2 * LAG_MAX))
    elected = at_ends(leader_epoch=1, A=10, B=0)
    for other in (slower, at_ends(A=10, B=10), elected):
        assert lagging(lags, other, late) == {}
    assert lagging(lags, at_ends(A=10, B=9), late) != {}
    assert next_due_ms(lags, elected, 0) is None


# What becomes of it


def behind():
    """Return a topic of two partitions; B and C are behind in the first, no replica in the other."""
    state = after(started(2, ABC), commit(None, file({0: 2, 1: 2}, on=ABC)))
    return after(state, commit(None, file({0: 1}), acks="1"))


@pytest.mark.parametrize(
    "stale",
    [
        {0: Lagging(("C",), 1, 9)},
        {1: Lagging(("C",), 0, 9)},
        {0: Lagging(("A",), 0, 9)},
        {0: Lagging(("Z",), 0, 9)},
    ],
    ids=["another epoch", "has caught up", "leads", "no member"],
)
def test_a_member_that_no_longer_lags_stays(stale):
    assert decide(behind(), ShrinkIsr(stale)) == []


def test_a_member_that_caught_up_and_is_behind_again_stays():
    state = after(behind(), HoldFiles("C", incarnation("C"), (1,)))
    state = after(state, commit(None, file({0: 1}), acks="1"))
    assert state.partitions[0].log_end_offsets == {"A": 4, "B": 2, "C": 3}
    seen = ShrinkIsr({0: Lagging(("B", "C"), 0, leader_end=3)})
    assert decide(state, seen) == [IsrShrunk(0, ("A", "C"))]


def test_below_min_insync_the_high_watermark_stays_until_fewer_replicas_suffice():
    state = after(started(replicas=ABC, min_insync=2), commit(None, file({0: 1}), acks="1"))
    state = after(state, ShrinkIsr({0: Lagging(("B", "C"), 0, 9)}))
    assert after(state, AlterConfig({"retention.ms": "7"})).partitions[0].high_watermark == 0
    assert after(state, AlterConfig({"min.insync.replicas": "1"})).partitions[0].high_watermark == 1


def test_a_replica_joins_only_when_it_has_reached_the_start_of_the_leader_epoch():
    # B leads alone from offset 2 on, and the HW, below min.insync.replicas, stands at 1.
    state = after(started(replicas=ABC, min_insync=2), commit(None, file({0: 1}, on=ABC)))
    one = msgspec.structs.replace(
        state.partitions[0],
        isr=("B",),
        leader="B",
        leader_epoch=1,
        log_end=2,
        log_end_offsets={"A": 1, "B": 2, "C": 1},
        epoch_starts=((0, 0), (1, 2)),
    )
    state = msgspec.structs.replace(state, partitions=(one,))
    assert one.high_watermark == 1
    assert decide(state, HoldFiles("A", incarnation("A"))) == []
