"""A batch may say which offsets its rows must get."""

import pytest

from pyspark_log_storage.errors import BatchMismatch
from tests.support.coordinator.topics import after, claim, commit, decide, file, pieces, started


def test_a_batch_is_appended_where_its_writer_expects_the_end():
    state = after(started(), commit(claim(0), file({0: 10}), begins={0: 0}))
    assert pieces(after(state, commit(claim(1), file({0: 5}), begins={0: 10}))) == [("chunk", 0, 10), ("chunk", 10, 15)]


@pytest.mark.parametrize("begin", [9, 11])
def test_a_batch_is_refused_if_the_partition_ends_elsewhere(begin):
    state = after(started(), commit(claim(0), file({0: 10})))
    with pytest.raises(BatchMismatch, match=f"begin at offset {begin}, but the partition ends at offset 10"):
        decide(state, commit(claim(1), file({0: 5}), begins={0: begin}))


def test_a_replay_changes_nothing_although_the_partition_has_grown():
    batch = commit(claim(0), file({0: 10}), begins={0: 0})
    assert decide(after(started(), batch), batch) == []
