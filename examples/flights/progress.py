"""Progress of the two programs, seen from outside, and the micro-batch that a killed one left unfinished."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark_log_coordinator.log.log import Log, TopicHandle

TOPIC = "flights"


@dataclass(frozen=True)
class Unfinished:
    """The state at a kill: numbers of micro-batches, -1 for none.

    Spark writes a micro-batch's number to `offsets` before it begins and to `commits` after it is done. A
    micro-batch that was planned and not committed runs again after the restart.
    """

    percent: int
    planned: int
    committed: int
    effective: int
    """The last micro-batch that had its effect: in the log, or in the published result."""

    @property
    def is_replay(self) -> bool:
        """Whether the micro-batch that Spark runs again has had its effect already."""
        return self.committed < self.planned == self.effective


def newest(checkpoint: Path, folder: str) -> int:
    """Return the number of the newest micro-batch in a folder of a checkpoint, -1 for none."""
    try:
        return max((int(path.name) for path in (checkpoint / folder).iterdir() if path.name.isdigit()), default=-1)
    except FileNotFoundError:
        return -1


def topic_of(log: Log) -> TopicHandle:
    """Return the handle of the topic, with its newest state."""
    return log.topic(TOPIC)


def rows_in_log(log: Log) -> int:
    """Return the number of rows that readers can see."""
    return sum(partition.high_watermark for partition in topic_of(log).journal.state.partitions)


def batch_in_log(log: Log) -> int:
    """Return the last micro-batch of the topic's one producer."""
    return max((each.batch_id for each in topic_of(log).journal.state.producers.values()), default=-1)


class Result:
    """The result that the reader publishes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self.batch = -1
        self.carriers: dict[str, list[int]] = {}

    def refresh(self) -> int:
        """Read the result if it is new, and return the number of flights in it."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return 0
        if self._seen != (found.st_ino, found.st_mtime_ns):
            published: dict[str, Any] = json.loads(self._path.read_text())
            self.batch, self.carriers = published["batch"], published["carriers"]
            self._seen = found.st_ino, found.st_mtime_ns
        return sum(sums[0] for sums in self.carriers.values())
