"""The clock of a log: the time by which one process decides what is old.

Rows and files are deleted when they are old enough, so a process whose clock is days ahead would delete what others
have just written. There is no server whose clock could be asked instead, but there are the stores. So a process
compares its clock with theirs before it first decides something, and now and then. As long as the two agree, to a
minute, its own is right. If they do not, the stores' time counts, and the process deletes nothing because of its age:
nobody knows which clock is wrong.

    its own clock and the stores'      time of entries and rows      what is due by time
    agree                              its own                       done
    disagree                           the stores'                   left to others
    the stores did not answer          as before                     left to others
    the stores have no clock           its own                       done

With several journal stores the median of the answers counts. A process that only reads never asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_coordinator.environment import CLOCKS_AGREE_MS
from pyspark_log_storage import logs

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.journal.place import JournalPlace

COMPARE_EVERY_SECONDS = 600.0
"""How often the clocks are compared; sooner if the own clock jumped."""
COMPARE_AGAIN_SECONDS = 10.0
"""The same after no store has answered."""
PATIENCE_MS = 2000
"""How long to wait for the answers of several stores."""


class LogClock:
    """The clock of one log in one process. Used by one thread; others may read `offset_ms`."""

    def __init__(self, environment: Environment, place: Callable[[], JournalPlace]) -> None:
        """`place` returns where the journals are. Asks no store yet."""
        self._environment = environment
        self._place = place
        self._is_known = False
        """Whether the last comparison succeeded."""
        self._compared = -float("inf")
        """When the clocks were compared last, by the monotonic clock."""
        self._own_ms = 0
        """The own time then."""
        self.offset_ms = 0
        """What to add to the own clock: 0 if it agrees with the stores'."""

    def now_ms(self) -> int:
        """Return the time. Asks the stores first if that is due, and never raises."""
        if self._environment.store_clock is not None and self._is_due():
            self._compare()
        return self._environment.now_ms() + self.offset_ms

    def maintains(self) -> bool:
        """Return whether this process may do what is due by time: its clock and the stores' agree."""
        self.now_ms()
        return self._environment.store_clock is None or (self._is_known and self.offset_ms == 0)

    @property
    def doubt(self) -> str:
        """Why nothing is done that is due by time; empty if it is."""
        if self.maintains():
            return ""
        if not self._is_known:
            return f"the clock of {self._place().url} could not be read"
        return _difference(self.offset_ms, self._place().url)

    def _is_due(self) -> bool:
        passed = self._environment.monotonic() - self._compared
        if passed >= (COMPARE_EVERY_SECONDS if self._is_known else COMPARE_AGAIN_SECONDS):
            return True
        jumped_ms = self._environment.now_ms() - self._own_ms - passed * 1000
        return abs(jumped_ms) > CLOCKS_AGREE_MS

    def _compare(self) -> None:
        before, was = self._environment.now_ms(), self.offset_ms
        differences = self._differences()
        self._compared, self._own_ms = self._environment.monotonic(), self._environment.now_ms()
        if differences is None:
            self._is_known = False
            return
        self._is_known = True
        took_ms = max(0, self._own_ms - before)
        median = differences[(len(differences) - 1) // 2] if differences else 0  # of two the earlier time
        self.offset_ms = median if abs(median) > CLOCKS_AGREE_MS + took_ms else 0
        if self.offset_ms and not was:
            logs.warning(
                "%(difference)s: set the clock of this machine. Rows are written with the time of the store, and this "
                "process deletes nothing because of its age",
                difference=_difference(self.offset_ms, self._place().url),
            )
        elif was and not self.offset_ms:
            logs.warning("the clock of this machine agrees with that of %(url)s again", url=self._place().url)

    def _differences(self) -> list[int] | None:
        """Return by how much the stores' clocks are ahead, sorted; none if they have none; None if none answers."""
        place, read = self._place(), self._environment.store_clock
        assert read is not None
        answers = place.ask(read, patience_ms=PATIENCE_MS, settled=place.is_majority)
        if not place.is_majority(answers):
            return None
        times = [answer.result for answer in answers if answer.error is None]
        own = self._environment.now_ms()
        return sorted(time - own for time in times if time is not None)


def _difference(offset_ms: int, url: str) -> str:
    """Return what is wrong, for people."""
    where = "behind" if offset_ms > 0 else "ahead of"
    return f"the clock of this machine is {abs(offset_ms) // 1000:,} s {where} that of {url}"
