"""Avro values: a Python program and Spark write them, and Spark reads them as columns.

It needs the jar of Spark's Avro functions: `spark-submit --packages org.apache.spark:spark-avro_2.13:4.2.0`. Optional
argument: the folder of the log.
"""

import sys
import tempfile

from pyspark.sql import SparkSession
from pyspark.sql.avro.functions import from_avro, to_avro
from pyspark.sql.functions import struct

import pyspark_log

READING = """{
    "type": "record", "name": "Reading",
    "fields": [{"name": "sensor", "type": "string"}, {"name": "celsius", "type": "double"}]
}"""
NEWER = """{
    "type": "record", "name": "Reading",
    "fields": [
        {"name": "sensor", "type": "string"},
        {"name": "celsius", "type": "double"},
        {"name": "place", "type": "string", "default": "unknown"}
    ]
}"""

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
log = f"{folder}/log"
spark = pyspark_log.configure(SparkSession.builder).getOrCreate()

readings = spark.createDataFrame([("roof", -3.5), ("cellar", 11.0)], "sensor STRING NOT NULL, celsius DOUBLE NOT NULL")
values = readings.select(readings.sensor.alias("key"), to_avro(struct("sensor", "celsius"), READING).alias("value"))
values.write.format("pyspark_log").option("topic", "readings").mode("append").save(log)

# A stream reads them with a newer schema (`avroSchema`), whose further field has a default. A value that is no Avro
# becomes null instead of failing the query.
with pyspark_log.Producer(log) as producer:
    producer.send("readings", b"no Avro")
    producer.send("readings", bytes([len("attic") << 1]) + b"attic" + bytes(8))  # 0.0
rows = spark.readStream.format("pyspark_log").option("subscribe", "readings").option("startingOffsets", "earliest")
reading = from_avro("value", READING, {"mode": "PERMISSIVE", "avroSchema": NEWER})
found = {}
query = (
    rows.load(log)
    .select(reading.alias("reading"))
    .select("reading.*")
    .writeStream.foreachBatch(lambda batch, _: found.update((row.sensor, row) for row in batch.collect()))
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)
)
query.start().awaitTermination()
print(found)
assert {sensor: (row.celsius, row.place) for sensor, row in found.items()} == {
    "roof": (-3.5, "unknown"),
    "cellar": (11.0, "unknown"),
    "attic": (0.0, "unknown"),
    None: (None, None),
}
