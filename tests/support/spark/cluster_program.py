"""The program that is submitted to a cluster: copies a topic with a stream whose second batch it holds up.

spark-submit ... cluster_program.py FOLDER      writes FOLDER/seen.json
"""

import json
import os
import sys
import time
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession

ROWS = 4_000
ROWS_PER_BATCH = 1_000
HELD_BATCH = 1
NOBODY = 65534


def hold_up(folder):
    """Return a function of Arrow batches that holds up the first attempt at a task, after its first batch of rows."""

    def copy(batches):
        context = TaskContext.get()
        number = int(context.getLocalProperty("streaming.sql.batchId"))
        held = number == HELD_BATCH and context.partitionId() == 0
        for nth, batch in enumerate(batches):
            if held and nth == 1 and context.attemptNumber() == 0:
                (folder / "held.part").write_text(str(os.getpid()))
                (folder / "held.part").rename(folder / "held")
                while not (folder / "go").exists():
                    time.sleep(0.01)
            yield batch
        done = {"batch": number, "task": context.partitionId(), "attempt": context.attemptNumber()}
        done |= {"session": os.getsid(0), "opened": [str(path) for path in journals(folder) if may_list(path)]}
        (folder / "tasks" / f"{number}-{context.partitionId()}-{context.attemptNumber()}").write_text(json.dumps(done))

    return copy


def journals(folder):
    log = folder / "log"
    return [log / "cluster", *sorted(log.glob("topics/*/*/journal"))]


def may_list(path):
    try:
        return bool(os.listdir(path))
    except PermissionError:
        return False


def leave_to_another_user(folder):
    """Leave the log to another user, with the rights of executors of docs/guides/clusters.md; this program has all."""
    log = folder / "log"
    written = [log / ".tmp", *(topic / "append" for topic in log.glob("topics/*/*"))]
    for path in (log, *log.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
        path.chmod(0o755 if path.is_dir() else 0o644)
    for path in written:
        path.chmod(0o777)
    for journal in journals(folder):
        for path in (journal, *(each for each in journal.rglob("*") if each.is_dir())):
            path.chmod(0o700)


def main():
    folder = Path(sys.argv[1])
    log = str(folder / "log")
    seen = {}
    (folder / "tasks").mkdir()
    spark = SparkSession.builder.getOrCreate()
    rows = spark.range(0, ROWS, numPartitions=4).selectExpr("CAST(id % 97 AS STRING) key", "CAST(id AS STRING) value")
    for topic, frame in {"in": rows, "out": rows.limit(0)}.items():
        writer = frame.write.format("pyspark_log").option("topic", topic).option("num.partitions", 2)
        writer.mode("append").save(log)
    if sys.argv[2:] == ["closed"]:
        leave_to_another_user(folder)
    stream = spark.readStream.format("pyspark_log").option("subscribe", "in").option("startingOffsets", "earliest")
    stream = stream.option("maxOffsetsPerTrigger", ROWS_PER_BATCH).load(log).select("key", "value")
    copied = stream.mapInArrow(hold_up(folder), stream.schema).writeStream.format("pyspark_log").option("topic", "out")
    copied = copied.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    query = copied.start(log)
    query.awaitTermination()
    seen["query"] = str(query.id)
    seen["batches"] = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    found = spark.read.format("pyspark_log").option("subscribe", "out").load(log)
    seen["rows"], seen["distinct"] = found.selectExpr("count(*)", "count(DISTINCT value)").first()
    (folder / "seen.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main()
