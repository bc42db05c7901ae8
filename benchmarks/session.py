"""The Spark session of a benchmark: that of spark-conf, with memory for the rows.

It has Spark's Kafka connector and, on Spark 4.2, Delta, if their jars can be had.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent
MEMORY = "5g"
PROGRESS_KEPT = 2_000
CLOSED_AFTER = {
    "spark.kafka.producer.cache.timeout": "1s",
    "spark.kafka.producer.cache.evictorThreadRunInterval": "1s",
}
"""The connector's producers are closed before their broker is stopped."""


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
        .config(map=_others())
        .getOrCreate()
    )
    try:
        for ceiling in (PrebuiltBatches, Counter, EmptyStream):
            spark.dataSource.register(ceiling)
        yield spark
    finally:
        spark.stop()


def _others() -> dict[str, Any]:
    """Return the settings of a session with what the product is compared with."""
    import pyspark

    from tests.servers import maven_jars
    from tests.support.delta.delta_session import EXTENSIONS

    names = ["connector", "delta"] if pyspark.__version__.startswith("4.2.") else ["connector"]
    found: list[Path] = []
    settings: dict[str, Any] = dict(CLOSED_AFTER)
    for name in names:
        with suppress(maven_jars.Unavailable):
            found += maven_jars.jars(name)
            settings |= EXTENSIONS if name == "delta" else {}
    return settings | {"spark.jars": ",".join(map(str, found))}
