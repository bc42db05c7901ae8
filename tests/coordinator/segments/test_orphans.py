"""The orphan floor trails the journal, and files born below it are never sequenced."""

import msgspec
import pytest

from pyspark_log_coordinator.model.topic_state import FloorMark
from pyspark_log_coordinator.segments.orphans import (
    ConfirmDeletions,
    DeletionsConfirmed,
    FloorMarked,
    OrphanFloorRaised,
    RaiseOrphanFloor,
)
from pyspark_log_coordinator.segments.swap import MaintainSegments
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_storage.errors import StaleFile
from pyspark_log_storage.layout import born_name
from tests.support.coordinator.topics import after, at, claim, commit, decide, file, filled, rolled, swap

DAY = 86_400_000


def floor_at(number, now=0):
    """Return a topic with this orphan floor."""
    state = filled(2, orphan_retention_ms=DAY)
    state = at(state, RaiseOrphanFloor(number), now)
    return at(state, RaiseOrphanFloor(number + 100), now + DAY)


def born(number):
    """Return a file of ten rows that was born at an entry."""
    return file({0: 10}, name=born_name(number, f"{number:032x}"))


# The floor


def test_the_newest_entry_is_marked_and_becomes_the_floor_when_the_mark_is_old():
    state = filled(2, orphan_retention_ms=DAY)
    assert topic.decide(state, RaiseOrphanFloor(7), 0) == [FloorMarked(FloorMark(7, 0))]
    state = at(state, RaiseOrphanFloor(7), 0)
    assert topic.decide(state, RaiseOrphanFloor(50), DAY - 1) == []
    assert topic.decide(state, RaiseOrphanFloor(50), DAY) == [OrphanFloorRaised(7), FloorMarked(FloorMark(50, DAY))]
    state = at(at(state, RaiseOrphanFloor(50), DAY), RaiseOrphanFloor(50), 2 * DAY)
    assert topic.decide(state, RaiseOrphanFloor(50), 3 * DAY) == [FloorMarked(FloorMark(50, 3 * DAY))]


def test_a_mark_of_the_future_is_replaced_and_the_floor_rises_again():
    state = at(filled(2, orphan_retention_ms=DAY), RaiseOrphanFloor(7), 100 * DAY)  # by a clock that was wrong
    assert topic.decide(state, RaiseOrphanFloor(50), 0) == [FloorMarked(FloorMark(50, 0))]
    state = at(state, RaiseOrphanFloor(50), 0)
    assert at(state, RaiseOrphanFloor(60), DAY).orphan_floor == 50


# What is refused


def test_a_batch_with_a_file_that_was_born_below_the_floor_is_not_sequenced():
    state = floor_at(7)
    for files in ([born(6)], [born(8), born(6)]):
        with pytest.raises(StaleFile, match=r"orphan\.retention\.ms"):
            decide(state, commit(claim(1), *files))
    assert after(state, commit(claim(1), born(7))).partitions[0].log_end == 30


def test_a_replay_whose_files_are_stale_is_a_replay_all_the_same():
    state = after(filled(0, orphan_retention_ms=DAY), commit(claim(1), born(3)))
    state = at(at(state, RaiseOrphanFloor(7), 0), RaiseOrphanFloor(8), DAY)
    assert state.orphan_floor == 7
    assert decide(state, commit(claim(1), born(3))) == []


# What is forgotten


def test_released_files_are_forgotten_up_to_the_one_that_is_named():
    state = rolled(rolled(filled(3), 0, 10, 20, 30), 0, 30)  # it has released three append files and three segments
    keys = [each.key for each in state.pending_deletions]
    assert len(keys) == 6
    assert decide(state, ConfirmDeletions(keys[3])) == [DeletionsConfirmed(4)]
    state = after(state, ConfirmDeletions(keys[3]))
    assert [each.key for each in state.pending_deletions] == keys[4:]
    assert decide(state, ConfirmDeletions(keys[3])) == []
    later = after(after(state, commit(None, file({0: 10}))), MaintainSegments((swap(30, 40),)))
    left = after(later, ConfirmDeletions(keys[-1])).pending_deletions
    assert [each.key.split("/")[0] for each in left] == ["append"]
    twice = msgspec.structs.replace(state, pending_deletions=state.pending_deletions * 2)
    assert decide(twice, ConfirmDeletions(keys[-1])) == [DeletionsConfirmed(2)]


def test_with_the_floor_the_producers_that_expire_are_forgotten_whose_files_were_born_below_it():
    state = filled(1, orphan_retention_ms=DAY)
    for name, number in (("old", 6), ("at the floor", 7)):
        expiring = msgspec.structs.replace(claim(0, query="", app=name), expires=True)
        state = after(state, commit(expiring, born(number)))
    state = after(state, commit(claim(0, query="another", app="a query"), born(6)))
    assert state.producers.keys() == {"old", "at the floor", "a query"}
    state = at(at(state, RaiseOrphanFloor(7), 0), RaiseOrphanFloor(100), DAY)
    assert state.orphan_floor == 7
    assert state.producers.keys() == {"at the floor", "a query"}
