"""The logger of pyspark_log: standard logging, with the subject of a message as attributes of its record.

    logs.warning("node %(node)r is behind in topic %(topic)r: %(error)s", node=node, topic=name, error=error)

All records are of the logger `pyspark_log`. A message is a sentence for people. For programs that filter or store logs,
a record also has those of these attributes that apply:

    topic, partition     the topic, and the number of its partition
    offset               of a row
    epoch                leader epoch
    producer, batch      whose batch: an id, and the number of its micro-batch (txnVersion of a batch write)
    entry                number of a journal entry
    group, member        of consumers or queries
    node                 id of a node
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

FIELDS = ("topic", "partition", "offset", "epoch", "producer", "batch", "entry", "group", "member", "node")

_logger = logging.getLogger("pyspark_log")


def warning(message: str, *, exc_info: BaseException | None = None, **facts: object) -> None:
    """Log what an operator should know. `message` names facts, as `%(topic)r`; fields are facts that the record has."""
    _log(logging.WARNING, message, facts, exc_info)


def exception(message: str, **facts: object) -> None:
    """Log the exception that is being handled, which nobody expected, with its traceback."""
    _log(logging.ERROR, message, facts, sys.exc_info()[1])


def info(message: str, **facts: object) -> None:
    """Log a change of the cluster."""
    _log(logging.INFO, message, facts)


def debug(message: str, **facts: object) -> None:
    """Log what happens all the time."""
    _log(logging.DEBUG, message, facts)


class Failures:
    """What fails now. A program that fails again and again logs that when it begins and when it ends, not each time.

    Used by one thread; several may log a failure once each.
    """

    def __init__(self) -> None:
        self._reasons: dict[Hashable, set[type[Exception]]] = {}

    def note(self, what: Hashable, error: Exception, message: str, /, **facts: object) -> None:
        """Log a failure, with `error` as a fact, unless `what` has failed with an error of its kind since `end`."""
        reasons = self._reasons.setdefault(what, set())
        if type(error) not in reasons:
            reasons.add(type(error))
            _log(logging.WARNING, message, {**facts, "error": error})

    def end(self, what: Hashable, message: str, /, **facts: object) -> None:
        """Log that `what` succeeds again, if it has failed."""
        if self._reasons.pop(what, None) is not None:
            _log(logging.WARNING, message, facts)


def _log(level: int, message: str, facts: Mapping[str, object], exc_info: BaseException | None = None) -> None:
    if _logger.isEnabledFor(level):
        fields = {name: facts[name] for name in FIELDS if facts.get(name) is not None}
        _logger.log(level, message, *([facts] if facts else []), exc_info=exc_info, extra=fields, stacklevel=3)


class JsonFormatter(logging.Formatter):
    """Formats a record as a line of JSON: time, level, logger and message, the fields, and the error if there is one.

        handler = logging.StreamHandler()
        handler.setFormatter(JsonFormatter())
        logging.getLogger("pyspark_log").addHandler(handler)

    The time is in seconds since 1970.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        found: dict[str, Any] = {
            "time": record.created,
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        found |= {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        if record.exc_info:
            found["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(found, enc_hook=str).decode()
