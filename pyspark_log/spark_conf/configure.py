"""`configure`: a session with the settings of a profile, and with a Python that has the source."""

from __future__ import annotations

import os
import sys
import warnings
from typing import TYPE_CHECKING

from pyspark_log.spark_conf import source_python, spark_version
from pyspark_log.spark_conf.profiles import PROFILES
from pyspark_log_storage.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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

    spark_version.check(pyspark)
    if profile not in PROFILES:
        raise InvalidInput(f"there is no profile {profile!r}; choose one of {', '.join(sorted(PROFILES))}")
    if not source_python.is_chosen(os.environ):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    elif source_python.lacks_package(source_python.source_python(os.environ)):
        warnings.warn(source_python.hint(os.environ), source_python.SourceNotFoundWarning, stacklevel=2)
    for setting in PROFILES[profile].settings:
        if not setting.example:
            builder = builder.config(setting.name, setting.value)
    return builder
