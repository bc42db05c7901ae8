"""A client of a Spark Connect server that has the packages: `python connect_history.py ADDRESS FOLDER`."""

import json
import sys

from pyspark.sql import SparkSession

import pyspark_log

ROWS = 10


def main():
    address, folder = sys.argv[1:]
    log = f"{folder}/log"
    spark = SparkSession.builder.remote(address).getOrCreate()

    def write(topic, *columns, **options):
        frame = spark.range(ROWS).selectExpr(*columns).write.format("pyspark_log").mode("append")
        frame.options(topic=topic, **options).save(log)

    write("typed", "CAST(id AS INT) AS id", schema="columns")
    write("typed", f"id + {ROWS} AS id", "'x' AS name", schema="columns", mergeSchema="true")
    write("records", "CAST(id AS STRING) AS value")
    seen = {}
    for name, frame in {
        "typed": pyspark_log.read(spark, log, "typed"),
        "part": pyspark_log.read(spark, log, "typed", {0: 5}, {0: 15}),
        "before": pyspark_log.read(spark, log, "typed", partitions=[0]).where("name IS NULL"),
        "records": pyspark_log.read(spark, log, "records").selectExpr(
            "*", "CAST(CAST(value AS STRING) AS BIGINT) AS id"
        ),
    }.items():
        seen[name] = {"columns": frame.columns, "ids": sorted(row.id for row in frame.collect())}
    calls = {
        "archive": lambda: pyspark_log.archive(spark, log, "typed", f"{folder}/table"),
        "read with an archive": lambda: pyspark_log.read(spark, log, "typed", archive=f"{folder}/table"),
        "latest": lambda: pyspark_log.latest(spark, log, "typed"),
        "backfill": lambda: pyspark_log.backfill(
            spark.range(1), log, "typed", backfill_id="b", checkpoint=f"{folder}/b", order_by="id"
        ),
    }
    for name, call in calls.items():
        try:
            call()
        except Exception as error:  # noqa: BLE001
            seen[name] = [type(error).__name__, str(error)]
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
