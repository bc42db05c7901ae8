"""A change feed into a Delta table: the newest row of each key, by MERGE in foreachBatch; a null value deletes the key.

It needs Delta's jars: `spark-submit --packages io.delta:delta-spark_4.2_2.13:4.4.0 examples/delta_change_feed.py`, for
Spark 4.2. Optional argument: the folder of the log.
"""

import sys
import tempfile

from pyspark.sql import SparkSession

import pyspark_log

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
log, table, checkpoint = f"{folder}/log", f"{folder}/customers", f"{folder}/checkpoint"
spark = pyspark_log.configure(pyspark_log.configure(SparkSession.builder), "delta").getOrCreate()


def write_changes(*changes):
    """Write changes: the key is the customer, the value where they live now; null if they are gone."""
    rows = spark.createDataFrame(changes, "key STRING, value STRING")
    rows.write.format("pyspark_log").option("topic", "moves").option("num.partitions", 2).mode("append").save(log)


def merge(changes, _number):
    """Merge a micro-batch. If it is repeated after a crash, it changes nothing: the same rows win."""
    changes.createOrReplaceTempView("changes")
    changes.sparkSession.sql(f"""
        MERGE INTO delta.`{table}` AS t
        USING (
            SELECT CAST(key AS STRING) AS customer, max_by(CAST(value AS STRING), offset) AS city
            FROM changes GROUP BY key
        ) AS c
        ON t.customer = c.customer
        WHEN MATCHED AND c.city IS NULL THEN DELETE
        WHEN MATCHED THEN UPDATE SET city = c.city
        WHEN NOT MATCHED AND c.city IS NOT NULL THEN INSERT (customer, city) VALUES (c.customer, c.city)
    """)


def merge_what_is_there():
    stream = spark.readStream.format("pyspark_log").option("subscribe", "moves").option("startingOffsets", "earliest")
    query = stream.load(log).writeStream.foreachBatch(merge).option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()


spark.sql(f"CREATE TABLE delta.`{table}` (customer STRING, city STRING) USING delta")
write_changes(("Ada", "London"), ("Blaise", "Paris"), ("Ada", "Turin"))
merge_what_is_there()
write_changes(("Blaise", None), ("Carl", "Goettingen"), ("Ada", "London"))
merge_what_is_there()

found = {row.customer: row.city for row in spark.read.format("delta").load(table).collect()}
print(found)
assert found == {"Ada": "London", "Carl": "Goettingen"}, found
