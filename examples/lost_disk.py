"""Three disks, of which one is lost while a query writes: the query continues, and no row is lost.

Optional argument: the folder of the disks.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

import pyspark_log

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
disks = [f"{folder}/disk-{name}/log" for name in "abc"]
address = ",".join(disks)
spark = pyspark_log.configure(SparkSession.builder).getOrCreate()


def command(*arguments):
    """Run `pyspark-log`."""
    subprocess.run([sys.executable, "-m", "pyspark_log.cli", *arguments], check=True)


# The journals, too, are on all three. A row is acknowledged when at least two disks have it.
command("cluster", "create", "--journal-nodes", address)
two_copies = ["--replication-factor", "3", "--config", "min.insync.replicas=2"]
command("topics", "create", "sensors", "--partitions", "3", *two_copies, "--path", address)

rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
query = (
    rows.selectExpr("CAST(value % 10 AS STRING) key", "CAST(value AS STRING) value")
    .writeStream.format("pyspark_log")
    .option("topic", "sensors")
    .option("checkpointLocation", f"{folder}/checkpoint")
    .start(address)
)


def sensors():
    return spark.read.format("pyspark_log").option("subscribe", "sensors").load(address)


def wait_for(count):
    while sensors().count() < count:
        assert query.isActive, query.exception()
        time.sleep(0.1)


wait_for(300)
Path(f"{folder}/disk-b").rename(f"{folder}/lost")
wait_for(sensors().count() + 300)
query.stop()

numbers = sorted(int(row.value) for row in sensors().selectExpr("CAST(value AS STRING)").collect())
print(f"{len(numbers)} rows, with a disk lost in the middle")
assert numbers == list(range(len(numbers)))
