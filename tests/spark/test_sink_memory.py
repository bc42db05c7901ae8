"""The memory of a task's Python worker is bounded when Spark feeds it."""

import pytest

from tests.support.spark.measured_source import MeasuredSource, measurements
from tests.support.spark.spark_log import SparkLog

LIMIT_MIB = 512


@pytest.mark.slow
@pytest.mark.parametrize(("partitions", "rows", "hashes"), [(8, 500_000, 8), (1, 1_000_000, 1)])
def test_a_task_with_more_rows_than_memory_stays_within_its_memory(spark, tmp_path, partitions, rows, hashes):
    spark.dataSource.register(MeasuredSource)
    log = SparkLog(spark, tmp_path)
    log.create("t", partitions)
    value = ", ".join(f"sha2('{number}' || id, 512)" for number in range(hashes))
    frame = spark.range(0, rows, 1, 1).selectExpr("cast(id as string) key", f"concat({value}) value")
    frame.write.format("pyspark_log_measured").mode("append").option("topic", "t").save(log.path)
    assert log.rows("t") == rows
    reader = spark.read.format("pyspark_log_measured").option("subscribe", "t")
    assert reader.load(log.path).where("value is not null").count() == rows
    [written], read = measurements(log.path, "write"), measurements(log.path, "read")
    print(f"VmHWM in MiB: write {written}, read {read}")
    assert len(read) == partitions
    assert max(written, *read) < LIMIT_MIB
