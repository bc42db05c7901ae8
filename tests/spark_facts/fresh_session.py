"""A session of its own, run as a script: discovery by name, tasks that may be tried twice, and Spark's default sockets.

Usage: fresh_session.py FOLDER. What it has seen goes to `seen.json` in the folder. Its workers have only the
PYTHONPATH it was given, on which this repository need not be.
"""

import json
import sys
from pathlib import Path


def main(folder: Path) -> None:
    """See what there is to see."""
    from pyspark import cloudpickle
    from pyspark.sql import SparkSession

    from tests.spark_facts import probe_source
    from tests.spark_facts.bench import Bench

    builder = SparkSession.builder.master("local[2,2]")
    spark = builder.config("spark.python.unix.domain.socket.enabled", "false").getOrCreate()
    found = [row.word for row in spark.read.format("lazy_probe").load().collect()]

    cloudpickle.register_pickle_by_value(probe_source)  # type: ignore[no-untyped-call]
    spark.dataSource.register(probe_source.Probe)
    bench = Bench(spark, folder)
    bench.save(spark.range(0, 5, 1, 2), failsIn="write (0, 0)")
    [commit] = bench.calls("sink commit")
    over_tcp = {call["call"]: call["over_tcp"] for call in bench.calls()}
    seen = {"found": found, "writes": bench.calls("write"), "messages": commit["messages"], "over_tcp": over_tcp}
    (folder / "seen.json").write_text(json.dumps(seen))
    spark.stop()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    main(Path(sys.argv[1]))
