"""A Python program, which needs neither Spark nor Java, writes rows; a Spark query reads them.

Optional argument: the folder of the log.
"""

import json
import subprocess
import sys
import tempfile

from pyspark.sql import SparkSession

import pyspark_log
from pyspark_log import Producer

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
log = f"{folder}/log"

# In a shell: pyspark-log topics create readings --path LOG. It creates the log, which a Producer does not.
create = ("topics", "create", "readings", "--if-not-exists", "--path", log)
subprocess.run([sys.executable, "-m", "pyspark_log.cli", *create], check=True)

with Producer(log) as producer:
    for number in range(1000):
        reading = {"sensor": f"s{number % 7}", "celsius": 20 + number % 5}
        producer.send("readings", json.dumps(reading), key=reading["sensor"])
# The block ends when all rows are in the log.

spark = pyspark_log.configure(SparkSession.builder).getOrCreate()
stream = spark.readStream.format("pyspark_log").option("subscribe", "readings").option("startingOffsets", "earliest")
readings = stream.load(log).selectExpr("from_json(CAST(value AS STRING), 'sensor STRING, celsius INT') AS reading")
averages = readings.groupBy("reading.sensor").avg("reading.celsius")
query = averages.writeStream.format("memory").queryName("averages").outputMode("complete")
query = query.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
query.awaitTermination()

found = {row.sensor: round(row[1], 1) for row in spark.table("averages").collect()}
print(found)
assert set(found) == {f"s{number}" for number in range(7)}
assert all(celsius == 22.0 for celsius in found.values()), found
