"""The table of a topic, read by delta-rs and by DuckDB, which know nothing of the log."""

import deltalake
import duckdb
import pyarrow.compute as pc
import pytest

from pyspark_log_coordinator.maintenance import topic_cleanup, topic_roll
from pyspark_log_storage import layout
from tests.plain_log import PlainLog

BATCHES, ROWS = 6, 500


def value(row, partition, batch):
    return b"%d of %d in %d" % (row, partition, batch)


@pytest.fixture
def log(tmp_path):
    """Topic t, of which all batches but the last are in Parquet segments."""
    made = PlainLog(tmp_path / "log")
    made.create("t", 2, segment_format="parquet", segment_bytes=1024, flush_messages=1)
    for batch in range(BATCHES):
        made.append("t", {p: [value(row, p, batch) for row in range(ROWS)] for p in range(2)})
        if batch == BATCHES - 2:
            handle = made.log.topic("t")
            topic_roll.roll_and_merge(handle)
            topic_cleanup.clean_up_topic(handle)
    return made


@pytest.fixture
def table(log):
    return deltalake.DeltaTable(f"{log.path}/{layout.topic_folder('t', log.log.topic('t').topic_id)}")


ROLLED = [(p, batch, row) for p in range(2) for batch in range(BATCHES - 1) for row in range(ROWS)]
EXPECTED = [(p, batch * ROWS + row, value(row, p, batch)) for p, batch, row in ROLLED]


def test_delta_rs_reads_the_rows_as_of_the_last_cleanup(table):
    rows = table.to_pyarrow_table(columns=["partition", "offset", "value"])
    assert sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True)) == EXPECTED


def test_delta_rs_reads_only_the_files_that_a_filter_needs(table):
    dataset = table.to_pyarrow_dataset()
    newest = (BATCHES - 2) * ROWS
    found = list(dataset.get_fragments(pc.field("offset") >= newest))
    assert len(found) == 2 < len(table.file_uris())


def test_duckdb_reads_the_files_of_the_table(table):
    with duckdb.connect() as connection:
        connection.execute('SELECT partition, "offset", value FROM read_parquet(?)', [table.file_uris()])
        assert sorted(connection.fetchall()) == EXPECTED


def test_duckdb_reads_the_table_by_way_of_delta_rs(table):
    with duckdb.connect() as connection:
        connection.register("topic", table.to_pyarrow_dataset())
        connection.execute('SELECT partition, count(*), max("offset") FROM topic GROUP BY 1 ORDER BY 1')
        assert connection.fetchall() == [(p, (BATCHES - 1) * ROWS, (BATCHES - 1) * ROWS - 1) for p in range(2)]
