"""A Spark session with Delta."""

from pyspark.sql import SparkSession

from tests.servers import maven_jars

EXTENSIONS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
}
"""Settings of a session that has Delta's jars."""

SMALL_ROWS = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""To compile a plan of Delta's takes longer here than to run it: without, these tests need a quarter less work."""


def delta_session() -> SparkSession:
    """Return it. Raises `maven_jars.Unavailable` if Delta's jars cannot be had."""
    builder = SparkSession.builder.config("spark.jars", ",".join(map(str, maven_jars.jars("delta"))))
    return builder.config(map=EXTENSIONS | SMALL_ROWS).getOrCreate()
