"""What a member does next, by the state of its group and what it knows of itself."""

from pyspark_log_coordinator.group.joining import ExpireMember, LeaveGroup
from pyspark_log_coordinator.group.machine import DeleteGroup
from pyspark_log_coordinator.group.offsets import OffsetCommit
from pyspark_log_coordinator.group.rebalance import EndWait, SyncGroup
from pyspark_log_coordinator.group.state import GroupState
from pyspark_log_coordinator.membership.next_step import (
    Standing,
    Step,
    after_join,
    after_take,
    has_joined_newer,
    has_missed_a_join,
    next_step,
)
from tests.support.coordinator.groups import after, join, rejoin, stable


def working(group, name, instance=""):
    """A member that has taken its assignment."""
    return after_take(group, after_join(group, Standing(name, instance)))


def expired(group, name):
    return after(group, ExpireMember(name, group.members[name].acted))


def test_a_member_that_was_removed_has_lost_everything():
    group = stable(join("a"), join("b"))
    mine = working(group, "a")
    assert next_step(expired(group, "a"), mine) is Step.LOST
    assert next_step(expired(expired(group, "a"), "b"), mine) is Step.LOST
    assert next_step(after(after(group, LeaveGroup("a")), LeaveGroup("b"), DeleteGroup()), mine) is Step.LOST


def test_a_static_member_whose_place_another_process_took_is_fenced():
    group = stable(join("old", instance="i"), join("b"))
    taken = after(group, join("new", instance="i"))
    assert next_step(taken, working(group, "old", "i")) is Step.FENCED


def test_all_members_rejoin_when_a_rebalance_starts_and_wait_when_they_have():
    group = stable(join("a"), join("b"))
    mine = working(group, "a")
    preparing = after(group, join("c"))
    assert preparing.state is GroupState.PREPARING_REBALANCE
    assert next_step(preparing, mine) is Step.JOIN
    joined = after(preparing, rejoin("a"))
    assert next_step(joined, mine) is Step.WAIT
    assert next_step(joined, mine, has_news=True) is Step.JOIN


def test_a_member_takes_each_generation_once_and_then_works():
    group = stable(join("a"), join("b"))
    mine = after_join(group, Standing("b"))
    assert next_step(group, mine) is Step.TAKE
    mine = after_take(group, mine)
    assert mine.generation == group.generation
    assert next_step(group, mine) is Step.WORK
    again = after(group, rejoin("a"), rejoin("b"))
    assert next_step(again, mine) is Step.WAIT, "a generation that is only joined is not taken"
    again = after(again, SyncGroup("a", 2, {}))
    assert next_step(again, mine) is Step.TAKE


def test_a_member_whose_join_changes_nothing_takes_its_assignment_again():
    group = stable(join("a"), join("b"))
    again = after(group, rejoin("b"))
    assert again.state is GroupState.STABLE
    assert next_step(again, after_join(again, working(group, "b"))) is Step.TAKE


def test_who_has_joined_every_generation_may_keep_what_it_had():
    group = stable(join("a"), join("b"))
    mine = working(group, "b")
    for generation in (2, 3):  # the third comes before the second was taken
        group = after(group, rejoin("a"), rejoin("b", metadata=bytes([generation])))
        if group.state is GroupState.PREPARING_REBALANCE:
            group = after(group, rejoin("a"))
        mine = after_join(group, mine)
        group = after(group, SyncGroup("a", group.generation, {}))
    assert group.generation > mine.generation + 1
    assert not has_missed_a_join(group, mine)


def test_a_commit_for_an_older_generation_waits_for_the_next_poll_if_the_member_has_joined_all_since():
    group = stable(join("a"), join("b"))
    mine = working(group, "b")
    late = OffsetCommit({}, "b", mine.generation)
    assert not has_joined_newer(group, mine, late), "it is for this generation"
    for _ in range(2):  # the second comes before the first was taken
        group = after(group, rejoin("a"))
        assert has_joined_newer(group, mine, late) == (mine.reported > 1)
        group = after(group, rejoin("b", metadata=b"other"))
        mine = after_join(group, mine)
        group = after(group, SyncGroup("a", group.generation, {}))
        assert has_joined_newer(group, mine, late)
    assert not has_joined_newer(group, mine, OffsetCommit({}, "c", 1)), "it is another member's"
    missed = after(group, rejoin("a"))
    missed = after(missed, EndWait(missed.barriers), SyncGroup("a", missed.generation + 1, {}))
    assert not has_joined_newer(missed, mine, late)


def test_a_static_member_that_missed_a_generation_may_not_keep_what_it_had():
    group = stable(join("a"), join("b", instance="i"))
    mine = working(group, "b", "i")
    group = after(group, rejoin("a"))
    group = after(group, EndWait(group.barriers), SyncGroup("a", 2, {}))
    assert next_step(group, mine) is Step.TAKE
    assert has_missed_a_join(group, mine)
    assert not has_missed_a_join(group, after_take(group, mine))
    again = after(group, rejoin("a"), rejoin("b", instance="i", metadata=b"other"))
    mine = after_join(again, mine)
    again = after(again, SyncGroup("a", 3, {}))
    assert has_missed_a_join(again, mine), "the generation in between is not made good"
