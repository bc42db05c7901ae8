"""A replicated, partitioned log for Apache Spark that needs no broker and no coordinator process.

    df.writeStream.format("pyspark_log").option("topic", "t").option("checkpointLocation", c).start("/data/log")
    spark.readStream.format("pyspark_log").option("subscribe", "t").load("/data/log")

    spark = pyspark_log.configure(SparkSession.builder).getOrCreate()      settings of Spark that suit this source
    pyspark_log.read(spark, "/data/log", "t", start, end)           a batch frame of all rows, or between two positions
    pyspark_log.latest(spark, "/data/log", "t")                     the newest row of each key of a compacted topic
    pyspark_log.archive(spark, "/data/log", "t", "/data/table")     the rows of a topic into a Delta table, exactly once
    pyspark_log.backfill(frame, "/data/log", "t", ...)              history into a topic, in order, exactly once

    with pyspark_log.Producer("/data/log") as producer:             needs neither Spark nor Java
        producer.send("t", b"value", key=b"key")
    polars.DataFrame(pyspark_log.scan("/data/log", "t"))            rows as an Arrow stream; without Spark, too
    pyspark_log.describe("/data/log", "t")                          a topic as a page in a notebook

Spark finds `DefaultSource` by the package's name. It imports every package named `pyspark_...` when it looks for data
sources, so heavy modules are imported on first use.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 -- clients need it, and once the main thread has ended it is too late
import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_log.clients.consumer import Consumer
    from pyspark_log.clients.consumer_group import ConsumerRebalanceListener
    from pyspark_log.clients.producer import Producer
    from pyspark_log.clients.records import (
        BatchMetadata,
        ConsumerBatch,
        ConsumerGroupMetadata,
        ConsumerRecord,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        RecordMetadata,
        TopicPartition,
    )
    from pyspark_log.clients.scan import Scan, scan
    from pyspark_log.clients.worker import TaskRunner, Worker
    from pyspark_log.datasource import DefaultSource
    from pyspark_log.history.archive import archive
    from pyspark_log.history.backfill import backfill
    from pyspark_log.history.batch_frame import read
    from pyspark_log.source.newest_rows import latest, latest_with_offsets
    from pyspark_log.spark_conf.profiles import configure
    from pyspark_log.ui.notebook import Description, describe
    from pyspark_log_storage.errors import LogError
    from pyspark_log_storage.logs import JsonFormatter

__version__ = "0.2.0.dev0"
__all__ = [
    "BatchMetadata",
    "Consumer",
    "ConsumerBatch",
    "ConsumerGroupMetadata",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "DefaultSource",
    "Description",
    "JsonFormatter",
    "LogError",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "Producer",
    "RecordMetadata",
    "Scan",
    "TaskRunner",
    "TopicPartition",
    "Worker",
    "__version__",
    "archive",
    "backfill",
    "configure",
    "describe",
    "latest",
    "latest_with_offsets",
    "read",
    "scan",
]
_MODULES = {
    "Consumer": "pyspark_log.clients.consumer",
    "ConsumerRebalanceListener": "pyspark_log.clients.consumer_group",
    "DefaultSource": "pyspark_log.datasource",
    "Description": "pyspark_log.ui.notebook",
    "JsonFormatter": "pyspark_log_storage.logs",
    "LogError": "pyspark_log_storage.errors",
    "Producer": "pyspark_log.clients.producer",
    "Scan": "pyspark_log.clients.scan",
    "TaskRunner": "pyspark_log.clients.worker",
    "Worker": "pyspark_log.clients.worker",
    "archive": "pyspark_log.history.archive",
    "backfill": "pyspark_log.history.backfill",
    "configure": "pyspark_log.spark_conf.profiles",
    "describe": "pyspark_log.ui.notebook",
    "latest": "pyspark_log.source.newest_rows",
    "latest_with_offsets": "pyspark_log.source.newest_rows",
    "read": "pyspark_log.history.batch_frame",
    "scan": "pyspark_log.clients.scan",
}
_RECORDS = "pyspark_log.clients.records"

if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> object:
        if name.startswith("_") or name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            return getattr(importlib.import_module(_MODULES.get(name, _RECORDS)), name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "pyspark":
                raise
            from pyspark_log.spark_conf.installation import missing_spark

            raise ImportError(missing_spark(name), name="pyspark") from None


def __dir__() -> list[str]:
    return __all__
