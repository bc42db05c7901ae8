"""An archive of the classes that a JVM loads for Spark (class data sharing): drivers start with a third less work.

    python -m tests.support.class_archive      makes it, in the venv

A JVM takes an archive only if its class path is what it was, and contains no folder with files. So the tests have a
Spark home of their own in the venv, without a `conf`: the properties and the log settings are named one by one. A JVM
that cannot use the archive starts without it.
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOME = Path(sys.prefix) / "spark-home"
ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
CONF = ROOT / "spark-conf"
# The client compiler and the serial collector start sooner; most JVMs here live for seconds.
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
LOGGING = f"-Dlog4j2.configurationFile={(CONF / 'log4j2.properties').as_uri()}"
TOO_BUSY = "Python worker failed to connect back"
"""Spark gives its Python processes ten seconds to start, which a busy machine may not do. The test runs again then."""

DRIVER = """
import sys
from pyspark.sql import SparkSession

folder = sys.argv[1]
spark = SparkSession.builder.getOrCreate()
rows = spark.range(0, 300, numPartitions=1).selectExpr("cast(id % 17 as string) key", "cast(id as string) value")
rows.write.format("pyspark_log").mode("append").option("topic", "in").option("num.partitions", 4).save(folder)
assert spark.read.format("pyspark_log").option("subscribe", "in").load(folder).groupBy("key").count().count() == 17
stream = spark.readStream.format("pyspark_log").option("subscribe", "in").option("startingOffsets", "earliest")
stream = stream.option("maxOffsetsPerTrigger", 100).load(folder).selectExpr("key", "value")
query = stream.writeStream.format("pyspark_log").option("topic", "out").option("checkpointLocation", f"{folder}/c")
query.trigger(availableNow=True).start(folder).awaitTermination()
jvm = spark.sparkContext._gateway.proc
spark.stop()
jvm.stdin.close()
jvm.wait()
"""


def environment() -> dict[str, str]:
    """Return the variables with which drivers start, whether there is an archive or not."""
    return {
        "SPARK_HOME": str(HOME),
        "SPARK_CONF_DIR": str(HOME / "conf"),
        "SPARK_SUBMIT_OPTS": f"{jvm_options()} {LOGGING}",
        "SPARK_LAUNCHER_OPTS": QUICK_START,
        "PYSPARK_SUBMIT_ARGS": f"--properties-file {CONF / 'spark-defaults.conf'} pyspark-shell",
    }


def jvm_options() -> str:
    """Return the options with which a JVM of Spark's starts sooner, whatever it is for."""
    options = f"{QUICK_START} -Xlog:disable -Xlog:all=error:stderr"
    return f"{options} -XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.exists() else options


def make_home() -> None:
    """Make the Spark home. It has no pyspark.zip: each Python worker would compile what it imports from there."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    HOME.mkdir(exist_ok=True)
    for part in ("bin", "jars"):
        if not (HOME / part).exists():
            temporary = HOME / f"{part}.{os.getpid()}"
            temporary.symlink_to(Path(found.origin).parent / part)
            temporary.replace(HOME / part)


def make_archive() -> None:
    """Make the archive, from the classes that a small query needs."""
    make_home()
    ARCHIVE.unlink(missing_ok=True)
    temporary = ARCHIVE.with_suffix(f".{os.getpid()}")
    variables = environment()
    variables["SPARK_SUBMIT_OPTS"] += f" -XX:ArchiveClassesAtExit={temporary}"
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", DRIVER, folder], env={**os.environ, **variables}, cwd=ROOT, check=True)
    temporary.replace(ARCHIVE)


if __name__ == "__main__":
    make_archive()
