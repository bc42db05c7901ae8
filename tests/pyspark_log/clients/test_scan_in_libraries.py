"""Daft and Ray read a scan as the guide says. Both are large, and are tried where they are installed."""

import pyarrow as pa
import pytest

from pyspark_log import scan
from pyspark_log_coordinator.maintenance import topic_roll
from tests.support.plain_log import PlainLog


@pytest.fixture
def rows(root):
    """The rows of a topic, as a scan: some in Parquet segments, some written a moment ago."""
    log = PlainLog(root)
    topic = log.create("t", 2, segment_format="parquet", segment_bytes=4096, flush_messages=1, file_delete_delay_ms=0)
    for turn in range(3):
        for partition in range(2):
            values = [b"%d of %d in turn %d" % (number, partition, turn) for number in range(200)]
            log.append("t", {partition: values})
        if turn < 2:
            topic_roll.roll_and_merge(topic)
    return scan(log.path, "t")


def test_daft_reads_a_scan(rows):
    daft = pytest.importorskip("daft")
    frame = daft.from_arrow(rows)
    assert frame.to_pylist() == pa.table(rows).to_pylist()
    newest = frame.groupby("partition").agg(daft.col("offset").max().alias("newest")).sort("partition")
    assert newest.to_pydict() == {"partition": [0, 1], "newest": [599, 599]}


def test_ray_reads_the_table_of_a_scan(rows, monkeypatch):
    ray = pytest.importorskip("ray")
    data = pytest.importorskip("ray.data")
    monkeypatch.delenv("PYTHONPATH")  # its workers need pandas, which other programs that tests start do not find
    with ray.init(num_cpus=1, include_dashboard=False, object_store_memory=100 << 20):
        table = pa.table(rows)
        assert data.from_arrow(table).take_all() == table.to_pylist()
