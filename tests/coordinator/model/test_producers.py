"""Producers that are one process: remembered as long as one of their batches could be repeated."""

import msgspec
import pytest

from pyspark_log_coordinator.model.producers import BEGINS_MAX, ProducerClaim
from pyspark_log_coordinator.topic.machine import RaiseOrphanFloor
from pyspark_log_storage.errors import StaleFile
from pyspark_log_storage.layout import born_name
from tests.support.coordinator.topics import after, at, commit, decide, file, started

DAY = 86_400_000


def one_process(batch, name="process-1"):
    return msgspec.structs.replace(ProducerClaim(name, "", "", batch), expires=True)


def born(entry):
    return file({0: 3}, name=born_name(entry, "f" * 32))


def with_floor(state, number):
    """The topic after its floor was raised to an entry."""
    state = at(state, RaiseOrphanFloor(number), 0)
    return at(state, RaiseOrphanFloor(number + 1), DAY)


def test_a_producer_is_forgotten_when_the_files_of_its_last_batch_are_below_the_orphan_floor():
    state = after(started(), commit(one_process(0), born(5)))
    assert decide(state, commit(one_process(0), born(5))) == []
    assert "process-1" in with_floor(state, 5).producers
    assert with_floor(state, 6).producers == {}
    with pytest.raises(StaleFile):
        decide(with_floor(state, 6), commit(one_process(0), born(5)))
    state = after(state, commit(one_process(1), born(8)))
    assert with_floor(state, 6).producers["process-1"].batch_id == 1
    state = after(started(), commit(ProducerClaim("query", "query", "run", 0), born(5)))
    assert "query" in with_floor(state, 6).producers, "a query is never forgotten"


def test_the_log_remembers_where_the_last_batch_of_a_producer_begins():
    state = after(started(3), commit(one_process(0), file({0: 3, 2: 1}), file({0: 2})))
    state = after(state, commit(one_process(1), file({0: 4, 1: 1})))
    assert state.producers["process-1"].begins == {0: 5, 1: 0}


@pytest.mark.parametrize(("partitions", "is_kept"), [(BEGINS_MAX, True), (BEGINS_MAX + 1, False)])
def test_it_does_so_for_a_bounded_number_of_partitions(partitions, is_kept):
    state = after(started(partitions), commit(one_process(0), file(dict.fromkeys(range(partitions), 1))))
    assert (state.producers["process-1"].begins is not None) == is_kept


def test_the_oldest_file_of_a_batch_decides():
    # A repeated batch is refused if any of its files is refused.
    old, new = file({0: 1}, name=born_name(5, "a")), file({0: 1}, name=born_name(9, "b"))
    state = after(started(), commit(one_process(0), old, new))
    assert with_floor(state, 6).producers == {}
    with pytest.raises(StaleFile):
        decide(with_floor(state, 6), commit(one_process(0), old, new))
