"""Queries that share a compacted topic begin with its newest state together: a partition may change its owner in it."""

import pyarrow as pa
import pytest

from pyspark_log.reading.query_member import handover_of
from pyspark_log.reading.source_offset import Position
from pyspark_log.writing.rows import Rows
from pyspark_log_coordinator.group.offsets import Offset, ResetOffsets
from tests.support.plain_log import record
from tests.support.pyspark_log.source.shared_queries import PARTITIONS, Queries

STATE_END = 40


@pytest.fixture
def queries(tmp_path, stepwise):
    """Queries of a compacted topic with 40 rows of two keys in each partition, two rows a batch."""
    limit = str(2 * PARTITIONS)
    made = Queries(str(tmp_path), startingOffsets="latest-by-key", maxOffsetsPerTrigger=limit)
    made.log.log.topic("t").alter_config({"cleanup.policy": "compact"})
    append(made, 0, b"ab" * (STATE_END // 2))
    return made


def append(queries, first, keys):
    """Write rows with these keys to each partition; the value is the offset, from `first` on."""
    for number in range(PARTITIONS):
        batch = record([b"%d" % at for at in range(first, first + len(keys))], [bytes([each]) for each in keys])
        queries.log.append_rows("t", Rows(batch, None, pa.array([number] * len(keys), pa.int32())))


def beginning(queries):
    """Return a query that has read the first two rows of each partition, none of which is the newest of its key."""
    query = queries.query("one")
    while not query.planned:
        queries.act()
        query.batch()
    assert query.rows() == []
    return query


def state_end(queries, number):
    """Return where the state of a partition ends, as the group knows it."""
    return handover_of(queries.group.committed(queries.log.log.topic("t").topic_id, number)).state


def newest_rows_and(*changes):
    """Return the newest rows of each partition and some rows after them, each once."""
    return {(number, at): 1 for number in range(PARTITIONS) for at in (STATE_END - 2, STATE_END - 1, *changes)}


def test_the_next_owner_of_a_partition_reads_the_rest_of_the_state(queries):
    one, two = beginning(queries), queries.query("two")
    queries.settle()
    begins = [at for end in two.offsets for at, _ in end["topics"].get("t", {}).get("begin", {}).values()]
    assert any(2 <= at < STATE_END - 2 for at in begins), begins
    append(queries, STATE_END, b"aa")
    queries.settle()
    assert one.rows()
    assert two.rows()
    assert queries.copies() == newest_rows_and(STATE_END, STATE_END + 1)


def test_a_query_that_is_killed_in_the_state_repeats_its_batch(queries):
    one = beginning(queries)
    assert one.plan()
    one.execute()
    one.kill()
    one.start()
    append(queries, STATE_END, b"aa")
    queries.settle()
    assert queries.copies() == newest_rows_and(STATE_END, STATE_END + 1)


def test_the_end_of_the_state_is_committed_until_it_is_read(queries):
    beginning(queries)
    assert state_end(queries, 0) == Position(STATE_END, 0)
    queries.settle()
    assert state_end(queries, 0) is None


def test_a_rewind_of_a_partition_ends_its_state(queries):
    one = beginning(queries)
    topic_id = queries.log.log.topic("t").topic_id
    queries.log.log.group("g").submit(ResetOffsets({topic_id: {3: Offset(1)}}, running=True))
    queries.settle()
    assert sorted(at for number, at in one.rows() if number == 3) == list(range(1, STATE_END))
    assert sorted(at for number, at in one.rows() if number == 2) == [STATE_END - 2, STATE_END - 1]
