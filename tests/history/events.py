"""What the clients of a log saw: a history, of one event a line (JSON Lines).

An event is one call of one client. Times are milliseconds of one clock that never goes back. A call that a client may
not survive has two lines, with the same `began`: one before it, whose result is unknown, and one after it, which is the
one that counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

Result = Literal["ok", "refused", "unknown"]
"""`refused` is definite: the call has no effect, now or later. One that is `unknown` has it or not, perhaps late."""


class Row(NamedTuple):
    """A row, by a value that only this row has; in a compacted topic its key is the one that counts."""

    partition: int
    offset: int | None
    """None where the client was not told."""
    value: str
    key: str | None = None


class _Event(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="what", tag=str.lower):
    who: str
    """A client: a process, until it ends."""
    began: float
    ended: float


class Send(_Event, frozen=True):
    """One attempt to add rows. One that is tried again as the same row has the same value, else another."""

    topic: str
    rows: list[Row]
    result: Result = "ok"
    acks: str = "all"


class Poll(_Event, frozen=True):
    """The next rows of a client that reads on: of each partition those after its rows before."""

    topic: str
    rows: list[Row]


class Read(_Event, frozen=True):
    """All rows that were there, of each partition those from `start` on (default: the first one)."""

    topic: str
    rows: list[Row]
    start: dict[int, int] = {}


class Assign(_Event, frozen=True):
    """From here on the client polls these partitions from these offsets on; None: from wherever it is."""

    topic: str
    offsets: dict[int, int | None]


class Commit(_Event, frozen=True):
    """A group commits offsets, by partition."""

    group: str
    topic: str
    offsets: dict[int, int]
    result: Result = "ok"


class Committed(_Event, frozen=True):
    """A client asks which offsets a group has committed, by partition; None: none."""

    group: str
    topic: str
    offsets: dict[int, int | None]


class Delete(_Event, frozen=True):
    """Somebody deletes the rows before these offsets, by partition."""

    topic: str
    offsets: dict[int, int]


class Retain(_Event, frozen=True):
    """From the beginning rows of this topic may expire when they are so old."""

    topic: str
    ms: float


class Compact(_Event, frozen=True):
    """From the beginning this topic may lose rows whose key has a newer row."""

    topic: str


Event = Send | Poll | Read | Assign | Commit | Committed | Delete | Retain | Compact

encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Event)


def read_history(files: Iterable[Path]) -> list[Event]:
    """Return the events of all files, in the order in which they ended.

    Each file is of one process. If that was killed, the last line may be there in part: then it is left out.
    """
    events = [
        _decoder.decode(line)
        for file in files
        for line in file.read_bytes().splitlines(keepends=True)
        if line.endswith(b"\n")
    ]
    return sorted(events, key=lambda event: event.ended)
