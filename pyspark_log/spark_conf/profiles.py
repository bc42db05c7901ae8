"""The profiles of Spark's settings: the files spark-defaults.conf in spark-conf/, and `configure`, which reads them."""

from __future__ import annotations

import os
import sys
import warnings
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_log.spark_conf import installation
from pyspark_log_storage.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILE = "spark-defaults.conf"
PROFILES = {name: f"{name}/{_FILE}" for name in ("delta", "local", "low-latency", "s3", "standalone")}
PROFILES["tests"] = _FILE
"""The file of each profile. That of `tests` is at the top, for SPARK_CONF_DIR."""


def settings(profile: str) -> dict[str, str]:
    """Return what a profile sets, without the examples, which are comments."""
    folder = resources.files(__package__) / "files"  # in a wheel, also in a zip of one
    if not folder.is_dir():
        folder = Path(__file__).parents[2] / "spark-conf"  # in a clone
    lines = (folder / PROFILES[profile]).read_text().splitlines()
    pairs = (line.split(None, 1) for line in lines if line and not line.startswith("#"))
    return {name: value.strip() for name, value in pairs}


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
        raise InvalidInput(f"there is no profile {profile!r}; choose one of {', '.join(PROFILES)}")
    if (named := installation.variable(os.environ)) is None:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    elif installation.lacks_package(os.environ[named]):
        warnings.warn(installation.hint(os.environ), installation.SourceNotFoundWarning, stacklevel=2)
    for name, value in settings(profile).items():
        builder = builder.config(name, value)
    return builder
