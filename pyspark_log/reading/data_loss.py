"""Reports of rows that a query can no longer read: an error, or a warning if failOnDataLoss=false."""

from __future__ import annotations

import functools

from pyspark_log_storage import logs
from pyspark_log_storage.errors import DataLoss


def report_loss(what: str, *, fail: bool) -> None:
    """Raise `DataLoss`, or log a warning if `fail` is false."""
    if fail:
        raise DataLoss(
            f"{what}, so rows that this query has not read may be lost; set failOnDataLoss=false to continue with the "
            "rest"
        )
    warn_of_loss(what)


@functools.lru_cache(maxsize=1024)
def warn_of_loss(what: str) -> None:
    """Log a loss once: an idle query meets it many times a second."""
    logs.warning("%(what)s; continuing with the rest (failOnDataLoss=false)", what=what)
