"""A first program: writes rows into a topic, and reads them as a stream. Optional argument: the folder of the log."""

import sys
import tempfile

from pyspark.sql import SparkSession

import pyspark_log

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
log, checkpoint = f"{folder}/log", f"{folder}/checkpoint"
spark = pyspark_log.configure(SparkSession.builder).getOrCreate()

# A batch write creates the topic. Rows with the same key go to the same partition, and stay in order.
cities = spark.createDataFrame([("at", "Graz"), ("at", "Linz"), ("fr", "Lyon")], "key STRING, value STRING")
cities.write.format("pyspark_log").option("topic", "cities").option("num.partitions", 3).mode("append").save(log)

# A streaming read continues where it ended: run the program again with the same folder, and only new rows appear.
stream = spark.readStream.format("pyspark_log").option("subscribe", "cities").option("startingOffsets", "earliest")
rows = stream.load(log).selectExpr("partition", "offset", "CAST(key AS STRING)", "CAST(value AS STRING)")
query = rows.writeStream.format("console").option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
query.awaitTermination()
