"""Two queries share the partitions of a topic, as the consumers of a group do: each row is processed by one of them.

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


def write(begin, end):
    jobs = spark.range(begin, end).selectExpr("CAST(id AS STRING) key", "CAST(id AS STRING) value")
    jobs.write.format("pyspark_log").option("topic", "jobs").option("num.partitions", 4).mode("append").save(log)


def start(name):
    """Start a query of the group. Each has a name, and a checkpoint of its own."""
    jobs = (
        spark.readStream.format("pyspark_log")
        .option("subscribe", "jobs")
        .option("startingOffsets", "earliest")
        .option("group.id", "workers")
        .option("group.protocol", "cooperative")
        .option("group.instance.id", name)
        .load(log)
    )
    done = jobs.selectExpr(f"'{name}' AS key", "value").writeStream.format("pyspark_log").option("topic", "done")
    return done.option("checkpointLocation", f"{folder}/checkpoints/{name}").start(log)


def workers():
    """Return which jobs each query has done."""
    done = spark.read.format("pyspark_log").option("subscribe", "done").load(log)
    found = {}
    for row in done.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)").collect():
        found.setdefault(row.key, []).append(int(row.value))
    return found


command("topics", "create", "done")
write(0, 100)
queries = [start("worker-1"), start("worker-2")]
jobs = 100
# A query that was alone had all partitions. It gives two of them up between micro-batches; new jobs show it.
while len(workers()) < len(queries):
    assert all(query.isActive for query in queries)
    write(jobs, jobs + 100)
    jobs += 100
    time.sleep(0.5)
while sum(map(len, workers().values())) < jobs:
    assert all(query.isActive for query in queries)
    time.sleep(0.1)
for query in queries:
    query.stop()

print({name: len(done) for name, done in workers().items()})
assert sorted(number for done in workers().values() for number in done) == list(range(jobs))
