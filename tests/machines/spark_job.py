"""A Spark job on the hosts: `python -m tests.machines.spark_job MASTER ADDRESS ROOT CHECKPOINT STOP`.

A streaming query copies the programs' topic to another one, partition by partition, until the file STOP is there and
everything is copied. Its checkpoint is on the file system that the hosts share.
"""

import os
import sys
import time

from pyspark.sql import SparkSession

import pyspark_log
from tests.machines.programs import PARTITIONS, TOPIC

COPY = "copied"


def main(master: str, address: str, root: str, checkpoint: str, stop: str) -> None:
    """Copy until the file `stop` is there."""
    builder = SparkSession.builder.master(master).config("spark.driver.host", address)
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "spark.network.timeout": "60s",
        "spark.executor.heartbeatInterval": "5s",
    }.items():
        builder = builder.config(name, value)
    spark = pyspark_log.configure(builder, "standalone").getOrCreate()
    rows = (
        spark.readStream.format("pyspark_log")
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .load(root)
        .select("partition", "value")
    )
    query = (
        rows.writeStream.format("pyspark_log")
        .option("topic", COPY)
        .option("num.partitions", PARTITIONS)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="1 second")
        .start(root)
    )
    while query.isActive and not os.path.exists(stop):
        time.sleep(0.5)
    if query.isActive:
        query.processAllAvailable()
        query.stop()
    elif error := query.exception():
        raise error


if __name__ == "__main__":
    main(*sys.argv[1:])
