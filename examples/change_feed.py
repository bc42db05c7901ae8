"""A change feed into a compacted topic, exactly once: its newest rows are the table that the changes are of.

The events are as Debezium writes them. The connector starts again and delivers some twice; the query is stopped in the
middle and started again. Optional argument: the folder of the log.
"""

import json
import random
import subprocess
import sys
import tempfile
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import pyspark_log

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
log = f"{folder}/log"
spark = pyspark_log.configure(SparkSession.builder).getOrCreate()

ENVELOPE = """
    op STRING, source STRUCT<lsn: BIGINT>,
    before STRUCT<id: BIGINT, name STRING, city STRING>, after STRUCT<id: BIGINT, name STRING, city STRING>
"""


def command(*arguments):
    """Run `pyspark-log`."""
    subprocess.run([sys.executable, "-m", "pyspark_log.cli", *arguments, "--path", log], check=True)


def deliver(events):
    """Write events to the topic that has the feed. After each delete Debezium sends a row without a value."""
    rows = []
    for event in events:
        key = str((event["after"] or event["before"])["id"])
        rows.append((key, json.dumps(event)))
        if event["op"] == "d":
            rows.append((key, None))
    frame = spark.createDataFrame(rows, "key STRING, value STRING")
    frame.write.format("pyspark_log").option("topic", "feed").option("num.partitions", 2).mode("append").save(log)


def start():
    """Start the query that makes columns of the events and writes them."""
    feed = spark.readStream.format("pyspark_log").option("subscribe", "feed").option("startingOffsets", "earliest")
    event = f.from_json(f.col("value").cast("string"), ENVELOPE)
    rows = (
        feed.option("maxOffsetsPerTrigger", 200)
        .load(log)
        .where("value IS NOT NULL")
        .select(event.alias("event"))
        .selectExpr(
            "coalesce(event.after.id, event.before.id) AS id",
            "event.after.name",
            "event.after.city",
            "event.source.lsn",
            "event.op = 'd' AS deleted",
        )
    )
    writer = rows.writeStream.format("pyspark_log").option("topic", "customers")
    return writer.option("checkpointLocation", f"{folder}/checkpoint").start(log)


def rows_of_the_topic():
    return spark.read.format("pyspark_log").option("subscribe", "customers").load(log).count()


def check_newest_rows():
    found = {row.id: (row.name, row.city) for row in pyspark_log.latest(spark, log, "customers").collect()}
    assert found == {number: (row["name"], row["city"]) for number, row in table.items()}, found


# A table, and the changes of it: each has a number in the log of its database.
chance = random.Random(27)
table, events = {}, []
for lsn in range(1, 501):
    number = chance.randrange(60)
    before, after = table.pop(number, None), None
    if before is None or chance.random() < 0.7:
        after = table[number] = {
            "id": number,
            "name": f"customer {number}",
            "city": chance.choice(["Graz", "Linz", "Lyon"]),
        }
    op = "d" if after is None else "c" if before is None else "u"
    events.append({"op": op, "source": {"lsn": lsn}, "before": before, "after": after})
delivered = events[:400] + events[300:]  # from where it had confirmed

settings = {
    "cleanup.policy": "compact",
    "key.column": "id",
    "delete.when": "deleted",
}
columns = "id BIGINT NOT NULL, name STRING, city STRING, lsn BIGINT NOT NULL, deleted BOOLEAN"
configs = [part for name, value in settings.items() for part in ("--config", f"{name}={value}")]
command("topics", "create", "customers", "--partitions", "2", "--schema", columns, *configs)

deliver(delivered[:400])
query = start()
while rows_of_the_topic() < 100:
    assert query.isActive, query.exception()
    time.sleep(0.1)
query.stop()  # in the middle: of a micro-batch, or of the feed
deliver(delivered[400:])
query = start()
query.processAllAvailable()
print(f"{len(events)} changes, {len(delivered)} events, {rows_of_the_topic()} rows, {len(table)} customers")
assert rows_of_the_topic() == len(delivered), "each event is there once"
check_newest_rows()

command("maintain", "--now")
compacted = rows_of_the_topic()
print(f"{compacted} rows after compaction")
assert compacted == len({(event["after"] or event["before"])["id"] for event in events}), "one row of each key"
check_newest_rows()

query.stop()
