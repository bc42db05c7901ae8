"""The memory of a task's Python worker is bounded when Spark feeds it."""

import pytest

from tests.spark.measured_source import MeasuredSource, measurements
from tests.spark.spark_log import SparkLog

LIMIT_MIB = 512


@pytest.mark.slow
@pytest.mark.parametrize(("partitions", "rows"), [(8, 3_000_000), (1, 1_000_000)])
def test_a_task_of_many_rows_stays_within_its_memory(spark, tmp_path, partitions, rows):
    spark.dataSource.register(MeasuredSource)
    log = SparkLog(spark, tmp_path)
    log.create("t", partitions)
    frame = spark.range(0, rows, 1, 1).selectExpr(
        "format_string('%010d', id) key", "substr(concat(sha2(cast(id as string), 256), md5('x')), 1, 90) value"
    )
    frame.write.format("pyspark_log_measured").mode("append").option("topic", "t").save(log.path)
    assert log.rows("t") == rows
    reader = spark.read.format("pyspark_log_measured").option("subscribe", "t")
    assert reader.load(log.path).where("value is not null").count() == rows
    [written], read = measurements(log.path, "write"), measurements(log.path, "read")
    print(f"VmHWM in MiB: write {written}, read {read}")
    assert len(read) == partitions
    assert max(written, *read) < LIMIT_MIB
