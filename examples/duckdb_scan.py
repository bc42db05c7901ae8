"""DuckDB queries a topic with its newest rows, and follows it: each query reads on where the one before ended.

    python examples/duckdb_scan.py /tmp/visits

There is no Spark in it. DuckDB is installed with `pip install duckdb`.
"""

import sys

import duckdb

from pyspark_log import Producer, scan
from pyspark_log.cli.main import app

QUERY = """
    SELECT decode(key) AS page, count(*) AS visits, max("offset") AS newest
    FROM visits GROUP BY ALL ORDER BY page
"""


def write(path, numbers):
    with Producer(path) as producer:
        for number in numbers:
            producer.send("visits", b"visit %d" % number, key=b"/page%d" % (number % 2))


def main(path):
    app(["topics", "create", "visits", "--partitions", "1", "--path", path], standalone_mode=False)
    write(path, range(1000))
    visits = scan(path, "visits", columns=["key", "offset"])
    with duckdb.connect() as connection:  # it finds the variable by its name
        print(connection.sql(QUERY))

        write(path, range(1000, 1010))
        visits = scan(path, "visits", start={0: visits.num_rows}, columns=["key", "offset"])
        print(connection.sql(QUERY))
        assert connection.sql(QUERY).fetchall() == [("/page0", 5, 1008), ("/page1", 5, 1009)]


if __name__ == "__main__":
    main(sys.argv[1])
