"""The profiles of Spark's settings: `configure` and the files in spark-conf/ come from them.

The gains in ms are medians of micro-batches of 10 rows on a machine with nothing else to do, Spark 4.2, two cores.
`python -m benchmarks.spark_settings` measures them on another machine, and what shuffle partitions cost (Spark 4.3).
It does not run the profiles `s3` and `delta`: their own lines make something possible or safe. Requests were counted
by hand: docs/guides/s3-checkpoints.md.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import TYPE_CHECKING

import msgspec

from pyspark_log.spark_conf import installation
from pyspark_log_storage.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkSetting(msgspec.Struct, frozen=True, kw_only=True):
    """A line of spark-defaults.conf."""

    name: str
    value: str
    why: str
    """What the line is for, and what it gained if that was measured: full sentences."""
    example: bool = False
    """The value is an example that each installation replaces: commented out in the file, not set by `configure`."""


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """A file spark-defaults.conf."""

    name: str
    about: str
    """A fragment for the file's first line: where it is for."""
    settings: tuple[SparkSetting, ...]


_FASTER_WORKERS = SparkSetting(
    name="spark.python.unix.domain.socket.enabled",
    value="true",
    why="Talk to Python workers over Unix sockets instead of TCP: about 40 ms less for each micro-batch.",
)
_FASTER_CHECKPOINT = SparkSetting(
    name="spark.sql.streaming.checkpointFileManagerClass",
    value="org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
    why=(
        "Write checkpoints without Hadoop's forked shell commands: about 40 ms less for each micro-batch. For"
        " checkpoints on a local disk only: leave it out if a checkpoint is on HDFS or in an object store."
    ),
)
_TIME_ZONE = SparkSetting(
    name="spark.sql.session.timeZone",
    value="UTC",
    why="Timestamps reach Python in the session's time zone: the same on every machine.",
)
_FEW_SHUFFLE_PARTITIONS = SparkSetting(
    name="spark.sql.shuffle.partitions",
    value="2",
    why=(
        "200 by default, and in a query that aggregates each of them is a task with state files of its own: on two"
        " cores its micro-batches took nine times as long. A checkpoint keeps the number with which it began."
    ),
)
_UNION_IN_ONE_STAGE = SparkSetting(
    name="spark.sql.codegen.wholeStage.union.enabled",
    value="true",
    why=(
        "On by default in Spark 4.3, off in 4.2. If it is off, reading the log as a table copies each row once more:"
        " 5.6 instead of 8.9 million rows/s (docs/benchmarks.md)."
    ),
)
_LOOPBACK = SparkSetting(
    name="spark.driver.host",
    value="127.0.0.1",
    why="No name to look up, so this works on a machine whose own name does not resolve.",
)
_QUIET = SparkSetting(
    name="spark.ui.showConsoleProgress",
    value="false",
    why="No progress bar among the lines that the program prints.",
)

