"""Who is found silent, and when a rebalance has waited long enough."""

from pyspark_log_coordinator.group.joining import ExpireMember
from pyspark_log_coordinator.group.rebalance import EndWait
from pyspark_log_coordinator.membership.liveness import Liveness
from tests.support.coordinator.groups import after, commit, join, stable, started

SESSION = 10
"""Seconds."""
GAP = 2.0


def group_of(*names):
    return stable(
        *(join(name, session_timeout_ms=SESSION * 1000) for name in names), config={"min_session_timeout_ms": 1}
    )


def heard(liveness, group, counts, begin, end):
    """Look at the same heartbeats every second, from the second after `begin` on."""
    return [liveness.hear(group, counts, float(now)) for now in range(begin + 1, end + 1)]


def test_a_member_without_a_sign_of_life_expires_after_its_session():
    group, liveness = group_of("a", "b"), Liveness(GAP)
    found = [liveness.hear(group, {"a": now}, float(now)) for now in range(1, SESSION + 2)]
    assert found[:-1] == [[]] * SESSION
    assert found[-1] == [ExpireMember("b", group.members["b"].acted)]


def test_a_heartbeat_or_an_action_begins_the_session_again():
    group, liveness = group_of("a"), Liveness(GAP)
    heard(liveness, group, {"a": 1}, 0, SESSION)
    assert heard(liveness, group, {"a": 2}, SESSION, 2 * SESSION) == [[]] * SESSION
    acted = after(group, commit(1, "a", 1))
    assert heard(liveness, acted, {"a": 2}, 2 * SESSION, 3 * SESSION) == [[]] * SESSION
    assert liveness.hear(acted, {"a": 2}, 3 * SESSION + 1.0) == [ExpireMember("a", acted.members["a"].acted)]


def test_a_heartbeat_that_was_deleted_is_no_sign_of_life():
    group, liveness = group_of("a"), Liveness(GAP)
    heard(liveness, group, {"a": 1}, 0, SESSION - 1)
    assert liveness.hear(group, {}, float(SESSION)) == []
    assert liveness.hear(group, {}, SESSION + 1.0) == [ExpireMember("a", group.members["a"].acted)]


def test_an_older_heartbeat_that_is_found_now_and_then_is_no_sign_of_life():
    group, liveness = group_of("a"), Liveness(GAP)
    found = [liveness.hear(group, {"a": 1 + now % 2}, float(now)) for now in range(1, SESSION + 2)]
    assert found == [*([[]] * SESSION), [ExpireMember("a", group.members["a"].acted)]]


def test_who_has_slept_itself_counts_only_the_time_in_which_it_looked():
    group, liveness = group_of("a"), Liveness(GAP)
    heard(liveness, group, {"a": 1}, 0, 5)
    assert liveness.hear(group, {"a": 1}, 1000.0) == []
    assert heard(liveness, group, {"a": 1}, 1000, 1003) == [[]] * 3
    assert liveness.hear(group, {"a": 1}, 1004.0) != []


def test_a_join_barrier_ends_after_its_time():
    group, liveness = after(started(delay=3000), join("a")), Liveness(GAP)
    found = [liveness.watch(group, now / 4) for now in range(100, 114)]
    assert found == [None] * 12 + [EndWait(group.barriers)] * 2


def test_a_leader_that_assigns_nothing_is_removed_after_the_rebalance_time_out():
    group = after(started(), join("a", rebalance_timeout_ms=5000))
    liveness = Liveness(GAP)
    found = [liveness.watch(group, float(now)) for now in range(7)]
    assert found == [None] * 5 + [EndWait(group.barriers)] * 2


def test_who_is_not_the_first_waits_a_little_longer():
    group, liveness = after(started(delay=1000), join("a")), Liveness(GAP)
    assert liveness.watch(group, 0.0, 0.5) is None
    assert liveness.watch(group, 1.25, 0.5) is None
    assert liveness.watch(group, 1.5, 0.5) == EndWait(group.barriers)


def test_a_process_that_was_suspended_in_a_barrier_gives_the_others_time():
    group, liveness = after(started(delay=3000), join("a")), Liveness(GAP)
    assert liveness.watch(group, 0.0) is None
    assert liveness.watch(group, 1000.0) is None
    assert liveness.watch(group, 1001.0) == EndWait(group.barriers)
