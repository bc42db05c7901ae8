"""Tests with Delta tables, which need its jars, and Spark 4.2: there is no Delta for a newer one yet.

`tests/test_older_spark.py` runs them on that Spark; a run on another one passes them over.
"""

import pyspark
import pytest
from pyspark.sql import SparkSession

from tests.servers import maven_jars

if not pyspark.__version__.startswith("4.2."):
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def spark():
    """A session with Delta."""
    try:
        jars = maven_jars.jars("delta")
    except maven_jars.Unavailable as unavailable:
        pytest.skip(f"needs the jars of Delta: {unavailable}")
    builder = SparkSession.builder.config("spark.jars", ",".join(map(str, jars)))
    builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    builder = builder.config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    builder = builder.config("spark.databricks.delta.snapshotPartitions", "1")
    session = builder.getOrCreate()
    yield session
    session.stop()
