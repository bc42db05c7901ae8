"""A Spark session with Delta."""

from pyspark.sql import SparkSession

from tests.servers import maven_jars


def delta_session() -> SparkSession:
    """Return it. Raises `maven_jars.Unavailable` if Delta's jars cannot be had."""
    builder = SparkSession.builder.config("spark.jars", ",".join(map(str, maven_jars.jars("delta"))))
    builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    builder = builder.config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    return builder.config("spark.databricks.delta.snapshotPartitions", "1").getOrCreate()
