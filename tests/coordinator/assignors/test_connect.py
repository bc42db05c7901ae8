"""Connect's assignor: lost tasks wait for their worker, and tasks that keep their worker never stop."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyspark_log_coordinator.assignors import connect
from pyspark_log_coordinator.assignors.connect import TaskAssignment, assign
from pyspark_log_coordinator.group.state import JoinedMember
from pyspark_log_storage.errors import CorruptObject

PATIENT = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""The machine may be busy."""
DELAY = 300
TASKS = {"a": 1, "b": 1, "c": 1, "d": 1}


def tasks_of(shares):
    return {name: share.tasks for name, share in shares.items()}


def running(*names, tasks=TASKS):
    """Return workers that share the tasks."""
    return assign(dict.fromkeys(names, TaskAssignment()), tasks, 0, DELAY)


def test_a_lost_task_waits_for_its_worker_and_new_tasks_are_assigned_at_once():
    workers = running("V", "W")
    del workers["W"]
    shares = assign(workers, TASKS | {"e": 2}, 1_000, DELAY)
    assert shares == {"V": TaskAssignment(("a", "c", "e"), (), 2, 1_300, DELAY)}
    assert assign(shares, TASKS | {"e": 2}, 1_100, DELAY)["V"].delay_ms == 200
    assert tasks_of(assign(workers, TASKS, 1_000, 0)) == {"V": ("a", "b", "c", "d")}, "without a delay"
    waiting = assign(workers, TASKS, 10**9, DELAY)
    assert assign(waiting, TASKS, 1_000, DELAY)["V"].delay_ms == DELAY, "no clock makes it longer"


def test_after_the_delay_lost_tasks_go_to_the_worker_that_returned():
    workers = running("U", "V", "W", tasks=TASKS | {"e": 1})
    del workers["U"]
    waiting = assign(workers, TASKS | {"e": 1}, 1_000, DELAY)
    shares = assign(waiting | {"Z": TaskAssignment()}, TASKS | {"e": 1}, 1_300, DELAY)
    # W has one task and would be as good a choice for the second one, but Z came back.
    assert tasks_of(shares) == {"V": ("b", "e"), "W": ("c",), "Z": ("a", "d")}
    assert {share.until_ms for share in shares.values()} == {0}


tasks = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 3))
workers = st.dictionaries(
    st.sampled_from(["U", "V", "W", "X"]),
    st.builds(
        lambda own, revoked, version, until: TaskAssignment(tuple(sorted(own)), tuple(sorted(revoked)), version, until),
        st.sets(st.sampled_from("abcdefgh"), max_size=5),
        st.sets(st.sampled_from("abcdefgh"), max_size=2),
        st.integers(-1, 3),
        st.integers(0, 900),
    ),
    min_size=1,
)


@PATIENT
@given(workers, tasks, st.integers(0, 1_000), st.integers(0, DELAY))
def test_no_task_runs_on_two_workers_and_none_starts_while_another_worker_runs_it(before, configured, now, delay):
    shares = assign(before, configured, now, delay)
    given_out = [task for share in shares.values() for task in share.tasks]
    assert len(given_out) == len(set(given_out))
    for name, share in shares.items():
        others = {task for other, state in before.items() if other != name for task in state.tasks}
        assert not (set(share.tasks) - set(before[name].tasks)) & others
        assert set(before[name].tasks) <= {*share.tasks, *share.revoked}
        assert not set(share.tasks) & set(share.revoked)
        assert set(share.revoked) <= set(before[name].tasks)
        assert 0 <= share.delay_ms <= delay


@PATIENT
@given(workers, tasks, st.integers(0, 1_000))
def test_the_group_comes_to_rest_with_every_task_on_one_worker(before, configured, now):
    for _ in range(5):
        shares = assign(before, configured, now, DELAY)
        now += max(each.delay_ms for each in shares.values())
        before = shares
    assert sorted(task for share in shares.values() for task in share.tasks) == sorted(configured)
    sizes = [len(share.tasks) for share in shares.values()]
    assert max(sizes) - min(sizes) <= 1
    assert tasks_of(assign(before, configured, now, DELAY)) == tasks_of(shares)


@PATIENT
@given(workers)
def test_assignments_are_stored(before):
    for name, state in before.items():
        assert connect.decode_assignment(connect.encode_assignment(state), name) == state
    assert connect.decode_assignment(b"", "W") == TaskAssignment()
    with pytest.raises(CorruptObject, match="the assignment of worker 'W'"):
        connect.decode_assignment(b"\xff", "W")


@pytest.mark.parametrize(
    ("own", "said", "revoked"),
    [(("a", "d"), TaskAssignment(), ()), (("a",), TaskAssignment(("b", "c", "d"), (), 1), ("d",))],
    ids=["it has nothing now", "it was to stop one"],
)
def test_a_static_worker_that_is_away_keeps_its_tasks_and_one_that_it_was_to_stop_goes_to_nobody(own, said, revoked):
    away = connect.encode_assignment(TaskAssignment(("b", "c"), revoked, 1))
    joined = [
        JoinedMember("V", "", b"", connect.encode_assignment(TaskAssignment(own, (), 1))),
        JoinedMember("W", "w", b"", connect.encode_assignment(said), away),
    ]
    shares = connect.assign_members(joined, TASKS, 0, DELAY)
    assert connect.decode_assignment(shares["V"], "V").tasks == own
    assert {*connect.decode_assignment(shares["W"], "W").tasks} == {"b", "c"}
