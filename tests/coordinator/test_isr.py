"""Who is in sync: lag as an observer finds it out, case by case, and what becomes of a member that lags."""

import msgspec
import pytest

from pyspark_log_coordinator.isr import (
    FollowerLag,
    IsrShrunk,
    Lagging,
    Publication,
    ShrinkIsr,
    lagging,
    observe,
    watch,
)
from pyspark_log_coordinator.topic import HoldFiles
from tests.coordinator.topics import after, commit, decide, file, incarnation, started

ABC = ("A", "B", "C")
LAG_MAX = 100


def at_ends(leader_epoch=0, **ends):
    """Return a topic of one partition whose replicas have these LEOs; the first leads."""
    state = started(replicas=tuple(ends))
    one = msgspec.structs.replace(
        state.partitions[0], log_end=max(ends.values()), log_end_offsets=ends, leader_epoch=leader_epoch
    )
    return msgspec.structs.replace(state, partitions=(one,))


def looks(*sights):
    """Return what an observer knows of B, and who lags, after it saw A and B at these times with these LEOs."""
    lags = {}
    for now, leader, follower in sights:
        state = at_ends(A=leader, B=follower)
        lags = watch(lags, state, now)
    return [each.nodes for each in lagging(lags, state, now, LAG_MAX)]


def test_who_looks_for_the_first_time_takes_everybody_to_be_caught_up():
    assert looks((0, 10, 0)) == []
    assert looks((0, 10, 0), (LAG_MAX, 10, 0)) == []


def test_a_stuck_follower_is_out_of_sync_when_its_time_is_over():
    assert looks((0, 10, 0), (LAG_MAX + 1, 10, 0)) == [("B",)]


def test_a_slow_follower_that_never_gets_there_is_out_of_sync_too():
    assert looks((0, 10, 0), (60, 20, 5), (120, 30, 9)) == [("B",)]


def test_a_follower_that_is_always_one_fetch_behind_is_in_sync():
    assert looks((0, 10, 0), (60, 20, 10), (120, 30, 20), (180, 40, 30), (240, 50, 40)) == []


def test_who_reaches_the_leaders_end_of_the_fetch_before_was_caught_up_then_and_not_now():
    # Fetched at 60 and 120; what it has at 120 was the leader's end at 60.
    assert looks((0, 10, 0), (60, 20, 5), (120, 30, 20), (160, 40, 21)) == []
    assert looks((0, 10, 0), (60, 20, 5), (120, 30, 20), (161, 40, 21)) == [("B",)]


def test_a_follower_that_has_everything_is_in_sync_however_long_nothing_comes():
    assert looks((0, 10, 10), (9_999, 10, 10)) == []
    assert looks((0, 10, 10), (9_999, 10, 10), (9_999 + LAG_MAX, 20, 10)) == []
    assert looks((0, 10, 10), (9_999, 10, 10), (10_000 + LAG_MAX, 20, 10)) == [("B",)]


def test_who_has_caught_up_since_the_observer_looked_does_not_lag():
    lags = watch({}, at_ends(A=10, B=0), 0)
    assert lagging(lags, at_ends(A=10, B=9), LAG_MAX + 1, LAG_MAX) != ()
    assert lagging(lags, at_ends(A=10, B=10), LAG_MAX + 1, LAG_MAX) == ()


def test_a_new_leader_gives_everybody_its_time_again():
    lag = observe(None, at_ends(A=10, B=0).partitions[0], "B", 0)
    assert observe(lag, at_ends(1, A=10, B=0).partitions[0], "B", 90) == FollowerLag(0, 10, 90, 90, 1)


def test_only_followers_in_the_isr_are_watched():
    state = after(started(replicas=ABC), commit(None, file({0: 1}, on=("A", "B"))))
    assert set(watch({}, state, 0)) == {(0, "B")}


def test_where_nobody_leads_nobody_lags():
    state = at_ends(A=9, B=0)
    state = msgspec.structs.replace(state, partitions=(msgspec.structs.replace(state.partitions[0], leader=None),))
    assert watch({}, state, 0) == {}
    assert decide(state, ShrinkIsr((Lagging(0, ("B",), 0),))) == []


@pytest.mark.parametrize(
    ("change", "published", "now", "due"),
    [
        (0, 0, 5_000, False),
        (0, 0, 5_001, True),
        (59_000, 0, 60_000, False),
        (59_000, 0, 60_001, True),
        (7, None, 7, True),
    ],
)
def test_changes_are_published_when_they_have_come_to_rest_or_none_was_for_long(change, published, now, due):
    known = Publication(published_ms=published).with_found((Lagging(0, ("B",), 0),), change)
    assert known.is_due(now) == due


def test_a_change_that_comes_while_others_wait_lets_all_wait_and_one_that_is_gone_is_forgotten():
    one, two = (Lagging(0, ("B",), 0),), (Lagging(0, ("B", "C"), 0),)
    known = Publication(published_ms=0).with_found(one, 1_000).with_found(two, 4_000)
    assert (known.is_due(6_001), known.is_due(9_001)) == (False, True)
    assert known.with_found(two, 9_001).is_due(9_001)
    assert not known.with_found((), 9_001).is_due(99_999)


# What becomes of it


def behind():
    """Return a topic of two partitions; B and C are behind in the first, nobody is in the other."""
    state = after(started(2, ABC), commit(None, file({0: 2, 1: 2}, on=ABC)))
    return after(state, commit(None, file({0: 1}), acks="1"))


def test_a_lagging_member_leaves_and_the_high_watermark_goes_on():
    events = decide(behind(), ShrinkIsr((Lagging(0, ("C",), 0),)))
    assert events == [IsrShrunk(0, ("A", "B"))]
    state = after(behind(), ShrinkIsr((Lagging(0, ("B", "C"), 0),)))
    assert (state.partitions[0].isr, state.partitions[0].high_watermark) == (("A",), 3)


def test_whom_one_observation_takes_out_another_does_not_bring_back():
    both = ShrinkIsr((Lagging(0, ("B",), 0), Lagging(0, ("C",), 0)))
    assert decide(behind(), both) == decide(behind(), ShrinkIsr((Lagging(0, ("B", "C"), 0),)))


def test_many_changes_are_one_entry():
    state = after(behind(), commit(None, file({1: 1}), acks="1"))
    assert len(decide(state, ShrinkIsr((Lagging(0, ("C",), 0), Lagging(1, ("C",), 0))))) == 2


@pytest.mark.parametrize(
    "stale",
    [Lagging(0, ("C",), 1), Lagging(1, ("C",), 0), Lagging(0, ("A",), 0), Lagging(0, ("Z",), 0), Lagging(7, ("C",), 0)],
    ids=["another epoch", "has caught up", "leads", "no member", "no partition"],
)
def test_who_does_not_lag_by_now_stays(stale):
    assert decide(behind(), ShrinkIsr((stale,))) == []


def test_below_min_insync_the_high_watermark_stays():
    state = after(started(replicas=ABC, min_insync=2), commit(None, file({0: 1}), acks="1"))
    state = after(state, ShrinkIsr((Lagging(0, ("B", "C"), 0),)))
    assert state.partitions[0].high_watermark == 0


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
