"""What members commit, and rewinds: no commit undoes a rewind."""

import pytest

from pyspark_log_coordinator.group.offsets import Offset, OffsetCommit, ResetOffsets
from pyspark_log_storage.errors import (
    UnknownMember,
)
from tests.support.coordinator.members import Processes


def test_rewinds_of_a_running_group_are_taken_up_and_not_undone(strategies):
    world = Processes()
    a = world.consumer(strategies)
    world.settle()
    a.positions = dict.fromkeys(a.positions, 50)
    a.member.session.submit(ResetOffsets({"t": {2: Offset(5)}}, running=True))
    world.run(5)
    assert ("rewound", 0) in a.notes
    assert a.member.rewinds == 1
    b = world.consumer(strategies)
    world.settle()
    assert {offset for each, offset in (a.positions | b.positions).items() if each.partition == 2} == {5}


def test_a_simple_consumer_may_commit_only_while_there_are_no_members():
    world = Processes()
    command = OffsetCommit({"t": {0: Offset(4)}})
    world._log.group("g").submit(command)
    a = world.consumer()
    world.settle()
    assert a.positions[min(a.positions)] == 4
    with pytest.raises(UnknownMember, match="has members"):
        world._log.group("g").submit(OffsetCommit({"t": {0: Offset(5)}}))
