"""Sums by minute from rows that come late: a window counts a late row until the watermark has passed its end.

Optional argument: the folder of the log.
"""

import sys
import tempfile

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, count, to_timestamp, window

import pyspark_log

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
log, checkpoint = f"{folder}/log", f"{folder}/checkpoint"
spark = pyspark_log.configure(SparkSession.builder).getOrCreate()


def clicks(*times):
    """Write clicks. The column `timestamp` is the time at which they happened, not that at which they are written."""
    rows = spark.createDataFrame([(f"2026-01-31 {time}", "click") for time in times], "happened STRING, value STRING")
    rows = rows.select(to_timestamp("happened").alias("timestamp"), "value")
    rows.write.format("pyspark_log").option("topic", "clicks").mode("append").save(log)


def process_what_is_there():
    stream = spark.readStream.format("pyspark_log").option("subscribe", "clicks").option("startingOffsets", "earliest")
    minutes = (
        stream.load(log)
        .withWatermark("timestamp", "2 minutes")
        .groupBy(window("timestamp", "1 minute"))
        .agg(count("*").alias("clicks"))
        .select(col("window.start").cast("string").alias("key"), col("clicks").cast("string").alias("value"))
    )
    # Append: a window is written once, when the watermark has passed its end.
    query = minutes.writeStream.format("pyspark_log").option("topic", "minutes").outputMode("append")
    query = query.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(log)
    query.awaitTermination()


clicks("12:00:10", "12:00:50", "12:01:20")
process_what_is_there()  # the watermark is 2 minutes behind the newest row: no window is complete
clicks("12:00:30", "12:05:00")  # the first one is late, but its window is still open; the second one closes it
process_what_is_there()
clicks("12:00:59", "12:09:00")  # the first one comes too late: its window has been written
process_what_is_there()

written = spark.read.format("pyspark_log").option("subscribe", "minutes").load(log)
found = {row.key: row.value for row in written.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)").collect()}
print(found)
assert found == {"2026-01-31 12:00:00": "3", "2026-01-31 12:01:00": "1", "2026-01-31 12:05:00": "1"}, found
