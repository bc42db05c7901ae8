r"""A topic moves from Kafka: each row is copied once, with its key, value, headers, time and partition.

    pyspark-log topics create flights --partitions 8 --config retention.ms=2592000000 --path /data/log
    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 \
        examples/from_kafka.py broker:9092 flights /data/log /data/checkpoints/from-kafka

The arguments are a broker, the topic, the log, and the folder of the checkpoint; a number after them limits the rows of
a micro-batch. Create the topic first, with as many partitions and the retention that it has in Kafka. The program
copies what is there and ends. Run it again, also after it was killed, to copy what was written since.
"""

import sys

from pyspark.sql import SparkSession

import pyspark_log

broker, topic, log, checkpoint, *most = sys.argv[1:]
spark = pyspark_log.configure(SparkSession.builder).getOrCreate()

rows = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", broker)
    .option("kafka.isolation.level", "read_committed")
    .option("subscribe", topic)
    .option("startingOffsets", "earliest")
    .option("includeHeaders", "true")
    .option("maxOffsetsPerTrigger", *most or [1_000_000])
    .load()
    .select("key", "value", "headers", "timestamp", "partition")
)
query = (
    rows.writeStream.format("pyspark_log")
    .option("topic", topic)
    .option("checkpointLocation", checkpoint)
    .trigger(availableNow=True)
    .start(log)
)
query.awaitTermination()
print("copied", sum(batch["numInputRows"] for batch in query.recentProgress), "rows to", log)
