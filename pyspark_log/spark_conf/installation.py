"""What must be installed: a Spark that is new enough, and this package in the Python in which Spark looks for sources.

Spark's JVM takes PYSPARK_DRIVER_PYTHON, or else PYSPARK_PYTHON, or else `python3` (PythonUtils.defaultPythonExec), on
the driver and in every executor. That is not the Python of the program that is running, unless the variables say so or
its venv is activated. Without the package there, Spark says only DATA_SOURCE_NOT_FOUND.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_log_storage.errors import InvalidInput, SourceNotFound

if TYPE_CHECKING:
    from types import ModuleType

    from pyspark.sql import SparkSession

_VARIABLES = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
_OLDEST = (4, 2)


def check_spark(spark: ModuleType) -> None:
    """Raise `InvalidInput` if the module `pyspark` is too old: its data sources lack what streams need."""
    version = str(spark.__version__)
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is not None and (int(found[1]), int(found[2])) < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise InvalidInput(f"pyspark_log needs Spark {oldest} or newer, and this is Spark {version}; upgrade Spark")


def missing_spark(name: str) -> str:
    """Return the error's message for a name of the package that needs Spark, in a Python without it."""
    return (
        f"pyspark_log.{name} needs Spark, and this Python has no pyspark; install it with: "
        "pip install 'pyspark>=4.2,<5', or use the Python of your Spark"
    )


class SourceNotFoundWarning(UserWarning):
    """Spark looks for data sources with a Python that lacks pyspark_log."""


def variable(environment: Mapping[str, str]) -> str | None:
    """Return the variable that names the Python in which Spark looks for data sources; None: it is `python3`."""
    return next((name for name in _VARIABLES if environment.get(name)), None)


def lacks_package(python: str) -> bool:
    """Return whether the Python cannot be started, or cannot import pyspark_log. Starts it if it is another one."""
    found = shutil.which(python)
    if found is None:
        return True
    if Path(found).absolute() == Path(sys.executable).absolute():  # unresolved: a venv links to another's Python
        return False
    # As Spark's own processes do, it also finds the package in the working folder.
    command = [found, "-c", "import pyspark_log.datasource"]
    done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 -- Spark starts this Python too
    return done.returncode != 0


def hint(environment: Mapping[str, str]) -> str:
    """Return what to do if Spark does not find the source."""
    named = variable(environment)
    python, why = "python3", "neither PYSPARK_DRIVER_PYTHON nor PYSPARK_PYTHON is set"
    if named is not None:
        python, why = environment[named], f"{named} names it"
    return (
        f"Spark looks for data sources with {python!r} ({why}), and pyspark_log cannot be imported there. Before the"
        f" session starts set PYSPARK_PYTHON={sys.executable}, or activate the venv, or call"
        " pyspark_log.configure(builder). If the package is shipped with --py-files, put its zip on the driver's"
        " PYTHONPATH too"
    )


def use_in_this_thread(spark: SparkSession) -> None:
    """Make a session the active one of this thread: without one a batch write finds no data source in Python."""
    spark.createDataFrame([], "unused INT")  # of Spark's public methods the one that does so


@contextmanager
def source_is_found() -> Iterator[None]:
    """Turn Spark's DATA_SOURCE_NOT_FOUND into `SourceNotFound`, which says what to do."""
    try:
        yield
    except Exception as error:  # Spark's own for it is a Java error that pyspark does not translate
        if "[DATA_SOURCE_NOT_FOUND]" not in str(error):
            raise
        raise SourceNotFound(hint(os.environ)) from None
