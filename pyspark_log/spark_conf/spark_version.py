"""Which Spark is needed, and the error of one that is missing or too old."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark_log_storage.errors import InvalidInput

if TYPE_CHECKING:
    from types import ModuleType

OLDEST = (4, 2)


def check(spark: ModuleType) -> None:
    """Raise `InvalidInput` if the module `pyspark` is too old: its data sources lack what streams need."""
    version = str(spark.__version__)
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is not None and (int(found[1]), int(found[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise InvalidInput(f"pyspark_log needs Spark {oldest} or newer, and this is Spark {version}; upgrade Spark")


def missing(name: str) -> str:
    """Return the error's message for a name of the package that needs Spark, in a Python without it."""
    return (
        f"pyspark_log.{name} needs Spark, and this Python has no pyspark; install it with: "
        "pip install 'pyspark-log[spark]', or use the Python of your Spark"
    )
