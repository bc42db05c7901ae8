"""Records that client libraries log about errors that pyspark_log raises: they have stacks and texts of servers."""

from __future__ import annotations

import logging


def silence(*names: str) -> None:
    """Leave out what these loggers have to say, unless somebody looks for their faults and has set them to DEBUG."""
    for name in names:
        logger = logging.getLogger(name)
        if _is_wanted not in logger.filters:
            logger.addFilter(_is_wanted)


def _is_wanted(record: logging.LogRecord) -> bool:
    return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)
