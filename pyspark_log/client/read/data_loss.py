"""Reports rows that a read can no longer find: an error, or one warning if failOnDataLoss=false."""

from __future__ import annotations

import functools
import logging

from pyspark_log_storage.errors import DataLoss

_logger = logging.getLogger("pyspark_log")


def report_loss(what: str, *, fail: bool) -> None:
    """Raise `DataLoss`, or log a warning where the query said that it can do without the rows."""
    if fail:
        raise DataLoss(
            f"{what}, so rows that this query has not read may be lost; set failOnDataLoss=false to go on with the rest"
        )
    warn_of_loss(what)


@functools.lru_cache(maxsize=1024)
def warn_of_loss(what: str) -> None:
    """Log what was lost: an idle query finds it again many times a second."""
    _logger.warning("%s; going on with the rest (failOnDataLoss=false)", what)
