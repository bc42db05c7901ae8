"""Backfills numbers from Parquet files into a topic, for a test that kills it: arguments of `backfill`, as JSON."""

import json
import sys

from pyspark.sql import SparkSession

import pyspark_log

if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    frame = SparkSession.builder.getOrCreate().read.parquet(given.pop("files"))
    pyspark_log.backfill(frame, **given)
