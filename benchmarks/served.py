"""The requests that an S3 server has answered, from all processes, by its own log of operations.

The counters of the product (`request_counts`) belong to one process. A query has several: the driver's Python processes
and the tasks' workers. The server sees them all.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

if TYPE_CHECKING:
    from pathlib import Path


class Served(NamedTuple):
    """A request: when it began, in ms since 1970, what was asked for, and the answer's status."""

    at_ms: float
    method: str
    target: str
    status: int

    @property
    def is_list(self) -> bool:
        """Whether it listed keys."""
        return "list-type=2" in self.target

    def is_about(self, topic: str) -> bool:
        """Return whether it asked for something of a topic."""
        return f"/topics/{topic}/" in unquote(self.target)

    @property
    def operation(self) -> str:
        """What is paid for: `PUT`, `LIST`, `GET` ..."""
        return "LIST" if self.is_list else self.method


class OpsLog:
    """The log of operations of a gateway."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0

    def new(self) -> list[Served]:
        """Return the requests since the last call."""
        with self.path.open("rb") as file:
            file.seek(self._read)
            text = file.read().decode()
        found, at, decoder = [], 0, json.JSONDecoder()
        while (at := text.find("{", at)) >= 0:  # not every object has a line of its own
            try:
                entry, at = decoder.raw_decode(text, at)
            except json.JSONDecodeError:
                break  # the gateway is writing it
            found.append(_served(entry))
        self._read += len(text[:at].encode()) if at >= 0 else len(text.encode())
        return found


def _served(entry: dict[str, str]) -> Served:
    method, _, rest = entry["uri"].partition(" ")
    at = datetime.fromisoformat(entry["time"])
    return Served(at.timestamp() * 1000, method, rest.rpartition(" ")[0], int(entry["http_status"]))
