"""Finding the chunks of a partition by offset and by time."""

from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_coordinator.model.partition import ChunkRef, Partition

BASE = 10
"""The offset of the first chunk: earlier rows have expired."""


def partition(rows, timestamps=None):
    """Return a partition whose chunks have so many rows, and so large timestamps."""
    chunks, end, reached = [], BASE, -(2**63)
    for count, timestamp in zip(rows, timestamps or [0] * len(rows), strict=True):
        reached = max(reached, timestamp)
        chunks.append(ChunkRef(end, count, 0, 0, 64, timestamp, timestamp, reached, 0, 0, 0))
        end += count
    return Partition(("A",), ("A",), "A", 0, ((0, 0),), BASE, end, end, {"A": end}, (), tuple(chunks))


@given(st.lists(st.integers(1, 4), max_size=8), st.integers(0, 60), st.integers(0, 60))
def test_the_chunks_between_two_offsets_are_those_that_hold_a_row_of_them(rows, start, end):
    one = partition(rows)
    assert one.chunks_between(start, end) == tuple(
        chunk for chunk in one.chunks if max(start, chunk.base_offset) < min(end, chunk.end_offset)
    )


@given(st.data())
def test_the_chunks_reaching_a_time_are_those_with_a_row_so_late(data):
    times = data.draw(st.lists(st.integers(-5, 5), max_size=8))
    wanted = data.draw(st.integers(-7, 7))
    one = partition([1] * len(times), times)
    assert one.chunks_reaching(wanted) == [chunk for chunk in one.chunks if chunk.max_timestamp >= wanted]
