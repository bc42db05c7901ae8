"""A client of a Spark Connect server, on a machine without the packages: `python connect_client.py ADDRESS FOLDER`."""

import importlib.util
import json
import sys

from pyspark.sql import SparkSession

ROWS = 10


def main():
    address, folder = sys.argv[1:]
    log = f"{folder}/log"
    seen = {"has the packages": importlib.util.find_spec("pyspark_log") is not None}
    spark = SparkSession.builder.remote(address).getOrCreate()
    rows = spark.range(ROWS).selectExpr("CAST(id AS STRING) key", "CAST(id AS STRING) value")
    rows.write.format("pyspark_log").option("topic", "in").mode("append").save(log)

    def read(topic):
        found = spark.read.format("pyspark_log").option("subscribe", topic).load(log)
        return sorted(int(row.value) for row in found.selectExpr("CAST(value AS STRING)").collect())

    def stream():
        found = spark.readStream.format("pyspark_log").option("subscribe", "in").option("startingOffsets", "earliest")
        return found.load(log).select("key", "value")

    def end(writer, name):
        query = writer.option("checkpointLocation", f"{folder}/{name}").trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    seen["batch"] = read("in")
    query = end(stream().writeStream.format("pyspark_log").option("topic", "out").option("path", log), "stream")
    seen["stream"] = read("out")
    seen["progress"] = [progress["sources"][0]["numInputRows"] for progress in query.recentProgress]

    def write(batch, number):
        writer = batch.write.format("pyspark_log").mode("append").option("topic", "each")
        writer.option("txnAppId", "each").option("txnVersion", number).save(log)

    end(stream().writeStream.foreachBatch(write), "foreachBatch")
    seen["foreachBatch"] = read("each")
    spark.sql(f"CREATE TEMPORARY VIEW seen USING pyspark_log OPTIONS (path '{log}', subscribe 'in')")
    seen["SQL"] = spark.sql("SELECT count(*) FROM seen").first()[0]
    try:
        read("nowhere")
    except Exception as error:  # noqa: BLE001
        seen["error"] = [type(error).__name__, error.getCondition(), str(error).splitlines()[0]]
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
