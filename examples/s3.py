"""A topic in a bucket: `python examples/s3.py s3://BUCKET/FOLDER '{"profile": "prod"}'`.

The second argument has the credentials and settings, by s3fs's names; without it they are those that AWS's own tools
use, such as AWS_PROFILE. It needs `pip install s3fs`.
"""

import sys
import tempfile

from pyspark.sql import SparkSession

import pyspark_log

log = f"{sys.argv[1]}/log"
credentials = {"storage_options": sys.argv[2] if len(sys.argv) > 2 else "{}"}
spark = pyspark_log.configure(SparkSession.builder).getOrCreate()

with tempfile.TemporaryDirectory() as checkpoint:  # on a disk that outlives the program, or on S3 with the profile s3
    rows = spark.range(100).selectExpr("CAST(id AS STRING) key", "CAST(id AS STRING) value")
    writer = rows.write.format("pyspark_log").options(**credentials).option("num.partitions", 2)
    writer.option("topic", "events").mode("append").save(log)
    stream = spark.readStream.format("pyspark_log").options(**credentials).option("startingOffsets", "earliest")
    doubled = (
        stream.option("subscribe", "events")
        .load(log)
        .selectExpr("key", "CAST(2 * CAST(CAST(value AS STRING) AS INT) AS STRING) AS value")
    )
    query = doubled.writeStream.format("pyspark_log").options(**credentials).option("topic", "doubled")
    query.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(log).awaitTermination()

found = spark.read.format("pyspark_log").options(**credentials).option("subscribe", "doubled").load(log)
numbers = sorted(int(row.value) for row in found.selectExpr("CAST(value AS STRING)").collect())
print(f"{len(numbers)} rows in {log}")
assert numbers == list(range(0, 200, 2))
