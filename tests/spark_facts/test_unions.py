"""What Spark makes of a union of files with a Python source, which is what a pinned read is."""

from pathlib import Path

from pyspark.sql import SparkSession

from pyspark_log.spark_conf.profiles import settings
from tests.support.plain_log import PlainLog


def test_a_union_is_compiled_with_what_follows_only_with_the_setting_of_the_profiles(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = PlainLog(tmp_path / "log")
    log.create("in")
    log.append("in", {0: [b"0", b"1", b"2"]})
    spark.range(5).select("id").write.parquet(str(tmp_path / "files"))
    setting = "spark.sql.codegen.wholeStage.union.enabled"

    def union() -> tuple[int, str]:
        source = spark.read.format("pyspark_log").option("subscribe", "in").load(log.path)
        frame = spark.read.parquet(str(tmp_path / "files")).unionAll(source.select("offset")).selectExpr("sum(id)")
        return frame.collect()[0][0], frame._jdf.queryExecution().executedPlan().toString()  # type: ignore[operator]

    assert spark.conf.get(setting) == settings("local")[setting] == "true"
    total, plan = union()
    assert total == 13
    assert "*(1) Union" in plan
    spark.conf.set(setting, "false")
    try:
        total, plan = union()
    finally:
        spark.conf.set(setting, "true")
    assert total == 13
    assert "Union" in plan
    assert ") Union" not in plan
