"""Two queries in a chain, one of which fails in the middle and is started again: each row is there once.

Optional argument: the folder of the log.
"""

import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

import pyspark_log

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
log = f"{folder}/log"
spark = pyspark_log.configure(SparkSession.builder).getOrCreate()

orders = spark.range(1000).selectExpr("CAST(id % 50 AS STRING) key", "CAST(id AS STRING) value")
orders.write.format("pyspark_log").option("topic", "orders").option("num.partitions", 3).mode("append").save(log)


def start(source, target, expression):
    """Start a query from a topic to a topic that ends when it has read what is there."""
    rows = (
        spark.readStream.format("pyspark_log")
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 300)
        .load(log)
        .selectExpr("key", f"{expression} AS value")
    )
    writer = rows.writeStream.format("pyspark_log").option("topic", target)
    writer = writer.option("checkpointLocation", f"{folder}/checkpoints/{target}")
    return writer.trigger(availableNow=True).start(log)


# The first attempt fails at order 500, in the middle of a micro-batch: nothing of that micro-batch is written.
fails = "IF(CAST(value AS STRING) = '500', raise_error('the price list is missing'), CAST(value AS STRING))"
try:
    start("orders", "priced", fails).awaitTermination()
except Exception as error:  # noqa: BLE001 -- whatever Spark raises, the cure is to start it again
    print("failed:", "the price list is missing" in str(error))

# With the same checkpoint it continues with that micro-batch. The next query of the chain has read a part already.
start("priced", "billed", "value").awaitTermination()
start("orders", "priced", "concat(CAST(value AS STRING), ' EUR')").awaitTermination()
start("priced", "billed", "value").awaitTermination()

billed = spark.read.format("pyspark_log").option("subscribe", "billed").load(log)
numbers = [int(row.value.split()[0]) for row in billed.selectExpr("CAST(value AS STRING)").collect()]
print(f"{len(numbers)} rows, {len(set(numbers))} of them different")
assert sorted(numbers) == list(range(1000))
assert Path(f"{folder}/checkpoints/billed/commits").is_dir()
