"""What a simple consumer commits beside members."""

import pytest

from pyspark_log_coordinator.group.offsets import Offset, OffsetCommit
from pyspark_log_storage.errors import UnknownMember
from tests.support.coordinator.members import Processes


def test_a_simple_consumer_may_commit_only_while_there_are_no_members():
    world = Processes()
    command = OffsetCommit({"t": {0: Offset(4)}})
    world._log.group("g").submit(command)
    a = world.consumer()
    world.settle()
    assert a.positions[min(a.positions)] == 4
    with pytest.raises(UnknownMember, match="has members"):
        world._log.group("g").submit(OffsetCommit({"t": {0: Offset(5)}}))
