"""A whole pipeline: orders become sums that a program serves, with a bug, a rewind and a lost disk on the way.

docs/guides/pipeline.md walks through it. Optional arguments: the folder of the disks, and `delta` if the session has
Delta's jars: then all orders are archived, too.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import coalesce, col, concat_ws, from_json, lit, when, window
from pyspark.sql.functions import sum as total

import pyspark_log
from pyspark_log import Consumer, Producer

folder, *profile = sys.argv[1:] or [tempfile.mkdtemp()]
log = ",".join(f"{folder}/disk-{name}/log" for name in "abc")
builder = pyspark_log.configure(SparkSession.builder)
spark = (pyspark_log.configure(builder, "delta") if profile else builder).getOrCreate()

SHOPS = {"Graz": "at", "Linz": "at", "Lyon": "fr"}
MINUTE = 60_000
began = int(time.time() * 1000) // MINUTE * MINUTE - 20 * MINUTE


def command(*arguments):
    """Run `pyspark-log`, and show what it prints."""
    print("$ pyspark-log", *arguments, flush=True)
    subprocess.run([sys.executable, "-m", "pyspark_log.cli", *arguments, "--path", log], check=True)


def orders(count):
    """Return orders, one a second, and in each hundred one that is no JSON."""
    for n in range(count):
        order = {"shop": list(SHOPS)[n % 3], "price": 5 + n % 7, "pieces": 1 + n % 2}
        yield n, "?" if n % 100 == 99 else json.dumps(order), began + n * 1000


# 1. Three disks. A row is acknowledged when two of them have it.
subprocess.run([sys.executable, "-m", "pyspark_log.cli", "cluster", "create", "--journal-nodes", log], check=True)
for topic, *settings in (
    ("shops", "cleanup.policy=compact"),
    ("orders",),
    ("sales",),
    ("rejected",),
    ("sums", "cleanup.policy=compact"),
):
    words = [word for each in ("min.insync.replicas=2", *settings) for word in ("--config", each)]
    command("topics", "create", topic, "--partitions", "3", *words)

# 2. A program sends what happens. It needs no Spark.
with Producer(log) as producer:
    for shop, country in SHOPS.items():
        producer.send("shops", country, key=shop)
    for n, order, at in orders(900):
        producer.send("orders", order, key=f"order {n}", timestamp_ms=at)


def enrich(amount, sales):
    """Add each order's country, and write it to the topic `sales`, or to `rejected`: each exactly once."""
    shops = pyspark_log.latest(spark, log, "shops")
    shops = shops.selectExpr("CAST(key AS STRING) shop", "CAST(value AS STRING) country")
    rows = spark.readStream.format("pyspark_log").option("subscribe", "orders").option("group.id", "enrich")
    order = from_json(col("value").cast("string"), "shop STRING, price INT, pieces INT", {"mode": "PERMISSIVE"})
    parsed = rows.option("startingOffsets", "earliest").load(log).withColumn("order", order)
    joined = parsed.join(shops, col("order.shop") == shops.shop, "left")
    written = joined.select(
        when(col("country").isNull(), "rejected").otherwise(sales).alias("topic"),
        coalesce("country", lit("?")).alias("key"),
        when(col("country").isNull(), col("value")).otherwise(amount.cast("string")).alias("value"),
        "timestamp",
    )
    run(written.writeStream.option("checkpointLocation", f"{folder}/checkpoints/enrich"))


def add_up(sales):
    """Add up the sales of each country and minute, and write a sum when its minute is over."""
    rows = spark.readStream.format("pyspark_log").option("subscribe", sales).option("startingOffsets", "earliest")
    sums = (
        rows.load(log)
        .withWatermark("timestamp", "1 minute")
        .groupBy(window("timestamp", "1 minute"), col("key").cast("string").alias("country"))
        .agg(total(col("value").cast("string").cast("long")).alias("amount"))
        .select(
            concat_ws(" ", col("window.start").cast("long"), "country").alias("key"),
            col("amount").cast("string").alias("value"),
        )
    )
    run(sums.writeStream.option("topic", "sums").option("checkpointLocation", f"{folder}/checkpoints/{sales}"))


def run(stream):
    """Process all rows that have been written."""
    stream.format("pyspark_log").trigger(availableNow=True).start(log).awaitTermination()


def serve():
    """Read the sums that are new, as a member of a group, and return them by minute and country."""
    with Consumer(log, group_id="serve", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["sums"])
        while not consumer.caught_up():
            for record in consumer.poll(timeout_ms=1000):
                served[record.key.decode()] = int(record.value)
        consumer.commit()


# 3. Two jobs and a program that serves their result. The first job has a bug: it forgets the pieces.
served: dict[str, int] = {}
enrich(col("order.price"), "sales")
add_up("sales")
serve()
print(f"{len(served)} sums, {sum(served.values())} in all")

# 4. A disk is lost and replaced by an empty one. Everything goes on meanwhile.
shutil.rmtree(f"{folder}/disk-b")
with Producer(log) as producer:
    producer.send("orders", json.dumps({"shop": "Lyon", "price": 1, "pieces": 1}), timestamp_ms=began + 1200 * 1000)
command("topics", "describe", "orders", "--under-replicated-partitions")
Path(f"{folder}/disk-b/log").mkdir(parents=True)
command("nodes", "renew", "1", "--yes")
command("node", "run", "1", "--once")
command("cluster", "migrate-journals", "--to", "0,1,2")
command("nodes", "list")

# 5. The bug is found. The corrected job goes back to the first order, and its sums replace the wrong ones.
command("topics", "create", "sales-2", "--partitions", "3")
command("groups", "reset-offsets", "enrich", "--topic", "orders", "--to-earliest", "--execute")
enrich(col("order.price") * col("order.pieces"), "sales-2")
add_up("sales-2")
serve()
print(f"{len(served)} sums, {sum(served.values())} in all")

expected: Counter[str] = Counter()
for _, order, at in orders(900):
    if order != "?":
        each = json.loads(order)
        expected[f"{at // MINUTE * 60} {SHOPS[each['shop']]}"] += each["price"] * each["pieces"]
assert served == expected, (served, expected)

# 6. All orders are kept for good in a Delta table, and those of the last minute are deleted from the log later on.
if profile:
    table = f"{folder}/archive"
    pyspark_log.archive(spark, log, "orders", table, local_retention=timedelta(minutes=1))
    command("offsets", "orders")
    everything = pyspark_log.read(spark, log, "orders", archive=table)
    print(f"{everything.count()} orders, in the table and in the log")
    assert everything.count() == 901
