"""A replicated, partitioned log for Apache Spark that needs no broker and no coordinator process.

    df.writeStream.format("pyspark_log").option("topic", "t").option("checkpointLocation", c).start("/data/log")
    spark.readStream.format("pyspark_log").option("subscribe", "t").load("/data/log")

Spark finds `DefaultSource` by the package's name. It imports every package named `pyspark_...` when it looks for data
sources, so heavy modules are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_log.datasource import DefaultSource
    from pyspark_log_storage.errors import LogError

__version__ = "0.1.0"
__all__ = ["DefaultSource", "LogError", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "DefaultSource":
        from pyspark_log.datasource import DefaultSource

        return DefaultSource
    if name == "LogError":
        from pyspark_log_storage.errors import LogError

        return LogError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
