"""Polars reads a topic with its newest rows: those in Parquet files, and those that were written a moment ago.

    python examples/polars_scan.py /tmp/readings

There is no Spark in it. Polars is installed with `pip install polars`.
"""

import sys

import polars as pl
import pyarrow as pa

from pyspark_log import Producer, scan
from pyspark_log.cli.main import app

COLUMNS = "sensor STRING, celsius DOUBLE"


def write(path, numbers):
    sensors = [f"s{number % 3}" for number in numbers]
    with Producer(path) as producer:
        rows = pa.record_batch({"sensor": sensors, "celsius": [20.0 + number % 3 for number in numbers]})
        producer.send_batch("readings", rows)


def averages(readings):
    frame = pl.DataFrame(readings)
    return frame.group_by("sensor").agg(pl.len().alias("rows"), pl.mean("celsius").round(1)).sort("sensor")


def main(path):
    create = ["topics", "create", "readings", "--schema", COLUMNS, "--config", "segment.format=parquet", "--path", path]
    app(create, standalone_mode=False)
    write(path, range(9000))
    app(["maintain", "readings", "--now", "--path", path], standalone_mode=False)  # they are in Parquet files now
    write(path, range(9000, 9900))

    readings = scan(path, "readings", columns=["sensor", "celsius"])
    print(averages(readings))

    # The rows of a scan are fixed when it is made, also if it is read again.
    write(path, range(9900, 10_000))
    assert pl.DataFrame(readings).height == readings.num_rows == 9900
    assert pl.DataFrame(scan(path, "readings")).height == 10_000


if __name__ == "__main__":
    main(sys.argv[1])
