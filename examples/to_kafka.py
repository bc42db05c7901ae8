r"""A topic moves to Kafka, or feeds programs that stay there. Spark's Kafka sink writes each row at least once.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 \
        examples/to_kafka.py /data/log flights broker:9092 /data/checkpoints/to-kafka

The arguments are the log, the topic, a broker, and the folder of the checkpoint. Create the topic in Kafka first, with
as many partitions. A row that Spark writes again after a failure has the same header `offset`, by which its reader
knows it. Kafka gives each row the time at which it is written.
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import array, array_append, col, lit, struct, when

import pyspark_log

log, topic, broker, checkpoint = sys.argv[1:]
spark = pyspark_log.configure(SparkSession.builder).getOrCreate()

rows = (
    spark.readStream.format("pyspark_log")
    .option("subscribe", topic)
    .option("startingOffsets", "earliest")
    .option("includeHeaders", "true")
    .load(log)
)
offset = struct(lit("offset").alias("key"), col("offset").cast("string").cast("binary").alias("value"))
headers = when(col("headers").isNull(), array(offset)).otherwise(array_append("headers", offset))
query = (
    rows.select("key", "value", "partition", headers.alias("headers"))
    .writeStream.format("kafka")
    .option("kafka.bootstrap.servers", broker)
    .option("topic", topic)
    .option("includeHeaders", "true")
    .option("checkpointLocation", checkpoint)
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
print("copied", sum(batch["numInputRows"] for batch in query.recentProgress), "rows to", broker)
