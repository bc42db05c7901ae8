"""The housekeeper: the maintenance of a producer's topics, in a thread of its own beside the commits.

Other writers do this between two batches (`inline_maintenance`). A producer commits many small batches a second, and
its rows would wait for it.

    roll         oldest chunks into segments, as the tasks of a Spark write do; the next commit swaps them in
    clean up     as after every 64th journal entry, with a log of its own, and at most every `CLEAN_UP_SECONDS`; also
                 after a minute, since it describes the topic

Many producers of one topic would all do the same job, and all but one in vain. So after an entry of its own each does
what is due only with a probability: its share of the entries that were written since its previous one. A producer whose
batch another process has committed does nothing: it does not even know what is due.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from pyspark_log.opening import own_log, own_stores_at
from pyspark_log_coordinator.commit.inline_maintenance import (
    CLEAN_UP_EVERY_ENTRIES,
    clean_up,
    has_multiple,
    plan_inline,
    roll_inline,
    swap_in,
)
from pyspark_log_coordinator.maintenance.descriptions import DESCRIBE_SECONDS
from pyspark_log_storage import logs
from pyspark_log_storage.errors import LogError

if TYPE_CHECKING:
    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.maintenance.roll_input import RollTask
    from pyspark_log_coordinator.segments.swap import SwapSegments
    from pyspark_log_storage.stores.storage_options import StorageOptions

CLEAN_UP_SECONDS = 5.0
"""A topic is not cleaned up more often: it takes some milliseconds, and slows down the commits beside it."""


class _Record:
    """What the housekeeper knows of a topic."""

    def __init__(self, number: int) -> None:
        self.number = number
        """The newest journal entry before the commit that is under way."""
        self.own = number
        """The newest entry after this producer's last one, or when it came to the topic."""
        self.owed_from: int | None = None
        """The first of the journal entries that are a reason to clean up, None if nothing is due."""
        self.next_cleanup = 0.0
        self.next_description = monotonic() + DESCRIBE_SECONDS
        self.rolled: tuple[SwapSegments, ...] = ()
        """What waits for the next commit."""


class Housekeeper:
    """Maintains topics, one job after another. All methods are called by the thread that commits."""

    def __init__(self, address: str, environment: Environment, options: StorageOptions | None = None) -> None:
        self._address = address
        self._options = options
        self._environment = environment
        self._store_at = own_stores_at(address, options)
        self._records: dict[str, _Record] = {}
        """By topic id."""
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_busy = False
        self._failures = logs.Failures()
        """Of the thread that maintains."""

    def take(self, handle: TopicHandle) -> tuple[SwapSegments, ...]:
        """Return what was rolled of a topic, for its next commit."""
        record = self._record(handle)
        rolled, record.rolled = record.rolled, ()
        return rolled

    def begin(self, handle: TopicHandle) -> None:
        """Take note that a commit to a topic begins, whose handle has been refreshed.

        What other producers have written until then is theirs to clean up. Otherwise each of them would do it.
        """
        self._record(handle).number = handle.version

    def committed(self, handle: TopicHandle) -> None:
        """Start what is due after a commit to a topic, if nothing is under way and the lot says so."""
        record, number = self._record(handle), handle.version
        if number == record.number:  # others have committed
            return
        known, record.own = record.own, number
        if self._environment.uniform(0, number - known) > 1:
            return
        is_due = has_multiple(CLEAN_UP_EVERY_ENTRIES, record.number + 1, number)
        if record.owed_from is None and (is_due or monotonic() >= record.next_description):
            record.owed_from = record.number + 1
        if self._is_busy:
            return
        if record.owed_from is not None and monotonic() >= record.next_cleanup:
            record.next_cleanup = monotonic() + CLEAN_UP_SECONDS
            record.next_description = monotonic() + DESCRIBE_SECONDS
            self._start(partial(self._clean_up, handle.name, record.owed_from))
            record.owed_from = None
        elif not record.rolled:
            for task in plan_inline(handle)[:1]:
                self._start(partial(self._roll, record, task))

    def stop(self, handles: list[TopicHandle]) -> None:
        """Do the cleanups that are due, end the thread, and swap in what it has rolled."""
        for handle in handles:
            owed_from = self._record(handle).owed_from
            if owed_from is not None:
                self._start(partial(self._clean_up, handle.name, owed_from))
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
        for handle in handles:
            if rolled := self.take(handle):
                swap_in(handle, rolled)

    def _record(self, handle: TopicHandle) -> _Record:
        known = self._records.get(handle.topic_id)
        if known is None:
            known = self._records[handle.topic_id] = _Record(handle.version)
        return known

    def _start(self, job: Callable[[], None]) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="pyspark_log housekeeper", daemon=True)
            thread.start()
            self._thread = thread
        self._is_busy = True
        self._jobs.put(job)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
                self._failures.end(None, "maintenance goes on")
            except LogError as error:
                self._failures.note(None, error, "maintenance was left for later: %(error)s")
            except BaseException:  # the thread must live for the next job
                logs.exception("maintenance failed")
            self._is_busy = False

    def _roll(self, record: _Record, task: RollTask) -> None:
        record.rolled = roll_inline(self._store_at, task, self._environment, self._failures)

    def _clean_up(self, topic: str, first: int) -> None:
        log = own_log(
            self._address, self._options
        )  # a new one reads the newest snapshot, not every entry since the last cleanup
        log.failures = self._failures
        log.open(create=False)
        clean_up(log.topic(topic), first)
