"""The Spark session of a benchmark: that of spark-conf, with memory for the rows."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent
MEMORY = "5g"
PROGRESS_KEPT = 2_000


@contextmanager
def benchmark_session(folder: Path) -> Iterator[SparkSession]:
    """Start Spark, with the ceilings registered, and stop it."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_CONF_DIR", str(ROOT / "spark-conf"))
    packages = [str(ROOT), str(ROOT / "storage"), str(ROOT / "coordinator")]
    os.environ["PYTHONPATH"] = os.pathsep.join([*packages, *filter(None, [os.environ.get("PYTHONPATH")])])
    from pyspark.sql import SparkSession

    from benchmarks.ceilings import Counter, EmptyStream, PrebuiltBatches

    spark = (
        SparkSession.builder.appName("benchmarks")
        .config("spark.driver.memory", MEMORY)
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.inMemoryColumnarStorage.compressed", "false")
        .config("spark.sql.streaming.numRecentProgressUpdates", PROGRESS_KEPT)
        .getOrCreate()
    )
    try:
        for ceiling in (PrebuiltBatches, Counter, EmptyStream):
            spark.dataSource.register(ceiling)
        yield spark
    finally:
        spark.stop()
