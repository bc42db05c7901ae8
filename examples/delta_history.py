"""The history of each key in a Delta table (a slowly changing dimension of type 2), by MERGE in foreachBatch.

A row says from which offset to which one it was valid; a null value ends it. It needs Delta's jars, as
`delta_change_feed.py` does. Optional argument: the folder of the log.
"""

import sys
import tempfile

from pyspark.sql import SparkSession

import pyspark_log

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
log, table, checkpoint = f"{folder}/log", f"{folder}/moves_of_customers", f"{folder}/checkpoint"
spark = pyspark_log.configure(pyspark_log.configure(SparkSession.builder), "delta").getOrCreate()


def write_changes(*changes):
    """Write changes: the key is the customer, the value where they live now; null if they are gone."""
    rows = spark.createDataFrame(changes, "key STRING, value STRING")
    rows.write.format("pyspark_log").option("topic", "moves").option("num.partitions", 2).mode("append").save(log)


def merge(changes, _number):
    """Merge a micro-batch in one transaction: end the row that is valid, and insert the new ones.

    If the micro-batch is repeated after a crash, it changes nothing: the offsets at which its rows begin are there.
    """
    changes.createOrReplaceTempView("changes")
    changes.sparkSession.sql(f"""
        WITH moves AS (
            SELECT CAST(key AS STRING) AS customer, CAST(value AS STRING) AS city, offset AS begins,
                lead(offset) OVER (PARTITION BY key ORDER BY offset) AS ends
            FROM changes
        )
        MERGE INTO delta.`{table}` AS t
        USING (
            SELECT customer, city, begins, ends, NULL AS closes FROM moves
            UNION ALL
            SELECT customer, NULL, NULL, NULL, min(begins) FROM moves GROUP BY customer
        ) AS c
        ON t.customer = c.customer AND (t.begins = c.begins OR (t.ends IS NULL AND t.begins < c.closes))
        WHEN MATCHED AND c.closes IS NOT NULL THEN UPDATE SET ends = c.closes
        WHEN NOT MATCHED AND c.city IS NOT NULL THEN
            INSERT (customer, city, begins, ends) VALUES (c.customer, c.city, c.begins, c.ends)
    """)


def merge_what_is_there():
    stream = spark.readStream.format("pyspark_log").option("subscribe", "moves").option("startingOffsets", "earliest")
    query = stream.load(log).writeStream.foreachBatch(merge).option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()


def history():
    """Return where each customer has lived, in order; the last place has no end if they live there now."""
    found = {}
    for row in spark.read.format("delta").load(table).orderBy("customer", "begins").collect():
        found.setdefault(row.customer, []).append((row.city, row.ends is None))
    return found


spark.sql(f"CREATE TABLE delta.`{table}` (customer STRING, city STRING, begins BIGINT, ends BIGINT) USING delta")
write_changes(("Ada", "London"), ("Blaise", "Paris"), ("Ada", "Turin"))
merge_what_is_there()
assert history() == {"Ada": [("London", False), ("Turin", True)], "Blaise": [("Paris", True)]}, history()
write_changes(("Blaise", None), ("Carl", "Goettingen"), ("Ada", "London"))
merge_what_is_there()
expected = {
    "Ada": [("London", False), ("Turin", False), ("London", True)],
    "Blaise": [("Paris", False)],
    "Carl": [("Goettingen", True)],
}
assert history() == expected, history()

merge(spark.read.format("pyspark_log").option("subscribe", "moves").load(log), 0)  # all of it once more
print(history())
assert history() == expected, history()
