"""A running query is sent back to the start of its topic, without a new checkpoint and without a restart.

Optional argument: the folder of the log.
"""

import subprocess
import sys
import tempfile
import time

from pyspark.sql import SparkSession

import pyspark_log

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
log = f"{folder}/log"
spark = pyspark_log.configure(SparkSession.builder).getOrCreate()


def command(*arguments):
    """Run `pyspark-log`."""
    subprocess.run([sys.executable, "-m", "pyspark_log.cli", *arguments, "--path", log], check=True)


command("topics", "create", "copies")
events = spark.range(100).selectExpr("CAST(id AS STRING) value")
events.write.format("pyspark_log").option("topic", "events").option("num.partitions", 2).mode("append").save(log)

stream = (
    spark.readStream.format("pyspark_log")
    .option("subscribe", "events")
    .option("startingOffsets", "earliest")
    .option("group.id", "etl")  # the query commits its offsets to this group, and follows when they are reset
    .load(log)
)
query = (
    stream.select("value")
    .writeStream.format("pyspark_log")
    .option("topic", "copies")
    .option("checkpointLocation", f"{folder}/checkpoint")
    .start(log)
)


def copies():
    return spark.read.format("pyspark_log").option("subscribe", "copies").load(log)


def wait_for(rows):
    while copies().count() < rows:
        assert query.isActive, query.exception()
        time.sleep(0.1)


wait_for(100)
command("groups", "reset-offsets", "etl", "--topic", "events", "--to-earliest", "--execute")
wait_for(200)
query.stop()

times = [row["count"] for row in copies().groupBy("value").count().collect()]
print(f"{len(times)} values, each {set(times)} times")
assert times == [2] * 100
