"""A topic is added to a running pipeline, another is removed, and the checkpoint of the query stays.

Each source has a name, by which Spark finds its offsets in the checkpoint. Optional argument: the folder of the log.
"""

import sys
import tempfile

from pyspark.sql import SparkSession

import pyspark_log

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
log = f"{folder}/log"
spark = pyspark_log.configure(SparkSession.builder).getOrCreate()
# Both are needed when the checkpoint is made, and later. The second is Spark 4.2's; 4.3 sees to it by itself.
spark.conf.set("spark.sql.streaming.queryEvolution.enableSourceEvolution", "true")
spark.conf.set("spark.sql.streaming.offsetLog.formatVersion", "2")


def write(topic, begin, end):
    rows = spark.range(begin, end).selectExpr("CAST(id AS STRING) key", f"'{topic} ' || id AS value")
    rows.write.format("pyspark_log").option("topic", topic).mode("append").save(log)


def source(topic):
    """Return a topic as a source with its name, and with options of its own."""
    reader = spark.readStream.format("pyspark_log").name(topic).option("subscribe", topic)
    return reader.option("startingOffsets", "earliest").load(log).select("key", "value")


def run(*topics):
    """Run the query with these topics until it has read what is there."""
    rows = source(topics[0])
    for topic in topics[1:]:
        rows = rows.union(source(topic))
    writer = rows.writeStream.format("pyspark_log").option("topic", "all")
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    writer.start(log).awaitTermination()


for topic in ("web", "app"):
    write(topic, 0, 3)
run("web", "app")
write("shop", 0, 3)
write("web", 3, 5)
write("app", 3, 4)
run("shop", "web")  # without `app`; `shop` is read from its beginning, and the order does not matter
write("web", 5, 6)
run("app", "web", "shop")  # `app` continues where it was

read = spark.read.format("pyspark_log").option("subscribe", "all").load(log)
found = sorted(row.value for row in read.selectExpr("CAST(value AS STRING)").collect())
print(found)
written = {"web": 6, "app": 4, "shop": 3}
assert found == sorted(f"{topic} {number}" for topic, count in written.items() for number in range(count)), found
for name in ("queryEvolution.enableSourceEvolution", "offsetLog.formatVersion"):
    spark.conf.unset(f"spark.sql.streaming.{name}")  # other queries of this session have no names
