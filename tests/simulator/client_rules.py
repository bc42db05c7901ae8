"""What must hold of the rows that Producers send, and of the positions that Consumers commit.

A Producer gathers rows into batches by itself, so these rules are about rows: each has a name that says which Producer
sent it, and when.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from typing import NamedTuple

from pyspark_log.clients.records import OFFSET_UNKNOWN
from pyspark_log_storage.errors import BatchMismatch, LogError, NotEnoughReplicasAfterAppend, OutcomeUnknown
from tests.simulator.invariants import Place, require

CLIENTS = "clients"
"""The group of the Consumers that subscribe; the groups of those that assign partitions by hand begin with `HAND`."""
HAND = "hand-"


class Sent(NamedTuple):
    """A row that was handed to a Producer."""

    producer: str
    number: int
    """Its number among the rows of this Producer."""
    partition: int | None
    """The partition that was given, if any."""
    acks: str
    together: tuple[bytes, ...]
    """The names of all rows that must be in the same entry."""


class SentRows:
    """All rows that were sent."""

    def __init__(self) -> None:
        self.names: dict[bytes, Sent] = {}
        self.places: dict[bytes, Place] = {}
        """Those that are in the log, or were there until an election cut them."""
        self.told: Counter[str] = Counter()
        """How often Producers were told what."""
        self._last: dict[tuple[str, int], int] = {}
        self._refused: dict[bytes, str] = {}

    def add(self, rows: Sequence[tuple[bytes, int | None]], producer: str, acks: str, *, together: bool) -> None:
        """Note rows, by name and partition, that are about to be sent."""
        names = tuple(name for name, _ in rows) if together else ()
        for name, partition in rows:
            self.names[name] = Sent(producer, int(name.split(b"/")[1]), partition, acks, names)

    def sequenced(self, places: Sequence[Place]) -> bool:
        """Hold what must hold of a batch that comes into the log; return whether Producers sent it."""
        found = [(each, self.names[each.name]) for each in places if each.name in self.names]
        if not found:
            return False
        require(len(found) == len(places), "one entry holds rows of a Producer and of another writer")
        here = {each.name for each in places}
        for place, sent in found:
            what = f"row {sent.number} of {sent.producer}"
            require(place.name not in self._refused, f"{what} comes into the log, and failed: {self._refused}")
            require(sent.partition in {None, place.partition}, f"{what} is in {place}, and was sent to {sent}")
            require(here.issuperset(sent.together), f"{what} is in the log without all that was sent in one batch")
            last = self._last.get((sent.producer, place.partition), -1)
            require(sent.number > last, f"partition {place.partition}: {what} comes after row {last}")
            self._last[sent.producer, place.partition] = sent.number
            self.places[place.name] = place
        return True

    def acknowledged(self, name: bytes, partition: int, offset: int, is_committed: Callable[[Place], bool]) -> None:
        """Require that a row is where its Producer was told it is and, with acks=all, that it is committed."""
        place, sent = self.places.get(name), self.names[name]
        what = f"row {sent.number} of {sent.producer} was acknowledged at offset {offset} of partition {partition}"
        require(place is not None, f"{what} and is not in the log")
        assert place is not None
        require(place.partition == partition and offset in {OFFSET_UNKNOWN, place.offset}, f"{what} and is at {place}")
        if sent.acks == "all":
            require(is_committed(place), f"{what} by all, and is not committed")
        self.told["rows acknowledged"] += 1

    def failed(self, name: bytes, error: BaseException) -> None:
        """Hold that a row with a definite error is not in the log, and never will be."""
        sent = self.names[name]
        what = f"row {sent.number} of {sent.producer} failed with {error!r}"
        require(isinstance(error, (LogError, CancelledError)), f"{what}, which nobody expects")
        cause = error.__cause__
        require(cause is None or isinstance(cause, LogError), f"{what}: {cause!r}, which nobody expects")
        if isinstance(error, OutcomeUnknown):
            self.told["rows with an unknown outcome"] += 1
        elif isinstance(error, NotEnoughReplicasAfterAppend):
            require(name in self.places, f"{what} and is not in the log")
        else:
            self._refused[name] = repr(error)
            self.told["rows refused"] += 1
            # After a `BatchMismatch` an election has cut some rows of the batch, and perhaps not this one.
            was_cut = isinstance(error, BatchMismatch) and sent.acks != "all"
            require(was_cut or name not in self.places, f"{what} and is in the log at {self.places.get(name)}")


class Positions:
    """Where a Consumer, or each that assigns the partitions of a group by hand, began and has been."""

    def __init__(self) -> None:
        self.begun: dict[int, int] = {}
        """Where a member began to read each of its partitions."""
        self.had: dict[int, set[int]] = {}

    def add(self, p: int, offset: int) -> None:
        """Note a position."""
        self.had.setdefault(p, set()).add(offset)

    def last(self, p: int, offset: int) -> int:
        """Return the last position at or before an offset."""
        return max((each for each in self.had.get(p, ()) if each <= offset), default=0)
