"""The writer: a streaming query from files of flights into the topic `flights`, on all nodes that are in sync.

    python writer.py <folder of files> <log> <checkpoint>

It exits when all files are in the log. Started again with its checkpoint, it continues where it was.
"""

import sys

from pyspark.sql import SparkSession

FLIGHT = """
    number BIGINT, year BIGINT, month BIGINT, day BIGINT, dep_time BIGINT, sched_dep_time BIGINT,
    dep_delay BIGINT, arr_time BIGINT, sched_arr_time BIGINT, arr_delay BIGINT, carrier STRING,
    flight BIGINT, tailnum STRING, origin STRING, dest STRING, air_time BIGINT, distance BIGINT,
    hour BIGINT, minute BIGINT, time_hour STRING
"""


def main(files: str, log: str, checkpoint: str) -> None:
    spark = SparkSession.builder.appName("flights writer").getOrCreate()
    # The log keeps the order of the rows of a task, and a micro-batch is in the log before the next one begins. So rows
    # with one key stay in order if one task writes them in each micro-batch. Here a micro-batch is one file, which is
    # far smaller than spark.sql.files.maxPartitionBytes, and so one task.
    flights = spark.readStream.schema(FLIGHT).option("maxFilesPerTrigger", 1).parquet(files)
    # A flight without a tail number has the key null: it may go to any partition, in any order.
    events = flights.selectExpr("tailnum AS key", "to_json(struct(*)) AS value")
    query = (
        events.writeStream.format("pyspark_log")
        .option("topic", "flights")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(log)
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