TESTS = Profile(
    name="tests",
    about="what the tests, the demo and the benchmarks of pyspark_log run with, by SPARK_CONF_DIR",
    settings=(
        SparkSetting(name="spark.master", value="local[2]", why="Two task threads in this process."),
        _LOOPBACK,
        SparkSetting(
            name="spark.ui.enabled",
            value="false",
            why="No web server: several drivers run at once.",
        ),
        _QUIET,
        _FEW_SHUFFLE_PARTITIONS,
        _TIME_ZONE,
        _UNION_IN_ONE_STAGE,
        _FASTER_WORKERS,
        _FASTER_CHECKPOINT,
    ),
)
LOCAL = Profile(
    name="local",
    about="one process on one machine, with checkpoints on its disk",
    settings=(
        _LOOPBACK,
        _QUIET,
        _FEW_SHUFFLE_PARTITIONS,
        _TIME_ZONE,
        _UNION_IN_ONE_STAGE,
        _FASTER_WORKERS,
        _FASTER_CHECKPOINT,
    ),
)
LOW_LATENCY = Profile(
    name="low-latency",
    about="the shortest micro-batches, with checkpoints on a local disk; add it to another profile",
    settings=(
        _FASTER_WORKERS,
        _FASTER_CHECKPOINT,
        _FEW_SHUFFLE_PARTITIONS,
    ),
)
STANDALONE = Profile(
    name="standalone",
    about="a standalone cluster whose machines mount the log and the checkpoints under the same paths",
    settings=(
        SparkSetting(
            name="spark.master",
            value="spark://master:7077",
            why="The cluster's address.",
            example=True,
        ),
        SparkSetting(
            name="spark.submit.pyFiles",
            value="/opt/packages.zip",
            why=(
                "Ships the three packages to the executors if they are not installed there. The driver finds them by"
                " PYTHONPATH: docs/guides/clusters.md."
            ),
            example=True,
        ),
        _TIME_ZONE,
        _UNION_IN_ONE_STAGE,
        _FASTER_WORKERS,
        SparkSetting(
            name="spark.sql.shuffle.partitions",
            value="16",
            why=(
                "Two to three for each core of the cluster, instead of 200. A checkpoint keeps the number with which it"
                " began. Not measured on a cluster."
            ),
            example=True,
        ),
    ),
)
S3 = Profile(
    name="s3",
    about="checkpoints on S3, through Hadoop's s3a; add it to another profile",
    settings=(
        SparkSetting(
            name="spark.jars.packages",
            value="org.apache.spark:spark-hadoop-cloud_2.13:4.3.0",
            why=(
                "Hadoop's S3 client, in Spark's own version. For checkpoints, and for reads with nativeS3=true"
                " (docs/guides/fast-reads.md); the log itself does not use it."
            ),
            example=True,
        ),
        SparkSetting(
            name="spark.sql.streaming.checkpointFileManagerClass",
            value="org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager",
            why=(
                "Writes a checkpoint's file with one upload that can be aborted. Spark's default renames each file,"
                " which S3 does by copying it, and not atomically. A micro-batch makes 25 requests for its checkpoint"
                " instead of 51 (docs/guides/s3-checkpoints.md)."
            ),
        ),
        _TIME_ZONE,
        _FASTER_WORKERS,
    ),
)
DELTA = Profile(
    name="delta",
    about="Delta tables, for a change feed or an archive; add it to another profile",
    settings=(
        SparkSetting(
            name="spark.jars.packages",
            value="io.delta:delta-spark_4.2_2.13:4.4.0",
            why="Delta Lake for Spark 4.2.",
            example=True,
        ),
        SparkSetting(
            name="spark.sql.extensions",
            value="io.delta.sql.DeltaSparkSessionExtension",
            why="Delta's SQL: MERGE, DELETE, UPDATE, VACUUM.",
        ),
        SparkSetting(
            name="spark.sql.catalog.spark_catalog",
            value="org.apache.spark.sql.delta.catalog.DeltaCatalog",
            why="Delta tables by name.",
        ),
        _UNION_IN_ONE_STAGE,
    ),
)
PROFILES: dict[str, Profile] = {profile.name: profile for profile in (LOCAL, STANDALONE, S3, DELTA, LOW_LATENCY, TESTS)}


def configure(builder: SparkSession.Builder, profile: str = "local") -> SparkSession.Builder:
    """Set a profile's settings on the builder of a session, and return the builder.

        spark = pyspark_log.configure(SparkSession.builder).getOrCreate()
        spark = pyspark_log.configure(SparkSession.builder.master("spark://m:7077"), "standalone").getOrCreate()

    The profiles are local (the default), standalone, s3, delta, low-latency and tests; spark-conf/ says what each line
    is for. Call this again to add another profile, and `builder.config` afterwards to change a setting. What
    depends on the installation, such as a cluster's address, is an example in the files and is not set here.

    If neither PYSPARK_DRIVER_PYTHON nor PYSPARK_PYTHON is set, PYSPARK_PYTHON becomes the Python of this program: it is
    where Spark looks for data sources. If they name a Python without pyspark_log, `SourceNotFoundWarning` says so. Call
    this before the first session of the process, because the JVM takes variables and most settings when it starts.

    Raises `InvalidInput` for a profile that does not exist, and for a Spark that is too old.
    """
    import pyspark  # the caller has imported it: it made the builder

    installation.check_spark(pyspark)
    if profile not in PROFILES:
        raise InvalidInput(f"there is no profile {profile!r}; choose one of {', '.join(sorted(PROFILES))}")
    if not installation.is_chosen(os.environ):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    elif installation.lacks_package(installation.source_python(os.environ)):
        warnings.warn(installation.hint(os.environ), installation.SourceNotFoundWarning, stacklevel=2)
    for setting in PROFILES[profile].settings:
        if not setting.example:
            builder = builder.config(setting.name, setting.value)
    return builder
