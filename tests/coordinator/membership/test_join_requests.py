"""Requests to join, which others take along."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_coordinator.group.joining import JoinRequest
from pyspark_log_coordinator.group.offsets import Offset
from pyspark_log_coordinator.group.rebalance import CompleteJoin
from pyspark_log_coordinator.group.state import GroupState
from pyspark_log_coordinator.group.sync import SyncGroup
from pyspark_log_coordinator.membership import group_member, member_objects
from pyspark_log_coordinator.membership.member_objects import (
    JoinRequests,
    MemberObjects,
    decode_request,
    encode_request,
)
from pyspark_log_coordinator.membership.next_step import Standing, after_request, after_take, is_joined
from pyspark_log_storage import layout
from pyspark_log_storage.errors import RebalanceInProgress
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.groups import after, join, rejoin, stable
from tests.support.coordinator.members import COOPERATIVE, Killed, Processes
from tests.support.coordinator.several_nodes import Stores


def took(group, asked):
    return is_joined(group, asked, is_news=False)


def request(name, generation=0, acted=0):
    return JoinRequest(join(name), generation, acted)


@given(st.builds(JoinRequest, st.just(join("a", metadata=b"x")), st.integers(0, 2**60), st.integers(0, 2**60)))
def test_a_stored_request_is_read_as_it_was_written(each):
    assert decode_request(encode_request(each), "it") == each


def test_the_requests_of_others_for_the_next_generation_are_found_and_void_ones_deleted():
    stores = Stores()
    log = stores.log()
    handle = log.group("g", create=True)
    mine, other = JoinRequests(handle, fake_environment()), JoinRequests(handle, fake_environment())
    assert mine.post(request("a", 3)) == 0
    assert other.post(request("b", 3)) == 1
    other.post(request("old", 2))
    folder = layout.join_requests(handle.journal_id)
    log.store.create(f"{folder}torn.4", encode_request(request("c"))[:20])
    assert mine.others("a", 3) == (request("b", 3),)
    assert [key.removeprefix(folder) for key in log.store.list(folder)] == ["a.4", "b.4", "torn.4"]
    mine.withdraw("a")
    other.post(request("b", 4))
    assert [key.removeprefix(folder) for key in log.store.list(folder)] == ["b.5", "torn.4"]
    assert mine.delete_void(4) == 1


def asking(*requests):
    """The requests of a process that asks for its member `a`, beside those of another one."""
    handle = Stores().log().group("g", create=True)
    mine, other = JoinRequests(handle, fake_environment()), JoinRequests(handle, fake_environment())
    mine.post(request("a", 3))
    for each in requests:
        other.post(each)
    return mine


def test_a_member_that_asks_again_asks_once():
    assert asking(request("b", 3), request("b", 3, acted=7)).others("a", 3) == (request("b", 3, acted=7),)


def test_a_request_that_is_gone_hides_no_other(monkeypatch):
    mine, names = asking(request("b", 3)), MemberObjects.names
    monkeypatch.setattr(MemberObjects, "names", lambda self: names(self) | {("gone", 4)})
    assert mine.others("a", 3) == (request("b", 3),)


def test_a_member_takes_only_so_many_along(monkeypatch):
    monkeypatch.setattr(member_objects, "TOGETHER_MAX", 2)
    assert asking(*(request(name, 3) for name in "bcd")).others("a", 3) == (request("b", 3), request("c", 3))


def test_a_member_knows_in_which_generation_somebody_took_it_along():
    group = stable(join("a"), join("b", instance="i"))
    mine = after_take(group, Standing("b", "i", is_member=True, reported=1))
    preparing = after(group, rejoin("a"))
    asked = JoinRequest(rejoin("b", instance="i"), 1, preparing.members["b"].acted)
    assert not took(preparing, asked)
    joined = after(preparing, rejoin("b", instance="i"))
    assert took(joined, asked)
    assert after_request(mine, asked).reported == 2
    done = after(joined, SyncGroup("a", 2, {}))
    assert took(done, asked)
    assert not took(after(done, rejoin("a")), asked), "that is another rebalance"
    missed = after(preparing, CompleteJoin(preparing.barriers), SyncGroup("a", 2, {}))
    assert not took(missed, asked), "it was away"
    assert not took(group, asked), "it asks for another generation"


def test_the_commit_of_a_member_that_was_taken_along_has_to_wait_for_its_next_poll(monkeypatch):
    monkeypatch.setattr(group_member, "JOIN_SECONDS_MAX", 5.0)
    monkeypatch.setattr(group_member, "JOIN_SECONDS", 5.0)
    world = Processes()
    reader = world.consumer(COOPERATIVE)
    a, b, _ = reader.member, world.consumer(COOPERATIVE).member, world.consumer(COOPERATIVE)
    world.settle()
    b.rejoin()
    while world.group.state is not GroupState.PREPARING_REBALANCE:
        b.poll()
        world.now += 1
    while a._joining is None or a._joining.request is None:
        a.poll()
        world.now += 1
    world.kill(a)  # it is not polled now
    generation = a.generation
    while world.group.generation == generation:
        world.run(1)
    with pytest.raises(RebalanceInProgress, match="poll, which ends that"):
        a.commit({"t": {0: Offset(1)}})
    world.running.append(a)
    world.settle()
    a.commit({"t": {min(each.partition for each in reader.positions): Offset(1)}})


@pytest.mark.parametrize("is_taken_along", [True, False])
def test_a_process_that_leaves_after_it_has_asked_is_no_member(is_taken_along):
    world = Processes()
    leaving = world.consumer().member
    leaving._join_now = die
    world.run(1)
    if not is_taken_along:
        leaving.leave()
    last = world.consumer().member
    world.run(1)
    assert (leaving.member_id in world.group.members) == is_taken_along
    if is_taken_along:
        leaving.leave()
    assert list(world.group.members) == [last.member_id]


def die(_):
    raise Killed
